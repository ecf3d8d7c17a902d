"""All groups together: deep networks that really fuse.

A unit is matched on every side whose coordinates are known, and on what it does: its output on
probes times the norm of its outgoing weights (its contribution, which does not change when a ReLU
unit's incoming weights grow and its outgoing ones shrink). First pass from the bottom, where the
inputs are shared by all sites; then sweeps over the groups, both sides known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any

import numpy as np

from pfnm.errors import overflow_named
from pfnm.fusing.activity import Activity, activities
from pfnm.fusing.atoms import Assignments, observed_mean, sides_of, with_tensors
from pfnm.fusing.groups import atoms_of, inner_assignments, next_group
from pfnm.fusing.inputs import Units
from pfnm.fusing.memory import give_back
from pfnm.fusing.order import as_listed, in_order, listed_order, start_in_order, unit_order
from pfnm.fusing.probes import (
    CHECK_PROBES,
    Probing,
    agreement,
    is_classifier,
    judged,
    probe,
    probes_for,
    site_agreements,
)
from pfnm.fusing.refit import Making, repair_norms
from pfnm.fusing.sites import Sites
from pfnm.fusing.solution import Candidate, Solution
from pfnm.fusing.together import Steps, at_once
from pfnm.fusing.topdown import topdown_within
from pfnm.fusing.wanted import Targets, targets_when_asked
from pfnm.fusing.whole import chosen_sites, room_for, side_by_side, whole_network
from pfnm.matching.matching import Matching, match
from pfnm.matching.prior import Prior
from pfnm.networks.graph import OUTPUT, IntArray, UnitGraph
from pfnm.networks.network import Array, BoolArray, Network, Tensor

# Measured in the deep study (docs/deep.md); the fusion with the highest agreement is kept.
MATCH_PROBES = 500
FIT_PROBES = 1500
FRAME_SEED = 0  # of the inputs by which streams are rotated
RIDGES = (0.3, 1.0, 3.0)  # how far the refit is held back
NATURAL_RIDGES = (0.03, 0.1, 0.3, 1.0)  # on inputs like real ones, which can be trusted further
MODULE_RIDGES = (0.03, 0.3)  # of modules, which take longer
SINGLE_LARGEST = 1e6  # of atoms, of precisions and their inverses: single precision holds squares
SWEEPS_PER_GROUP = 3
LARGEST_AT_ONCE = 50_000_000  # numbers of all sites: more are matched one after the other


@dataclass(frozen=True)
class Effort:
    """How many matchings are tried: with each emphasis one after each joint sweep.

    emphases: what a unit does counts so much in matching, its weights counting 1. paper: whether
    the paper's own solution is tried too.
    """

    emphases: tuple[float, ...] = (0.3, 1.0)
    joint_sweeps: int = 2
    paper: bool = True


ALL = Effort()
FIRST_ROUND = Effort(paper=False)  # of few sites
ROUND = Effort((0.3,), joint_sweeps=1, paper=False)


@overflow_named()
def fuse_joint(
    sites: Sites,
    *,
    prior: Prior,
    rng: np.random.Generator,
    limits: Mapping[str, int] | None = None,
    start: Assignments | None = None,
    on_step: Callable[[], None] | None = None,
    effort: Effort = ALL,
    pieces: int = 1,
) -> Solution:
    """Match all groups jointly, several times over, and keep the fusion the sites agree with most.

    limits: at most so many global units of each group. start: assignments of an earlier fusion of
    the same sites, from which every group then starts. The paper's own solution is among what is
    tried, where no limit keeps it from being that. effort: how much else is. pieces: so
    many pieces of the work are done at once, if the sites are small enough; the result is the same.
    The order in which a site lists its units does not matter: they are put in order by norm first.
    """
    networks = [centred(*pair) for pair in zip(sites.networks, sites.known, strict=True)]
    sites = replace(sites, networks=networks)
    modules = sites.modules
    orders = [(listed_order if modules else unit_order)(network) for network in networks]
    ordered = sites if modules else in_order(sites, orders)  # modules may be large: no copies
    match_rng, fit_rng, check_rng, order_rng, topdown_rng = rng.spawn(5)
    large = sum(network.parameters for network in networks) > LARGEST_AT_ONCE
    pieces = 1 if modules or large else pieces
    steps = Steps(on_step)
    to_match = probes_for(ordered, MATCH_PROBES, match_rng)
    preparing: list[Callable[[], Any]] = [
        partial(probe, ordered, FIT_PROBES, fit_rng),
        partial(probe, ordered, CHECK_PROBES, check_rng, to_judge=True),
    ]
    if effort.paper and not modules:  # of which the paper's way gives no mean of outputs
        preparing.append(
            partial(topdown_within, sites, prior, topdown_rng, limits, start, None, steps)
        )
    to_fit, to_check, *papers = at_once(preparing, pieces, steps)
    graph = sites.networks[0].graph
    best: Solution | None = papers[0] if papers else None
    best_share, tried = -inf, []
    again: tuple[Making, float | None] | None = None
    if best is not None:
        best_share = judged(best.network, to_check)
        tried.append(Candidate("topdown", None, None, None, best_share, best.objective))
    if start is not None:
        start = start_in_order(start, orders, graph.inner)
    # All matchings before the first network: large modules leave no room for both.
    states = all_matchings(
        ordered, prior, limits, to_match, start, order_rng, steps, effort, pieces
    )
    matched = [
        {name: found.assignments for name, found in matchings.items()} | inner
        for _, _, matchings, inner in states
    ]
    targets, outward = targets_when_asked(ordered, matched, to_fit)
    makings = (
        Making(ordered, partial(repaired, ordered, assignments), to_fit, targets.pop(0))
        for assignments in matched
    )
    judging = (partial(_best_of, making, ridges_for(sites), to_check, steps) for making in makings)
    results = at_once(judging, pieces, steps)
    for (emphasis, sweep, matchings, _), assignments, (network, making, shares) in zip(
        states, matched, results, strict=True
    ):
        objective = sum(matching.objective for matching in matchings.values())
        for ridge, share in shares:
            tried.append(Candidate("joint", emphasis, sweep, ridge, share, objective))
            if share > best_share:
                again, best_share = (making, ridge), share
                listed = as_listed(assignments, orders, graph.inner)
                best = Solution.of(network, matchings, listed)
    assert best is not None
    if modules and again is not None:
        best, again, more = best_whole(ordered, limits, best, best_share, again, to_check, outward)
        tried += more
        making, ridge = again
        best = replace(best, network=next(making.networks([ridge]))[1])
    return replace(
        best,
        agreement=max(0.0, agreement(best.network, to_check)),
        site_agreement=max(0.0, *site_agreements(ordered, to_check)),
        candidates=tuple(tried),
    )


State = tuple[float, int, dict[str, Matching], dict[str, tuple[IntArray, ...]]]


def all_matchings(
    sites: Sites,
    prior: Prior,
    limits: Mapping[str, int] | None,
    inputs: Tensor,
    start: Assignments | None,
    rng: np.random.Generator,
    steps: Steps,
    effort: Effort,
    pieces: int,
) -> list[State]:
    """The matchings of each emphasis: it, the joint sweep they follow, and they themselves.

    Of modules those of the last joint sweep alone: they take longer. With them the orders of groups
    within others.
    """
    active = activities(sites, inputs)

    def with_emphasis(emphasis: float, own_rng: np.random.Generator) -> list[State]:
        states = joint_states(sites, prior, limits, active, emphasis, start, own_rng, steps, effort)
        numbered = ((emphasis, sweep, *state) for sweep, state in enumerate(states, 1))
        return [state for state in numbered if not sites.modules or state[1] == effort.joint_sweeps]

    work = []
    for emphasis in effort.emphases:
        work.append(partial(with_emphasis, emphasis, deepcopy(rng)))
        pass_over(sites, rng, effort)
    return [state for states in at_once(work, pieces, steps) for state in states]


def pass_over(sites: Sites, rng: np.random.Generator, effort: Effort) -> None:
    """As many orders as `joint_states` draws: what is drawn next is what comes after it."""
    groups = len(sites.networks[0].graph.outer_groups)
    for _ in range(SWEEPS_PER_GROUP * groups * (1 + effort.joint_sweeps)):
        rng.permutation(len(sites.networks))


def _best_of(
    making: Making, ridges: Sequence[float], to_check: Probing, steps: Steps
) -> tuple[Network, Making, list[tuple[float | None, float]]]:
    """The best network of one matching, as averaged or refitted, and how good each of them is.

    Modules leave no room for one beside others: in place of the best, which is made again later,
    they give the first site's.
    """
    modules = making.sites.modules
    shares: list[tuple[float | None, float]] = []
    best, best_share = making.sites.networks[0], -inf
    first = None  # all networks of one matching have the same first map
    for ridge, network in making.networks((None, *ridges)):
        steps.go_on()
        first = network.first_values(to_check.inputs) if first is None else first
        share = judged(network, to_check, first)
        shares.append((ridge, share))
        if share > best_share and not modules:
            best, best_share = network, share
        del network  # before the next is made
        give_back(making.sites.networks[0])
    return best, making, shares


def in_one_frame(sites: Sites) -> Sites:
    """The sites, whose residual streams stand in coordinates that they share (of modules some)."""
    own = [network.tensors for network in sites.networks]
    inputs = partial(probes_for, sites, FIT_PROBES, np.random.default_rng(FRAME_SEED))
    found = sites.networks[0].program.in_one_frame(own, inputs)
    if found is own:
        return sites
    pairs = zip(sites.networks, found, strict=True)
    return replace(sites, networks=[replace(network, tensors=t) for network, t in pairs])


def centred(network: Network, known: BoolArray) -> Network:
    """A classifier that lacks some classes, its outputs shifted to mean zero over those it knows.

    A constant added to all of them says nothing, but would beside another site's.
    """
    if known.all() or not is_classifier(network):
        return network
    tensors = dict(network.tensors)
    for name, axes in network.graph.axes.items():
        spaces = [axis.space for axis in axes]
        if OUTPUT in spaces:
            rows = np.moveaxis(tensors[name].copy(), spaces.index(OUTPUT), 0)
            rows[known] -= rows[known].mean(axis=0)
            tensors[name] = np.moveaxis(rows, 0, spaces.index(OUTPUT))
    return replace(network, tensors=tensors)


def joint_states(
    sites: Sites,
    prior: Prior,
    limits: Mapping[str, int] | None,
    active: Mapping[str, Activity],
    emphasis: float,
    start: Assignments | None,
    rng: np.random.Generator,
    on_step: Callable[[], None] | None,
    effort: Effort = ALL,
) -> Iterator[tuple[dict[str, Matching], dict[str, tuple[IntArray, ...]]]]:
    """The matchings after each joint sweep, the first of which follows a first pass.

    With them the orders of groups within others.
    """
    graph = sites.networks[0].graph
    known = {} if start is None else dict(start)
    matchings: dict[str, Matching] = {}
    order = list(graph.outer_groups)
    first = 0
    if len(order) == 1 and _known_at_once(graph, order[0]):
        # Its sides are all known from the start: there is no first pass that differs from others.
        # The orders that one would take are passed over, so that a seed gives what it always gave.
        first = 1
        for _ in range(SWEEPS_PER_GROUP):
            rng.permutation(len(sites.networks))
    for sweep in range(first, 1 + effort.joint_sweeps):
        left = list(order)
        while left:
            group = next_group(graph, left, known)
            left.remove(group)
            own = prior.for_group(group)
            does = active[group].counting(emphasis) if group in active else None
            atoms, precisions, prior_mean = atoms_of(sites, group, known, own, does)
            del does
            give_back(sites.networks[0])
            matchings[group] = match(
                in_single(atoms, precisions),
                own,
                precisions=precisions,
                prior_mean=prior_mean,
                start=None if start is None else known[group],
                sweeps=SWEEPS_PER_GROUP,
                width_limit=None if limits is None else limits[group],
                rng=rng,
                on_step=on_step,
                used_up=True,
            )
            del atoms  # before the next group's are made
            give_back(sites.networks[0])
            known[group] = matchings[group].assignments
            known |= inner_assignments(sites, group, known)
        if sweep > 0:
            inner = {group: tuple(known[group]) for group in graph.inner}
            yield {group: matchings[group] for group in order}, inner


def in_single(atoms: list[Array], precisions: Sequence[Array]) -> list[Array]:
    """The atoms in single precision, where their numbers are of a usual size: products take half.

    What this rounds away is far below what tells one candidate from another.
    """
    seen = np.array(precisions)
    seen = seen[seen > 0]
    usual = seen.size and seen.max() <= SINGLE_LARGEST and seen.min() >= 1 / SINGLE_LARGEST
    if usual and all(np.abs(own).max() <= SINGLE_LARGEST for own in atoms):
        return [own.astype(np.float32, copy=False) for own in atoms]
    return atoms


def _known_at_once(graph: UnitGraph, group: str) -> bool:
    """Whether all sides of a group are comparable before anything is matched."""
    return sides_of(graph, group, set()) == sides_of(graph, group, set(graph.groups))


def repaired(sites: Sites, assignments: Assignments) -> Network:
    """The fused network of one matching: the mean of what was observed, norms repaired."""
    mean = observed_mean(sites, assignments)
    return with_tensors(sites, repair_norms(sites, assignments, mean))


def ridges_for(sites: Sites) -> tuple[float, ...]:
    """How far the refit may be held back: several are tried."""
    if sites.networks[0].program.examples is not None:
        return MODULE_RIDGES
    return RIDGES if isinstance(sites.inputs, Units) else NATURAL_RIDGES


def best_whole(
    sites: Sites,
    limits: Mapping[str, int] | None,
    best: Solution,
    best_share: float,
    again: tuple[Making, float | None],
    to_check: Probing,
    outward: Targets,
) -> tuple[Solution, tuple[Making, float | None], list[Candidate]]:
    """The best so far, or some sites kept whole side by side where these agree more.

    again: how the best's network is made, and with which ridge. outward: makes what should leave
    the maps to the outputs. With the solution comes how to make its network, and what was tried.
    """
    tried: list[Candidate] = []
    room = room_for(sites, limits)
    if not room:
        return best, again, tried
    chosen = chosen_sites(sites, to_check, room)
    if any(  # no place for all units of a site that is not chosen
        sum(sites.networks[j].sizes[group] for j in chosen)
        < max(network.sizes[group] for network in sites.networks)
        for group in sites.networks[0].graph.outer_groups
    ):
        return best, again, tried
    if not sites.known[chosen].any(axis=0).all():  # there is a class that none of them knows
        return best, again, tried
    assignments = side_by_side(sites, chosen, best.assignments)
    average = partial(whole_network, sites, chosen, assignments)
    wanted = outward if len(chosen) < len(sites.networks) else dict
    making = Making(sites, average, again[0].probing, wanted)
    for ridge, network in making.networks((None, *ridges_for(sites))):
        share = judged(network, to_check)
        tried.append(Candidate("whole", None, None, ridge, share, best.objective))
        if share > best_share:
            popularity = {
                group: np.bincount(np.concatenate(own))
                for group, own in assignments.items()
                if group not in sites.networks[0].graph.inner
            }
            best_share, again = share, (making, ridge)
            best = replace(best, assignments=assignments, popularity=popularity)
        del network
    return best, again, tried
