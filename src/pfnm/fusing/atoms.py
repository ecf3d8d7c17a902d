"""From tensors to atoms and back: what a group is matched on, and the mean of what was matched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pfnm.errors import PFNMError
from pfnm.fusing.sites import Sites
from pfnm.matching.prior import Prior
from pfnm.networks.network import OUTPUT, Array, Axis, IntArray, Network

Assignments = Mapping[str, Sequence[IntArray]]


def group_atoms(
    sites: Sites, group: str, matched: Assignments, prior: Prior
) -> tuple[list[Array], list[Array], Array]:
    """The atoms of a group: for each site (units, D), precisions (D,), and the prior mean (D,).

    `prior` is the group's. A tensor of the group takes part if its other axes are fixed or matched
    already; entries of matched groups stand in global coordinates, zero where the site has no unit.
    """
    graph = sites.networks[0].graph
    widths = {done: width_of(assignments) for done, assignments in matched.items()}
    names = [
        name
        for name in graph.tensors_of(group)
        if all(a.space in (group, *matched) or not graph.is_group(a) for a in graph.axes[name])
    ]
    if not names:
        raise PFNMError(f"unit group {group!r} has no tensor to be matched on")
    site_precisions = 1 / prior.site_variances(len(sites.networks))
    atoms, precisions = [], []
    for j, network in enumerate(sites.networks):
        mine = {done: assignments[j] for done, assignments in matched.items()}
        columns, seen = [], []
        for name in names:
            dimension = [axis.space for axis in graph.axes[name]].index(group)
            wide = _spread(network, name, mine, widths)
            weights = np.broadcast_to(sites.weights_of(name, j), wide.shape)
            width = network.sizes[group]
            columns.append(np.moveaxis(wide, dimension, 0).reshape(width, -1))
            seen.append(np.moveaxis(weights, dimension, 0)[0].ravel())
        atoms.append(np.concatenate(columns, axis=1))
        precisions.append(np.concatenate(seen) * site_precisions[j])
    prior_mean = np.concatenate(
        [
            np.full(c.shape[1], _prior_mean(graph.axes[n], prior))
            for n, c in zip(names, columns, strict=True)
        ]
    )
    return atoms, precisions, prior_mean


def posterior_mean(sites: Sites, assignments: Assignments, prior: Prior) -> Network:
    """The paper's global network: every entry the posterior mean over the sites that have its unit.

    An entry between two groups counts for the sites that have its lower unit, with zero where a
    site lacks the upper one.
    """
    graph = sites.networks[0].graph
    tensors: dict[str, Array] = {}
    for name, axes in graph.axes.items():
        groups = [group for group in graph.groups if group in {axis.space for axis in axes}]
        own = prior.for_group(groups[0] if groups else graph.groups[-1])
        precisions = 1 / own.site_variances(len(sites.networks))
        total, weight = _sums(sites, name, assignments, precisions, counted=groups[:1])
        p_0 = 1 / own.prior_variance
        tensors[name] = (_prior_mean(axes, own) * p_0 + total) / (p_0 + weight)
    return with_tensors(sites, tensors)


def observed_mean(sites: Sites, assignments: Assignments) -> Network:
    """The mean of what was observed: an entry counts for the sites that have both of its ends.

    What leads into an output is the sum over the sites, each by its share of what all have seen of
    the class: the fused outputs are then the class-weighted sum of the sites'.
    """
    equal = np.ones(len(sites.networks))
    shared = replace(sites, output_weights=sites.class_shares)
    tensors = {}
    for name, axes in sites.networks[0].graph.axes.items():
        total, weight = _sums(shared, name, assignments, equal, counted=list(assignments))
        outward = any(axis.space == OUTPUT for axis in axes)
        tensors[name] = total if outward else total / np.where(weight > 0, weight, 1)
    return with_tensors(sites, tensors)


def _sums(
    sites: Sites, name: str, assignments: Assignments, precisions: Array, counted: Sequence[str]
) -> tuple[Array, Array]:
    """Over the sites, in global coordinates: the sum of v p, and the sum of p.

    A site's p counts where it has the entry's units of the groups `counted`. The second has length
    1 along axes on which it does not depend.
    """
    first = sites.networks[0]
    widths = {group: width_of(own) for group, own in assignments.items()}
    axes = first.graph.axes[name]
    shape = [widths.get(axis.space, first.sizes[axis.space]) * axis.block for axis in axes]
    varies = [axis.space in (*counted, OUTPUT) for axis in axes]
    depends = [length if varied else 1 for length, varied in zip(shape, varies, strict=True)]
    matched = [dimension for dimension, axis in enumerate(axes) if axis.space in widths]
    alone = matched[0] if len(matched) == 1 else None
    total, weight = np.zeros(shape), np.zeros(depends)
    if alone is not None:
        rows = np.zeros([shape[alone], *shape[:alone], *shape[alone + 1 :]])
        total = np.moveaxis(rows, 0, alone)
    for j, network in enumerate(sites.networks):
        mine = {group: own[j] for group, own in assignments.items()}
        precision = sites.weights_of(name, j) * precisions[j]
        seen = precision * network.tensors[name]
        if alone is None:
            total[index_of(network, name, mine)] += seen
        else:  # by rows, which is much faster than by columns
            rows[axes[alone].entries(mine[axes[alone].space])] += np.moveaxis(seen, alone, 0)
        own_units = {group: units for group, units in mine.items() if group in counted}
        weight[index_of(first, name, own_units, depends)] += precision
    return total, weight


def with_tensors(sites: Sites, tensors: Mapping[str, Array]) -> Network:
    """A global network with these tensors, in the sites' floating-point type."""
    dtype = np.result_type(*(network.dtype for network in sites.networks))
    own = {name: tensor.astype(dtype) for name, tensor in tensors.items()}
    return replace(sites.networks[0], tensors=own, name="global", metadata={})


def part_of(network: Network, units: Mapping[str, IntArray]) -> Network:
    """The network cut down to the given units of each group, in the given order."""
    tensors = {
        name: np.ascontiguousarray(tensor[index_of(network, name, units)])
        for name, tensor in network.tensors.items()
    }
    return replace(network, tensors=tensors)


def _prior_mean(axes: Sequence[Axis], prior: Prior) -> float:
    return prior.bias_mean if len(axes) == 1 else prior.prior_mean


def width_of(assignments: Sequence[IntArray]) -> int:
    """The number of global units."""
    return 1 + max(int(assignment.max()) for assignment in assignments)


def index_of(
    network: Network, name: str, units: Mapping[str, IntArray], shape: Sequence[int] | None = None
) -> Any:
    """The index that picks the given units along a tensor's axes, and everything along others."""
    lengths = network.tensors[name].shape if shape is None else shape
    return np.ix_(
        *(
            axis.entries(units[axis.space]) if axis.space in units else np.arange(length)
            for axis, length in zip(network.graph.axes[name], lengths, strict=True)
        )
    )


def _spread(
    network: Network, name: str, units: Mapping[str, IntArray], widths: Mapping[str, int]
) -> Array:
    """A site's tensor with matched axes in global coordinates, zero where it has no unit."""
    axes, tensor = network.graph.axes[name], network.tensors[name]
    if not any(axis.space in units for axis in axes):
        return tensor.astype(float)
    shape = [
        widths[axis.space] * axis.block if axis.space in units else length
        for axis, length in zip(axes, tensor.shape, strict=True)
    ]
    wide = np.zeros(shape)
    wide[index_of(network, name, units)] = tensor
    return wide
