"""The prior by evidence: which variances, and how readily units are new, from the atoms alone.

Empirical Bayes. Under the marginal rules a matching has a complete log evidence. Given its
assignments, variances follow from how members spread about their global unit and these about their
mean; given those, atoms are matched anew; and so on while the evidence rises. Since that can stop
at an optimum with too few units or too many, much smaller and much larger site variances are tried
before it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pfnm.matching.prior import LARGEST, SMALLEST, Prior
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array

if TYPE_CHECKING:
    from pfnm.matching.matching import Matching

START = 0.1  # of the atoms' variance: the site variance to begin with
# Site variances so many times as large are tried where moments change nothing. Where no unit has
# joined another, smaller ones are all alike, and much larger ones may be needed.
STEPS = (1 / 4, 4.0, 1 / 16)
STEPS_FROM_NOTHING = (4.0, 16.0, 64.0)
MOST_MATCHINGS = 40  # far more than it takes to climb from a start a thousandfold off
MORE = 1e-9  # relative: evidence is more than other evidence by what rounding does not account for
CLOSE = 0.01  # relative: variances nearer than this to those tried are not tried again
LEAST_NOISE = 1e-6  # of the atoms' variance: copies have none, and no evidence is infinite
# Of the atoms' mean square: scores are differences of squares over variances, and below this what
# they are rounded by would tell equal atoms apart.
LEAST_KNOWN = 1e-12
MOST_NOISE = 0.95  # of the atoms' variance, before anything is known of it
SAMPLE = 2**20  # numbers in the atoms that variances are learnt from: known to a percent by then
LEAST_SITES = 10  # in a sample
SHARED = 0.1  # of a sample's units: with fewer that two sites have, more sites are looked at

Solve = Callable[[Sequence[int], Prior], "Matching"]


def prior_by_evidence(
    solve: Solve, atoms: Sequence[Array], weights: Array, mean: Array, start: float = START
) -> Prior:
    """The prior with the most evidence for the atoms of all sites, or of a sample of many.

    solve: matches these sites under a prior. weights: (J, D), precisions up to a common factor.
    start: the site variance to begin with, as a share of the atoms' variance.
    """
    sites = len(atoms)
    largest = max(v.size for v in atoms)
    count = min(sites, max(LEAST_SITES, SAMPLE // largest))
    while True:
        some = np.unique(np.linspace(0, sites - 1, count).round().astype(int))
        centred = [atoms[j] - mean for j in some]
        least = least_variance([atoms[j] for j in some], weights[some])
        best = _climbed(partial(solve, some.tolist()), centred, weights[some], start, least)
        if best.width < (1 - SHARED) * sum(map(len, centred)) or count == sites:
            return best.prior
        count = min(sites, 2 * count)


def _climbed(
    solve: Callable[[Prior], Matching],
    centred: Sequence[Array],
    weights: Array,
    start: float,
    least: float,
) -> Matching:
    """The matching with the most evidence that is found by climbing; no variance below `least`."""
    total = mean_square(centred, weights)
    tried: list[Prior] = []

    def divided(site: float, mass: float) -> tuple[float, float, float]:
        """This site variance, and what it leaves of the atoms' variance to the global units."""
        site = min(site, MOST_NOISE * total)
        return site, total - site, mass

    def best_of(now: Matching | None, variances: Sequence[tuple[float, float, float]]) -> Matching:
        """The present matching, or one under these variances and masses with more evidence."""
        for site, between, mass in variances:
            prior = bounded_prior(site, between, mass, total, least)
            if any(_close(prior, other) for other in tried) or len(tried) == MOST_MATCHINGS:
                continue
            tried.append(prior)
            found = solve(prior)
            now = found if now is None or _more(found, now) else now
        assert now is not None
        return now

    best = best_of(None, [divided(start * total, 1.0)])
    while True:
        before = best
        site, between, mass = moments(best.assignments, centred, weights)
        now = best.prior.site_variances(1).item()
        best = best_of(best, [(now if site is None else site, between, mass)])
        if best is before:
            steps = STEPS_FROM_NOTHING if site is None else STEPS
            best = best_of(best, [divided(now * step, mass) for step in steps])
        if best is before:
            return best


def _more(one: Matching, other: Matching) -> bool:
    """Whether there is more evidence for one. Without shared units many priors have as much."""
    assert one.evidence is not None  # the rules are marginal
    assert other.evidence is not None
    return one.evidence - other.evidence > MORE * abs(one.evidence)


def _close(one: Prior, other: Prior) -> bool:
    return all(
        abs(np.log(getattr(one, name) / getattr(other, name))) < CLOSE
        for name in ("site_variance", "prior_variance", "mass")
    )


def bounded_prior(
    site: float, between: float, mass: float, total: float, least: float = SMALLEST
) -> Prior:
    """The marginal prior with these variances, as far as numbers of this mean square allow."""
    least = max(least, SMALLEST)
    low = max(LEAST_NOISE * total, least)
    high = min(max(total, least) / LEAST_NOISE, LARGEST)
    return Prior(
        prior_variance=min(max(between, low), high),
        site_variance=min(max(site, low), high),
        mass=mass,
        rules="marginal",
    )


def least_variance(atoms: Sequence[Array], weights: Array) -> float:
    """The variance below which scores of these atoms are lost in rounding."""
    return LEAST_KNOWN * mean_square(atoms, weights)


def mean_square(centred: Sequence[Array], weights: Array) -> float:
    """The mean square of all numbers that were seen."""
    total = sum(
        float(np.square(v[:, w > 0], dtype=float).sum())
        for v, w in zip(centred, weights, strict=True)
    )
    count = sum(len(v) * int((w > 0).sum()) for v, w in zip(centred, weights, strict=True))
    return total / max(count, 1)


def moments(
    assignments: Sequence[IntArray], centred: Sequence[Array], weights: Array
) -> tuple[float | None, float, float]:
    """The variance of units about their global ones, of these about the prior mean, and the mass.

    None for the first where no global unit has two members. centred: atoms less the prior mean.
    """
    shape = (1 + max(int(a.max()) for a in assignments), weights.shape[1])
    total, weight, seen = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=int)
    square = 0.0
    for v, w, assignment in zip(centred, weights, assignments, strict=True):
        total[assignment] += v * w
        weight[assignment] += w
        seen[assignment] += w > 0
        square += float((np.square(v, dtype=float) @ w).sum())
    known = seen > 0
    mean = np.divide(total, weight, out=np.zeros(shape), where=known)
    within = square - float((mean * total).sum())
    freedom = int((seen[known] - 1).sum())
    site = max(within / freedom, 0.0) if freedom else None
    noise = 0.0 if site is None else site * float((1 / weight[known]).mean())
    between = max(float(np.square(mean[known]).mean()) - noise, 0.0)
    return site, between, shape[0] / float((1 / np.arange(1, len(centred) + 1)).sum())
