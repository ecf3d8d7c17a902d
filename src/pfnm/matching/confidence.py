"""How sure a match is: how often units stay together where assignments are drawn, not the best.

A Gibbs sampler over sites: each in turn is given an assignment by chance, likelier the better it
is, under the marginal rules with the variances that the matching itself shows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pfnm.matching.evidence import bounded_prior, least_variance, mean_square, moments
from pfnm.matching.matching import match
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array

SAMPLES = 10  # of all sites' assignments: shares are then known to a tenth or two


def confidence(
    atoms: Sequence[Array],
    assignments: Sequence[IntArray],
    weights: Array,
    prior_mean: Array,
    *,
    samples: int = SAMPLES,
    rng: np.random.Generator,
) -> tuple[Array, ...]:
    """For each site (units,): how sure it is that its units are with those they are with.

    The share of samples and of a unit's partners with which it still shares a global unit; of a
    unit alone, the share of samples in which it is alone. weights: (J, D), precisions up to a
    common factor.
    """
    centred = [v - prior_mean for v in atoms]
    total = mean_square(centred, weights)
    site, between, mass = moments(assignments, centred, weights)
    least = least_variance(atoms, weights)
    prior = bounded_prior(total if site is None else site, between, mass, total, least)
    together = np.zeros(sum(map(len, atoms)))
    state: Sequence[IntArray] = assignments
    for _ in range(samples):
        state = match(
            atoms,
            prior,
            precisions=list(weights / prior.site_variances(1)),
            prior_mean=prior_mean,
            start=state,
            sweeps=1,
            rng=rng,
            drawn=True,
        ).assignments
        together += _still_together(np.concatenate(assignments), np.concatenate(state))
    ends = np.cumsum([len(v) for v in atoms])[:-1]
    return tuple(np.split(together / samples, ends))


def _still_together(matched: IntArray, drawn: IntArray) -> Array:
    """Of each unit's partners in the one, the share that it has in the other too: (units,)."""
    partners = np.bincount(matched)[matched] - 1
    pairs, pair = np.unique(np.stack([matched, drawn]), axis=1, return_inverse=True)
    kept = np.bincount(pair.ravel(), minlength=pairs.shape[1])[pair.ravel()] - 1
    alone = np.bincount(drawn)[drawn] == 1
    return np.where(partners > 0, kept / np.maximum(partners, 1), alone)
