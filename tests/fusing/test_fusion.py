"""Whole networks: what must hold of any fusion, by hand and on random networks."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from conftest import random_network, renamed
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from pfnm.errors import PFNMError
from pfnm.fusing.atoms import group_atoms, observed_mean, part_of, posterior_mean
from pfnm.fusing.sites import comparable
from pfnm.fusing.solution import Solution
from pfnm.fusing.topdown import fuse_topdown
from pfnm.matching.prior import Prior
from pfnm.networks.graph import OUTPUT, Axis, UnitGraph
from pfnm.networks.network import Network
from pfnm.networks.perceptron import layers, mlp, perceptron, with_activation

QUICK = settings(max_examples=40, deadline=None)


def fuse_networks(
    networks: Sequence[Network],
    *,
    class_counts: ArrayLike | None = None,
    site_weights: ArrayLike | None = None,
    prior: Prior | None = None,
) -> Solution:
    """The paper's fusion with its defaults."""
    sites = comparable(networks, class_counts, site_weights)
    return fuse_topdown(sites, prior=prior or Prior(), rng=np.random.default_rng(0))


@st.composite
def federations(draw: st.DrawFn) -> tuple[list[Network], np.ndarray | None, Prior]:
    """A few networks of one depth and many widths, perhaps with class counts."""
    seed = draw(st.integers(0, 2**31))
    depth = draw(st.integers(1, 3))
    biases = draw(st.booleans())
    networks = []
    for j in range(draw(st.integers(2, 4))):
        hidden = [draw(st.integers(1, 5)) for _ in range(depth)]
        network = random_network(seed + j, (3, *hidden, 2), biases=biases, name=f"site{j}")
        networks.append(network)
    rng = np.random.default_rng(seed)
    counts = rng.uniform(0.1, 9, size=(len(networks), 2)) if draw(st.booleans()) else None
    rules = draw(st.sampled_from(["recommended", "published"] + ["paper"] * (counts is None)))
    return networks, counts, Prior(prior_variance=2.0, site_variance=0.5, rules=rules)


# The top units do not merge, so those below share no coordinate, not even a bias: all pairs tie.
TIED = [random_network(seed, (3, 1, 3, 1, 2), biases=False, name=f"site{seed}") for seed in (0, 1)]


@given(federations())
@example((TIED, None, Prior(prior_variance=2.0, site_variance=0.5)))
@QUICK
def test_renaming_units_changes_no_prediction(
    federation: tuple[list[Network], np.ndarray | None, Prior],
) -> None:
    networks, counts, prior = federation
    # The published rules break ties by the order of units; with one layer there are none.
    assume(prior.rules != "published" or len(networks[0].widths) == 1)
    rng = np.random.default_rng(5)
    inputs = rng.normal(size=(7, 3))
    one = fuse_networks(networks, class_counts=counts, prior=prior)
    other_names = [renamed(network, rng) for network in networks]
    two = fuse_networks(other_names, class_counts=counts, prior=prior)
    assert one.widths == two.widths
    np.testing.assert_allclose(one.network.run(inputs), two.network.run(inputs))


@pytest.mark.parametrize("rules", ["recommended", "published"])
def test_a_fusion_can_start_from_the_assignments_of_another(rules: str) -> None:
    sites = comparable([random_network(seed, (3, 5, 4, 2)) for seed in range(3)])
    prior = Prior(prior_variance=2.0, site_variance=0.5, rules=rules)
    first = fuse_topdown(sites, prior=prior, rng=np.random.default_rng(0))
    again = fuse_topdown(
        sites, prior=prior, rng=np.random.default_rng(0), start=first.assignments, sweeps=0
    )
    for group, assignments in first.assignments.items():
        for one, other in zip(assignments, again.assignments[group], strict=True):
            np.testing.assert_array_equal(one, other)
    some = {"hidden1": first.assignments["hidden1"]}
    with pytest.raises(PFNMError, match="name the groups hidden1, expected hidden1, hidden2"):
        fuse_topdown(sites, prior=prior, rng=np.random.default_rng(0), start=some)


