"""One group: worked by hand, brute force on tiny cases, and what must hold on any input."""

import itertools
from collections.abc import Sequence
from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay import Replay

from pfnm.errors import PFNMError
from pfnm.matching.assign import FOUND, assign
from pfnm.matching.matching import Matcher, match
from pfnm.matching.posterior import Part, Posterior, PriorPart
from pfnm.matching.prior import Prior
from pfnm.matching.score import popularity_term
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array

QUICK = settings(max_examples=60, deadline=None)
NEW = -1


def conditional(
    j: int,
    assignment: Sequence[int],
    atoms: Sequence[Array],
    precisions: Sequence[Array],
    others: Sequence[IntArray],
    prior: Prior,
) -> float:
    """The log posterior of site j's assignment given the others', written out in loops.

    `assignment` holds global units of the others, or NEW. Twice this is what a step maximises.
    """
    sites, dimensions = len(atoms), atoms[0].shape[1]
    p_0, mean = 1 / prior.prior_variance, prior.prior_mean
    rules = prior.choices
    total = 0.0
    new = 0
    for unit, i in enumerate(assignment):
        members = []
        if i != NEW:
            for k in range(sites):
                if k != j:
                    members += [(k, int(u)) for u in np.flatnonzero(others[k] == i)]
        for d in range(dimensions):
            s = mean * p_0 + sum(atoms[k][u, d] * precisions[k][d] for k, u in members)
            p = p_0 + sum(precisions[k][d] for k, _ in members)
            v, own = atoms[j][unit, d], precisions[j][d]
            total += ((v * own + s) ** 2 / (own + p) - s**2 / p) / 2
        if i == NEW:
            new += 1
            total -= log(new / (prior.mass / sites))
        else:
            m = min(len(members), rules.popularity_cap or sites)
            total += rules.popularity_factor * log(m / (sites - m)) / 2
    return total


@st.composite
def matching_problems(draw: st.DrawFn) -> tuple[list[Array], list[Array], Prior, int]:
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    sites = draw(st.integers(2, 4))
    dimensions = draw(st.integers(1, 4))
    widths = [draw(st.integers(1, 3)) for _ in range(sites)]
    true = rng.normal(size=(4, dimensions)) * draw(st.sampled_from([0.5, 2.0]))
    atoms = [
        true[rng.permutation(4)[:width]] + 0.5 * rng.normal(size=(width, dimensions))
        for width in widths
    ]
    if draw(st.booleans()):
        precisions = [rng.uniform(0, 2, size=dimensions) for _ in range(sites)]
    else:
        precisions = [np.full(dimensions, rng.uniform(0.2, 2)) for _ in range(sites)]
    prior = Prior(
        prior_variance=draw(st.sampled_from([0.5, 10.0])),
        mass=draw(st.sampled_from([0.1, 1.0, 20.0])),
        prior_mean=draw(st.sampled_from([0.0, 0.3])),
        rules=draw(st.sampled_from(["paper", "published"])),
    )
    return atoms, precisions, prior, draw(st.integers(0, sites - 1))


def as_choice(j: int, assignments: Sequence[IntArray]) -> list[int]:
    """Site j's assignment, NEW for units no other site has."""
    shared = set(itertools.chain(*(a.tolist() for k, a in enumerate(assignments) if k != j)))
    return [i if i in shared else NEW for i in assignments[j].tolist()]


