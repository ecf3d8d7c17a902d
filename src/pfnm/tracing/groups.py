"""From leaves to unit groups: which are free, what they are called, and the unit graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pfnm.errors import PFNMError
from pfnm.networks.graph import INPUT, OUTPUT, Axis, Part, Role, UnitGraph
from pfnm.tracing.axes import Dim, Pin, factors, find, leaves, product
from pfnm.tracing.export import Exported
from pfnm.tracing.layout import Layout, pieces, settle, sizes_in_example
from pfnm.tracing.rules.call import Value
from pfnm.tracing.walk import Walk


@dataclass(frozen=True)
class Pinned:
    """An axis of a tensor, or a part of it, whose positions stay where they are."""

    tensor: str
    axis: int
    size: int
    kind: str
    reason: str
    operation: str
    module: str
    in_the_way: bool
    """Whether it is a hidden axis that could be matched if there were a rule."""

    def __str__(self) -> str:
        where = f" ({self.operation} in {self.module or 'the module'})" if self.operation else ""
        return f"{self.tensor} axis {self.axis}, {self.size}: {self.reason}{where}"


ByHand = Sequence[Mapping[str, int]]
"""Unit groups as somebody states them: of each the axis along which it lies, by tensor."""


def join_by_hand(found: Walk, groups: ByHand) -> None:
    """Axes that somebody says are one group, whatever stood in the way; the proof judges it.

    An axis that is longer than the others lists so many entries for each unit, as flattened maps.
    """
    for group in groups:
        whole = isinstance(group, Mapping) and all(isinstance(own, int) for own in group.values())
        if not whole or not group:
            raise PFNMError(
                f"a group by hand is {group!r}, expected a list of the axes of tensors: "
                '[{"first.weight": 0, "last.weight": 1}]'
            )
        dims = [_stated(found, name, axis) for name, axis in group.items()]
        units = min(dims, key=lambda dim: dim.size)
        for leaf in (own for dim in dims for own in leaves(dim)):
            if leaf.pin is not None and leaf.pin.in_the_way:
                leaf.pin = None
        for dim in dims:
            each, rest = divmod(dim.size, units.size)
            if rest:
                raise PFNMError(
                    f"a group by hand has axes of {units.size} and {dim.size} entries, which is no "
                    f"multiple: {dict(group)}; state axes of the same units"
                )
            entries = found.joiner.leaf(each, Pin("position", "entries of a unit, by hand"))
            found.joiner.join(dim, units if each == 1 else product([units, entries]))


def _stated(found: Walk, name: str, axis: int) -> Dim:
    dims = found.tensors.get(name)
    if dims is None or not 0 <= axis < len(dims):
        raise PFNMError(
            f"a group by hand lies along axis {axis} of {name!r}, and there is no such; tensors: "
            f"{', '.join(found.tensors)}"
        )
    return dims[axis]


def pin_outputs(found: Walk, exported: Exported, output: int) -> None:
    """The order of outputs means something; so does that of other outputs that nothing reads."""
    read = _leaves_of(found, read=True)
    for number, node in enumerate(exported.user_outputs):
        value = found.values.get(node) if hasattr(node, "op") else None
        if not isinstance(value, Value):
            continue
        pin = Pin("output", "an axis of the output")
        for leaf in (own for dim in value.dims for own in leaves(dim)):
            if number == output or id(leaf) not in read:
                leaf.pin = leaf.pin or pin


def pin_unused(found: Walk) -> None:
    """What no activation runs along stays as it is: rows of a table that the example leaves out."""
    values = (own for step in found.steps for own in _flat(step.values) if not own.weight)
    used = {id(leaf) for value in values for dim in value.dims for leaf in leaves(dim)}
    used |= set(_leaves_of(found, read=True))
    for name, dims in found.tensors.items():
        for leaf in (own for dim in dims for own in leaves(dim)):
            if name not in found.used or id(leaf) not in used:
                leaf.pin = leaf.pin or Pin("unused", "the example does not use it")


def _flat(values: Any) -> list[Value]:
    many = values if isinstance(values, list | tuple) else [values]
    return [own for own in many if isinstance(own, Value)]


def layouts(found: Walk) -> dict[str, Layout]:
    """How every tensor becomes canonical."""
    settle(found.joiner, [dim for dims in found.tensors.values() for dim in dims])
    result = {}
    for name, dims in found.tensors.items():
        merged = name in found.merged and all(_free(dim) for dim in dims[:2])
        result[name] = Layout(dims, merged)
    return result


def _free(dim: Dim) -> bool:
    return any(leaf.pin is None for leaf in leaves(dim))


def name_spaces(found: Walk, exported: Exported, output: int) -> dict[int, str]:
    """Names of leaves: groups in the order of computation, inputs and outputs."""
    found_names: dict[int, str] = {}
    first: dict[int, int] = {}
    taken = {INPUT, OUTPUT}
    order = sorted(found.used, key=lambda name: found.used[name])
    for read in (False, True):  # a group is called after what gives it, if anything does
        for tensor in order:
            for leaf in (own for d in found.tensors[tensor] for own in _side(d, read)):
                step = min(found.used[tensor], first.get(id(leaf), found.used[tensor]))
                first[id(leaf)] = step
                if leaf.pin is None and id(leaf) not in found_names:
                    module = tensor.rpartition(".")[0]
                    found_names[id(leaf)] = _unique(module or tensor, taken)
    groups = {key: found_names[key] for key in sorted(found_names, key=lambda key: first[key])}
    return groups | _fixed_spaces(found, exported, output)


def _unique(name: str, taken: set[str]) -> str:
    own, number = name, 1
    while own in taken:
        number += 1
        own = f"{name}#{number}"
    taken.add(own)
    return own


def _fixed_spaces(found: Walk, exported: Exported, output: int) -> dict[int, str]:
    """The one leaf that is the output's, and the one that is the first input's, if they are."""
    written = _leaves_of(found, read=False)
    value = found.values.get(exported.user_outputs[output])
    result: dict[int, str] = {}
    if isinstance(value, Value):
        own = {id(leaf): leaf for dim in value.dims for leaf in leaves(dim)}
        ends = [leaf for key, leaf in own.items() if key in written]
        if len(ends) == 1:
            result[id(ends[0])] = OUTPUT
    read = _leaves_of(found, read=True)
    first = found.inputs[0].dims if found.inputs else ()
    starts = {id(leaf) for dim in first for leaf in leaves(dim) if id(leaf) in read}
    if not starts:
        starts = {key for key, leaf in read.items() if leaf.pin and leaf.pin.kind == "input"}
    if len(starts) == 1 and not starts & set(result):
        result[starts.pop()] = INPUT
    return result


def _leaves_of(found: Walk, read: bool) -> dict[int, Dim]:
    """The leaves of tensors' axes that are read by an operation, or that are not."""
    return {
        id(leaf): leaf
        for dims in found.tensors.values()
        for dim in dims
        for leaf in _side(dim, read)
    }


