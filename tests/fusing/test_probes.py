"""Probes in the inputs' range, what the sites say together, and agreement: by hand."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import random_network
from hypothesis import given
from hypothesis import strategies as st

import pfnm
from pfnm.api import fuse_sites
from pfnm.errors import PFNMError
from pfnm.fusing.inputs import InputRange, Units
from pfnm.fusing.probes import Probing, agreement, alike, probe, said_together, sure_agreement
from pfnm.fusing.sites import comparable
from pfnm.networks.network import Network


def test_ranges_by_hand() -> None:
    directions = np.array([[2, -4, 1], [-1, -1, -3]], dtype=np.float32)
    np.testing.assert_allclose(InputRange()(directions), [[1.0, 0.0, 0.5], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(InputRange(1, 3)(directions), [[3, 1, 2], [1, 1, 1]])
    signed = InputRange(-1, 10)(directions)
    np.testing.assert_allclose(signed, [[5.0, -1.0, 2.5], [-1 / 3, -1 / 3, -1]], rtol=1e-6)
    np.testing.assert_allclose(InputRange(-3, -1)(directions)[0], [-1, -3, -1])
    each = InputRange([0, -2, 0], [1, 2, 5])(directions)
    np.testing.assert_allclose(each, [[0.125, -2.0, 1.5625], [0.0, -2.0, 0.0]])


@given(low=st.floats(-100, 100), width=st.floats(0.01, 100), seed=st.integers(0, 99))
def test_probes_stay_in_the_range_and_reach_it(low: float, width: float, seed: int) -> None:
    networks = [random_network(j, (5, 4, 3)) for j in range(2)]
    within = InputRange(low, low + width)
    probes = Units(within).make(networks, 50, np.random.default_rng(seed))
    slack = 1e-4 * (abs(low) + width)
    assert probes.min() >= low - slack
    assert probes.max() <= low + width + slack
    assert np.ptp(probes) > width / 4


@pytest.mark.parametrize("ends", [(1, 0), (0, 0), (np.nan, 1), (0, np.inf), ([0, 2], [1, 1])])
def test_what_is_no_range(ends: tuple[float, float]) -> None:
    with pytest.raises(PFNMError, match="range"):
        InputRange(*ends)


def test_with_few_inputs_probes_lie_between_the_ends_too() -> None:
    probes = Units().make([random_network(0, (1, 4, 3))], 200, np.random.default_rng(0))
    assert len(np.unique(probes)) > 50


def test_a_feature_in_other_units_changes_nothing() -> None:
    """Half of the features a thousand times as large, their weights as much smaller."""
    scale = np.where(np.arange(20) < 10, 1000, 1).astype(np.float32)
    networks = [random_network(j, (20, 9, 4)) for j in range(3)]
    scaled = [
        replace(
            network,
            tensors={
                name: tensor / scale if tensor.shape == (9, 20) else tensor
                for name, tensor in network.tensors.items()
            },
        )
        for network in networks
    ]
    assert scaled[0].tensors["layers.0.weight"].shape == (9, 20)
    ranges = InputRange(), InputRange(np.zeros(20), scale)
    plain, large = (
        probe(
            replace(comparable(own), inputs=Units(within)),
            100,
            np.random.default_rng(0),
            to_judge=True,
        )
        for own, within in zip((networks, scaled), ranges, strict=True)
    )
    np.testing.assert_allclose(large.inputs / scale, plain.inputs, atol=1e-5)
    np.testing.assert_allclose(large.answer, plain.answer, atol=1e-4)


def two_sites() -> list[Network]:
    return [random_network(j, (3, 4, 2)) for j in range(2)]


def test_what_sites_say_together_by_hand() -> None:
    """Log probabilities by class share: 3/4 and 1/4 of the first class, all alike of the second."""
    sites = comparable(two_sites(), [[3, 1], [1, 1]])
    outputs = [np.log([[0.9], [0.1]]), np.log([[0.2], [0.8]])]
    first = 0.75 * np.log(0.9) + 0.25 * np.log(0.2)
    second = 0.5 * np.log(0.1) + 0.5 * np.log(0.8)
    expected = np.exp(first) / (np.exp(first) + np.exp(second))
    np.testing.assert_allclose(said_together(sites, outputs)[0], [expected])
    values = comparable([replace(n, output="values") for n in two_sites()], site_weights=[3, 1])
    means = said_together(values, [np.array([[4.0], [0.0]]), np.array([[0.0], [8.0]])])
    np.testing.assert_allclose(means, [[3.0], [2.0]])


def test_a_class_that_a_site_does_not_know_is_left_to_the_others() -> None:
    networks = [
        replace(network, labels=own)
        for network, own in zip(two_sites(), [("a", "b"), ("b", "c")], strict=True)
    ]
    sites = comparable(networks)
    outputs = [np.array([[0.0], [0.0], [99.0]]), np.array([[99.0], [0.0], [0.0]])]
    np.testing.assert_allclose(said_together(sites, outputs), np.full((3, 1), 1 / 3))


def test_agreement_is_the_share_of_like_answers() -> None:
    network = two_sites()[0]
    inputs = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    answers = network.run(inputs).T.astype(float)
    assert alike(network, inputs, answers) == 1
    answers[:, :2] = answers[::-1, :2]
    probing = Probing(inputs, [], answers, answers, np.ones((2, 8)))
    assert agreement(network, probing) == 6 / 8


def test_sure_agreement_counts_classes_alike_where_the_ensemble_is_sure() -> None:
    network = two_sites()[0]
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(400, 3)).astype(np.float32)
    said = network.run(inputs).argmax(axis=1)
    assert 0 < said.mean() < 1
    # The ensemble is sure of 200 inputs and says the opposite where the network says class 1.
    sure = np.arange(400) < 200
    wanted = np.where(sure & (said == 1), 0, said)
    wanted[:1] = 1 - said[:1]
    mean = np.where(np.arange(2)[:, None] == wanted, 1.0, 0.0)
    mean[:, ~sure] = 0.5
    probing = Probing(inputs, [], mean, mean, np.ones((2, 400)))
    shares = [(said[sure] == k)[wanted[sure] == k].mean() for k in np.unique(wanted[sure])]
    assert sure_agreement(network, probing) == pytest.approx(np.mean(shares))


def test_a_top_down_fusion_is_measured_too() -> None:
    networks = [random_network(j, (6, 9, 4)) for j in range(3)]
    fusion = pfnm.fuse(networks, method="topdown")
    assert fusion.agreement is not None
    assert fusion.record()["agreement"] == fusion.agreement
    again = pfnm.check(fusion.network, networks).agreement
    assert fusion.agreement == pytest.approx(again, abs=0.05)
    rng = np.random.default_rng(0)
    quick = fuse_sites(comparable(networks), method="topdown", measured=False, rng=rng)
    assert quick.agreement is None
