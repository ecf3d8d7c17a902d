"""Doubts about classes: the measures by hand, what they do not depend on, and trained networks."""

import time
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from conftest import random_network
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from pfnm.fusing.doubts import (
    Doubt,
    class_doubts,
    estimated_shares,
    likeness,
    order_gains,
    unevenness,
)
from pfnm.fusing.inputs import InputRange, Units
from pfnm.fusing.probes import probe
from pfnm.fusing.sites import Sites, comparable
from pfnm.networks.network import Array, Network
from pfnm.networks.perceptron import mlp

INPUTS, CLASSES = 20, 5
SPREAD = 0.4  # of the examples around their class's centre
WITHIN = InputRange(-0.6, 1.6)  # most of them
QUICK = settings(max_examples=40, deadline=None)


def known_sites(networks: list[Network]) -> Sites:
    return replace(comparable(networks), inputs=Units(WITHIN))


def doubts(networks: list[Network]) -> list[Doubt]:
    sites = known_sites(networks)
    return class_doubts(sites, probe(sites, 1000, np.random.default_rng(0)))


@cache
def trained(seed: int, examples: tuple[int, ...], order: tuple[int, ...] | None = None) -> Network:
    """A network that has seen so many examples of each class; order: the class of each output."""
    from sklearn.neural_network import MLPClassifier

    centres = np.random.default_rng(0).uniform(size=(CLASSES, INPUTS))
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(CLASSES), examples)
    x = centres[y] + SPREAD * rng.normal(size=(y.size, INPUTS))
    place = np.argsort(np.arange(CLASSES) if order is None else order)
    model = MLPClassifier((30,), max_iter=40, random_state=seed, solver="lbfgs", alpha=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has not converged
        model.fit(x, place[y])
    return mlp(model.coefs_, model.intercepts_, output="softmax", name=f"site{seed}")


EVEN = (60,) * CLASSES


def test_unevenness_by_hand() -> None:
    everybody = np.ones((2, 2), dtype=bool)
    # Logs are 0 and -a at the first site and -a and 0 at the other: each is a/2 off, freedom 1.
    shares = np.array([[1, 0.1], [0.1, 1]])
    assert unevenness(shares, everybody) == pytest.approx(np.log(10))
    assert unevenness(np.array([[0.9, 0.1], [0.9, 0.1]]), everybody) == pytest.approx(0)
    alone = np.array([[True, False], [False, True]])
    assert unevenness(np.eye(2), alone) == 0


def test_unknown_classes_are_left_out_of_unevenness() -> None:
    known = np.array([[True, True, False], [True, True, True], [False, True, True]])
    shares = np.where(known, np.outer([1, 2, 3], [0.1, 0.5, 0.4]), 0)
    assert unevenness(shares, known) == pytest.approx(0, abs=1e-6)


@QUICK
@given(seed=st.integers(0, 999), sites=st.integers(2, 5), classes=st.integers(2, 6))
def test_what_all_sites_have_alike_is_not_uneven(seed: int, sites: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    shares = rng.uniform(0.1, 1, size=(sites, classes))
    known = np.ones(shares.shape, dtype=bool)
    expected = unevenness(shares, known)
    assert unevenness(shares * rng.uniform(0.1, 1, size=classes), known) == pytest.approx(expected)
    order = rng.permutation(classes)
    assert unevenness(shares[::-1, order], known) == pytest.approx(expected)


def site_answers(seed: int, sites: int, noise: float = 0.5) -> Array:
    """(J, 4, 300) probabilities of sites that agree up to noise."""
    rng = np.random.default_rng(seed)
    logits = 3 * rng.normal(size=(4, 300)) + noise * rng.normal(size=(sites, 4, 300))
    result: Array = softmax(logits, axis=1)
    return result


def gains_of(answers: Array) -> Array:
    return order_gains(likeness(answers))


def test_likeness_by_hand() -> None:
    """Two sites, sure of themselves, that say the opposite: covariances 1/4, variances 1/2."""
    first = np.array([[1.0, 0.0], [0.0, 1.0]])
    both = likeness(np.array([first, first[::-1]]))
    np.testing.assert_allclose(both[0], [[-0.5, 0.5], [0.5, -0.5]])
    np.testing.assert_allclose(order_gains(both), [2, 2])
    same = likeness(np.array([first, first]))
    np.testing.assert_allclose([np.trace(own) for own in same], [1, 1])
    np.testing.assert_allclose(order_gains(same), [0, 0])
    np.testing.assert_allclose(gains_of(np.full((2, 2, 2), 0.5)), [0, 0])


@QUICK
@given(seed=st.integers(0, 999), sites=st.integers(2, 5))
def test_gains_are_of_orders_that_differ(seed: int, sites: int) -> None:
    answers = site_answers(seed, sites)
    order = np.random.default_rng(seed).permutation(4)
    np.testing.assert_allclose(gains_of(answers[:, order]), gains_of(answers), atol=1e-9)
    assert (gains_of(answers) >= -1e-9).all()


@QUICK
@given(seed=st.integers(0, 999), sites=st.integers(3, 14))
def test_one_site_in_another_order_stands_out(seed: int, sites: int) -> None:
    answers = site_answers(seed, sites)
    assert gains_of(answers).max() < 0.01
    site = seed % sites
    answers[site] = np.roll(answers[site], 1, axis=0)
    gains = gains_of(answers)
    assert gains.argmax() == site
    assert gains[site] > 0.5


def test_outputs_hardly_in_use_are_not_compared() -> None:
    """Two sites with classes of their own: nothing says in which order they are."""
    answers = site_answers(0, 2)
    answers[0, :3] *= 1e-3
    answers[1, 1:] *= 1e-3
    assert (likeness(answers) == 0).all()


def test_even_sites_raise_no_doubt() -> None:
    assert doubts([trained(j, EVEN) for j in range(4)]) == []


def test_sizes_and_common_rarity_raise_no_doubt() -> None:
    assert doubts([trained(j, (20 + 40 * j,) * CLASSES) for j in range(4)]) == []
    assert doubts([trained(j, (100, 100, 100, 100, 20)) for j in range(4)]) == []


def test_uneven_sites_are_told_by_name() -> None:
    uneven = [trained(j, tuple(np.roll((150, 100, 40, 5, 2), j).tolist())) for j in range(4)]
    (doubt,) = doubts(uneven)
    assert doubt.kind == "shares"
    assert "class_counts (--class-counts)" in doubt.message
    assert "site1 of output 0" in doubt.message
    named = [replace(n, labels=("a", "b", "c", "d", "e")) for n in uneven]
    assert "site1 of class 'a'" in doubts(named)[0].message


def test_another_order_is_told_by_site() -> None:
    networks = [trained(j, EVEN) for j in range(3)]
    networks.append(trained(3, EVEN, (1, 2, 3, 4, 0)))
    found = doubts(networks)
    assert [doubt.kind for doubt in found][:1] == ["labels"]
    assert "labels (--labels)" in found[0].message
    assert "the outputs of site3 do not" in found[0].message
    # Output 0 of site3 means class 1, and so on: any of them may be the example.
    examples = [f"output {k} of site3 behaves more like output {(k + 1) % 5}" for k in range(5)]
    assert any(example in found[0].message for example in examples)


def test_the_same_order_everywhere_is_none_to_doubt() -> None:
    order = (1, 2, 3, 4, 0)
    assert doubts([trained(j, EVEN, order) for j in range(3)]) == []


def test_estimated_shares_follow_the_true_ones() -> None:
    counts = np.array([np.roll((150, 100, 40, 5, 2), j) for j in range(4)])
    sites = known_sites([trained(j, tuple(own.tolist())) for j, own in enumerate(counts)])
    shares = estimated_shares(sites, probe(sites, 1000, np.random.default_rng(0)))
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert np.corrcoef(np.log(shares).ravel(), np.log(counts).ravel())[0, 1] > 0.8


def test_unknown_classes_have_no_share_and_raise_no_doubt() -> None:
    names = ("a", "b", "c"), ("b", "c", "d")
    networks = [replace(random_network(j, (6, 5, 3)), labels=names[j]) for j in range(2)]
    sites = known_sites(networks)
    shares = estimated_shares(sites, probe(sites, 200, np.random.default_rng(0)))
    assert (shares[~sites.known] == 0).all()
    assert np.isfinite(shares).all()
    assert all("nan" not in doubt.message for doubt in doubts(networks))


def test_only_classifiers_are_doubted() -> None:
    networks = [replace(random_network(j), output="values") for j in range(3)]
    assert doubts(networks) == []


def test_ten_networks_take_no_time() -> None:
    sites = comparable([random_network(j, (20, 50, 10)) for j in range(10)])
    probing = probe(sites, 2000, np.random.default_rng(0))
    start = time.process_time()
    class_doubts(sites, probing)
    assert time.process_time() - start < 0.5
