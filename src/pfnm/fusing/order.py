"""An order of units that does not depend on how a site lists them.

What a site's units are called must not show in a fusion. It could where several assignments are
equally good: without biases, two sites that share no unit of the group above have atoms with no
coordinate in common, and every way to pair them scores the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pfnm.errors import PFNMError
from pfnm.fusing.atoms import Assignments, part_of
from pfnm.fusing.sites import Sites
from pfnm.matching.checks import checked_start
from pfnm.networks.graph import Axis, IntArray
from pfnm.networks.network import Array, Network

Orders = Sequence[Mapping[str, IntArray]]


def unit_order(network: Network) -> dict[str, IntArray]:
    """Each group's units by their norm (of those with the very same, the one listed first)."""
    graph, sizes = network.graph, network.sizes
    squares = {group: np.zeros(_shape(network, group)) for group in graph.groups}
    for name, axes in graph.axes.items():
        if not any(space in squares for axis in axes for space in axis.spaces):
            continue
        entries = np.square(network.tensors[name], dtype=float)
        for dimension, axis in enumerate(axes):
            for group in set(axis.spaces) & set(squares):
                rows = np.moveaxis(entries, dimension, 0).reshape(entries.shape[dimension], -1)
                _add(squares[group], axis, group, graph.inner.get(group), sizes, rows.sum(axis=1))
    orders = {
        group: np.argsort(values, kind="stable")
        for group, values in squares.items()
        if group not in graph.inner
    }
    for group, outer in graph.inner.items():
        orders[group] = np.argsort(squares[group][orders[outer]], axis=1, kind="stable")
    return orders


def _shape(network: Network, group: str) -> tuple[int, ...]:
    outer = network.graph.inner.get(group)
    own = network.sizes[group]
    return (own,) if outer is None else (network.sizes[outer], own)


def _add(
    squares: Array,
    axis: Axis,
    group: str,
    outer: str | None,
    sizes: Mapping[str, int],
    values: Array,
) -> None:
    """Add what an axis's entries have to the units they belong to."""
    if axis.space == group:
        squares += values
        return
    places = axis.coordinates(group, sizes)
    here = places >= 0
    where = (
        (places[here],) if outer is None else (axis.coordinates(outer, sizes)[here], places[here])
    )
    np.add.at(squares, where, values[here])


def listed_order(network: Network) -> dict[str, IntArray]:
    """Each group's units as the network lists them."""
    return {
        group: np.broadcast_to(np.arange(network.sizes[group]), _shape(network, group))
        for group in network.graph.groups
    }


def in_order(sites: Sites, orders: Orders) -> Sites:
    """The sites, their units in the given orders."""
    networks = [
        network if _is_listed(order) else part_of(network, order)
        for network, order in zip(sites.networks, orders, strict=True)
    ]
    return replace(sites, networks=networks)


def _is_listed(order: Mapping[str, IntArray]) -> bool:
    return all((own == np.arange(own.shape[-1])).all() for own in order.values())


def start_in_order(start: Assignments, orders: Orders, inner: Mapping[str, str]) -> Assignments:
    """Assignments to start from, checked, for units in the given orders."""
    if set(start) != set(orders[0]):
        raise PFNMError(
            f"assignments to start from name the groups {', '.join(start)}, expected "
            f"{', '.join(orders[0])}"
        )
    result: dict[str, Sequence[IntArray]] = {}
    for group, given in start.items():
        mine = [order[group] for order in orders]
        if group in inner:
            outer = [order[inner[group]] for order in orders]
            result[group] = [
                np.take_along_axis(np.asarray(own)[first], second, axis=1)
                for own, first, second in zip(given, outer, mine, strict=True)
            ]
        else:
            found = checked_start(given, [order.size for order in mine])
            result[group] = [own[order] for own, order in zip(found, mine, strict=True)]
    return result


def as_listed(
    assignments: Assignments, orders: Orders, inner: Mapping[str, str]
) -> dict[str, tuple[IntArray, ...]]:
    """Assignments of units in the given orders, for units as the sites list them."""
    result = {}
    for group, found in assignments.items():
        listed = []
        for own, order in zip(found, orders, strict=True):
            back = own
            if group in inner:
                back = np.take_along_axis(own, np.argsort(order[group], axis=1), axis=1)
            listed.append(back[np.argsort(order[inner.get(group, group)])])
        result[group] = tuple(listed)
    return result
