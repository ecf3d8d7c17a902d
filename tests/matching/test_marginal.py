"""Atoms integrated out: the evidence by brute force, the number of vectors, the fitted prior."""

import itertools
from collections.abc import Sequence
from math import lgamma, log

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from replay import Replay
from scipy.stats import multivariate_normal

from pfnm.matching.evidence import START, moments, prior_by_evidence
from pfnm.matching.matching import Matching, match
from pfnm.matching.prior import Prior
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array

QUICK = settings(max_examples=60, deadline=None)
NEW = -1


def log_evidence(
    assignments: Sequence[IntArray],
    atoms: Sequence[Array],
    precisions: Sequence[Array],
    prior: Prior,
) -> float:
    """Members of a global unit are jointly normal: share its variance, have their own besides."""
    sites = len(atoms)
    total = -prior.mass * sum(1 / j for j in range(1, sites + 1))
    for i in set(itertools.chain(*(a.tolist() for a in assignments))):
        members = [(j, int(u)) for j in range(sites) for u in np.flatnonzero(assignments[j] == i)]
        m = len(members)
        total += lgamma(m) + lgamma(sites - m + 1) - lgamma(sites + 1) + log(prior.mass)
        for d in range(atoms[0].shape[1]):
            seen = [(j, u) for j, u in members if precisions[j][d] > 0]
            if seen:
                covariance = np.diag([1 / precisions[j][d] for j, _ in seen])
                values = [atoms[j][u, d] for j, u in seen]
                mean = np.full(len(seen), prior.prior_mean)
                total += multivariate_normal(mean, covariance + prior.prior_variance).logpdf(values)
    return float(total)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Array], list[Array], Prior]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sites, dimensions = draw(st.integers(2, 4)), draw(st.integers(1, 4))
    true = rng.normal(size=(4, dimensions)) * draw(st.sampled_from([0.5, 2.0]))
    atoms = [
        true[rng.permutation(4)[:width]] + 0.5 * rng.normal(size=(width, dimensions))
        for width in rng.integers(1, 4, size=sites)
    ]
    kinds = draw(st.sampled_from([(1.0,), (0.5, 2.0), (0.0, 1.0, 3.0)]))
    precisions = [rng.choice(kinds, size=dimensions) for _ in range(sites)]
    prior = Prior(
        prior_variance=draw(st.sampled_from([0.5, 10.0])),
        mass=draw(st.sampled_from([0.1, 1.0, 20.0])),
        prior_mean=draw(st.sampled_from([0.0, 0.3])),
        rules="marginal",
    )
    return atoms, precisions, prior


@given(problems(), st.integers(0, 3))
@QUICK
def test_a_step_finds_the_most_evidence_there_is_for_its_site(
    problem: tuple[list[Array], list[Array], Prior], site: int
) -> None:
    atoms, precisions, prior = problem
    j = site % len(atoms)
    before = match(atoms, prior, precisions=precisions, sweeps=0)
    after = match(
        atoms, prior, precisions=precisions, start=before.assignments, sweeps=1, rng=Replay([[j]])
    )
    assert before.evidence is not None
    assert after.evidence is not None
    assert before.evidence == pytest.approx(
        log_evidence(before.assignments, atoms, precisions, prior), abs=1e-8
    )
    others = sorted({i for k, a in enumerate(before.assignments) if k != j for i in a.tolist()})
    best = -np.inf
    for choice in itertools.product([NEW, *others], repeat=len(atoms[j])):
        joined = [i for i in choice if i != NEW]
        if len(set(joined)) == len(joined):
            fresh = itertools.count(before.width)
            own = np.array([next(fresh) if i == NEW else i for i in choice])
            state = [own if k == j else a for k, a in enumerate(before.assignments)]
            best = max(best, log_evidence(state, atoms, precisions, prior))
    assert after.evidence == pytest.approx(best, abs=1e-8)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.3, 1.0, 3.0]), st.booleans())
@QUICK
def test_the_evidence_of_a_step_never_falls(seed: int, noise: float, limited: bool) -> None:
    """Of the whole, not only of its site; under a limit likewise."""
    rng = np.random.default_rng(seed)
    true = rng.normal(size=(20, 5))
    atoms = [true[rng.permutation(20)[:9]] + noise * rng.normal(size=(9, 5)) for _ in range(6)]
    prior = Prior(prior_variance=1.0, site_variance=noise**2, rules="marginal")
    limit = 15 if limited else None
    found = match(atoms, prior, sweeps=0, width_limit=limit)
    for j in rng.permutation(18) % 6:
        after = match(
            atoms,
            prior,
            start=found.assignments,
            sweeps=1,
            rng=Replay([[int(j)]]),
            width_limit=limit,
        )
        assert after.objective >= found.objective - 1e-9 * abs(found.objective)
        found = after


def sites_that_see_some(
    rng: np.random.Generator, sites: int, true: int, units: int, noise: float, dimensions: int
) -> tuple[list[Array], int]:
    """Each site sees some of the true vectors, with noise; and how many any site has seen."""
    vectors = rng.normal(size=(true, dimensions))
    seen = [rng.permutation(true)[:units] for _ in range(sites)]
    atoms = [vectors[own] + noise * rng.normal(size=(units, dimensions)) for own in seen]
    return atoms, np.unique(np.concatenate(seen)).size


