"""The graph is walked once, each operation by its rule: what every dimension is made of."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx

from pfnm.networks.graph import Role
from pfnm.tracing.axes import ONE, Pin, leaves
from pfnm.tracing.export import Exported
from pfnm.tracing.joining import Joiner
from pfnm.tracing.rules import rule_for
from pfnm.tracing.rules.call import Call, Dims, Map, NoRuleError, Rule, Sizes, Value
from pfnm.tracing.rules.shapes import axis_order, permute

KEEPS_UNIFORM = ("view", "reshape", "expand", "permute", "transpose", "unsqueeze", "squeeze",
                 "clone", "contiguous", "to", "_to_copy", "repeat", "slice", "select", "detach",
                 "alias", "unflatten", "flatten", "lift_fresh_copy")  # fmt: skip


@dataclass(frozen=True, eq=False)
class Step:
    """One operation, and how to run it where dimensions have other lengths."""

    node: fx.Node
    module: str
    values: Any
    sizes: Sizes | None = None
    instead: Any = None
    map: Map | None = None
    features: str = ""


@dataclass(eq=False)
class Walk:
    """What was found on the way."""

    joiner: Joiner
    steps: list[Step] = field(default_factory=list)
    tensors: dict[str, Dims] = field(default_factory=dict)
    """The dimensions of every tensor of the module."""
    values: dict[fx.Node, Any] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    """The step that first uses a tensor."""
    merged: set[str] = field(default_factory=set)
    """Tensors whose first two axes are one product (weights of grouped convolutions)."""
    roles: dict[str, Role] = field(default_factory=dict)
    inputs: list[Value] = field(default_factory=list)


def walk(
    exported: Exported, tensors: Mapping[str, Tensor], rules: Mapping[str, Rule] | None = None
) -> Walk:
    """The dimensions of everything in a graph."""
    found = Walk(Joiner())
    written = written_to(exported.graph.graph, besides="fill")
    for name, tensor in tensors.items():
        found.tensors[name] = tuple(
            found.joiner.leaf(size) if size != 1 else ONE for size in tensor.shape
        )
    for node in exported.graph.graph.nodes:
        if node.op == "placeholder":
            found.values[node] = _placeholder(found, exported, node)
        elif node.op == "call_function":
            _operation(found, node, written, rules or {})
        elif node.op == "get_attr":
            found.values[node] = _attribute(found, exported.graph, node)
    return found


def _placeholder(found: Walk, exported: Exported, node: fx.Node) -> Any:
    source = exported.sources[node.name]
    meta = node.meta.get("val")
    if source.kind == "tensor":
        dims = found.tensors[source.name]
        return Value(dims, True, False, source.name, tuple(range(len(dims))))
    if not isinstance(meta, Tensor):
        return meta
    if source.kind == "constant":
        return _constant(found, exported.constants[source.name], source.name)
    sizes = _shape(meta)
    pin = Pin("input", f"an axis of input {source.name!r}")
    value = Value(tuple(found.joiner.leaf(size, pin) if size != 1 else ONE for size in sizes))
    found.inputs.append(value)
    return value


def _constant(found: Walk, tensor: Any, name: str) -> Value | None:
    if not isinstance(tensor, Tensor):
        return None
    uniform = bool(tensor.numel()) and bool((tensor == tensor.reshape(-1)[0]).all())
    pin = None if uniform else Pin("constant", f"an axis of constant {name!r}")
    dims = tuple(found.joiner.leaf(size, pin) if size != 1 else ONE for size in tensor.shape)
    return Value(dims, uniform=uniform)


def _attribute(found: Walk, graph: fx.GraphModule, node: fx.Node) -> Any:
    value: Any = graph
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return _constant(found, value, str(node.target)) if isinstance(value, Tensor) else value


def _operation(
    found: Walk, node: fx.Node, written: set[fx.Node], rules: Mapping[str, Rule]
) -> None:
    module = _module(node)
    joiner = found.joiner
    joiner.operation, joiner.module = str(node.target), module
    if node.target is operator.getitem:
        holder: Any = node.args[0]
        place: Any = node.args[1]
        held = found.values[holder]
        found.values[node] = held[place] if isinstance(held, list | tuple) else held
        found.steps.append(Step(node, module, found.values[node]))
        return
    arguments = _arguments(found, node)
    call = Call(str(node.target), arguments, _shapes(node), joiner)
    call.masks = [found.values.get(own) for own in node.all_input_nodes if _is_mask(own)]
    for value in call.tensors:
        if value.tensor is not None:
            found.used.setdefault(value.tensor, len(found.steps))
    outputs = _apply(call, rule_for(node.target, rules))
    values = [_value(call, dims, node in written) for dims in outputs]
    _note_roles(found, call)
    meta = node.meta.get("val")
    if isinstance(meta, list | tuple):
        found.values[node] = values
    else:
        found.values[node] = values[0] if isinstance(meta, Tensor) else meta
    own = call.map and replace(call.map, node=node.name, module=module, arguments=_plain(arguments))
    found.merged.update(call.merged)
    found.steps.append(
        Step(node, module, found.values[node], call.sizes, call.instead, own, call.features)
    )


def _apply(call: Call, rule: Rule | None) -> list[Dims]:
    """The dimensions of an operation's outputs; without a rule, all it touches is pinned."""
    why = "no rule for it"
    if rule is not None:
        try:
            result = rule(call)
            outputs = result if isinstance(result, list) else [result]
            if [tuple(dim.size for dim in dims) for dims in outputs] == call.shapes:
                return outputs
            why = "its rule gives other shapes"
        except NoRuleError as error:
            why = str(error)
        except Exception as error:  # a use of the operation that its rule did not think of
            why = f"its rule fails ({type(error).__name__}: {error})"
    call.sizes = call.instead = call.map = None
    pins = [leaf.pin for value in call.tensors for dim in value.dims for leaf in leaves(dim)]
    hidden = any(pin is None or pin.in_the_way for pin in pins)
    pin = call.joiner.reason("rule" if hidden else "position", why)
    call.pin_all(pin)
    return [tuple(call.joiner.leaf(size, pin) for size in shape) for shape in call.shapes]


