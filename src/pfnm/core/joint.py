"""All groups together: deep networks that really fuse.

A unit is matched on every side whose coordinates are known, and on what it does: its output on
probes times the norm of its outgoing weights (its contribution, which does not change when a ReLU
unit's incoming weights grow and its outgoing ones shrink). First pass from the bottom, where the
inputs are shared by all sites; then sweeps over the groups, both sides known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pfnm.core.atoms import Assignments, group_atoms, observed_mean, with_tensors
from pfnm.core.errors import overflow_named
from pfnm.core.fusion import Fusion, fusion_of
from pfnm.core.matching import Matching, match
from pfnm.core.mlp import ACTIVATIONS, layers
from pfnm.core.network import OUTPUT, BoolArray, Network, Tensor
from pfnm.core.order import as_listed, in_order, start_in_order, unit_order
from pfnm.core.prior import Prior
from pfnm.core.probes import (
    CHECK_PROBES,
    UNIT_RANGE,
    InputRange,
    Probing,
    agreement,
    is_classifier,
    probe,
    site_agreements,
    sure_agreement,
)
from pfnm.core.refit import refit, refit_targets, repair_norms
from pfnm.core.sites import Sites

# Measured in the deep study (docs/deep.md); the fusion with the highest agreement is kept.
MATCH_PROBES = 500
FIT_PROBES = 1500
EMPHASES = (0.3, 1.0)  # what a unit does counts so much in matching, its weights counting 1
RIDGES = (0.3, 1.0, 3.0)
JOINT_SWEEPS = 2
SWEEPS_PER_GROUP = 3


@dataclass(frozen=True)
class Candidate:
    """One fusion that was tried: how it was made, and its agreement with the sites on probes."""

    emphasis: float
    joint_sweep: int
    ridge: float | None
    sure_agreement: float
    objective: float


@overflow_named()
def fuse_joint(
    sites: Sites,
    *,
    prior: Prior,
    rng: np.random.Generator,
    limits: Mapping[str, int] | None = None,
    start: Assignments | None = None,
    within: InputRange = UNIT_RANGE,
    on_step: Callable[[], None] | None = None,
) -> Fusion:
    """Match all groups jointly, several times over, and keep the fusion the sites agree with most.

    limits: at most so many global units of each group. start: assignments of an earlier fusion of
    the same sites, from which every group then starts. within: where the probes' values lie. The
    order in which a site lists its units does not matter: they are put in order by norm first.
    """
    orders = [unit_order(network) for network in sites.networks]
    sites = in_order(sites, orders)
    sites = replace(
        sites,
        networks=[
            centred(network, known)
            for network, known in zip(sites.networks, sites.known, strict=True)
        ],
    )
    if start is not None:
        start = start_in_order(start, orders)
    match_rng, fit_rng, check_rng, order_rng = rng.spawn(4)
    to_match = probe(sites, MATCH_PROBES, match_rng, within=within)
    to_fit = probe(sites, FIT_PROBES, fit_rng, within=within)
    to_check = probe(sites, CHECK_PROBES, check_rng, with_noise=True, within=within)
    best: tuple[float, Network, Mapping[str, Matching]] | None = None
    tried = []
    for emphasis in EMPHASES:
        states = joint_states(sites, prior, limits, to_match, emphasis, start, order_rng, on_step)
        for sweep, matchings in enumerate(states, start=1):
            for ridge, network in repaired(sites, matchings, to_fit):
                share = sure_agreement(network, to_check)
                total = sum(matching.objective for matching in matchings.values())
                tried.append(Candidate(emphasis, sweep, ridge, share, total))
                if best is None or share > best[0]:
                    best = share, network, matchings
    assert best is not None
    _, network, chosen = best
    fusion = fusion_of(sites, network, chosen, prior)
    return replace(
        fusion,
        assignments=as_listed(fusion.assignments, orders),
        agreement=max(0.0, agreement(network, to_check)),
        site_agreement=max(0.0, *site_agreements(sites, to_check)),
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
    for sweep in range(1 + JOINT_SWEEPS):
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
    for ridge in RIDGES:
        yield ridge, with_tensors(sites, refit(network, targets, probing, ridge))
