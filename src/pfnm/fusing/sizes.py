"""How wide each layer should be: by evidence, and by what the sites agree with.

The evidence is that of the marginal rules (`matching.evidence`), group by group. It tells how many
different units the sites have, which is not always how many a good network needs: merged units are
mended by refitting, and that takes room. So agreement has the last word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pfnm.fusing.activity import activities
from pfnm.fusing.budget import parameters, widest_sites, width_limits
from pfnm.fusing.groups import atoms_of, inner_assignments, next_group
from pfnm.fusing.joint import MATCH_PROBES, centred, fuse_joint
from pfnm.fusing.probes import probes_for
from pfnm.fusing.sites import Sites
from pfnm.fusing.solution import Solution
from pfnm.matching.evidence import prior_by_evidence
from pfnm.matching.matching import Matching, match
from pfnm.matching.prior import Prior
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array

FACTORS = (2.0, 3.0, 4.0)  # of the widest sites' layers: the sizes tried beside the evidence's own
NEAR = 0.05  # of agreement: the smallest network this near to the best is taken
EVIDENCE_SWEEPS = 2  # of each matching by which variances are judged
EMPHASIS = 1.0  # what a unit does counts as much as its weights


def fuse_auto(
    sites: Sites,
    *,
    prior: Prior,
    rng: np.random.Generator,
    on_step: Callable[[], None] | None = None,
    pieces: int = 1,
) -> Solution:
    """Fuse at several sizes, and keep the smallest that agrees about as well as the best.

    The sizes: each layer as wide as the evidence says, and 2, 3 and 4 times as wide as at the
    widest site. None of more parameters than the sites together, but the smallest. pieces:
    as of `fuse_joint`.
    """
    evidence_rng, fusing_rng = rng.spawn(2)
    seed = int(fusing_rng.integers(2**32))
    together = sum(network.parameters for network in sites.networks)
    solutions: list[Solution] = []
    for limits in sizes(sites, evidence_rng):
        if solutions and parameters(sites.networks[0], limits) > together:
            break
        # With the same probes each time, so that agreements compare.
        fused = fuse_joint(
            sites,
            prior=prior,
            rng=np.random.default_rng(seed),
            limits=limits,
            on_step=on_step,
            pieces=pieces,
        )
        solutions.append(fused)
    return smallest_near_best(solutions)


def sizes(sites: Sites, rng: np.random.Generator) -> list[dict[str, int]]:
    """The widths to try, those with fewest parameters first."""
    found = [evident(sites, rng).widths]
    for factor in FACTORS:
        limits = width_limits(sites.networks, factor)
        assert limits is not None
        found.append(limits)
    return sorted(found, key=lambda widths: parameters(sites.networks[0], widths))


@dataclass(frozen=True)
class Evident:
    """What the evidence says: a prior for each group, and how wide each would be under it."""

    prior: Prior
    widths: dict[str, int]
    """Never below the widest site; of rigid groups, just that."""


def evident(sites: Sites, rng: np.random.Generator) -> Evident:
    """The prior with the most evidence, group by group from the bottom, and the widths it gives.

    Units are compared on their weights, where the groups at the other end are matched already;
    connections to units that a site does not have were not seen. The first group is compared on
    nothing else. Of later ones so little may have been seen by two sites that what they do counts
    too.
    """
    networks = [centred(*pair) for pair in zip(sites.networks, sites.known, strict=True)]
    sites = replace(sites, networks=networks)
    probe_rng, match_rng = rng.spawn(2)
    active = activities(sites, probes_for(sites, MATCH_PROBES, probe_rng))
    graph = networks[0].graph
    widest, plain = widest_sites(networks), Prior(site_variance=1.0)
    matched: dict[str, Sequence[IntArray]] = {}
    priors: dict[str, Prior] = {}
    left = list(graph.outer_groups)
    while left:
        group = next_group(graph, left, matched)
        left.remove(group)
        does = active[group].counting(EMPHASIS) if matched and group in active else None
        atoms, weights, mean = atoms_of(sites, group, matched, plain, does)
        found = _by_evidence(atoms, weights, mean, match_rng)
        priors[group] = found.prior
        matched[group] = found.assignments
        matched |= inner_assignments(sites, group, matched)
        if group not in graph.rigid:
            widest[group] = max(widest[group], found.width)
    for alike in graph.alike:
        groups = [group for group in alike if group in widest]
        widest |= dict.fromkeys(groups, max((widest[group] for group in groups), default=0))
    return Evident(Prior(rules="marginal", groups=priors), widest)


def _by_evidence(
    atoms: Sequence[Array], weights: Sequence[Array], mean: Array, rng: np.random.Generator
) -> Matching:
    """A group's matching under the prior with the most evidence."""
    seen = np.array(
        [np.where(own.any(axis=0), w, 0.0) for own, w in zip(atoms, weights, strict=True)]
    )

    def solve(some: Sequence[int], prior: Prior) -> Matching:
        return match(
            [atoms[j] for j in some],
            prior,
            precisions=list(seen[list(some)] / prior.site_variances(1)),
            prior_mean=mean,
            sweeps=EVIDENCE_SWEEPS,
            rng=rng,
        )

    return solve(range(len(atoms)), prior_by_evidence(solve, atoms, seen, mean))


def smallest_near_best(solutions: Sequence[Solution]) -> Solution:
    """The first solution (smallest first) whose agreement is within NEAR of the highest."""
    shares = [solution.agreement or 0.0 for solution in solutions]
    return next(
        s for s, share in zip(solutions, shares, strict=True) if share >= max(shares) - NEAR
    )