@given(
    st.integers(0, 2**32 - 1),
    st.integers(5, 20),
    st.integers(10, 40),
    st.sampled_from([0.1, 0.5, 1.0]),
    st.floats(0.01, 100.0),
)
@settings(max_examples=25, deadline=None)
def test_the_number_of_true_vectors_is_recovered(
    seed: int, sites: int, true: int, noise: float, scale: float
) -> None:
    atoms, seen = sites_that_see_some(
        np.random.default_rng(seed), sites, true, max(4, true // 3), noise, 150
    )
    result = match([scale * a for a in atoms])
    assert result.width == seen
    assert result.prior.site_variance == pytest.approx((scale * noise) ** 2, rel=0.2)


@pytest.mark.parametrize(("sites", "noise"), [(10, 2.0), (30, 1.0), (100, 2.0)])
def test_three_hundred_vectors_of_784_dimensions(sites: int, noise: float) -> None:
    atoms, seen = sites_that_see_some(np.random.default_rng(1), sites, 300, 100, noise, 784)
    result = match(atoms)
    assert result.width == pytest.approx(seen, rel=0.02)
    assert result.prior.site_variance == pytest.approx(noise**2, rel=0.02)
    assert result.prior.prior_variance == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("noise", [0.05, 0.5, 1.5])
def test_starts_a_hundredfold_apart_end_alike(noise: float) -> None:
    atoms, _ = sites_that_see_some(np.random.default_rng(0), 12, 60, 30, noise, 300)
    weights = np.ones((12, 300))

    def solve(some: Sequence[int], prior: Prior) -> Matching:
        return match([atoms[j] for j in some], prior)

    found = [
        prior_by_evidence(solve, atoms, weights, np.zeros(300), start)
        for start in (START / 10, START, 10 * START)
    ]
    for prior in found:
        assert prior.site_variance == pytest.approx(noise**2, rel=0.05)
        assert match(atoms, prior).width == 60


@given(problems())
@example(([np.array([[place / 64]]) for place in (-10, 16, 58)], [], Prior()))  # many priors tie
@QUICK
def test_what_is_added_to_all_atoms_changes_nothing(
    problem: tuple[list[Array], list[Array], Prior],
) -> None:
    atoms = [np.round(a * 64) for a in problem[0]]
    moved = [a + 1024.0 for a in atoms]
    for one, other in zip(match(atoms).assignments, match(moved).assignments, strict=True):
        np.testing.assert_array_equal(one, other)


def test_moments_by_hand() -> None:
    atoms = [np.array([[3.0, 1.0]]), np.array([[1.0, 5.0], [-4.0, 0.0]])]
    # Means (2, 3) of two members and (-4, 0) of one; squares about them 1 + 1 + 4 + 4, of one
    # degree of freedom in each of two columns. Squares of means 4 + 9 + 16 + 0 over four, less the
    # noise in them, 5 times the mean of 1/2, 1/2, 1, 1.
    site, between, mass = moments([np.array([0]), np.array([0, 1])], atoms, np.ones((2, 2)))
    assert site == pytest.approx(5.0)
    assert between == pytest.approx(29 / 4 - 5 * 0.75)
    assert mass == pytest.approx(2 / (1 + 1 / 2))


@pytest.mark.parametrize(
    "atoms",
    [
        [np.ones((2, 3))],
        [np.zeros((2, 3)), np.zeros((1, 3))],
        [np.eye(3), np.eye(3)],
        [np.full((1, 1), 1e-80), np.full((1, 1), 1e80)],
    ],
)
def test_little_to_go_by_is_no_error(atoms: list[Array]) -> None:
    result = match(atoms)
    assert max(map(len, atoms)) <= result.width <= sum(map(len, atoms))
    assert result.settled


def test_copies_are_found_to_be_copies() -> None:
    atom = np.random.default_rng(0).normal(size=(8, 30))
    result = match([atom, atom[::-1], atom])
    assert result.width == 8
    np.testing.assert_allclose(result.mean[result.assignments[0]], atom, atol=1e-4)


@pytest.mark.parametrize("value", [0.0, 0.1, 1.0, -3.7, 1e9])
@pytest.mark.parametrize("dimensions", [1, 3, 20, 784])
def test_equal_atoms_are_as_many_as_a_site_has(value: float, dimensions: int) -> None:
    for sites, width in [(2, 1), (2, 2), (3, 3), (10, 2)]:
        assert match([np.full((width, dimensions), value)] * sites).width == width


def test_the_paper_keeps_far_too_many() -> None:
    """Its objective drops constants whose number changes with the number of global units."""
    atoms, seen = sites_that_see_some(np.random.default_rng(0), 20, 40, 20, 1.0, 200)
    paper = match(atoms, Prior(prior_variance=1.0, site_variance=1.0, rules="paper"), sweeps=3)
    marginal = match(
        atoms, Prior(prior_variance=1.0, site_variance=1.0, rules="marginal"), sweeps=3
    )
    assert marginal.width == seen == 40
    assert paper.width > 100
