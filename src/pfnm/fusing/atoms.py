"""From tensors to atoms and back: what a group is matched on, and the mean of what was matched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import DTypeLike

from pfnm.errors import PFNMError
from pfnm.fusing.memory import give_back
from pfnm.fusing.sites import Sites
from pfnm.matching.prior import Prior
from pfnm.networks.graph import OUTPUT, IntArray, UnitGraph
from pfnm.networks.network import Array, Network, Tensor

Assignments = Mapping[str, Sequence[IntArray]]
"""Of each group an array a site: the global unit of each of its units, (units,); of a group within
another (units of the outer, n): the place of each among those of the outer's global unit."""


@dataclass(frozen=True)
class Side:
    """One axis of one tensor along which a group lies: what its units are compared by."""

    name: str
    dimension: int

    def needs(self, graph: UnitGraph, group: str) -> set[str]:
        """The groups whose order must be known for it to be comparable between sites.

        The group itself is among them where another axis of the tensor is its too.
        """
        axes = graph.axes[self.name]
        spaces = {s for d, axis in enumerate(axes) if d != self.dimension for s in axis.spaces}
        for part in axes[self.dimension].parts:
            if group in part.factors:
                spaces |= set(part.spaces) - {group}
        return {space for space in spaces if graph.is_group(space)}

    def columns(self, network: Network, group: str, widths: Mapping[str, int]) -> int:
        """How many numbers each unit of the group has here, other groups in global coordinates."""
        sizes = {**network.sizes, **widths}
        here = {**sizes, group: network.sizes[group]}
        total = 1
        for dimension, axis in enumerate(network.graph.axes[self.name]):
            if dimension == self.dimension:
                total *= axis.by_unit(group, here).shape[1]
            else:
                total *= axis.length(sizes)
        return total

    def rows(
        self,
        network: Network,
        group: str,
        units: Mapping[str, IntArray],
        widths: Mapping[str, int],
        dtype: DTypeLike = float,
    ) -> Array:
        """What each unit of the group has here, (units, D), other groups in global coordinates.

        Zero where the site lacks a global unit.
        """
        own = self.spread(network, group, units, widths, dtype)
        axis = network.graph.axes[self.name][self.dimension]
        if axis.space == group:
            return np.moveaxis(own, self.dimension, 0).reshape(network.sizes[group], -1)
        sizes = {**network.sizes, **widths, group: network.sizes[group]}
        taken = np.take(own, axis.by_unit(group, sizes), axis=self.dimension)
        first = np.moveaxis(taken, self.dimension, 0)
        result: Array = first.reshape(network.sizes[group], -1)
        return result

    def spread(
        self,
        network: Network,
        group: str,
        units: Mapping[str, IntArray],
        widths: Mapping[str, int],
        dtype: DTypeLike = float,
    ) -> Array:
        """The tensor with matched spaces in global coordinates, but the group as the site has it.

        Where the group lies along another axis too, it is in global coordinates there.
        """
        graph, tensor = network.graph, network.tensors[self.name]
        axes = graph.axes[self.name]
        if not any(
            space in units and not (dimension == self.dimension and space == group)
            for dimension, axis in enumerate(axes)
            for space in axis.spaces
        ):
            return tensor.astype(dtype, copy=False)
        wide = tensor.astype(dtype, copy=False)
        for dimension, axis in enumerate(axes):
            here = dict(units)
            if dimension == self.dimension:
                here.pop(group, None)
            if any(space in here for space in axis.spaces):
                sizes = {s: widths[s] if s in here else network.sizes[s] for s in axis.spaces}
                places = axis.positions(here, sizes, graph.inner)
                wide = placed(wide, dimension, places, axis.length(sizes))
        return wide


def placed(tensor: Array, dimension: int, places: IntArray, length: int) -> Array:
    """A tensor with the entries along an axis at other places of a longer one, zero elsewhere.

    By taking whole slices, which is much faster than putting entries one by one.
    """
    source, lacking = np.zeros(length, dtype=np.intp), np.ones(length, dtype=bool)
    source[places], lacking[places] = np.arange(places.size), False
    if places.size == length and (source[1:] > source[:-1]).all():
        return tensor
    result = np.take(tensor, source, axis=dimension)
    if places.size < length:
        result[(slice(None),) * dimension + (lacking,)] = 0
    return result


