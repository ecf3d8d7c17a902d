"""Traces a module: its unit groups, proved, and a program that runs it at any width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from pfnm.errors import PFNMError
from pfnm.networks.graph import UnitGraph
from pfnm.tracing import groups as grouping
from pfnm.tracing.export import Exported, evaluating, export, first_line
from pfnm.tracing.groups import Pinned
from pfnm.tracing.program import Program
from pfnm.tracing.proof import Example, Reads, distance, proved
from pfnm.tracing.rules.call import Rule
from pfnm.tracing.streams import Stream, streams_of
from pfnm.tracing.walk import Step, Walk, walk


@dataclass(frozen=True)
class Norm:
    """A batch norm: its tensors, and the map whose values only it reads, if there is one."""

    weight: str | None
    bias: str | None
    mean: str | None
    variance: str | None
    epsilon: float
    after: tuple[str, str | None, str] | None
    """The map's weight, bias and kind."""


@dataclass(frozen=True, eq=False)
class Trace:
    """A module's unit graph, proved on its example inputs, and a program that runs it."""

    name: str
    graph: UnitGraph
    program: Program
    norms: tuple[Norm, ...]
    streams: tuple[Stream, ...]
    pinned: tuple[Pinned, ...]
    names: Mapping[str, tuple[str, ...]]
    """All names of each tensor, by the first."""
    example: Example
    reads: Reads
    """The spaces that operations sum over, for every axis of the module's own tensors."""
    others: Mapping[str, Tensor]
    """What else a state holds: counters, masks."""
    dtypes: Mapping[str, torch.dtype]

    def tensors(self, module: nn.Module) -> dict[str, NDArray[Any]]:
        """The canonical tensors of a module of this architecture, of any widths."""
        state = module.state_dict()
        missing = [name for name in self.names if name not in state]
        if missing:
            raise PFNMError(
                f"{type(module).__name__} has no tensor {missing[0]!r}, which the traced "
                f"{self.name} has; give modules of one architecture"
            )
        own = {name: _array(state[name]) for name in self.names}
        layouts = self.program.layouts
        for name, array in own.items():
            if array.ndim != len(layouts[name].dims):
                raise PFNMError(
                    f"{type(module).__name__}: tensor {name!r} has shape {array.shape}, the traced "
                    f"{self.name} has {len(layouts[name].dims)} axes; give modules of one "
                    "architecture"
                )
        shapes = {name: layouts[name].shape(array.shape) for name, array in own.items()}
        size = self.program.size_of(self.graph.sizes(shapes))
        return {name: layouts[name].canonical(array, size) for name, array in own.items()}

    def state(self, tensors: Mapping[str, Any]) -> dict[str, Tensor]:
        """Canonical tensors as a state of the module: all names, and the module's own shapes."""
        result = dict(self.others)
        for name, own in self.program.original(tensors).items():
            tensor = torch.as_tensor(own).to(self.dtypes[name]).contiguous()
            for alias in self.names[name]:
                result[alias] = tensor
        return result

    def __str__(self) -> str:
        sizes = self.graph.sizes(
            {name: tuple(d.size for d in lay.axes) for name, lay in self.program.layouts.items()}
        )
        rows = [("group", "units", "tensors", "")]
        for group in self.graph.groups:
            notes = []
            if group in self.graph.inner:
                notes.append(f"within {self.graph.inner[group]}")
            if group in self.graph.rigid:
                notes.append(f"rigid: {self.graph.rigid[group]}")
            tensors = str(len(self.graph.tensors_of(group)))
            rows.append((group, str(sizes[group]), tensors, "; ".join(notes)))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [f"{self.name}: {len(self.graph.groups)} groups, {len(self.names)} tensors"]
        for group, units, count, note in rows:
            numbers = f"{units:>{widths[1]}}  {count:>{widths[2]}}"
            lines.append(f"  {group:<{widths[0]}}  {numbers}  {note}".rstrip())
        shown = [own for own in self.pinned if own.kind not in ("kernel", "input", "output")]
        lines += ["  pinned:"] * bool(shown) + [f"    {own}" for own in shown]
        return "\n".join(lines)


def trace(
    module: nn.Module,
    *example_inputs: Any,
    output: str | int | None = None,
    rules: Mapping[str, Rule] | None = None,
    groups: grouping.ByHand = (),
    **kwargs: Any,
) -> Trace:
    """The unit groups of a module, found from its operations and proved on example inputs.

    output: which of several outputs the groups must not change (a number, or a key of a dict or
    dataclass); the first tensor if it is not said. rules: what custom operations do to axes.
    groups: some stated by hand, beside those that are found.
    """
    if next(iter(module.state_dict()), None) is None:
        raise PFNMError(f"{type(module).__name__} has no tensors; there is nothing to match")
    inputs, exported = _exported(module, example_inputs, kwargs)
    chosen = _output(module, exported, output)
    state = module.state_dict()
    tensors = {name: state[name].detach() for name in exported.names}
    found = walk(exported, tensors, rules)
    grouping.join_by_hand(found, groups)
    grouping.pin_outputs(found, exported, chosen)
    grouping.pin_unused(found)
    layouts = grouping.layouts(found)
    spaces = grouping.name_spaces(found, exported, chosen)
    graph = grouping.unit_graph(found, layouts, spaces, exported.buffers)
    program = Program(exported, found, layouts, tuple(kwargs), chosen)
    program.describe(graph, spaces)
    size = program.size_of({})
    canonical = {name: layouts[name].canonical(own, size) for name, own in tensors.items()}
    example = Example(inputs, dict(kwargs))
    _same_as_module(module, program, canonical, example)
    reads = grouping.read_spaces(found, spaces)
    candidates = grouping.inner_candidates(graph)
    arrays = {name: _array(own) for name, own in canonical.items()}
    graph = proved(program, graph, arrays, example, candidates, reads)
    program.graph = graph
    return Trace(
        type(module).__name__,
        graph,
        program,
        _norms(found),
        streams_of(found, graph, spaces),
        grouping.pinned_axes(found, layouts),
        exported.names,
        example,
        reads,
        {name: own for name, own in state.items() if not _is_tensor(name, exported)},
        {name: own.dtype for name, own in tensors.items()},
    )


