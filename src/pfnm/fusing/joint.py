"""All groups together: deep networks that really fuse.

A unit is matched on every side whose coordinates are known, and on what it does: its output on
probes times the norm of its outgoing weights (its contribution, which does not change when a ReLU
unit's incoming weights grow and its outgoing ones shrink). First pass from the bottom, where the
inputs are shared by all sites; then sweeps over the groups, both sides known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import inf

import numpy as np

from pfnm.errors import overflow_named
from pfnm.fusing.atoms import Assignments, group_atoms, observed_mean, with_tensors
from pfnm.fusing.inputs import Units
from pfnm.fusing.order import as_listed, in_order, start_in_order, unit_order
from pfnm.fusing.probes import (
    CHECK_PROBES,
    Probing,
    agreement,
    is_classifier,
    probe,
    site_agreements,
    sure_agreement,
)
from pfnm.fusing.refit import first_values, refit, refit_targets, repair_norms
from pfnm.fusing.sites import Sites
from pfnm.fusing.solution import Candidate, Solution
from pfnm.fusing.topdown import topdown_within
from pfnm.matching.matching import Matching, match
from pfnm.matching.prior import Prior
from pfnm.networks.network import OUTPUT, BoolArray, Network, Tensor
from pfnm.networks.perceptron import ACTIVATIONS, first_layer, layers

# Measured in the deep study (docs/deep.md); the fusion with the highest agreement is kept.
MATCH_PROBES = 500
FIT_PROBES = 1500
EMPHASES = (0.3, 1.0)  # what a unit does counts so much in matching, its weights counting 1
RIDGES = (0.3, 1.0, 3.0)  # how far the refit is held back
NATURAL_RIDGES = (0.03, 0.1, 0.3, 1.0)  # on inputs like real ones, which can be trusted further
JOINT_SWEEPS = 2
SWEEPS_PER_GROUP = 3


@overflow_named()
def fuse_joint(
    sites: Sites,
    *,
    prior: Prior,
    rng: np.random.Generator,
    limits: Mapping[str, int] | None = None,
    start: Assignments | None = None,
    on_step: Callable[[], None] | None = None,
) -> Solution:
    """Match all groups jointly, several times over, and keep the fusion the sites agree with most.

    limits: at most so many global units of each group. start: assignments of an earlier fusion of
    the same sites, from which every group then starts. The paper's own solution is among what is
    tried. The order in which a site lists its units does not matter: they are put in order by norm
    first.
    """
    networks = [centred(*pair) for pair in zip(sites.networks, sites.known, strict=True)]
    sites = replace(sites, networks=networks)
    orders = [unit_order(network) for network in networks]
    ordered = in_order(sites, orders)
    match_rng, fit_rng, check_rng, order_rng, topdown_rng = rng.spawn(5)
    to_match = probe(ordered, MATCH_PROBES, match_rng)
    to_fit = probe(ordered, FIT_PROBES, fit_rng)
    to_check = probe(ordered, CHECK_PROBES, check_rng, to_judge=True)
    best: Solution | None = topdown_within(sites, prior, topdown_rng, limits, start, None, on_step)
    best_share, tried = -inf, []
    if best is not None:
        best_share = sure_agreement(best.network, to_check)
        tried.append(Candidate("topdown", None, None, None, best_share, best.objective))
    if start is not None:
        start = start_in_order(start, orders)
    for emphasis in EMPHASES:
        states = joint_states(ordered, prior, limits, to_match, emphasis, start, order_rng, on_step)
        for sweep, matchings in enumerate(states, start=1):
            first = None  # all networks of one matching have the same first layer
            for ridge, network in repaired(ordered, matchings, to_fit):
                first = first_layer(network, to_check.inputs) if first is None else first
                share = sure_agreement(network, to_check, first)
                objective = sum(matching.objective for matching in matchings.values())
                tried.append(Candidate("joint", emphasis, sweep, ridge, share, objective))
                if share > best_share:
                    assignments = {name: found.assignments for name, found in matchings.items()}
                    listed = as_listed(assignments, orders)
                    best, best_share = Solution.of(network, matchings, listed), share
    assert best is not None
    return replace(
        best,
        agreement=max(0.0, agreement(best.network, to_check)),
        site_agreement=max(0.0, *site_agreements(ordered, to_check)),
        candidates=tuple(tried),
    )


def centred(network: Network, known: BoolArray) -> Network:
    """A classifier that lacks some classes, its outputs shifted to mean zero over those it knows.

    A constant added to all of them says nothing, but would beside another site's.
    """
    if known.all() or not is_classifier(network):
        return network
    tensors = dict(network.tensors)
    for name, axes in network.graph.axes.items():
        if axes[-1].space == OUTPUT or axes[0].space == OUTPUT:
            rows = np.moveaxis(tensors[name].copy(), [a.space for a in axes].index(OUTPUT), 0)
            rows[known] -= rows[known].mean(axis=0)
            tensors[name] = np.moveaxis(rows, 0, [a.space for a in axes].index(OUTPUT))
    return replace(network, tensors=tensors)


def joint_states(
    sites: Sites,
    prior: Prior,
    limits: Mapping[str, int] | None,
    probing: Probing,
    emphasis: float,
    start: Assignments | None,
    rng: np.random.Generator,
    on_step: Callable[[], None] | None,
) -> Iterator[dict[str, Matching]]:
    """The matchings after each joint sweep, the first of which follows a first pass."""
    groups = sites.networks[0].graph.groups
    extras = [contributions(sites, probing, depth, emphasis) for depth in range(len(groups))]
    known = {} if start is None else dict(start)
    matchings: dict[str, Matching] = {}
    first = 0
    if len(groups) == 1:
        # Its sides are all known from the start: there is no first pass that differs from others.
        # The orders that one would take are passed over, so that a seed gives what it always gave.
        first = 1
        for _ in range(SWEEPS_PER_GROUP):
            rng.permutation(len(sites.networks))
    for sweep in range(first, 1 + JOINT_SWEEPS):
        for group, extra in zip(groups, extras, strict=True):
            own = prior.for_group(group)
            others = {other: found for other, found in known.items() if other != group}
            atoms, precisions, prior_mean = group_atoms(sites, group, others, own)
            site_precisions = sites.weights / own.site_variances(len(sites.networks))
            matchings[group] = match(
                [np.concatenate(pair, axis=1) for pair in zip(atoms, extra, strict=True)],
                own,
                precisions=[
                    np.concatenate([seen, np.full(extra[0].shape[1], precision)])
                    for seen, precision in zip(precisions, site_precisions, strict=True)
                ],
                prior_mean=np.concatenate([prior_mean, np.zeros(extra[0].shape[1])]),
                start=None if start is None else known[group],
                sweeps=SWEEPS_PER_GROUP,
                width_limit=None if limits is None else limits[group],
                rng=rng,
                on_step=on_step,
            )
            known[group] = matchings[group].assignments
        if sweep > 0:
            yield dict(matchings)


def contributions(sites: Sites, probing: Probing, depth: int, emphasis: float) -> list[Tensor]:
    """Of each site's units, (units, probes): outputs on probes times the norm of what they feed.

    Scaled so that their variance over all sites is that of the weights, and that all of them
    together count `emphasis` times as much as the weights do.
    """
    activation = ACTIVATIONS[sites.networks[0].activation]
    result, weights = [], []
    for network, responses in zip(sites.networks, probing.responses, strict=True):
        stack = layers(network)
        below, above = stack[depth].weight, stack[depth + 1].weight
        norms = np.linalg.norm(above.astype(float), axis=1)
        result.append(np.asarray(activation(responses[depth])) * norms[:, None])
        weights.append(
            below.var(dtype=float) * below.shape[0] + above.var(dtype=float) * above.shape[1]
        )
    spread = float(np.mean([values.var() for values in result])) * len(probing.inputs)
    scale = np.sqrt(emphasis * np.mean(weights) / spread) if spread > 0 else 0.0
    return [values * scale for values in result]


def repaired(
    sites: Sites, matchings: Mapping[str, Matching], probing: Probing
) -> Iterator[tuple[float | None, Network]]:
    """The fused networks that one matching can give: norms repaired, and refitted on probes."""
    assignments = {group: matching.assignments for group, matching in matchings.items()}
    mean = observed_mean(sites, assignments)
    network = with_tensors(sites, repair_norms(sites, assignments, mean))
    yield None, network
    targets = refit_targets(sites, assignments, probing)
    values = first_values(network, probing)
    for ridge in RIDGES if isinstance(sites.inputs, Units) else NATURAL_RIDGES:
        yield ridge, with_tensors(sites, refit(network, targets, values, ridge))
