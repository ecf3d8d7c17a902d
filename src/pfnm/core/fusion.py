"""The result of a fusion, and the paper's way to it: group after group from the top."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pfnm.core.atoms import Assignments, group_atoms, part_of, posterior_mean
from pfnm.core.errors import overflow_named
from pfnm.core.matching import Matching, Sweep, match
from pfnm.core.network import IntArray, Network
from pfnm.core.order import as_listed, in_order, listed_order, start_in_order, unit_order
from pfnm.core.prior import Prior
from pfnm.core.sites import Sites


@dataclass(frozen=True, eq=False)
class Fusion:
    """The global network, and which of its units every site's units became."""

    network: Network
    sites: tuple[str, ...]
    assignments: Mapping[str, tuple[IntArray, ...]]
    popularity: Mapping[str, IntArray]
    trace: Mapping[str, tuple[Sweep, ...]]
    objective: float
    """The log posterior of the assignments, all groups together, without normalising constants."""
    prior: Prior
    settled: bool
    agreement: float | None = None
    """Share of probes on which it answers like the ensemble of the sites, where it was measured."""
    site_agreement: float | None = None
    """The same of the best single site."""
    candidates: tuple[Any, ...] = ()
    """What was tried, where several fusions were."""
    model: Any = None
    """The global network as what the sites were given as (a scikit-learn estimator, say)."""

    @property
    def widths(self) -> dict[str, int]:
        """Global units of each group, bottom to top."""
        return self.network.widths

    def site_part(self, site: int) -> Network:
        """The global network cut down to the units of one site, in that site's order."""
        mine = {group: assignments[site] for group, assignments in self.assignments.items()}
        return replace(part_of(self.network, mine), name=self.sites[site], metadata={})


@overflow_named()
def fuse_topdown(
    sites: Sites,
    *,
    prior: Prior,
    rng: np.random.Generator,
    limits: Mapping[str, int] | None = None,
    start: Assignments | None = None,
    sweeps: int | None = None,
    on_step: Callable[[], None] | None = None,
) -> Fusion:
    """The paper's Algorithm 2 (Algorithm 1 for one layer): from the top group to the bottom one.

    limits: at most so many global units of each group. start: the assignments of an earlier fusion
    of the same sites. sweeps and on_step are those of `match`.
    """
    ordering = listed_order if prior.choices.listed_order else unit_order
    orders = [ordering(network) for network in sites.networks]
    sites = in_order(sites, orders)
    start = None if start is None else start_in_order(start, orders)
    matchings: dict[str, Matching] = {}
    order = sites.networks[0].graph.groups
    for group in reversed(order):
        matched = {done: matching.assignments for done, matching in matchings.items()}
        own = prior.for_group(group)
        atoms, precisions, prior_mean = group_atoms(sites, group, matched, own)
        matchings[group] = match(
            atoms,
            own,
            precisions=precisions,
            prior_mean=prior_mean,
            start=None if start is None else start[group],
            sweeps=sweeps,
            width_limit=None if limits is None else limits[group],
            rng=rng,
            on_step=on_step,
        )
    ordered = {group: matchings[group] for group in order}
    assignments = {group: matching.assignments for group, matching in ordered.items()}
    fusion = fusion_of(sites, posterior_mean(sites, assignments, prior), ordered, prior)
    return replace(fusion, assignments=as_listed(fusion.assignments, orders))


def fusion_of(
    sites: Sites, network: Network, matchings: Mapping[str, Matching], prior: Prior
) -> Fusion:
    """The result made of a global network and its groups' matchings."""
    return Fusion(
        network=network,
        sites=tuple(site.name for site in sites.networks),
        assignments={group: matching.assignments for group, matching in matchings.items()},
        popularity={group: matching.popularity for group, matching in matchings.items()},
        trace={group: matching.trace for group, matching in matchings.items()},
        objective=sum(matching.objective for matching in matchings.values()),
        prior=prior,
        settled=all(matching.settled for matching in matchings.values()),
    )
