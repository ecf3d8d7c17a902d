"""Two methods of others for networks of equal widths: units renamed, then averaged by place.

Git Re-Basin (Ainsworth, Hayase, Srinivasa, ICLR 2023), weight matching of many models: in turn each
is renamed to be as like as can be to the mean of all others, on all weights that a unit has, until
nothing changes. OT fusion (Singh and Jaggi, NeurIPS 2020): layer after layer from the bottom, the
units of each are transported to those of the first at least cost, on the weights that lead in. With
equal widths and all units counting alike, exact transport is a renaming.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from pfnm.errors import PFNMError
from pfnm.fusing.atoms import Side, part_of, sides_of
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array, Network

MOST_SWEEPS = 100  # over all models; a sweep in which nothing changes is the last
REAL_CHANGE = 1e-7  # relative: a renaming that is better by less is rounding

Renaming = dict[str, IntArray]
"""Of each group, the place of each of a model's units in the mean."""


def rebasin(networks: Sequence[Network], rng: np.random.Generator) -> Network:
    """Git Re-Basin's merge of many models by their weights."""
    _check_equal(networks)
    renamings = [_as_they_are(network) for network in networks]
    groups = networks[0].graph.outer_groups
    for _ in range(MOST_SWEEPS):
        changed = False
        for j in rng.permutation(len(networks)):
            others = _mean(networks, renamings, [i for i in range(len(networks)) if i != j])
            for group in rng.permutation(groups):
                changed |= _renamed_to(others, networks[j], renamings[j], str(group))
        if not changed:
            break
    return _mean(networks, renamings, range(len(networks)))


def _renamed_to(reference: Network, network: Network, renaming: Renaming, group: str) -> bool:
    """Rename a group's units to be most like the reference's; whether that changed anything."""
    graph = network.graph
    likeness: Array = np.zeros((network.sizes[group],) * 2)
    for side in sides_of(graph, group, set(graph.groups)):
        if graph.role(side.name) == "statistic":
            continue  # what a normalisation has seen is no weight
        own = side.rows(network, group, renaming, network.sizes)
        theirs = side.rows(reference, group, {}, network.sizes)
        likeness += own @ theirs.T
    before = renaming[group]
    _, after = linear_sum_assignment(likeness, maximize=True)
    units = np.arange(before.size)
    gained = likeness[units, after].sum() - likeness[units, before].sum()
    if gained <= REAL_CHANGE * np.abs(likeness).max() * before.size:
        return False
    renaming[group] = after
    return True


def ot_fusion(networks: Sequence[Network]) -> Network:
    """OT fusion by weights, of all networks onto the first."""
    try:
        import ot
    except ImportError:
        raise PFNMError(
            "OT fusion needs the library POT, which is not installed; pip install 'pfnm[peers]'"
        ) from None
    _check_equal(networks)
    first = networks[0]
    renamings = [_as_they_are(network) for network in networks]
    matched: set[str] = set()
    for group in first.graph.outer_groups:
        sides = _leading_in(first, group, matched)
        theirs = np.concatenate(
            [side.rows(first, group, renamings[0], first.sizes) for side in sides], axis=1
        )
        share = np.full(first.sizes[group], 1 / first.sizes[group])
        for network, renaming in zip(networks[1:], renamings[1:], strict=True):
            own = np.concatenate(
                [side.rows(network, group, renaming, first.sizes) for side in sides], axis=1
            )
            plan = ot.emd(share, share, ot.dist(own, theirs, metric="euclidean"))
            renaming[group] = plan.argmax(axis=1)
        matched.add(group)
    return _mean(networks, renamings, range(len(networks)))


def _leading_in(network: Network, group: str, matched: set[str]) -> list[Side]:
    """The sides of a group along which values are written, as far as what is below is matched.

    Where there are none (recurrent states), all sides that can be compared.
    """
    graph = network.graph
    usable = sides_of(graph, group, {*matched, *graph.inner, group})
    written = {(own.weight, own.writes) for own in network.program.maps}
    written |= {(own.bias, 0) for own in network.program.maps if own.bias is not None}
    leading = [side for side in usable if (side.name, side.dimension) in written]
    leading = leading or [side for side in usable if graph.role(side.name) != "statistic"]
    if not leading:
        raise PFNMError(f"OT fusion: nothing of {group} can be compared; choose another method")
    return leading


def _check_equal(networks: Sequence[Network]) -> None:
    first = networks[0]
    for network in networks:
        if network.sizes != first.sizes:
            raise PFNMError(
                f"{network.name} has other widths than {first.name}; units are only renamed, so "
                "widths must be equal"
            )


def _as_they_are(network: Network) -> Renaming:
    """Every unit at its place; coordinates within heads keep theirs throughout."""
    graph, sizes = network.graph, network.sizes
    return {
        group: np.tile(np.arange(sizes[group]), (sizes[graph.inner[group]], 1))
        if group in graph.inner
        else np.arange(sizes[group])
        for group in graph.groups
    }


def _mean(
    networks: Sequence[Network], renamings: Sequence[Renaming], which: Iterable[int]
) -> Network:
    """The mean of some of the networks, each renamed."""
    renamed = [
        part_of(networks[j], {g: _inverse(own) for g, own in renamings[j].items()}) for j in which
    ]
    tensors = {
        name: np.mean([own.tensors[name] for own in renamed], axis=0, dtype=float).astype(
            tensor.dtype
        )
        for name, tensor in networks[0].tensors.items()
    }
    return replace(networks[0], tensors=tensors, name="average", metadata={})


def _inverse(places: IntArray) -> IntArray:
    """Which unit stands at each place."""
    return np.argsort(places, axis=-1)
