"""Runs a traced network on tensors of any widths: the sizes in its operations follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from pfnm.errors import PFNMError
from pfnm.networks.graph import UnitGraph
from pfnm.tracing.axes import Dim, SizeOf, find, leaves, length
from pfnm.tracing.export import Exported
from pfnm.tracing.layout import Layout
from pfnm.tracing.rules.call import Map, Value
from pfnm.tracing.walk import Step, Walk, written_to

AnyTensor = Tensor | NDArray[Any]
Visit = Callable[[Map, Any, Any, Any], Mapping[str, AnyTensor] | None]
"""Sees a map, the features that enter it, the values that leave it, and what these are added to
(None where that is nothing, or not known yet); may give new tensors."""
Env = dict[fx.Node, Any]

NORM = "batch_norm.default"
SUMS = ("add.Tensor", "add_.Tensor")
# What may stand between a map and a sum: a normalisation with a memory, a dropout at rest.
PASSED: Mapping[str, Callable[[Any], bool]] = {
    NORM: lambda args: args[3] is not None,
    "dropout.default": lambda args: not args[2],
    "dropout_.default": lambda args: not args[2],
}
DOUBLE = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}


class Program:
    """The operations of a traced module, on canonical tensors.

    `tensors` everywhere are canonical tensors by name (numpy or torch), of any widths that fit
    together; `inputs` are the positional inputs of the module, as many rows as one likes.
    """

    def __init__(
        self,
        exported: Exported,
        found: Walk,
        layouts: Mapping[str, Layout],
        keywords: Sequence[str],
        output: int,
    ) -> None:
        self.layouts = layouts
        self.output = output
        self.graph: UnitGraph | None = None
        self.spaces: dict[int, str] = {}
        self._exported = exported
        self._keywords = tuple(keywords)
        self._steps = found.steps
        self._values = found.values
        nodes = list(exported.graph.graph.nodes)
        self._placeholders = [node for node in nodes if node.op == "placeholder"]
        self._attributes = [node for node in nodes if node.op == "get_attr"]
        self._written = written_to(exported.graph.graph)
        self._last = _last_uses(self._steps, exported.user_outputs)
        self._beside = {step.node: _added_to(step) for step in self._steps if step.map is not None}
        self._binders: list[list[tuple[int, int, Dim, Dim]]] = []

    def describe(self, graph: UnitGraph, spaces: Mapping[int, str]) -> None:
        """The spaces of its leaves, once they have names."""
        self.graph, self.spaces = graph, dict(spaces)
        seen = set(spaces)
        for node in self._placeholders:
            value = self._values[node]
            if isinstance(value, Value) and value.tensor is None:
                seen |= {id(leaf) for dim in value.dims for leaf in leaves(dim)}
        for step in self._steps:
            self._binders.append(_binders(step, seen))

    @property
    def fixed_outputs(self) -> list[int]:
        """The numbers of the outputs that no group runs along."""
        assert self.graph is not None
        result = []
        for number, node in enumerate(self._exported.user_outputs):
            value = self._values.get(node) if isinstance(node, fx.Node) else None
            if isinstance(value, Value):
                spaces = {self.spaces.get(id(own)) for d in value.dims for own in leaves(d)}
                if not spaces & set(self.graph.groups):
                    result.append(number)
        return result

    @property
    def steps(self) -> Sequence[Step]:
        """Its operations, in order."""
        return self._steps

    @property
    def output_dims(self) -> tuple[Dim, ...]:
        """The dimensions of the output it was traced for."""
        value = self._values[self._exported.user_outputs[self.output]]
        assert isinstance(value, Value)
        return tuple(value.dims)

    # -- running -----------------------------------------------------------------------------

    def run(
        self,
        tensors: Mapping[str, AnyTensor] | Prepared,
        inputs: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        visit: Visit | None = None,
        output: int | None = None,
        grad: bool = False,
        double: bool = False,
    ) -> Tensor:
        """One of the network's outputs: the one it was traced for, or another by its number."""
        results = self.outputs(tensors, inputs, kwargs, visit=visit, grad=grad, double=double)
        found = results[self.output if output is None else output]
        assert isinstance(found, Tensor)
        return found

    def outputs(
        self,
        tensors: Mapping[str, AnyTensor] | Prepared,
        inputs: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        visit: Visit | None = None,
        grad: bool = False,
        double: bool = False,
    ) -> list[Any]:
        """All outputs, in the order in which they are nested."""
        with torch.set_grad_enabled(grad):
            return _Run(self, tensors, inputs, kwargs or {}, visit, double).outputs()

    def prepared(self, tensors: Mapping[str, AnyTensor]) -> Prepared:
        """Tensors to be run on many inputs."""
        sizes = self.sizes(tensors)
        bound = {leaf: sizes[space] for leaf, space in self.spaces.items() if space in sizes}
        size = self.size_of(sizes)
        return Prepared(
            {name: _original(self.layouts[name], own, size) for name, own in tensors.items()}, bound
        )

    def size_of(self, sizes: Mapping[str, int]) -> SizeOf:
        """The lengths of leaves where spaces have these sizes."""
        return lambda leaf: sizes.get(self.spaces.get(id(leaf), ""), leaf.size)

    def original(self, tensors: Mapping[str, AnyTensor]) -> dict[str, AnyTensor]:
        """Canonical tensors in the shapes of the module, by their first names."""
        size = self.size_of(self.sizes(tensors))
        return {name: self.layouts[name].original(own, size) for name, own in tensors.items()}

    def sizes(self, tensors: Mapping[str, AnyTensor]) -> dict[str, int]:
        """The sizes of all spaces, from canonical tensors."""
        assert self.graph is not None
        return self.graph.sizes({name: tuple(own.shape) for name, own in tensors.items()})