def sides_of(graph: UnitGraph, group: str, matched: set[str]) -> list[Side]:
    """The sides of a group that can be compared where these groups are matched."""
    return [
        side
        for name in graph.tensors_of(group)
        for dimension, axis in enumerate(graph.axes[name])
        if group in axis.spaces
        for side in [Side(name, dimension)]
        if side.needs(graph, group) <= matched
    ]


def group_atoms(
    sites: Sites,
    group: str,
    matched: Assignments,
    prior: Prior,
    extra: Sequence[Tensor] | None = None,
) -> tuple[list[Array], list[Array], Array]:
    """The atoms of a group: for each site (units, D), precisions (D,), and the prior mean (D,).

    `prior` is the group's. A side takes part if the other groups along it are matched already;
    their entries stand in global coordinates, zero where the site has no unit. extra: further
    columns of each site, with a prior mean of zero.
    """
    graph = sites.networks[0].graph
    widths = widths_of(graph, matched)
    sides = sides_of(graph, group, set(matched))
    if not sides:
        raise PFNMError(f"unit group {group!r} has no tensor to be matched on")
    site_precisions = 1 / prior.site_variances(len(sites.networks))
    atoms: list[Array] = []
    precisions: list[Array] = []
    more = 0 if extra is None else extra[0].shape[1]
    columns = [side.columns(sites.networks[0], group, widths) for side in sides]
    ends = np.cumsum([0, *columns])
    for j, network in enumerate(sites.networks):
        mine = {done: assignments[j] for done, assignments in matched.items()}
        own = np.empty((network.sizes[group], ends[-1] + more), dtype=sites.dtype)
        seen = np.full(ends[-1] + more, sites.weights[j])
        for side, start, end in zip(sides, ends[:-1], ends[1:], strict=True):
            own[:, start:end] = side.rows(network, group, mine, widths, sites.dtype)
            seen[start:end] = _seen(sites, j, side, group, widths, end - start)
        if extra is not None:
            own[:, ends[-1] :] = extra[j]
        atoms.append(own)
        precisions.append(seen * site_precisions[j])
    means = [_prior_mean(graph, side.name, prior) for side in sides]
    return atoms, precisions, np.repeat([*means, 0.0], [*columns, more])


def _seen(
    sites: Sites, site: int, side: Side, group: str, widths: Mapping[str, int], columns: int
) -> Array:
    """How much each column of a side's rows counts for a site."""
    network = sites.networks[site]
    weights = sites.weights_of(side.name, site)
    if weights.size == 1:
        return np.full(columns, weights.item())
    graph = network.graph
    sizes = {s: widths.get(s, size) for s, size in network.sizes.items()} | {
        group: network.sizes[group]
    }
    axes = graph.axes[side.name]
    shape = [
        axis.length(sizes if d == side.dimension else {**sizes, **widths})
        for d, axis in enumerate(axes)
    ]
    wide = np.broadcast_to(weights, shape)
    first = axes[side.dimension].by_unit(group, sizes)[:1]
    return np.moveaxis(np.take(wide, first, axis=side.dimension), side.dimension, 0).ravel()


def posterior_mean(sites: Sites, assignments: Assignments, prior: Prior) -> Network:
    """The paper's global network: every entry the posterior mean over the sites that have its unit.

    An entry between two groups counts for the sites that have its lower unit, with zero where a
    site lacks the upper one.
    """
    graph = sites.networks[0].graph
    tensors: dict[str, Array] = {}
    for name in graph.axes:
        groups = graph.groups_of(name)
        own = prior.for_group(groups[0] if groups else graph.groups[-1])
        precisions = 1 / own.site_variances(len(sites.networks))
        total, weight = _sums(sites, name, assignments, precisions, counted=groups[:1])
        p_0 = 1 / own.prior_variance
        total += _prior_mean(graph, name, own) * p_0
        weight += p_0
        total /= weight
        tensors[name] = total
    return with_tensors(sites, tensors)