def _value(call: Call, dims: Dims, written: bool) -> Value:
    tensors = call.tensors
    weight = bool(tensors) and all(value.weight for value in tensors)
    name = call.name.split(".")[1] if "." in call.name else call.name
    uniform = call.uniform or (
        bool(tensors) and name in KEEPS_UNIFORM and all(value.uniform for value in tensors)
    )
    tensor: str | None = None
    order: tuple[int, ...] = ()
    first = tensors[0] if tensors else None
    if first is not None and first.tensor is not None and len(tensors) == 1:
        if _only_permutes(call):
            places = axis_order(call, len(first.dims))
            tensor, order = first.tensor, tuple(first.order[place] for place in places)
        elif name in ("contiguous", "clone", "detach", "alias", "to"):
            tensor, order = first.tensor, first.order
    return Value(dims, weight, uniform and not written, tensor, order)


def _only_permutes(call: Call) -> bool:
    """Whether the operation only changes the order of dimensions."""
    return rule_for(call.name, {}) is permute


def _note_roles(found: Walk, call: Call) -> None:
    name = call.name.split(".")[1].removesuffix("_") if "." in call.name else ""
    norm = name.endswith("_norm") or name == "prelu"
    for argument, value in call.arguments.items():
        if not isinstance(value, Value) or value.tensor is None:
            continue
        role: Role | None = None
        if argument in ("running_mean", "running_var"):
            role = "statistic"
        elif argument == "bias":
            role = "bias"
        elif (argument == "weight" and norm) or name in ("mul", "div") or argument == "g":
            role = "scale"
        elif name in ("add", "sub", "addmm") and argument in ("self", "other"):
            role = "bias"
        elif argument in ("weight", "params"):
            role = "weight"
        if role is not None:
            found.roles.setdefault(value.tensor, role)


def _arguments(found: Walk, node: fx.Node) -> dict[str, Any]:
    """Arguments by name, tensors as values."""

    def valued(own: Any) -> Any:
        return fx.map_arg(own, found.values.get)

    given = [valued(own) for own in node.args]
    if not isinstance(node.target, torch._ops.OpOverload):
        return {**{str(n): own for n, own in enumerate(given)}, **valued(dict(node.kwargs))}
    result: dict[str, Any] = {}
    for place, argument in enumerate(node.target._schema.arguments):
        if place < len(given):
            result[argument.name] = given[place]
        elif argument.name in node.kwargs:
            result[argument.name] = valued(node.kwargs[argument.name])
        else:
            result[argument.name] = argument.default_value
    return result


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are no tensors."""
    return {
        name: own
        for name, own in arguments.items()
        if not isinstance(own, Value)
        and not (isinstance(own, list | tuple) and any(isinstance(v, Value) for v in own))
    }


def _is_mask(node: fx.Node) -> bool:
    meta = node.meta.get("val")
    return isinstance(meta, Tensor) and meta.dtype in (torch.bool, torch.uint8)


def _shapes(node: fx.Node) -> list[tuple[int, ...]]:
    meta = node.meta.get("val")
    many = meta if isinstance(meta, list | tuple) else [meta]
    return [_shape(own) for own in many if isinstance(own, Tensor)]


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(int(size) for size in tensor.shape)


def _module(node: fx.Node) -> str:
    """The path of the module an operation belongs to."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values()]
    return str(paths[-1]) if paths else ""


def written_to(graph: fx.Graph, besides: str = " ") -> set[fx.Node]:
    """Nodes whose memory an operation in place writes to; `besides` names harmless ones."""
    root: dict[fx.Node, fx.Node] = {}
    written: set[fx.Node] = set()
    for node in graph.nodes:
        root[node] = root.get(_aliased(node) or node, node)
        if isinstance(node.target, torch._ops.OpOverload) and besides not in str(node.target):
            for argument, own in zip(node.target._schema.arguments, node.args, strict=False):
                if argument.alias_info and argument.alias_info.is_write:
                    written.update(root[n] for n in [own] if isinstance(n, fx.Node))
    return {node for node in graph.nodes if root[node] in written}


def _aliased(node: fx.Node) -> fx.Node | None:
    """The node whose memory a node's result may share."""
    if node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        return node.args[0]
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    for argument, own in zip(node.target._schema.arguments, node.args, strict=False):
        if argument.alias_info and isinstance(own, fx.Node):
            return own
    return None
