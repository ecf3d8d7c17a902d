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
from pfnm.networks.network import IntArray, Network

Orders = Sequence[Mapping[str, IntArray]]


def unit_order(network: Network) -> dict[str, IntArray]:
    """Each group's units by their norm (of those with the very same, the one listed first)."""
    squares = {group: np.zeros(width) for group, width in network.widths.items()}
    for name, axes in network.graph.axes.items():
        for dimension, axis in enumerate(axes):
            if axis.space in squares:
                entries = np.moveaxis(np.square(network.tensors[name], dtype=float), dimension, 0)
                squares[axis.space] += entries.reshape(len(squares[axis.space]), -1).sum(axis=1)
    return {group: np.argsort(values, kind="stable") for group, values in squares.items()}


def listed_order(network: Network) -> dict[str, IntArray]:
    """Each group's units as the network lists them."""
    return {group: np.arange(width) for group, width in network.widths.items()}


def in_order(sites: Sites, orders: Orders) -> Sites:
    """The sites, their units in the given orders."""
    networks = [
        part_of(network, order) for network, order in zip(sites.networks, orders, strict=True)
    ]
    return replace(sites, networks=networks)


def start_in_order(start: Assignments, orders: Orders) -> Assignments:
    """Assignments to start from, checked, for units in the given orders."""
    if set(start) != set(orders[0]):
        raise PFNMError(
            f"assignments to start from name the groups {', '.join(start)}, expected "
            f"{', '.join(orders[0])}"
        )
    result = {}
    for group, given in start.items():
        found = checked_start(given, [order[group].size for order in orders])
        result[group] = [own[order[group]] for own, order in zip(found, orders, strict=True)]
    return result


def as_listed(assignments: Assignments, orders: Orders) -> dict[str, tuple[IntArray, ...]]:
    """Assignments of units in the given orders, for units as the sites list them."""
    return {
        group: tuple(
            own[np.argsort(order[group])] for own, order in zip(found, orders, strict=True)
        )
        for group, found in assignments.items()
    }
