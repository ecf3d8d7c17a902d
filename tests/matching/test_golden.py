"""Parity with the authors' published code on its own inputs and outputs (tests/golden)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replay import Replay

from pfnm.fusing.sites import comparable
from pfnm.fusing.topdown import fuse_topdown
from pfnm.matching.prior import Prior
from pfnm.networks.network import Network
from pfnm.networks.perceptron import layers, mlp

GOLDEN = Path(__file__).parents[1] / "golden"
TOLERANCE = 1e-10


def local_networks(data: Mapping[str, Any], number: int) -> list[Network]:
    depth = sum(key.startswith(f"round{number}_local_0_weight_") for key in data)
    return [
        mlp(
            [data[f"round{number}_local_{j}_weight_{c}"] for c in range(depth)],
            [data[f"round{number}_local_{j}_bias_{c}"] for c in range(depth)],
        )
        for j in range(len(data["class_counts"]))
    ]


@pytest.mark.parametrize(
    "name", ["one_layer_even", "one_layer_uneven", "three_layers", "three_rounds"]
)
def test_published_rules_reproduce_the_published_code(name: str) -> None:
    data = dict(np.load(GOLDEN / f"{name}.npz"))
    prior = Prior(
        prior_variance=float(data["sigma0_2"]),
        site_variance=float(data["sigma2"]),
        mass=float(data["gamma0"]),
        rules="published",
    )
    start = None
    rounds = sum(key.endswith("_test_accuracy") for key in data)
    for number in range(rounds):
        networks = local_networks(data, number)
        hidden = range(len(layers(networks[0])) - 1, 0, -1)
        orders = [order for c in hidden for order in data[f"round{number}_order_layer_{c}"]]
        fusion = fuse_topdown(
            comparable(networks, data["class_counts"]),
            prior=prior,
            start=start,
            sweeps=int(data["sweeps"]),
            rng=Replay(orders),
        )
        for c in hidden:
            for j, assignment in enumerate(fusion.assignments[f"hidden{c}"]):
                expected = data[f"round{number}_assignment_layer_{c}_{j}"]
                np.testing.assert_array_equal(assignment, expected)
        for c, layer in enumerate(layers(fusion.network)):
            weight, bias = (data[f"round{number}_global_{what}_{c}"] for what in ("weight", "bias"))
            assert layer.bias is not None
            np.testing.assert_allclose(layer.weight, weight, rtol=0, atol=TOLERANCE)
            np.testing.assert_allclose(layer.bias, bias, rtol=0, atol=TOLERANCE)
        start = fusion.assignments


def test_the_golden_accuracy_is_that_of_our_forward_pass() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    data = dict(np.load(GOLDEN / "one_layer_uneven.npz"))
    x, y = datasets.load_digits(return_X_y=True)
    index = data["test_index"]
    network = mlp(
        [data[f"round0_global_weight_{c}"] for c in range(2)],
        [data[f"round0_global_bias_{c}"] for c in range(2)],
    )
    accuracy = (network.run(x[index] / 16).argmax(axis=1) == y[index]).mean()
    assert accuracy == pytest.approx(float(data["round0_test_accuracy"]), abs=1e-12)