@given(matching_problems())
@QUICK
def test_a_step_is_as_good_as_brute_force(
    problem: tuple[list[Array], list[Array], Prior, int],
) -> None:
    atoms, precisions, prior, j = problem
    before = match(atoms, prior, precisions=precisions, sweeps=0).assignments
    after = match(
        atoms, prior, precisions=precisions, start=before, sweeps=1, rng=Replay([[j]])
    ).assignments

    def value(choice: Sequence[int], others: Sequence[IntArray]) -> float:
        return conditional(j, choice, atoms, precisions, others, prior)

    others = sorted(set(itertools.chain(*(a.tolist() for k, a in enumerate(before) if k != j))))
    candidates = [
        choice
        for choice in itertools.product([NEW, *others], repeat=len(atoms[j]))
        if len({i for i in choice if i != NEW}) == sum(i != NEW for i in choice)
    ]
    best = max(value(choice, before) for choice in candidates)
    stepped = value(as_choice(j, after), after)
    assert stepped >= value(as_choice(j, before), before) - 1e-9
    assert stepped == pytest.approx(best, abs=1e-9)


@given(matching_problems())
@QUICK
def test_the_order_of_units_within_a_site_means_nothing(
    problem: tuple[list[Array], list[Array], Prior, int],
) -> None:
    atoms, precisions, prior, _ = problem
    rng = np.random.default_rng(1)
    order = [rng.permutation(len(a)) for a in atoms]
    one = match(atoms, prior, precisions=precisions)
    two = match([a[o] for a, o in zip(atoms, order, strict=True)], prior, precisions=precisions)
    together = [
        {
            tuple(
                sorted(
                    (j, int(o[u])) for j, (a, o) in enumerate(sites) for u in np.flatnonzero(a == i)
                )
            )
            for i in range(m.width)
        }
        for m, sites in (
            (one, [(a, np.arange(len(a))) for a in one.assignments]),
            (two, list(zip(two.assignments, order, strict=True))),
        )
    ]
    assert together[0] == together[1]


@given(matching_problems())
@QUICK
def test_absorb_then_release_is_nothing(
    problem: tuple[list[Array], list[Array], Prior, int],
) -> None:
    atoms, precisions, prior, _ = problem
    priors = [PriorPart(np.full(atoms[0].shape[1], 0.3), 1 / prior.prior_variance)]
    sites = [[Part(a * p, p)] for a, p in zip(atoms, precisions, strict=True)]
    posterior = Posterior(priors, sites[0])
    slots = posterior.found(len(atoms[0]))
    posterior.absorb(sites[0], slots)
    sums, weights = posterior.parts[0].sums.copy(), posterior.parts[0].precisions.copy()
    more = np.concatenate([slots, posterior.found(len(atoms[1]))])[-len(atoms[1]) :]
    posterior.absorb(sites[1], more)
    posterior.release(sites[1], more)
    used = len(slots)
    np.testing.assert_allclose(posterior.parts[0].sums[:used], sums[:used], atol=1e-12)
    np.testing.assert_allclose(posterior.parts[0].precisions[:used], weights[:used], atol=1e-12)
    assert posterior.occupied().tolist() == slots.tolist()


def test_a_unit_alone_that_founds_again_stays_in_its_slot() -> None:
    """Else nothing that others keep of it would be right any more, though nothing has changed."""
    rng = np.random.default_rng(0)
    prior = Prior(prior_variance=10.0, site_variance=1.0)
    sites = [[Part(10 * rng.normal(size=(4, 30)), np.ones(1))] for _ in range(3)]
    matcher = Matcher(sites, [4] * 3, [PriorPart(np.zeros(30), 0.1)], prior, None, 0, None)
    matcher.first_pass()
    first, last = matcher.slots[0], matcher.slots[2]
    assert first is not None
    assert last is not None
    matcher.posterior.release(sites[0], first)
    matcher.slots[0] = None
    matcher.changes += 1
    assert matcher.step(2) == (0, 0)
    np.testing.assert_array_equal(matcher.slots[2], last)


