"""What a network is measured by follows from its outputs and the targets."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from pfnm.core.errors import PFNMError
from pfnm.core.mlp import ROWS, forward, mlp
from pfnm.core.network import Network
from pfnm.evaluate import evaluate, predict
from pfnm.federated.baselines import naive_average

INPUTS = np.array([[1.0, -2.0, -3.0], [-1.0, 2.0, 3.0], [-1.0, -2.0, 3.0], [4.0, -1.0, -1.0]])
BEST = [0, 2, 2, 0]  # the largest of each row


def outputs(count: int, **options: Any) -> Network:
    """The network whose outputs are its first inputs."""
    return mlp([np.eye(3)[:, :count]], **options)


@pytest.mark.parametrize("targets", [np.array([1, 0, 0, 0]), np.array([[1.0], [0], [0], [0]])])
def test_one_sigmoid_is_a_binary_classifier(targets: np.ndarray) -> None:
    network = outputs(1, output="sigmoid")
    assert evaluate(network, INPUTS, targets) == {"accuracy": 0.75, "examples": 4}
    assert predict(network, INPUTS).tolist() == [1, 0, 0, 1]
    with pytest.raises(PFNMError, match="zeros and ones"):
        evaluate(network, INPUTS, targets + 1)


def test_several_sigmoids_are_labels_of_their_own() -> None:
    targets = (INPUTS > 0).astype(int)
    targets[0, 2] = 1
    expected = {"exact_match": 0.75, "label_accuracy": 11 / 12, "examples": 4}
    network = outputs(3, output="sigmoid", labels=["a", "b", "c"])
    assert evaluate(network, INPUTS, targets) == expected
    assert evaluate(network, INPUTS, np.array(["a", "c", "c", "c"]))["accuracy"] == 0.75
    with pytest.raises(PFNMError, match="one for each output"):
        evaluate(network, INPUTS, targets[:, :2])


@pytest.mark.parametrize("options", [{"output": "softmax"}, {"labels": [0, 1, 2]}, {}])
def test_classes_as_numbers(options: dict[str, Any]) -> None:
    network = outputs(3, **options)
    for targets in (np.array(BEST), np.array(BEST)[:, None]):
        assert evaluate(network, INPUTS, targets) == {"accuracy": 1.0, "examples": 4}


@pytest.mark.parametrize("options", [{"output": "softmax"}, {"labels": ["a", "b", "c"]}])
def test_one_hot_targets_are_classes(options: dict[str, Any]) -> None:
    network = outputs(3, **options)
    assert evaluate(network, INPUTS, np.eye(3)[BEST])["accuracy"] == 1.0
    with pytest.raises(PFNMError, match="none or several"):
        evaluate(network, INPUTS, np.ones((4, 3)))
    with pytest.raises(PFNMError, match="zeros and ones"):
        evaluate(network, INPUTS, INPUTS)


def test_labels_of_different_types() -> None:
    network = outputs(3, labels=["a", 1, 2])
    assert evaluate(network, INPUTS, np.array([1, 2, 2, 1]))["accuracy"] == 0.5
    assert predict(network, INPUTS).tolist() == ["a", 2, 2, "a"]


def test_regressions() -> None:
    assert evaluate(outputs(3), INPUTS, INPUTS)["r2"] == 1.0
    assert evaluate(outputs(1), INPUTS, np.array([1, -1, -1, 4]))["mean_squared_error"] == 0.0
    half = np.column_stack([INPUTS[:, 0], np.ones(4), INPUTS[:, 2]])
    assert evaluate(outputs(3), INPUTS, half)["r2"] == 1.0  # of those that vary
    assert evaluate(outputs(1), INPUTS, np.ones(4))["r2"] is None


@pytest.mark.parametrize(
    ("network", "targets", "words"),
    [
        (outputs(1), np.array(list("abcd")), "expected numbers"),
        (outputs(3), np.array(list("abcd")), "has none of them"),
        (outputs(3), np.array([0.0, 1, 1, 0]), "3 outputs, the data 1 targets"),
        (outputs(3), np.array(5), r"shape \(\)"),
        (outputs(3), np.ones((4, 3, 3)), r"shape \(4, 3, 3\)"),
        (outputs(3), np.arange(4) + 100, r"100, 101, 102, 103\)"),
        (mlp([np.full((3, 1), 1e308)]), np.ones(4), "infinite outputs"),
    ],
)
def test_what_cannot_be_measured(network: Network, targets: np.ndarray, words: str) -> None:
    with pytest.raises(PFNMError, match=words):
        evaluate(network, INPUTS, targets)


def test_long_lists_of_labels_are_cut() -> None:
    with pytest.raises(PFNMError, match=r"has 100, .*, 109, \.\.\.\)"):
        evaluate(outputs(3, output="softmax"), np.ones((50, 3)), np.arange(50) + 100)


def test_the_plain_average_of_a_class_is_over_the_sites_that_know_it() -> None:
    one = mlp([np.ones((2, 1)), np.array([[1.0, 3.0]])], labels=["a", "b"], name="one")
    two = mlp([np.ones((2, 1)), np.array([[5.0, 7.0]])], labels=["b", "c"], name="two")
    average = naive_average([one, two])
    assert average.labels == ("a", "b", "c")
    assert average.tensors["layers.1.weight"].ravel().tolist() == [1.0, 4.0, 7.0]


def test_labels_that_differ_only_in_type() -> None:
    one, two = (
        mlp([np.ones((2, 1)), np.ones((1, 2))], labels=labels, name=name)
        for name, labels in (("one", [0, 1]), ("two", ["0", "1"]))
    )
    with pytest.raises(PFNMError, match=r"one has the label 0 \(int\), two has '0' \(str\)"):
        naive_average([one, two])


@pytest.mark.parametrize("rows", [0, 1, ROWS, 2 * ROWS + 1])
def test_many_rows_are_run_in_blocks(rows: int) -> None:
    rng = np.random.default_rng(0)
    network = mlp([rng.normal(size=(3, 4)), rng.normal(size=(4, 2))])
    inputs = rng.normal(size=(rows, 3))
    first, second = (network.tensors[f"layers.{c}.weight"].T for c in range(2))
    np.testing.assert_allclose(forward(network, inputs), np.maximum(inputs @ first, 0) @ second)


@pytest.mark.parametrize("shape", [(), (3,), (2 * ROWS, 5), (2, 3, 1)])
def test_rows_of_the_wrong_shape(shape: tuple[int, ...]) -> None:
    network = mlp([np.eye(3)], name="north")
    words = re.escape(f"north takes 3 inputs, the data has shape {shape}")
    with pytest.raises(PFNMError, match=words):
        forward(network, np.zeros(shape))
