"""Kept scores and kept products: the same assignments as scores worked out anew at every step."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pfnm.matching import kept, matching, products
from pfnm.matching.matching import Matching, match
from pfnm.matching.posterior import Part, Posterior, PriorPart, in_blocks
from pfnm.matching.prior import RULES, Prior
from pfnm.networks.network import Array

NOTHING, EVERYTHING = 2**62, 0  # sizes of atoms from which scores are kept


def matched(size: int, atoms: Sequence[Array], prior: Prior, **options: object) -> Matching:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept, "KEPT_SIZE", size)
        patch.setattr(kept, "MOSTLY", 1.0)
        return match(atoms, prior, **options)  # type: ignore[arg-type]


@st.composite
def problems(draw: st.DrawFn, noise: float = 0.0) -> tuple[list[Array], list[Array], Prior]:
    """Small groups, of whole numbers (which tie, and are computed exactly) or of others.

    With noise the others do not tie.
    """
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
    else:
        atoms = [a + noise * rng.normal(size=a.shape) for a in atoms]
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


def matched_by_products(atoms: Sequence[Array], prior: Prior, **options: object) -> Matching:
    """With all products between units, at any size."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FEWEST_DIMENSIONS", "NARROWEST"):
            patch.setattr(products, name, 0)
        patch.setattr(kept, "KEPT_SIZE", EVERYTHING)
        return match(atoms, prior, **options)  # type: ignore[arg-type]


@given(problems(noise=0.1), st.sampled_from([None, 12]), st.sampled_from([0.0, 0.5]))
@settings(max_examples=150, deadline=None)
def test_products_between_units_give_the_same_assignments(
    problem: tuple[list[Array], list[Array], Prior], width_limit: int | None, prior_mean: float
) -> None:
    atoms, precisions, prior = problem
    for start in (None, [np.arange(len(a)) for a in atoms]):
        plain, fast = (
            call(
                atoms,
                prior,
                precisions=precisions,
                prior_mean=prior_mean,
                width_limit=width_limit,
                start=start,
                sweeps=6,
            )
            for call in (partial(match, memory=0), matched_by_products)
        )
        for one, other in zip(plain.assignments, fast.assignments, strict=True):
            np.testing.assert_array_equal(one, other)
        assert [s.reassigned for s in plain.trace] == [s.reassigned for s in fast.trace]
        np.testing.assert_allclose(plain.objective, fast.objective, rtol=1e-9, atol=1e-9)


def wide_problem(sites: int = 6) -> list[Array]:
    rng = np.random.default_rng(1)
    true: Array = rng.normal(size=(150, 200))
    return [true[rng.permutation(150)[:60]] + rng.normal(size=(60, 200)) for _ in range(sites)]


@pytest.mark.parametrize("rules", sorted(RULES))
def test_products_are_used_where_they_pay(rules: str) -> None:
    atoms, prior = wide_problem(), Prior(rules=rules)
    used: list[bool] = []
    with pytest.MonkeyPatch.context() as patch:

        def seen(*arguments: object) -> bool | None:
            used.append(bool(products.products_pay(*arguments)))  # type: ignore[arg-type]
            return used[-1] or None

        patch.setattr(matching, "products_pay", seen)
        fast = match(atoms, prior)
    assert used[-1]
    plain = match(atoms, prior, memory=0)
    for one, other in zip(plain.assignments, fast.assignments, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_a_unit_leaves_and_takes_again_is_as_it_was() -> None:
    atoms = wide_problem(3)
    parts, sums = products.with_products(
        [Part(a, np.ones(1)) for a in atoms], PriorPart(np.full(200, 0.1), 0.5)
    )
    slots = np.arange(60)
    sums.grow(64)
    nobody, fresh = np.zeros(60, dtype=bool), np.ones(60, dtype=bool)
    for part in parts:
        sums.absorb(slots, part, fresh if part is parts[0] else nobody)
    before = sums.sums.copy(), sums.squares.copy()
    sums.release(slots, parts[1])
    others = atoms[0] + atoms[2] + 0.05
    np.testing.assert_allclose(sums.products(parts[1], slots), atoms[1] @ others.T, rtol=1e-10)
    np.testing.assert_allclose(sums.squares[slots], (others**2).sum(axis=1), rtol=1e-10)
    sums.absorb(slots, parts[1], nobody)
    np.testing.assert_array_equal(sums.sums, before[0])
    np.testing.assert_array_equal(sums.squares, before[1])
    sums.release(slots, parts[1])
    sums.absorb(slots[::-1].copy(), parts[1], nobody)
    moved = others + atoms[1][::-1]
    np.testing.assert_allclose(
        sums.sums[slots][:, parts[0].place], moved @ atoms[0].T, rtol=1e-9, atol=1e-9
    )


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
    fastest = matched_by_products([a.astype(dtype) for a in atoms], prior, sweeps=5, used_up=True)
    for one, other, third in zip(
        plain.assignments, fast.assignments, fastest.assignments, strict=True
    ):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, third)


def a_posterior() -> tuple[list[list[Part]], Posterior]:
    rng = np.random.default_rng(0)
    sites = [[Part(rng.normal(size=(40, 500)), np.ones(1))] for _ in range(3)]
    posterior = Posterior([PriorPart(np.zeros(500), 0.1)], sites[0])
    for site in sites[1:]:
        posterior.absorb(site, posterior.found(40))
    return sites, posterior


def test_only_columns_that_changed_are_worked_out() -> None:
    sites, posterior = a_posterior()
    scores = kept.KeptScores(sites, [40] * 3, Prior(), posterior, 2**20)
    first = scores.of(0)[0].copy()
    sums = posterior.parts[0].sums
    sums[:] = np.nan  # nothing may be taken from here
    np.testing.assert_array_equal(scores.of(0)[0], first)
    sums[:] = 1.0
    scores.of(1)
    scores.changed(np.array([3, 70]))
    second = scores.of(0)[0]
    assert np.flatnonzero((second != first).any(axis=0)).tolist() == [3, 70]


def test_what_is_kept_is_bounded() -> None:
    sites, posterior = a_posterior()
    one_site = 40 * in_blocks(80) * 8
    scores = kept.KeptScores(sites, [40] * 3, Prior(), posterior, 2 * one_site)
    for j in (0, 1, 2, 0, 1, 2):
        scores.of(j)
    assert sum(s is not None for s in scores.kept) == 2
    assert scores.room == 0


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 12))
def test_favourites_are_the_first_of_the_best(seed: int, units: int, slots: int) -> None:
    rng = np.random.default_rng(seed)

    def some(count: int) -> Array:
        """Whole numbers, which tie; slots nobody uses score minus infinity."""
        values: Array = rng.integers(0, 4, size=(units, count)).astype(float)
        values[:, rng.random(count) < 0.2] = -np.inf
        return values

    scores = np.asfortranarray(some(slots))
    columns = np.sort(rng.permutation(slots)[: rng.integers(1, slots + 1)])
    new = some(columns.size)
    favourite = kept.renew(scores, scores.argmax(axis=1), columns, new)
    np.testing.assert_array_equal(scores[:, columns], new)
    best = scores.max(axis=1)
    known = best > -np.inf
    np.testing.assert_array_equal(favourite[known], scores.argmax(axis=1)[known])