@given(
    st.integers(1, 4),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(0, 2**32 - 1),
)
@QUICK
def test_the_assignment_equals_brute_force(units: int, columns: int, new: int, seed: int) -> None:
    new = max(new, units - columns)
    rng = np.random.default_rng(seed)
    join, found = rng.normal(size=(units, columns)), rng.normal(size=units)
    number = -np.sort(rng.exponential(size=new))

    def value(choice: Sequence[int]) -> float:
        count = sum(c == FOUND for c in choice)
        joined = [c for c in choice if c != FOUND]
        if count > new or len(set(joined)) < len(joined):
            return -np.inf
        scores = [found[r] if c == FOUND else join[r, c] for r, c in enumerate(choice)]
        return float(sum(scores) + number[:count].sum())

    best = max(map(value, itertools.product([FOUND, *range(columns)], repeat=units)))
    favourite = join.argmax(axis=1) if columns else np.empty(0, dtype=np.intp)
    assert value(assign(join, favourite, found, number).tolist()) == pytest.approx(best)


def test_two_sites_by_hand() -> None:
    """Two sites, two units, one dimension; variances 1 and 1, mass 1: everything in halves."""
    atoms = [np.array([[3.0], [-1.0]]), np.array([[-1.0], [5.0]])]
    prior = Prior(prior_variance=1.0, site_variance=1.0, mass=1.0, rules="paper")
    result = match(atoms, prior, sweeps=0)
    # Site 1 given site 0: S = (3, -1), P = (2, 2). Its unit -1 scores (2^2/3 - 9/2, 4/3 - 1/2) to
    # join (2 log(1/1) = 0), 1/2 to found; its unit 5 scores (64/3 - 9/2, 16/3 - 1/2) and 25/2. A
    # first new unit costs 2 log 2, so both join: 5 with 3, and -1 with -1.
    assert [a.tolist() for a in result.assignments] == [[0, 1], [1, 0]]
    np.testing.assert_allclose(result.mean, [[8 / 3], [-2 / 3]])
    assert result.popularity.tolist() == [2, 2]
    # Evidence 1/2 (64/3 + 4/3); prior for each of two units: log 1! + log 0! - log 2! + log 1.
    assert result.objective == pytest.approx((64 / 3 + 4 / 3) / 2 - 2 * log(2))


def test_distant_units_are_kept_apart() -> None:
    atoms = [np.array([[9.0, 0.0]]), np.array([[0.0, 9.0]]), np.array([[9.0, 0.1]])]
    result = match(atoms, Prior(prior_variance=10.0, site_variance=1.0))
    assert result.width == 2
    assert sorted(result.popularity.tolist()) == [1, 2]
    assert result.assignments[0] == result.assignments[2] != result.assignments[1]
    assert result.settled


@pytest.mark.parametrize("sites", [2, 5])
def test_copies_of_one_site_fuse_to_it(sites: int) -> None:
    atom = np.random.default_rng(0).normal(size=(8, 30))
    result = match([atom] * sites, Prior(prior_variance=10.0, site_variance=0.01))
    assert result.width == 8
    assert result.trace[-1].reassigned == 0
    shrink = (sites / 0.01) / (sites / 0.01 + 1 / 10)
    np.testing.assert_allclose(result.mean, shrink * atom)


def test_a_limit_on_the_width_holds() -> None:
    rng = np.random.default_rng(0)
    atoms = [rng.normal(size=(6, 20)) for _ in range(5)]
    prior = Prior(prior_variance=1.0, site_variance=0.1)
    assert match(atoms, prior).width == 30
    limited = match(atoms, prior, width_limit=9)
    assert limited.width <= 9
    assert all(np.unique(a).size == 6 for a in limited.assignments)


def test_the_trace_tells_what_the_sweeps_did() -> None:
    rng = np.random.default_rng(3)
    true = rng.normal(size=(8, 10))
    atoms = [true[rng.permutation(8)[:5]] + 0.3 * rng.normal(size=(5, 10)) for _ in range(6)]
    result = match(atoms, Prior(prior_variance=1.0, site_variance=0.1))
    first, *later = result.trace
    assert (first.reassigned, first.new_units) == (30, first.width)
    assert later[-1].reassigned == 0
    assert result.trace[-1].width == result.width
    one = match(atoms, Prior(prior_variance=1.0, site_variance=0.1))
    assert one.trace == result.trace


