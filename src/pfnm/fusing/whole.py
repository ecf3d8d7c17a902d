"""Some sites kept whole, side by side: what any fusion of that width has to beat.

Where the budget has room for k sites beside each other, they are an exact ensemble in one network;
the outputs are then fitted to what all sites say. Which k: one after the other, the site with which
they answer most like all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pfnm.fusing.atoms import Assignments, observed_mean, width_of
from pfnm.fusing.probes import Probing, is_classifier, said_together
from pfnm.fusing.sites import Sites
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Network

LEAST_WHOLE = 2  # one site alone is no fusion


def room_for(sites: Sites, limits: Mapping[str, int] | None) -> int:
    """How many sites the limits have room for, side by side; none where a group cannot be wider."""
    if limits is None or sites.networks[0].graph.rigid:
        return 0
    widest = {group: max(n.sizes[group] for n in sites.networks) for group in limits}
    room = min(limits[group] // width for group, width in widest.items())
    return min(room, len(sites.networks)) if room >= LEAST_WHOLE else 0


def chosen_sites(sites: Sites, probing: Probing, number: int) -> list[int]:
    """The sites that together answer most like all, found one after the other."""
    chosen: list[int] = []
    while len(chosen) < number:
        left = [j for j in range(len(sites.networks)) if j not in chosen]
        chosen.append(max(left, key=lambda j: _likeness(sites, probing, [*chosen, j])))
    return sorted(chosen)


def _likeness(sites: Sites, probing: Probing, chosen: Sequence[int]) -> float:
    said = said_together(part_of_sites(sites, chosen), [probing.outputs[j] for j in chosen])
    if is_classifier(sites.networks[0]):
        return float((said.argmax(axis=0) == probing.answer.argmax(axis=0)).mean())
    return -float(np.square(said - probing.answer).mean())


def part_of_sites(sites: Sites, chosen: Sequence[int]) -> Sites:
    """Some of the sites; they count alike for a class that none of them has seen."""
    places = list(chosen)
    weights = sites.output_weights[places]
    unseen = weights.sum(axis=0) == 0
    return replace(
        sites,
        networks=[sites.networks[j] for j in places],
        weights=sites.weights[places],
        output_weights=np.where(unseen, sites.weights[places][:, None], weights),
        known=sites.known[places],
    )


def side_by_side(
    sites: Sites, chosen: Sequence[int], matched: Assignments
) -> dict[str, tuple[IntArray, ...]]:
    """Assignments in which these sites share no unit, and the others' units are theirs.

    A unit of another site becomes that of a chosen one with which it was matched; where there is
    none, any that is free.
    """
    graph = sites.networks[0].graph
    result: dict[str, tuple[IntArray, ...]] = {}
    for group, known in matched.items():
        if group in graph.inner:
            result[group] = tuple(known)
            continue
        ends = np.cumsum([0, *(known[j].size for j in chosen)])
        own = {
            j: np.arange(first, last)
            for j, first, last in zip(chosen, ends, ends[1:], strict=False)
        }
        places = np.full(width_of(known), -1)  # of a matched global unit, where it is now
        for j in reversed(chosen):
            places[known[j]] = own[j]
        result[group] = tuple(
            own[j] if j in own else _placed(places[known[j]], int(ends[-1]))
            for j in range(len(sites.networks))
        )
    return result


def _placed(wanted: IntArray, width: int) -> IntArray:
    """Places as wanted, and free ones for those that have none (-1)."""
    free = np.setdiff1d(np.arange(width), wanted)
    found = wanted.copy()
    (without,) = np.nonzero(wanted < 0)
    found[without] = free[: without.size]
    return found


def whole_network(sites: Sites, chosen: Sequence[int], assignments: Assignments) -> Network:
    """The chosen sites side by side: their outputs' mean."""
    own = {group: [units[j] for j in chosen] for group, units in assignments.items()}
    return observed_mean(part_of_sites(sites, chosen), own)