@dataclass(frozen=True, eq=False)
class Prepared:
    """Tensors in the shapes of the module, and how long leaves are with them: for many runs."""

    tensors: Mapping[str, Tensor]
    bound: Mapping[int, int]


class _Run:
    """One run: what nodes hold, and how long leaves are."""

    def __init__(
        self,
        program: Program,
        tensors: Mapping[str, AnyTensor] | Prepared,
        inputs: Sequence[Any],
        kwargs: Mapping[str, Any],
        visit: Visit | None,
        double: bool,
    ) -> None:
        self.program = program
        self.visit = visit
        self.double = double
        self.env: Env = {}
        prepared = tensors if isinstance(tensors, Prepared) else program.prepared(tensors)
        self.bound = dict(prepared.bound)
        self.tensors = dict(prepared.tensors)
        self._place(inputs, kwargs)

    def size(self, leaf: Dim) -> int:
        """The length of a leaf in this run."""
        return self.bound.get(id(leaf), leaf.size)

    def outputs(self) -> list[Any]:
        """All operations, one after the other; values are dropped after their last use."""
        program = self.program
        for number, step in enumerate(program._steps):
            seen = self.visit is not None and step.map is not None
            result = self._visited(number, step) if seen else self._call(step)
            self.env[step.node] = result
            for output, axis, dim, leaf in program._binders[number]:
                own = result if output < 0 else result[output]
                self._bind(dim, leaf, own.shape[axis])
            for node in program._last[number]:
                del self.env[node]
        return [
            self.env[own] if isinstance(own, fx.Node) else own
            for own in program._exported.user_outputs
        ]

    def _place(self, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        program = self.program
        exported = program._exported
        given = (tuple(inputs), {name: kwargs[name] for name in program._keywords})
        flat = iter(pytree.tree_leaves(given))
        for node in program._placeholders:
            source = exported.sources[node.name]
            if source.kind == "tensor":
                value = self.tensors[source.name]
            elif source.kind == "constant":
                value = self._wide(exported.constants[source.name])
            else:
                value = self._wide(next(flat, None))
                self._bind_input(node, value)
            if node in program._written and isinstance(value, Tensor):
                value = self._wide(value).clone()
            self.env[node] = value
        for node in program._attributes:
            found: Any = exported.graph
            for part in str(node.target).split("."):
                found = getattr(found, part)
            self.env[node] = self._wide(found)

    def _bind_input(self, node: fx.Node, value: Any) -> None:
        own = self.program._values[node]
        if not isinstance(own, Value):
            return
        if not isinstance(value, Tensor) or value.dim() != len(own.dims):
            raise PFNMError(
                f"input {node.name!r} has shape {tuple(getattr(value, 'shape', ()))}, the example "
                f"had {own.shape}; give inputs like those it was traced with"
            )
        for dim, found in zip(own.dims, value.shape, strict=True):
            if find(dim).form == "leaf":
                self.bound.setdefault(id(find(dim)), found)

    def _bind(self, dim: Dim, leaf: Dim, found: int) -> None:
        """The length of the one leaf of a dimension that is not known yet."""
        self.bound[id(leaf)] = 0
        least = length(dim, self.size)
        self.bound[id(leaf)] = 1
        each = length(dim, self.size) - least
        self.bound[id(leaf)] = (found - least) // each if each else leaf.size

    def _wide(self, value: Any) -> Any:
        if self.double and isinstance(value, Tensor) and value.dtype in DOUBLE:
            return value.to(DOUBLE[value.dtype])
        return value

    def _call(self, step: Step, env: Env | None = None) -> Any:
        env = self.env if env is None else env
        node = step.node
        # The network's own tensors become double here, one operation's at a time.
        args = list(fx.map_arg(node.args, lambda own: self._wide(env[own])))
        kwargs = dict(fx.map_arg(node.kwargs, lambda own: self._wide(env[own])))
        target: Any = node.target
        if step.sizes is not None:
            new = step.sizes(self.size)
            names = [argument.name for argument in target._schema.arguments]
            if step.instead is not None:
                known = dict(zip(names, args, strict=False)) | kwargs | dict(new)
                target, args = step.instead, []
                wanted = [argument.name for argument in target._schema.arguments]
                kwargs = {name: known[name] for name in wanted if name in known}
            else:
                for name, value in new.items():
                    place = names.index(name)
                    if place < len(args):
                        args[place] = value
                    else:
                        kwargs[name] = value
        if self.double:
            args, kwargs = pytree.tree_map(_doubled, (args, kwargs))
            kind = getattr(node.meta.get("val"), "dtype", None)
            if not node.all_input_nodes and kind in DOUBLE:  # made from nothing
                kwargs["dtype"] = DOUBLE[kind]
        return target(*args, **kwargs)

    # -- looking on --------------------------------------------------------------------------

    def _visited(self, number: int, step: Step) -> Any:
        result = self._call(step)
        assert self.visit is not None
        assert step.map is not None
        target: Any = step.node.target
        names = [argument.name for argument in target._schema.arguments]
        argument = step.node.args[names.index(step.features)]
        features = fx.map_arg(argument, lambda own: self.env[own])
        other = self.program._beside[step.node]
        beside = None if other is None else self.env.get(other)
        new = self.visit(step.map, features, result, beside)
        if not new:
            return result
        del result, features, beside  # before there is another result
        for name, tensor in new.items():
            self.tensors[name] = _original(self.program.layouts[name], tensor, self.size)
        for node in self.program._placeholders:
            source = self.program._exported.sources[node.name]
            if source.kind == "tensor" and source.name in new:
                self.env[node] = self.tensors[source.name]
        self._derive(number)
        return self._call(step)

    def _derive(self, number: int) -> None:
        """Computes anew what was computed from parameters alone."""
        env = dict(self.env)
        for step in self.program._steps[:number]:
            values = step.values if isinstance(step.values, list) else [step.values]
            if all(isinstance(own, Value) and own.weight for own in values):
                env[step.node] = self._call(step, env)
                if step.node in self.env:
                    self.env[step.node] = env[step.node]


def _original(layout: Layout, tensor: AnyTensor, size: SizeOf) -> Tensor:
    own = torch.as_tensor(np.asarray(tensor) if isinstance(tensor, np.ndarray) else tensor)
    found = layout.original(own, size)
    assert isinstance(found, Tensor)
    return found


def _doubled(value: Any) -> Any:
    return DOUBLE.get(value, value) if isinstance(value, torch.dtype) else value


def _added_to(step: Step) -> fx.Node | None:
    """What a map's values are added to: the other side of a sum, a residual stream most often.

    A batch normalisation that follows the map is folded into it; a dropout does nothing.
    """
    node = step.node
    while len(node.users) == 1:
        (user,) = node.users
        name = getattr(user.target, "__name__", "")
        if name in SUMS and not user.kwargs:
            others = [own for own in user.args if own is not node]
            found = others[0] if len(others) == 1 else None
            return found if isinstance(found, fx.Node) else None
        if name not in PASSED or user.args[0] is not node or not PASSED[name](user.args):
            return None
        if name == NORM and node is not step.node:  # not folded
            return None
        node = user
    return None


def _last_uses(steps: Sequence[Step], outputs: Sequence[Any]) -> list[list[fx.Node]]:
    """For each step, the nodes that nobody needs after it; placeholders stay."""
    kept = {own for own in outputs if isinstance(own, fx.Node)}
    seen: set[fx.Node] = set()
    own_nodes = {step.node for step in steps}
    result: list[list[fx.Node]] = []
    for step in reversed(steps):
        needed = [node for node in (*step.node.all_input_nodes, step.node) if node in own_nodes]
        last = [node for node in dict.fromkeys(needed) if node not in seen and node not in kept]
        seen.update(needed)
        result.append(last)
    return result[::-1]


def _binders(step: Step, seen: set[int]) -> list[tuple[int, int, Dim, Dim]]:
    """Where a step shows the length of a leaf for the first time: output, axis, dim, leaf."""
    many = isinstance(step.values, list)
    result = []
    for output, value in enumerate(step.values if many else [step.values]):
        if not isinstance(value, Value):
            continue
        for axis, dim in enumerate(value.dims):
            unknown = {id(own): own for own in leaves(dim) if id(own) not in seen}
            seen.update(unknown)
            if len(unknown) == 1:
                (leaf,) = unknown.values()
                result.append((output if many else -1, axis, dim, leaf))
    return result