def _is_tensor(name: str, exported: Exported) -> bool:
    return any(name in names for names in exported.names.values())


def _array(tensor: Tensor) -> NDArray[Any]:
    own = tensor.detach().cpu()
    return np.asarray(own.float() if own.dtype in (torch.bfloat16, torch.float16) else own)


def _exported(
    module: nn.Module, inputs: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Exported]:
    """A batch of one is given twice: a single row looks like no axis at all."""
    flat = [own for own in pytree.tree_leaves(inputs) if isinstance(own, Tensor)]
    if not kwargs and flat and all(own.dim() and own.shape[0] == 1 for own in flat):
        twice = pytree.tree_map(
            lambda own: torch.cat([own, own]) if isinstance(own, Tensor) else own, inputs
        )
        try:
            return twice, export(module, twice, kwargs)
        except PFNMError:
            pass  # the first axis was no batch
    return inputs, export(module, inputs, kwargs)


def _output(module: nn.Module, exported: Exported, output: str | int | None) -> int:
    """The number of the output the groups must not change."""
    outputs = exported.user_outputs
    usable = [n for n, own in enumerate(outputs) if _is_float(own)]
    if output is None and usable:
        return usable[0]
    if isinstance(output, int) and output in usable:
        return output
    keys = [_key(path) for path, _ in _paths(exported)]
    if isinstance(output, str) and output in keys and keys.index(output) in usable:
        return keys.index(output)
    raise PFNMError(
        f"{type(module).__name__} has no floating-point output {output!r}; it has "
        f"{', '.join(keys[n] for n in usable) or 'none'}"
    )


def _is_float(node: Any) -> bool:
    meta = node.meta.get("val") if isinstance(node, fx.Node) else None
    return isinstance(meta, Tensor) and meta.is_floating_point()


def _paths(exported: Exported) -> list[tuple[Any, Any]]:
    nest = pytree.tree_unflatten(list(range(len(exported.user_outputs))), exported.outputs)
    return pytree.tree_flatten_with_path(nest)[0]


def _key(path: Sequence[Any]) -> str:
    """The keys, numbers and field names on the way to an output, with dots between them."""
    fields = ("key", "idx", "name")
    keys = [next(getattr(own, field) for field in fields if hasattr(own, field)) for own in path]
    return ".".join(map(str, keys)) or "0"


def _same_as_module(
    module: nn.Module, program: Program, tensors: Mapping[str, Any], example: Example
) -> None:
    """An error unless the program gives what the module gives."""
    expected = module_outputs(module, example)
    try:
        found = program_outputs(program, tensors, example)
    except Exception as error:  # whatever an operation says
        raise PFNMError(
            f"{type(module).__name__} cannot be run from its graph: {first_line(error)}"
        ) from error
    for own, other in zip(found, expected, strict=True):
        if not isinstance(own, Tensor) or not isinstance(other, Tensor):
            continue
        if distance(own.to(other.dtype), other) > _rounding(other):
            raise PFNMError(
                f"{type(module).__name__} does not answer twice the same on its example inputs; a "
                "module that keeps state from call to call, or is random in eval mode, cannot be "
                "traced"
            )


def program_outputs(program: Program, tensors: Mapping[str, Any], example: Example) -> list[Any]:
    """What a program gives on the example inputs, flat; what is random as a module has it."""
    with example.seeded():
        return program.outputs(tensors, example.inputs, example.kwargs)


def _rounding(output: Tensor) -> float:
    """How far two computations of the same may be apart, relative to the largest."""
    kind = output.dtype if output.is_floating_point() else torch.float32
    return float(torch.finfo(kind).eps ** 0.5)


def module_outputs(module: nn.Module, example: Example) -> list[Any]:
    """What a module gives on the example inputs, in eval mode, flat."""
    inputs, kwargs = pytree.tree_map(
        lambda own: own.clone() if isinstance(own, Tensor) else own,
        (example.inputs, dict(example.kwargs)),
    )
    with evaluating(module), torch.no_grad(), example.seeded():
        return pytree.tree_leaves(module(*inputs, **kwargs))


def _norms(found: Walk) -> tuple[Norm, ...]:
    by_node = {step.node: step for step in found.steps}
    result = []
    for step in found.steps:
        own = step.map
        if own is None or own.kind != "batch_norm":
            continue
        mean, variance = own.statistics or (None, None)
        entering: Any = step.node.args[0]
        before = by_node.get(entering)
        after = _map_of(before) if before is not None and len(before.node.users) == 1 else None
        epsilon = float(own.arguments["eps"])
        result.append(Norm(own.weight, own.bias, mean, variance, epsilon, after))
    return tuple(result)


def _map_of(step: Step) -> tuple[str, str | None, str] | None:
    own = step.map
    if own is None or own.weight is None or own.kind not in ("linear", "conv", "conv_transpose"):
        return None
    return own.weight, own.bias, own.kind