def observed_mean(sites: Sites, assignments: Assignments) -> Network:
    """The mean of what was observed: an entry counts for the sites that have both of its ends.

    What leads into an output is the sum over the sites, each by its share of what all have seen of
    the class: the fused outputs are then the class-weighted sum of the sites'.
    """
    graph = sites.networks[0].graph
    equal = np.ones(len(sites.networks))
    shared = replace(sites, output_weights=sites.class_shares)
    tensors = {}
    for name in graph.axes:
        total, weight = _sums(shared, name, assignments, equal, counted=list(assignments))
        outward = name in graph.tensors_of(OUTPUT)
        if not outward:
            total /= np.where(weight > 0, weight, 1)
        tensors[name] = total
        give_back(sites.networks[0])
    return with_tensors(sites, tensors)


def _sums(
    sites: Sites, name: str, assignments: Assignments, precisions: Array, counted: Sequence[str]
) -> tuple[Array, Array]:
    """Over the sites, in global coordinates: the sum of v p, and the sum of p.

    A site's p counts where it has the entry's units of the groups `counted`. The second has length
    1 along axes on which it does not depend.
    """
    first = sites.networks[0]
    graph, axes = first.graph, first.graph.axes[name]
    sizes = {**first.sizes, **widths_of(graph, assignments)}
    shape = graph.shape(name, sizes)
    varies = [any(space in (*counted, OUTPUT) for space in axis.spaces) for axis in axes]
    depends = [length if varied else 1 for length, varied in zip(shape, varies, strict=True)]
    dtype = sites.dtype
    total, weight = np.zeros(shape, dtype), np.zeros(depends, dtype)
    for j, network in enumerate(sites.networks):
        mine = {group: own[j] for group, own in assignments.items()}
        precision = (sites.weights_of(name, j) * precisions[j]).astype(dtype, copy=False)
        seen = precision * network.tensors[name]
        present = precision
        places: dict[int, IntArray] = {}
        for dimension, (axis, length, varied) in enumerate(zip(axes, shape, varies, strict=True)):
            if any(space in mine for space in axis.spaces):
                places[dimension] = axis.positions(mine, sizes, graph.inner)
            if varied:
                own_units = {group: units for group, units in mine.items() if group in counted}
                here = np.zeros(length, dtype)
                here[axis.positions(own_units, sizes, graph.inner)] = 1
                present = present * here.reshape(
                    [-1 if d == dimension else 1 for d in range(len(axes))]
                )
        total[_index(shape, places)] += seen
        weight += present
    return total, weight


def _index(shape: Sequence[int], places: Mapping[int, IntArray]) -> tuple[IntArray | slice, ...]:
    """The entries of an array at these places along these axes, all along the others."""
    if len(places) < 2:  # slices are faster than numbers
        return tuple(places.get(dimension, slice(None)) for dimension in range(len(shape)))
    return np.ix_(*(places.get(d, np.arange(length)) for d, length in enumerate(shape)))


def with_tensors(sites: Sites, tensors: Mapping[str, Array]) -> Network:
    """A global network with these tensors, in the sites' floating-point type."""
    dtype = np.result_type(*(network.dtype for network in sites.networks))
    own = {name: tensor.astype(dtype, copy=False) for name, tensor in tensors.items()}
    first = sites.networks[0]
    return replace(first, tensors=own, name="global", metadata={}, memory=None, taken=None)


def part_of(network: Network, units: Mapping[str, IntArray]) -> Network:
    """The network cut down to the given units of each group, in the given order."""
    tensors = {
        name: np.ascontiguousarray(tensor[network.graph.index(name, units, network.sizes)])
        for name, tensor in network.tensors.items()
    }
    return replace(network, tensors=tensors)


def _prior_mean(graph: UnitGraph, name: str, prior: Prior) -> float:
    return prior.bias_mean if graph.role(name) == "bias" else prior.prior_mean


def widths_of(graph: UnitGraph, assignments: Assignments) -> dict[str, int]:
    """The number of global units of each matched group; of one within another, of each of these.

    Groups that must be as wide as each other are as wide as the widest: units that no site has are
    zeros.
    """
    widths = {
        group: graph.constant[group] if group in graph.inner else width_of(own)
        for group, own in assignments.items()
    }
    for together in graph.alike:
        known = [group for group in together if group in widths]
        widths |= dict.fromkeys(known, max((widths[group] for group in known), default=0))
    return widths


def width_of(assignments: Sequence[IntArray]) -> int:
    """The number of global units."""
    return 1 + max(int(assignment.max()) for assignment in assignments)
