"""Kept scores: the same assignments as scores worked out anew at every step."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pfnm.matching import kept
from pfnm.matching.matching import Matching, match
from pfnm.matching.posterior import Part, Posterior, PriorPart
from pfnm.matching.prior import RULES, Prior
from pfnm.networks.network import Array

NOTHING, EVERYTHING = 2**62, 0  # sizes of atoms from which scores are kept


def matched(size: int, atoms: Sequence[Array], prior: Prior, **options: object) -> Matching:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept, "KEPT_SIZE", size)
        patch.setattr(kept, "MOSTLY", 1.0)
        return match(atoms, prior, **options)  # type: ignore[arg-type]


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Array], list[Array], Prior]:
    """Small groups, of whole numbers (which tie, and are computed exactly) or of others."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sites, dimensions = draw(st.integers(2, 7)), draw(st.integers(1, 6))
    true = 2 * rng.normal(size=(12, dimensions))
    atoms = [
        true[rng.permutation(12)[: rng.integers(1, 11)]]
        + rng.normal(size=dimensions) * draw(st.sampled_from([0.0, 0.5]))
        for _ in range(sites)
    ]
    shares = draw(st.sampled_from([(1.0,), (0.5, 1.0, 2.0)]))
    precisions = [rng.choice(shares, size=dimensions) for _ in range(sites)]
    if draw(st.booleans()):
        atoms = [np.round(a) for a in atoms]
    prior = Prior(
        prior_variance=draw(st.sampled_from([0.5, 8.0])),
        mass=draw(st.sampled_from([0.5, 8.0])),
        rules=draw(st.sampled_from(sorted(RULES))),
    )
    return atoms, precisions, prior


@given(problems(), st.sampled_from([None, 12]))
@settings(max_examples=150, deadline=None)
def test_kept_scores_give_the_assignments_of_scores_worked_out_anew(
    problem: tuple[list[Array], list[Array], Prior], width_limit: int | None
) -> None:
    atoms, precisions, prior = problem
    plain, fast = (
        matched(size, atoms, prior, precisions=precisions, width_limit=width_limit, sweeps=6)
        for size in (NOTHING, EVERYTHING)
    )
    for one, other in zip(plain.assignments, fast.assignments, strict=True):
        np.testing.assert_array_equal(one, other)
    assert [s.reassigned for s in plain.trace] == [s.reassigned for s in fast.trace]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rules", sorted(RULES))
def test_units_that_tie_are_matched_as_before(rules: str, dtype: type) -> None:
    """Every unit stands twice in its site, at a size at which scores are kept by default."""
    rng = np.random.default_rng(0)
    true: Array = rng.normal(size=(60, 400))
    atoms = [
        (true[rng.permutation(60)[:30]] + rng.normal(size=(30, 400))).repeat(2, axis=0)
        for _ in range(6)
    ]
    prior = Prior(rules=rules)
    plain = matched(NOTHING, [a.astype(dtype) for a in atoms], prior, sweeps=5, used_up=True)
    fast = match([a.astype(dtype) for a in atoms], prior, sweeps=5, used_up=True)
    for one, other in zip(plain.assignments, fast.assignments, strict=True):
        np.testing.assert_array_equal(one, other)


def a_posterior() -> tuple[list[list[Part]], Posterior]:
    rng = np.random.default_rng(0)
    sites = [[Part(rng.normal(size=(40, 500)), np.ones(1))] for _ in range(3)]
    posterior = Posterior([PriorPart(np.zeros(500), 0.1)], sites[0])
    for site in sites[1:]:
        posterior.absorb(site, posterior.found(40))
    return sites, posterior


def test_only_columns_that_changed_are_worked_out() -> None:
    sites, posterior = a_posterior()
    scores = kept.KeptScores(sites, Prior(), posterior)
    first = scores.of(0)
    sums = posterior.parts[0].sums
    sums[:] = np.nan  # nothing may be taken from here
    np.testing.assert_array_equal(scores.of(0), first)
    sums[:] = 1.0
    scores.of(1)
    scores.changed(np.array([3, 70]))
    second = scores.of(0)
    assert np.flatnonzero((second != first).any(axis=0)).tolist() == [3, 70]


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    sites, posterior = a_posterior()
    one_site = 40 * 80 * 8
    monkeypatch.setattr(kept, "KEPT_BYTES", 2 * one_site)
    scores = kept.KeptScores(sites, Prior(), posterior)
    for j in (0, 1, 2, 0, 1, 2):
        scores.of(j)
    assert sum(s is not None for s in scores.scores) == 2
    assert scores.room == 0