def _side(dim: Dim, read: bool) -> list[Dim]:
    """The leaves of a tensor's axis that an operation sums over, or the others."""
    own = [] if dim.read is None else leaves(dim.read)
    if read:
        return own
    summed = {id(leaf) for leaf in own}
    return [leaf for leaf in leaves(dim) if id(leaf) not in summed]


def read_spaces(found: Walk, names: Mapping[int, str]) -> dict[str, tuple[frozenset[str], ...]]:
    """The spaces that operations sum over, for every axis of the module's own tensors."""
    return {
        tensor: tuple(
            frozenset(names[id(leaf)] for leaf in _side(dim, True) if id(leaf) in names)
            for dim in dims
        )
        for tensor, dims in found.tensors.items()
    }


def axis_of(dim: Dim, names: Mapping[int, str]) -> Axis:
    """A dimension in the words of a unit graph."""
    parts: list[Part] = []
    for own, _ in pieces(dim, sizes_in_example):
        factors: list[str | int] = []
        for leaf in own:
            factor = names.get(id(leaf), leaf.size)
            if isinstance(factor, int) and factors and isinstance(factors[-1], int):
                factors[-1] *= factor
            else:
                factors.append(factor)
        part = Part(tuple(factors or [1]))
        last = parts[-1] if parts else None
        if last is not None and not part.spaces and not last.spaces:
            parts[-1] = Part((_number(last) + _number(part),))
        else:
            parts.append(part)
    return Axis(tuple(parts))


def _number(part: Part) -> int:
    (factor,) = part.factors
    assert isinstance(factor, int)
    return factor


