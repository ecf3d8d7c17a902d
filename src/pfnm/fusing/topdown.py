"""The paper's way to fuse: group after group from the top (its Algorithm 2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from pfnm.errors import overflow_named
from pfnm.fusing.atoms import Assignments, posterior_mean
from pfnm.fusing.groups import atoms_of, inner_assignments, next_group
from pfnm.fusing.order import as_listed, in_order, listed_order, start_in_order, unit_order
from pfnm.fusing.sites import Sites
from pfnm.fusing.solution import Solution
from pfnm.matching.matching import Matching, match
from pfnm.matching.prior import Prior
from pfnm.networks.graph import IntArray


def fuse_topdown(
    sites: Sites,
    *,
    prior: Prior,
    rng: np.random.Generator,
    limits: Mapping[str, int] | None = None,
    start: Assignments | None = None,
    sweeps: int | None = None,
    on_step: Callable[[], None] | None = None,
) -> Solution:
    """The paper's Algorithm 2 (Algorithm 1 for one layer): from the top group to the bottom one.

    limits: at most so many global units of each group. start: the assignments of an earlier fusion
    of the same sites. sweeps and on_step are those of `match`.
    """
    solution = topdown_within(
        sites, prior, rng, limits, start, sweeps, on_step, whatever_the_limits=True
    )
    assert solution is not None
    return solution


@overflow_named()
def topdown_within(
    sites: Sites,
    prior: Prior,
    rng: np.random.Generator,
    limits: Mapping[str, int] | None,
    start: Assignments | None = None,
    sweeps: int | None = None,
    on_step: Callable[[], None] | None = None,
    *,
    whatever_the_limits: bool = False,
) -> Solution | None:
    """The same; but None once a group fills its limit, mostly in the first pass.

    Such a group would mostly have become wider: the match, and what is below it, is not the
    paper's. In 120 fusions of the digits it was never the best of what was tried (docs/math.md),
    and it takes as long as all the rest.
    """
    ordering = listed_order if prior.choices.listed_order else unit_order
    orders = [ordering(network) for network in sites.networks]
    graph = sites.networks[0].graph
    sites = in_order(sites, orders)
    start = None if start is None else start_in_order(start, orders, graph.inner)
    matchings: dict[str, Matching] = {}
    matched: dict[str, Sequence[IntArray]] = {}
    left = list(reversed(graph.outer_groups))
    while left:
        group = next_group(graph, left, matched)
        left.remove(group)
        own = prior.for_group(group)
        atoms, precisions, prior_mean = atoms_of(sites, group, matched, own)
        limit = None if limits is None else limits[group]
        found = partial(
            match,
            atoms,
            own,
            precisions=precisions,
            prior_mean=prior_mean,
            start=None if start is None else start[group],
            width_limit=limit,
            rng=rng,
        )
        may_fill = limit is None or whatever_the_limits
        if not may_fill and found(sweeps=0).width == limit:
            return None
        matchings[group] = found(sweeps=sweeps, on_step=on_step)
        if not may_fill and matchings[group].width == limit:
            return None
        matched[group] = matchings[group].assignments
        matched |= inner_assignments(sites, group, matched)
    ordered = {group: matchings[group] for group in graph.outer_groups}
    assignments = {group: matched[group] for group in graph.groups}
    network = posterior_mean(sites, assignments, prior)
    return Solution.of(network, ordered, as_listed(assignments, orders, graph.inner))
