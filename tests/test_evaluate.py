"""What a network is measured by follows from its outputs and the targets."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import random_network
from scipy.special import expit, softmax
from sklearn import metrics

from pfnm.conversion import as_sites
from pfnm.errors import PFNMError, PFNMWarning
from pfnm.evaluate import accuracy, evaluate, wanted_outputs
from pfnm.frontier import frontier
from pfnm.lab.baselines import naive_average
from pfnm.measures import calibration_error
from pfnm.networks.network import Network
from pfnm.networks.perceptron import ROWS, mlp

INPUTS = np.array([[1.0, -2.0, -3.0], [-1.0, 2.0, 3.0], [-1.0, -2.0, 3.0], [4.0, -1.0, -1.0]])
BEST = [0, 2, 2, 0]  # the largest of each row


def outputs(count: int, **options: Any) -> Network:
    """The network whose outputs are its first inputs."""
    return mlp([np.eye(3)[:, :count]], **options)


@pytest.mark.parametrize("targets", [np.array([1, 0, 0, 0]), np.array([[1.0], [0], [0], [0]])])
def test_one_sigmoid_is_a_binary_classifier(targets: np.ndarray) -> None:
    network = outputs(1, output="sigmoid")
    found = evaluate(network, INPUTS, targets)
    shares = expit(INPUTS[:, 0])
    assert found["accuracy"] == accuracy(network, INPUTS, targets) == 0.75
    assert found["balanced_accuracy"] == pytest.approx((1 + 2 / 3) / 2)
    assert found["auroc"] == pytest.approx(2 / 3)  # 4 comes before 1, -1 and -1 after
    assert found["brier_score"] == pytest.approx(np.mean((shares - targets.ravel()) ** 2))
    assert found["examples"] == 4
    assert network.predict(INPUTS).tolist() == [1, 0, 0, 1]
    with pytest.raises(PFNMError, match="zeros and ones"):
        evaluate(network, INPUTS, targets + 2)


def test_several_sigmoids_are_labels_of_their_own() -> None:
    targets = (INPUTS > 0).astype(int)
    targets[0, 2] = 1
    network = outputs(3, output="sigmoid", labels=["a", "b", "c"])
    found = evaluate(network, INPUTS, targets, per_class=True)
    classes = found.pop("classes")
    areas = [1, 1, 2 / 3]  # of "c", -3 is wanted and -1 is not
    assert found.pop("auroc") == pytest.approx(np.mean(areas))
    assert found == {"exact_match": 0.75, "label_accuracy": 11 / 12, "examples": 4}
    assert [row["label"] for row in classes] == ["a", "b", "c"]
    assert [row["auroc"] for row in classes] == pytest.approx(areas)
    assert [row["recall"] for row in classes] == pytest.approx([1, 1, 2 / 3])
    assert [row["support"] for row in classes] == [2, 1, 3]
    assert evaluate(network, INPUTS, np.array(["a", "c", "c", "c"]))["accuracy"] == 0.75
    with pytest.raises(PFNMError, match="one for each output"):
        evaluate(network, INPUTS, targets[:, :2])
    with pytest.raises(PFNMError, match="leave confusion out"):
        evaluate(network, INPUTS, targets, confusion=True)
    assert evaluate(network, INPUTS, np.ones((4, 3)))["auroc"] is None


@pytest.mark.parametrize("options", [{"output": "softmax"}, {"labels": [0, 1, 2]}, {}])
def test_classes_as_numbers(options: dict[str, Any]) -> None:
    network = outputs(3, **options)
    for targets in (np.array(BEST), np.array(BEST)[:, None], np.array(BEST, dtype=float)):
        found = evaluate(network, INPUTS, targets)
        assert (found["accuracy"], found["balanced_accuracy"], found["auroc"]) == (1, 1, 1)
        assert "note" not in found
        assert "unknown_labels" not in found


def test_measures_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    inputs, wanted = rng.normal(size=(200, 3)), rng.integers(0, 3, 200)
    found = evaluate(outputs(3), inputs, wanted, per_class=True, confusion=True)
    shares, said = softmax(inputs, axis=1), inputs.argmax(axis=1)
    expected = {
        "accuracy": metrics.accuracy_score(wanted, said),
        "balanced_accuracy": metrics.balanced_accuracy_score(wanted, said),
        "auroc": metrics.roc_auc_score(wanted, shares, multi_class="ovr"),
        "log_loss": metrics.log_loss(wanted, shares),
        "brier_score": metrics.brier_score_loss(wanted, shares),
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["confusion"]["counts"] == metrics.confusion_matrix(wanted, said).tolist()
    report = metrics.classification_report(wanted, said, output_dict=True)
    for row in found["classes"]:
        theirs = report[str(row["label"])]
        assert row["f1"] == pytest.approx(theirs["f1-score"])
        assert row["support"] == theirs["support"]
    areas = [row["auroc"] for row in found["classes"]]
    assert np.mean(areas) == pytest.approx(found["auroc"])
    json.dumps(found)


def test_the_two_forms_of_a_binary_classifier_measure_alike() -> None:
    rng = np.random.default_rng(0)
    inputs, wanted = rng.normal(size=(100, 3)), rng.integers(0, 2, 100)
    one = mlp([np.array([[1.0], [0], [0]])], output="sigmoid")
    two = mlp([np.array([[-0.5, 0.5], [0, 0], [0, 0]])], output="softmax")
    options = {"per_class": True, "confusion": True}
    first, second = (evaluate(network, inputs, wanted, **options) for network in (one, two))
    for name in ("log_loss", "brier_score", "auroc", "calibration_error"):
        assert first[name] == pytest.approx(second[name])
    assert first["confusion"] == second["confusion"]
    shares = expit(inputs[:, 0])
    assert first["brier_score"] == pytest.approx(metrics.brier_score_loss(wanted, shares))


def test_the_calibration_error_by_hand() -> None:
    shares = np.array([[0.9, 0.1], [0.91, 0.09], [0.2, 0.8], [1.0, 0.0]])
    # Bins of 1/15: the first two share one (one of them right), the others are alone.
    error = (abs(1 - 0.9 - 0.91) + abs(1 - 0.8) + abs(1 - 1.0)) / 4
    assert calibration_error(shares, np.array([0, 1, 1, 0])) == pytest.approx(error)


def test_labels_a_network_does_not_know() -> None:
    network = outputs(2, labels=["a", "b"])
    inputs = np.array([[3.0, 1, 0], [1, 2, 0], [5, 1, 0], [1, 5, 0]])
    targets = np.array(["a", "b", "z", "c"])
    found = evaluate(network, inputs, targets, per_class=True, confusion=True)
    assert (found["accuracy"], found["balanced_accuracy"]) == (0.5, 0.5)
    assert found["unknown_labels"] == 2
    known = evaluate(network, inputs[:2], targets[:2])
    for name in ("log_loss", "brier_score", "auroc", "calibration_error"):
        assert found[name] == known[name]
    assert found["confusion"] == {
        "labels": ["a", "b", "c", "z"],
        "answers": ["a", "b"],
        "counts": [[1, 0], [0, 1], [0, 1], [1, 0]],
    }
    assert [row["precision"] for row in found["classes"]] == [0.5, 0.5]


def test_one_class_alone_has_no_area() -> None:
    found = evaluate(outputs(3), INPUTS, np.zeros(4, dtype=int), per_class=True)
    assert found["auroc"] is None
    assert [row["auroc"] for row in found["classes"]] == [None] * 3
    assert np.isfinite(found["log_loss"])
    alone = mlp([np.ones((3, 1))], output="softmax", labels=["a"])
    assert evaluate(alone, INPUTS, np.array(["a"] * 4))["log_loss"] is None


def test_what_was_taken_for_granted_is_said() -> None:
    found = evaluate(outputs(3), INPUTS, np.array(BEST) + 1)
    assert (found["accuracy"], found["note"]) == (1, "labels 1 to 3 were taken as outputs 0 to 2")
    found = evaluate(outputs(3), INPUTS, np.eye(3)[BEST])
    assert found["accuracy"] == 1
    assert "one-hot" in found["note"]
    with pytest.warns(PFNMWarning, match="labels 1 to 3"):
        wanted = wanted_outputs(outputs(3), INPUTS, np.array(BEST) + 1)
    assert wanted.tolist() == np.eye(3)[BEST].tolist()


def test_a_frontier_understands_labels_as_evaluate_does() -> None:
    sites = [random_network(seed, (3, 4, 3), name=f"site{seed}") for seed in range(2)]
    labelled = as_sites([replace(site, labels=("0", "1", "2")) for site in sites])
    together = frontier(labelled, budgets=[None], examples=(INPUTS, np.array(["0"] * 4)))
    same = frontier(labelled, budgets=[None], examples=(INPUTS, np.zeros(4)))
    assert [point.accuracy for point in together] == [point.accuracy for point in same]


def test_what_to_teach_is_not_guessed() -> None:
    with pytest.raises(PFNMError, match="--head sigmoid"):
        wanted_outputs(outputs(1), INPUTS, np.array([0, 1, 1, 0]))
    taught = wanted_outputs(outputs(1, output="sigmoid"), INPUTS, np.array([0, 1, 1, 0]))
    assert taught.tolist() == [[0], [1], [1], [0]]


def test_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    note = "for more measures than this, pip install 'pfnm[sklearn]'"
    expected = {"accuracy": 1.0, "examples": 4, "note": note}
    assert evaluate(outputs(3), INPUTS, BEST) == expected
    targets = (INPUTS > 0).astype(int)
    assert evaluate(outputs(3, output="sigmoid"), INPUTS, targets)["note"] == note
    assert evaluate(outputs(1), INPUTS, INPUTS[:, 0])["r2"] == 1
    with pytest.raises(PFNMError, match=r"need scikit-learn.* pip install 'pfnm\[sklearn\]'"):
        evaluate(outputs(3), INPUTS, BEST, confusion=True)


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
    assert network.predict(INPUTS).tolist() == ["a", 2, 2, "a"]


def test_regressions() -> None:
    assert evaluate(outputs(3), INPUTS, INPUTS)["r2"] == 1.0
    assert evaluate(outputs(1), INPUTS, np.array([1, -1, -1, 4]))["mean_squared_error"] == 0.0
    half = np.column_stack([INPUTS[:, 0], np.ones(4), INPUTS[:, 2]])
    assert evaluate(outputs(3), INPUTS, half)["r2"] == 1.0  # of those that vary
    found = evaluate(outputs(1), INPUTS, np.ones(4))
    assert found == {
        "r2": None,
        "mean_squared_error": (0 + 4 + 4 + 9) / 4,
        "mean_absolute_error": (0 + 2 + 2 + 3) / 4,
        "examples": 4,
    }
    with pytest.raises(PFNMError, match="measured as a regression"):
        evaluate(outputs(1), INPUTS, np.ones(4), per_class=True)
    with pytest.raises(PFNMError, match="needs a classifier"):
        accuracy(outputs(1), INPUTS, np.ones(4))


@pytest.mark.parametrize(
    ("network", "targets", "words"),
    [
        (outputs(1), np.array(list("abcd")), "expected numbers"),
        (outputs(3), np.array(list("abcd")), "4 different labels"),
        (outputs(3, labels=list("xyz")), np.array(list("abcd")), "has none of them"),
        (outputs(3), np.array([0.5, 1, 1, 0]), "3 outputs, the data 1 targets"),
        (outputs(3), np.empty((0,)), r"shape \(0,\)"),
        (outputs(1), np.full(4, np.nan), "targets hold NaN"),
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
    np.testing.assert_allclose(network.run(inputs), np.maximum(inputs @ first, 0) @ second)


@pytest.mark.parametrize("shape", [(), (3,), (2 * ROWS, 5), (2, 3, 1)])
def test_rows_of_the_wrong_shape(shape: tuple[int, ...]) -> None:
    network = mlp([np.eye(3)], name="north")
    words = re.escape(f"north takes 3 inputs, the data has shape {shape}")
    with pytest.raises(PFNMError, match=words):
        network.run(np.zeros(shape))