def unit_graph(
    found: Walk,
    own_layouts: Mapping[str, Layout],
    names: Mapping[int, str],
    buffers: frozenset[str],
) -> UnitGraph:
    """The unit graph without inner groups; sizes that no axis tells are constant."""
    axes = {
        name: tuple(axis_of(dim, names) for dim in layout.axes)
        for name, layout in own_layouts.items()
    }
    by_id = {
        id(leaf): leaf for layout in own_layouts.values() for d in layout.axes for leaf in leaves(d)
    }
    groups = tuple(name for name in names.values() if name not in (INPUT, OUTPUT))
    sizes = {name: by_id[key].size for key, name in names.items()}
    rigid = {
        name: reason
        for key, name in names.items()
        if name in groups and (reason := by_id[key].rigid) is not None
    }
    constant = unsolved(axes, own_layouts, sizes)
    roles: dict[str, Role] = {name: "statistic" for name in buffers if name in axes}
    roles |= {name: role for name, role in found.roles.items() if name in axes}
    return UnitGraph(
        axes, groups, constant=constant, rigid=rigid, roles=roles, alike=_alike(found, names)
    )


def unsolved(
    axes: Mapping[str, tuple[Axis, ...]],
    own_layouts: Mapping[str, Layout],
    sizes: Mapping[str, int],
) -> dict[str, int]:
    """Sizes that do not follow from the tensors' shapes: the last space of a product first."""
    shapes = {name: tuple(dim.size for dim in layout.axes) for name, layout in own_layouts.items()}
    constant: dict[str, int] = {}
    while True:
        known = UnitGraph(axes, (), constant=constant).sizes(shapes)
        missing = [name for name in sizes if name not in known]
        if not missing:
            return constant
        ends = [
            part.spaces[-1]
            for own in axes.values()
            for axis in own
            for part in axis.parts
            if len(part.spaces) > 1 and part.spaces[-1] in missing
        ]
        chosen = ends[0] if ends else missing[-1]
        constant[chosen] = sizes[chosen]


def _alike(found: Walk, names: Mapping[int, str]) -> tuple[tuple[str, ...], ...]:
    """Groups that must have the same number of units."""
    sets: list[set[str]] = []
    for dims in [*found.joiner.alike, *_families(found)]:
        for leaf_set in zip(*(leaves(dim) for dim in dims), strict=False):
            own = {names[id(leaf)] for leaf in leaf_set if id(leaf) in names}
            touching = [other for other in sets if other & own]
            sets = [other for other in sets if not other & own]
            sets.append(own.union(*touching))
    order = list(names.values())
    found_sets = [sorted(own, key=order.index) for own in sets if len(own) > 1]
    return tuple(tuple(own) for own in sorted(found_sets, key=lambda own: order.index(own[0])))


def _families(found: Walk) -> list[tuple[Dim, ...]]:
    """What stands side by side along one dimension of a value must have one length."""
    result = []
    for value in (own for step in found.steps for own in _flat(step.values)):
        for dim in value.dims:
            atoms = factors(dim)
            for place, atom in enumerate(atoms):
                before = {id(own) for own in atoms[:place]}
                if atom.index is not None and id(find(atom.index)) not in before:
                    result.append(atom.parts)
    return result


def pinned_axes(found: Walk, own_layouts: Mapping[str, Layout]) -> tuple[Pinned, ...]:
    """Every axis, or part of one, that stays where it is, and why."""
    result: list[Pinned] = []
    for name in own_layouts:
        for axis, dim in enumerate(found.tensors[name]):
            reasons: dict[Pin, int] = {}
            for leaf in leaves(dim):
                if leaf.pin is not None:
                    reasons[leaf.pin] = max(leaf.size, reasons.get(leaf.pin, 1))
            for pin, size in reasons.items():
                where = (pin.operation, pin.module, pin.in_the_way)
                result.append(Pinned(name, axis, size, pin.kind, pin.reason, *where))
    return tuple(result)


def inner_candidates(graph: UnitGraph) -> dict[str, str]:
    """Groups that stand in no part of an axis without another to their left: perhaps within it."""
    outers: dict[str, list[str]] = {}
    for group in graph.groups:
        parts = [
            part
            for axes in graph.axes.values()
            for axis in axes
            for part in axis.parts
            if group in part.factors
        ]
        outers[group] = [
            own
            for own in graph.groups
            if own != group
            and all(
                own in part.factors
                and part.factors.count(group) == 1
                and part.factors.index(own) < part.factors.index(group)
                for part in parts
            )
        ]
    result = {}
    for group, own in outers.items():
        whole = [outer for outer in own if not outers[outer]]
        if whole:
            result[group] = whole[0]
    return result
