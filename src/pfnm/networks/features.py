"""What the sites know of their inputs: one order of the columns, one scaling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pfnm.errors import PFNMError
from pfnm.networks.graph import INPUT, IntArray
from pfnm.networks.network import Network, Scaling
from pfnm.networks.scaling import pooled

MOST_LISTED = 10  # columns in a message


def align_inputs(networks: Sequence[Network]) -> list[Network]:
    """The networks with one order of their inputs, the same names and one pooled scaling.

    Columns that a site lists in another order are put in the order of the first site that names
    them, which is exact: the rows of its first layer are permuted with them. Sites that do not name
    theirs take the names of the others, and those without a scaler their pooled scaling.
    """
    named = [network for network in networks if network.features is not None]
    if named:
        networks = [_in_order_of(network, named[0], networks) for network in networks]
    scalings = [network.scaling for network in networks if network.scaling is not None]
    if scalings:
        together = pooled(scalings)
        networks = [replace(network, scaling=together) for network in networks]
    return list(networks)


def in_columns_of(network: Network, inputs: Any) -> Any:
    """A table whose columns have names (a DataFrame) with the network's inputs in their order.

    Other columns are left out. Where either has no names, the inputs as they are.
    """
    features, columns = network.features, getattr(inputs, "columns", None)
    if features is None or columns is None:
        return inputs
    found = list(columns)
    if not all(isinstance(column, str) for column in found):
        return inputs
    for feature in features:
        if found.count(feature) != 1:
            times = "no column is" if feature not in found else "several columns are"
            shown = ", ".join(found[:MOST_LISTED]) + (", ..." if len(found) > MOST_LISTED else "")
            raise PFNMError(
                f"{network.name} takes an input {feature!r}, and {times} called that (columns: "
                f"{shown}); rename the columns, or give an array in the network's order"
            )
    return inputs[list(features)]


def _in_order_of(network: Network, first: Network, networks: Sequence[Network]) -> Network:
    wanted, found = first.features, network.features
    assert wanted is not None
    if found == wanted:
        return network
    if found is None:
        other = next((n for n in networks if n.features not in (None, wanted)), None)
        if other is not None:
            raise PFNMError(
                f"{network.name} does not name its inputs, and {first.name} and {other.name} list "
                "theirs in different orders; save all sites' networks with names, or in one order"
            )
        return replace(network, features=wanted)
    place = {name: index for index, name in enumerate(found)}
    if len(place) < len(found) or set(place) != set(wanted):
        index = next(
            i for i, pair in enumerate(zip(found, wanted, strict=True)) if len(set(pair)) > 1
        )
        missing = next((name for name in wanted if name not in place), None)
        told = "" if missing is None else f" and has no {missing!r}"
        raise PFNMError(
            f"{network.name} names input {index} {found[index]!r}{told}, {first.name} names it "
            f"{wanted[index]!r}; train all sites on the same columns, named alike"
        )
    return _permuted(network, wanted, np.array([place[name] for name in wanted]))


def _permuted(network: Network, features: tuple[str, ...], order: IntArray) -> Network:
    """The network whose input i is the given one's input order[i]."""
    tensors = dict(network.tensors)
    for name in network.graph.tensors_of(INPUT):
        index = network.graph.index(name, {INPUT: order}, network.sizes)
        tensors[name] = np.ascontiguousarray(tensors[name][index])
    scaling = network.scaling
    if scaling is not None:
        columns = (scaling.centre, scaling.scale, scaling.low, scaling.high)
        scaling = Scaling(*(column[order] for column in columns))
    return replace(network, tensors=tensors, features=features, scaling=scaling)
