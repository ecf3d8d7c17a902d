"""The score matrix: what a site's unit gains by joining a global unit, or by founding a new one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pfnm.matching.posterior import Part, PartSums, Posterior, PriorPart
from pfnm.matching.prior import Prior, Rules
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array


def join_scores(
    site: Sequence[Part],
    posterior: Posterior,
    popularity_terms: Array,
    slots: IntArray | slice,
    *,
    integrated: bool,
) -> Array:
    """The score of unit l joining the global unit in slot i, the site itself taken out: (l, i).

    popularity_terms: what `popularity_term` says of 0, 1, 2, .. other sites.

    |v_l p + S_i|^2 / (p + P_i) - |S_i|^2 / P_i + 2 log(m_i / (J - m_i)), summed over dimensions;
    the rules may change the last term, and take off the sum of log((p + P_i) / P_i) where atoms are
    integrated out. Slots nobody uses score minus infinity.
    """
    constant = popularity_terms[posterior.popularity[slots]]
    gains = []
    for part, sums in zip(site, posterior.parts, strict=True):
        gain, of_slot = _evidence_gain(part, sums, slots)
        gains.append(gain)
        constant += of_slot
        if integrated:
            constant -= log_precision_gain(
                part.precision, sums.precisions[slots], sums.prior.mean.size
            )
    scores, *others = gains
    for gain in others:
        scores += gain
    scores += constant
    return scores


def _evidence_gain(part: Part, sums: PartSums, slots: IntArray | slice) -> tuple[Array, Array]:
    """|v_l p + S_i|^2 / (p + P_i) - |S_i|^2 / P_i over the columns of one part, as a sum.

    Of (l, i) and of what does not depend on the unit, (i,). The square is multiplied out, so that
    the work over columns is one matrix product: of |v_l p|^2 + 2 v_l p . S_i where one precision
    holds for all columns, of twice as many columns where it does not.
    """
    precisions = sums.precisions[slots]
    if sums.uniform:
        inverse = 1 / (part.precision + precisions[:, 0])
        gain = sums.products(part, slots)
        gain += part.squares[:, None] / 2
        gain += sums.squares[slots] / 2
        gain *= 2 * inverse
        return gain, -sums.evidence(slots)
    total, columns = sums.sums[slots], part.precision.size
    right = np.empty((len(total), 2 * columns))
    np.divide(1, part.precision + precisions, out=right[:, :columns])
    np.multiply(total, right[:, :columns], out=right[:, columns:])
    left = np.concatenate([part.weighted**2, 2 * part.weighted], axis=1)
    constant = np.einsum("id,id->i", total, right[:, columns:] - total / precisions)
    return (right @ left.T).T, constant


def popularity_term(popularity: IntArray, prior: Prior, sites: int) -> Array:
    """log(m / (J - m)) with the factor and the cap of the rules: the prior's taste for joining.

    Minus infinity where m is zero.
    """
    rules = prior.choices
    used = (
        popularity if rules.popularity_cap is None else np.minimum(popularity, rules.popularity_cap)
    )
    with np.errstate(divide="ignore"):
        result: Array = rules.popularity_factor * np.log(used / (sites - used))
    return result


def log_precision_gain(gained: Array, before: Array | float, columns: int) -> Array:
    """The sum over columns of log((gained + before) / before): how far an atom's volume shrinks.

    gained and before: (..., columns), or (..., 1) where one value holds for all of them.
    """
    logs: Array = np.log1p(gained / before)
    return columns * logs[..., 0] if logs.shape[-1] == 1 else logs.sum(axis=-1)


def found_scores(site: Sequence[Part], priors: Sequence[PriorPart], rules: Rules) -> Array:
    """The score of each unit founding a global unit, without the term for their number: (l,).

    |v_l p + mu_0 p_0|^2 / (p + p_0) - |mu_0 p_0|^2 / p_0, summed over dimensions; where atoms are
    integrated out, less the sum of log((p + p_0) / p_0).
    """
    scores = np.zeros(len(site[0].weighted))
    if rules.integrated:
        for part, prior in zip(site, priors, strict=True):
            scores -= log_precision_gain(part.precision, prior.precision, prior.mean.size)
    for part, prior in zip(site, priors, strict=True):
        start = prior.mean * prior.precision
        if part.precision.size == 1:  # no copy of it all
            known = np.flatnonzero(start)
            together = 2 * part.weighted[:, known] @ start[known] + part.squares + start @ start
            scores += together / (part.precision + prior.precision)
        else:
            together = part.weighted + start
            scores += (together**2 / (part.precision + prior.precision)).sum(axis=1)
        scores -= start @ start / prior.precision
    return scores


def number_terms(count: int, prior: Prior, sites: int) -> Array:
    """-2 log(k / (gamma_0 / J)) for the k-th new global unit of a site, k = 1..count.

    Where the rules number no units, k is 1 for all.
    """
    k = np.arange(1, count + 1) if prior.choices.numbered else np.ones(count)
    result: Array = -2 * np.log(k * sites / prior.mass)
    return result