def test_the_popularity_term_by_hand() -> None:
    m = np.array([0, 1, 6, 11])
    paper = popularity_term(m, Prior(rules="paper"), 12)
    np.testing.assert_allclose(paper[1:], [2 * log(1 / 11), 0, 2 * log(11)])
    published = popularity_term(m, Prior(rules="published"), 12)
    np.testing.assert_allclose(published[1:], [log(1 / 11), 0, log(10 / 2)])
    assert paper[0] == published[0] == -np.inf


def test_the_published_code_stops_founding_at_700_units() -> None:
    rng = np.random.default_rng(0)
    wide, narrow = 100 * rng.normal(size=(690, 3)), 100 * rng.normal(size=(30, 3))
    prior = {rules: Prior(site_variance=1e-3, rules=rules) for rules in ("paper", "published")}
    assert match([wide, narrow], prior["paper"], sweeps=0).width == 720
    assert match([wide, narrow], prior["published"], sweeps=0).width == 700
    assert match([wide[:600].repeat(2, axis=0), narrow], prior["published"], sweeps=1).width <= 1201


def test_a_matching_that_goes_round_in_circles_ends_with_its_best_state() -> None:
    """Sites undo each other's steps here for ever; the best objective seen is what is returned."""
    circled = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        true = rng.normal(size=(20, 6))
        atoms = [true[rng.permutation(20)[:10]] + 0.7 * rng.normal(size=(10, 6)) for _ in range(10)]
        result = match(atoms, Prior(prior_variance=10.0, site_variance=1.0, rules="paper"))
        assert result.settled
        assert result.objective == pytest.approx(max(sweep.objective for sweep in result.trace))
        circled += result.trace[-1].reassigned > 0
    assert circled > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"atoms": []}, "no sites"),
        ({"atoms": [[1.0, 2.0]]}, "expected (units, dimensions)"),
        ({"atoms": [[[1.0]], [[1.0, 2.0]]]}, "site 1: atoms have 2 dimensions, site 0 has 1"),
        ({"atoms": [[[np.nan]]]}, "NaN"),
        ({"precisions": [1.0]}, "precisions of 1 sites for 2 sites"),
        ({"precisions": [1.0, [1.0, 2.0, 3.0]]}, "site 1: precisions of shape (3,)"),
        ({"precisions": [1.0, -1.0]}, "negative"),
        ({"start": [[0]]}, "assignments of 1 sites"),
        ({"start": [[0], [0, 0]]}, "distinct"),
        ({"start": [[0], [0]]}, "site 1: 1 assignments to start from, for 2 units"),
        ({"width_limit": 1}, "width limit of 1 is below"),
        ({"start": [[0], [1, 2]], "width_limit": 2}, "more than the limit of 2"),
        ({"prior_mean": [1.0, 2.0, 3.0]}, "prior_mean has shape (3,)"),
        ({"sweeps": -1}, "sweeps is -1"),
        ({"atoms": [[[1e200, 1.0]], [[1e200, 1.0]]]}, "overflow"),
        ({"prior": Prior(site_variance=(1.0, 2.0, 3.0))}, "3 values for 2 sites"),
    ],
)
def test_wrong_input_is_named(arguments: dict[str, object], message: str) -> None:
    arguments = {"atoms": [[[1.0, 2.0]], [[1.0, 2.0], [0.0, 1.0]]], **arguments}
    with pytest.raises(PFNMError) as error:
        match(**arguments)  # type: ignore[arg-type]  # wrong on purpose
    assert message in str(error.value)


@pytest.mark.parametrize(
    "arguments",
    [{"prior_variance": 0.0}, {"site_variance": -1.0}, {"mass": float("nan")}, {"rules": "other"}],
)
def test_a_prior_that_makes_no_sense_is_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(PFNMError, match=next(iter(arguments))):
        Prior(**arguments)  # type: ignore[arg-type]  # wrong on purpose
