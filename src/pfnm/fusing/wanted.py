"""What should leave each map of a fused network: on probes, what its members do on average.

The sites run once, one after the other, for all matchings that are tried, and only sums over them
are kept: all that leaves all sites' maps may be many times as large as they are. Of large networks
they run for one matching at a time, and again when its sums are asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy

from pfnm.fusing.atoms import Assignments, widths_of
from pfnm.fusing.memory import give_back
from pfnm.fusing.probes import IMPOSSIBLE, MOST_RESPONSES, Probing, is_classifier
from pfnm.fusing.sites import Sites
from pfnm.networks.graph import OUTPUT, Axis, IntArray
from pfnm.networks.network import Network, Tensor
from pfnm.networks.program import Map

FITTED = ("linear", "scaled")  # kinds of maps that can be, by least squares and by scale
FIT_ROWS = 24_000  # by which a map is fitted: some tens for each number that enters it
WIDER = 2  # at most so many times as many features as a site's enter a fused map, mostly
LARGE = 5_000_000  # numbers of a network: to run the sites again is then little beside the rest
LEAST_TRUST = 1e-12  # a unit of one site does what it does there, however little that is trusted


def fit_rows(sites: Sites) -> int:
    """How many rows each map is fitted on: fewer where they, or what leaves all maps, fill memory.

    A row is an example, or one of its positions.
    """
    network = sites.networks[0]
    fitted = [
        (network.tensors[at.weight], at.writes)
        for at in network.program.maps
        if at.kind == "linear"
    ]
    entering = max((weight.size // weight.shape[axis] for weight, axis in fitted), default=1)
    leaving = sum(weight.shape[axis] for weight, axis in fitted)
    most = int(max(WIDER * entering, leaving * len(sites.networks), 1))
    return max(1, min(FIT_ROWS, MOST_RESPONSES // most))


Targets = Callable[[], Mapping[str, Tensor]]  # makes or gives them, by the map's weight


def targets_when_asked(
    sites: Sites, matchings: Sequence[Assignments], probing: Probing
) -> tuple[list[Targets], Targets]:
    """Of each matching its targets, and those of the maps to the outputs, the same in all of them.

    Those of large modules are made when they are asked for, and kept by nobody else.
    """
    first = sites.networks[0]
    outward = first.graph.tensors_of(OUTPUT)
    if sites.modules and first.parameters >= LARGE:
        each: list[Targets] = [partial(_targets_of, sites, own, probing) for own in matchings]
        return each, partial(_targets_of, sites, matchings[0], probing, outward)
    found = refit_targets(sites, matchings, probing)
    kept = {name: found[0][name] for name in outward if name in found[0]}
    return [partial(dict, own) for own in found], partial(dict, kept)


def _targets_of(
    sites: Sites, matching: Assignments, probing: Probing, only: Collection[str] | None = None
) -> dict[str, Tensor]:
    """The targets of one matching."""
    (found,) = refit_targets(sites, [matching], probing, only)
    return found


def refit_targets(
    sites: Sites,
    matchings: Sequence[Assignments],
    probing: Probing,
    only: Collection[str] | None = None,
) -> list[dict[str, Tensor]]:
    """Of each matching: what should leave each map on probes, (outputs, rows), by its weight.

    Of maps that can only be scaled, the mean and the deviation of that, (outputs, 2). Maps of the
    inputs themselves, which all sites share, have none. only: the weights of the maps that count.
    """
    wanted = _Wanted(sites, probing)
    maps = {
        at.weight: at
        for at in sites.networks[0].program.maps
        if wanted.fitted(at) and (only is None or at.weight in only)
    }
    sums: list[dict[str, Tensor]] = [{} for _ in matchings]
    if not maps or not len(probing.inputs):
        return sums
    for j, network in enumerate(sites.networks):

        def visit(at: Map, _: Any, values: Any, j: int = j, network: Network = network) -> None:
            if at.weight not in maps:
                return
            give_back(network)
            added = wanted.added(at, j, np.ascontiguousarray(values.T, dtype=np.float32))
            for matching, total in zip(matchings, sums, strict=True):
                places, width = wanted.places(at, j, matching)
                if at.weight not in total:
                    total[at.weight] = np.zeros((width, added.shape[1]), dtype=added.dtype)
                total[at.weight][places] += added

        network.run(probing.inputs, visit, rows=fit_rows(sites))
    for matching, total in zip(matchings, sums, strict=True):
        for weight in total:
            total[weight] = wanted.mean(maps[weight], total[weight], matching)
    return sums


@dataclass(frozen=True, eq=False)
class _Wanted:
    """What each site adds to what is wanted of a map, and where."""

    sites: Sites
    probing: Probing

    def fitted(self, at: Map) -> bool:
        """Whether a map can be fitted: from units to units, or to outputs alone."""
        graph = self.sites.networks[0].graph
        reads, writes = graph.axes[at.weight][at.reads], self._writes(at)
        units = bool(writes.spaces) and all(map(graph.is_group, writes.spaces))
        leads = any(map(graph.is_group, reads.spaces)) and (units or writes.space == OUTPUT)
        return at.kind in FITTED and leads

    def places(self, at: Map, site: int, matching: Assignments) -> tuple[IntArray, int]:
        """Where what leaves a site's map stands among the fused values, and how many these are."""
        first = self.sites.networks[0]
        sizes = {**first.sizes, **widths_of(first.graph, matching)}
        units = {group: own[site] for group, own in matching.items()}
        writes = self._writes(at)
        return writes.positions(units, sizes, first.graph.inner), writes.length(sizes)

    def added(self, at: Map, site: int, values: Tensor) -> Tensor:
        """What a site adds to the sum, from what leaves its map, (outputs, rows).

        To units: the values, a site counting by how much it has seen of what a probe looks like. To
        outputs: each by its share of the class, of classifiers the log probabilities.
        """
        if self._writes(at).space == OUTPUT:
            if self._classes(at):
                known = self.sites.known[site][:, None]
                values = scipy.special.log_softmax(np.where(known, values, IMPOSSIBLE), axis=0)
            shares = self.sites.class_shares[site].astype(np.float32)
            return np.asarray(shares[:, None] * values)
        if at.kind == "scaled":
            return np.stack([values.mean(axis=1), values.std(axis=1)], axis=1).astype(float)
        return self._trust(site, values.shape[1]) * values

    def mean(self, at: Map, total: Tensor, matching: Assignments) -> Tensor:
        """What is wanted, from the sum over the sites."""
        if self._writes(at).space == OUTPUT:
            # Probabilities do not see a constant added to all outputs; it is made zero.
            return np.asarray(total - total.mean(axis=0)) if self._classes(at) else total
        counted = np.zeros_like(total)
        for site in range(len(self.sites.networks)):
            places, _ = self.places(at, site, matching)
            counted[places] += 1 if at.kind == "scaled" else self._trust(site, total.shape[1])
        counted[counted == 0] = 1
        total /= counted
        return total

    def _writes(self, at: Map) -> Axis:
        return self.sites.networks[0].graph.axes[at.weight][at.writes]

    def _classes(self, at: Map) -> bool:
        """Whether what leaves the map are the logarithms of probabilities."""
        first = self.sites.networks[0]
        outward = first.graph.tensors_of(OUTPUT)
        alone = sum(own.weight in outward for own in first.program.maps) == 1
        return alone and is_classifier(first)

    def _trust(self, site: int, rows: int) -> Tensor:
        trust, examples = self.probing.trust[site], len(self.probing.inputs)
        if trust.size != examples:  # several outputs of each example
            trust = trust.reshape(examples, -1).mean(axis=1)
        each = np.repeat(trust, rows // examples)
        return np.asarray(np.maximum(each, LEAST_TRUST), np.float32)