@given(st.integers(0, 2**31), st.integers(1, 3), st.integers(2, 5), st.booleans())
@QUICK
def test_copies_of_one_network_fuse_to_it(seed: int, depth: int, sites: int, biases: bool) -> None:
    network = random_network(seed, (4, *[6] * depth, 3), biases=biases)
    rng = np.random.default_rng(seed)
    copies = [renamed(network, rng) for _ in range(sites)]
    tight = Prior(prior_variance=1e6, site_variance=1e-6)
    fusion = fuse_networks(copies, prior=tight)
    assert fusion.widths == network.widths
    inputs = rng.normal(size=(7, 4))
    np.testing.assert_allclose(
        fusion.network.run(inputs), network.run(inputs), rtol=1e-6, atol=1e-6
    )
    for j, copy in enumerate(copies):
        part = part_of(
            fusion.network, {group: units[j] for group, units in fusion.assignments.items()}
        )
        for name, tensor in copy.tensors.items():
            np.testing.assert_allclose(part.tensors[name], tensor, rtol=1e-6, atol=1e-6)


@given(federations())
@QUICK
def test_assignments_are_one_to_one_and_popularity_counts_them(
    federation: tuple[list[Network], np.ndarray | None, Prior],
) -> None:
    networks, counts, prior = federation
    fusion = fuse_networks(networks, class_counts=counts, prior=prior)
    for group, assignments in fusion.assignments.items():
        for network, assignment in zip(networks, assignments, strict=True):
            assert np.unique(assignment).size == network.widths[group]
        counted = np.bincount(np.concatenate(assignments), minlength=fusion.widths[group])
        np.testing.assert_array_equal(counted, fusion.popularity[group])
        assert counted.min() > 0


def test_unmatched_networks_stand_side_by_side() -> None:
    """With a wide prior nothing matches: every unit is kept, and outputs add up to twice the mean.

    The output bias is the mean of the two; hidden units, all kept, sum both networks' outputs.
    """
    networks = [random_network(j) for j in range(2)]
    loose = Prior(prior_variance=1e9, site_variance=1e-9)
    fusion = fuse_networks(networks, prior=loose)
    assert fusion.widths == {"hidden1": 10}
    inputs = np.random.default_rng(0).normal(size=(5, 6))
    outputs = sum(network.run(inputs) for network in networks)
    biases = [layers(network)[-1].bias for network in networks]
    expected = outputs - np.mean(biases, axis=0)  # type: ignore[arg-type]
    np.testing.assert_allclose(fusion.network.run(inputs), expected, rtol=1e-6)


def test_class_shares_weigh_the_output_bias_by_hand() -> None:
    networks = [random_network(j, (2, 1, 2)) for j in range(2)]
    counts = np.array([[1, 4], [3, 0]])
    prior = Prior(prior_variance=4.0, site_variance=0.5, rules="published")
    fusion = fuse_networks(networks, class_counts=counts, prior=prior)
    b0, b1 = (layers(network)[-1].bias for network in networks)
    assert b0 is not None
    assert b1 is not None
    p, p_0 = 1 / 0.5, 1 / 4.0
    expected = [
        (0.1 * p_0 + p * (0.25 * b0[0] + 0.75 * b1[0])) / (p_0 + p),
        (0.1 * p_0 + p * b0[1]) / (p_0 + p),
    ]
    np.testing.assert_allclose(layers(fusion.network)[-1].bias, expected)  # type: ignore[arg-type]


def test_a_class_a_site_does_not_know_neither_helps_nor_harms() -> None:
    whole = replace(random_network(0), labels=("a", "b", "c", "d"))
    half = replace(random_network(1, (6, 5, 2)), labels=("d", "b"))
    fusion = fuse_networks([whole, half], prior=Prior(prior_variance=1e9, site_variance=1.0))
    assert fusion.network.labels == ("a", "b", "c", "d")
    bias, own = layers(fusion.network)[-1].bias, layers(whole)[-1].bias
    other = layers(half)[-1].bias
    assert bias is not None
    assert own is not None
    assert other is not None
    np.testing.assert_allclose(bias[[0, 2]], own[[0, 2]], rtol=1e-6)
    np.testing.assert_allclose(bias[3], (own[3] + other[0]) / 2, rtol=1e-6)
    with pytest.raises(PFNMError, match="counts examples of class 'a', which its network does not"):
        fuse_networks([whole, half], class_counts=[[1, 1, 1, 1], [1, 1, 0, 1]])


