"""Baselines by hand."""

import numpy as np
from conftest import random_network

from pfnm.lab.baselines import kmeans, outputs_by_class, weighted_average
from pfnm.lab.data import load_data
from pfnm.lab.dsgd import downpour
from pfnm.lab.setting import Setting, federation
from pfnm.networks.perceptron import layers, mlp


def test_a_weighted_average_by_hand() -> None:
    one, two = random_network(0), random_network(1)
    mean = weighted_average([one, two], [1, 3])
    for name, tensor in mean.tensors.items():
        np.testing.assert_allclose(tensor, one.tensors[name] / 4 + two.tensors[name] * 3 / 4)


def test_what_leads_into_a_class_counts_by_its_examples() -> None:
    one, two = (
        mlp(
            [np.full((2, 1), value), np.full((1, 3), value)], [np.full(1, value), np.full(3, value)]
        )
        for value in (0.0, 8.0)
    )
    mean = weighted_average([one, two], [1, 1])
    found = outputs_by_class(mean, [one, two], np.array([[4, 3, 0], [0, 1, 5]]))
    below, above = layers(found)
    assert (below.weight == 4).all()  # what leads into no class stays the mean
    assert above.weight.tolist() == [[0, 2, 8]]
    assert above.bias is not None
    assert above.bias.tolist() == [0, 2, 8]


def test_kmeans_finds_the_means_of_clear_clusters() -> None:
    """One site with 100 units, which are 50 pairs: k = 50 J is the number of pairs."""
    rng = np.random.default_rng(0)
    pairs = 1000 * rng.normal(size=(50, 6))  # 3 inputs, a bias, 2 outputs
    units = np.concatenate([pairs - 0.1, pairs + 0.1])
    network = mlp([units[:, :3].T, units[:, 4:]], [units[:, 3], np.array([1.0, 3.0])])
    below, above = layers(kmeans([network], np.random.default_rng(0)))
    assert below.bias is not None
    assert above.bias is not None
    found = np.concatenate([below.weight, below.bias[None], above.weight.T]).T
    np.testing.assert_allclose(found[found[:, 0].argsort()], pairs[pairs[:, 0].argsort()])
    np.testing.assert_allclose(above.bias, np.array([1.0, 3.0]))


def test_downpour_takes_the_step_of_adam_along_the_mean_gradient() -> None:
    """The first step of Adam moves every weight by the learning rate, against its gradient."""
    setting = Setting(sites=2, hidden=(6,), epochs=1, batch_size=2000, weight_decay=0.0)
    federated = federation(setting, load_data("digits"))
    start = federated.start(0)
    after, moments, steps, left_out = downpour(federated, start, {}, ["site0", "site1"], 1)
    assert (steps, left_out) == (1, {})
    for name, tensor in after.tensors.items():
        change = np.abs(tensor - start.tensors[name])
        assert change.max() <= setting.learning_rate * 1.001
        if name == "layers.1.bias":
            np.testing.assert_allclose(change, setting.learning_rate, rtol=1e-3)
    assert float(moments["step.0"]) == 1
    seen = []
    downpour(federated, start, {}, ["site0", "site1"], 1, lambda step, now: seen.append(now()))
    np.testing.assert_array_equal(seen[0].tensors["layers.1.bias"], after.tensors["layers.1.bias"])
    same, _, none, _ = downpour(federated, start, {}, [], 1)
    assert none == 0
    np.testing.assert_array_equal(same.tensors["layers.0.weight"], start.tensors["layers.0.weight"])