def test_site_weights_and_variances_are_precisions() -> None:
    networks = [random_network(j, (2, 1, 2)) for j in range(2)]
    by_weight = fuse_networks(networks, site_weights=[2.0, 0.5])
    by_variance = fuse_networks(networks, prior=Prior(site_variance=(0.5, 2.0)))
    for name, tensor in by_weight.network.tensors.items():
        np.testing.assert_allclose(tensor, by_variance.network.tensors[name])


def test_dtype_of_the_result_is_that_of_the_sites() -> None:
    networks = [random_network(j) for j in range(2)]
    small = [
        replace(n, tensors={k: t.astype(np.float32) for k, t in n.tensors.items()})
        for n in networks
    ]
    assert fuse_networks(small).network.dtype == np.float32
    assert fuse_networks([small[0], networks[1]]).network.dtype == np.float64


def test_names_and_axis_order_are_those_of_the_first_site() -> None:
    torch_like = random_network(0)
    other = layers(random_network(1))
    numpy_like = mlp(
        [layer.weight for layer in other],
        [layer.bias for layer in other],
        names=[("W1", "b1"), ("W2", "b2")],
        transposed=False,
    )
    fusion = fuse_networks([torch_like, numpy_like])
    assert list(fusion.network.tensors) == list(torch_like.tensors)
    swapped = fuse_networks([numpy_like, torch_like])
    assert swapped.network.tensors["W1"].shape[0] == 6


def test_blocks_of_entries_move_with_their_unit() -> None:
    """A flatten between filters and a linear layer: two entries for each unit, by hand."""
    graph = UnitGraph(
        {
            "filter": (Axis.of("filters"), Axis.of("input")),
            "out": (Axis.of(OUTPUT), Axis.of("filters", after=2)),
        },
        ("filters",),
    )
    filters = np.array([[5.0, 0.0], [0.0, 5.0]])
    out = np.array([[1.0, 2.0, 3.0, 4.0]])
    program = perceptron(random_network(0))  # which nothing here runs
    one = Network({"filter": filters, "out": out}, graph, program, name="one")
    two = Network(
        {"filter": filters[::-1], "out": out[:, [2, 3, 0, 1]]}, graph, program, name="two"
    )
    prior = Prior(prior_variance=1e9, site_variance=1.0)
    sites = comparable([one, two])
    atoms, _, _ = group_atoms(sites, "filters", {}, prior)
    np.testing.assert_array_equal(atoms[0], [[5, 0, 1, 2], [0, 5, 3, 4]])
    assignments = {"filters": (np.array([0, 1]), np.array([1, 0]))}
    for fused, tolerance in (
        (posterior_mean(sites, assignments, prior), 1e-6),
        (observed_mean(sites, assignments), 1e-2),
    ):
        np.testing.assert_allclose(fused.tensors["out"], out, rtol=tolerance)
        np.testing.assert_allclose(fused.tensors["filter"], filters, rtol=tolerance)


def test_networks_that_do_not_go_together_are_refused() -> None:
    one = random_network(0, name="one")
    with pytest.raises(PFNMError, match="at least two"):
        fuse_networks([one])
    with pytest.raises(PFNMError, match="two has activation 'tanh', one has 'relu'"):
        fuse_networks([one, with_activation(random_network(1, name="two"), "tanh")])
    with pytest.raises(PFNMError, match="one names its classes and two does not"):
        fuse_networks([replace(one, labels=(0, 1, 2, 3)), random_network(1, name="two")])
    with pytest.raises(PFNMError, match="no hidden layer"):
        fuse_networks([random_network(0, (3, 2)), random_network(1, (3, 2))])
    with pytest.raises(PFNMError, match=r"class counts have shape \(2, 3\), expected \(2, 4\)"):
        fuse_networks([one, random_network(1)], class_counts=np.ones((2, 3)))
