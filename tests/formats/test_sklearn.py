"""scikit-learn's estimators, live and in skops files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import skl2onnx
import skops.io
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import pfnm
from pfnm.errors import PFNMError
from pfnm.formats import load, save
from pfnm.frameworks.sklearn import from_estimator, to_estimator
from pfnm.networks.outputs import probabilities
from pfnm.networks.perceptron import mlp

ROWS = 40
INPUTS = np.random.default_rng(0).normal(size=(ROWS, 4))
COUNT = np.arange(ROWS)
CLASSIFIED: dict[str, np.ndarray] = {
    "three": COUNT % 3,
    "texts": np.array(["low", "high", "mid"])[COUNT % 3],
    "binary": COUNT % 2,
    "binary_texts": np.array(["yes", "no"])[COUNT % 2],
    "booleans": COUNT % 2 == 0,
    "multilabel": np.stack([COUNT % 2, COUNT % 3 == 0, COUNT % 5 == 0], axis=1).astype(int),
}


def classes_of(target: np.ndarray) -> np.ndarray:
    return np.unique(target) if target.ndim == 1 else np.arange(target.shape[1])


def fitted(kind: type, target: np.ndarray, **options: Any) -> Any:
    """A few steps of training, by partial_fit, which does not warn that it could go on."""
    estimator = kind(hidden_layer_sizes=(6, 5), random_state=0, **options)
    for _ in range(3):
        if kind is MLPClassifier:
            estimator.partial_fit(INPUTS, target, classes=classes_of(target))
        else:
            estimator.partial_fit(INPUTS, target)
    return estimator


@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic", "identity"])
@pytest.mark.parametrize("target", CLASSIFIED)
def test_classifiers_there_and_back(target: str, activation: str) -> None:
    before = fitted(MLPClassifier, CLASSIFIED[target], activation=activation)
    network = from_estimator(before)
    np.testing.assert_allclose(probabilities(network, INPUTS), before.predict_proba(INPUTS))
    assert network.labels == tuple(before.classes_.tolist())
    assert {type(label) for label in network.labels} <= {str, int, bool}
    assert network.output == ("sigmoid" if target == "multilabel" else "softmax")
    after = to_estimator(network)
    np.testing.assert_allclose(after.predict_proba(INPUTS), before.predict_proba(INPUTS))
    np.testing.assert_array_equal(after.predict(INPUTS), before.predict(INPUTS))
    for name in ("n_features_in_", "n_layers_", "n_outputs_", "out_activation_"):
        assert getattr(after, name) == getattr(before, name)
    assert after.get_params()["hidden_layer_sizes"] == (6, 5)
    assert clone(after).activation == activation
    after.partial_fit(INPUTS, CLASSIFIED[target])
    assert after.score(INPUTS, CLASSIFIED[target]) > 0


@pytest.mark.parametrize("outputs", [1, 2])
def test_regressors_there_and_back(outputs: int) -> None:
    target = INPUTS[:, 0] if outputs == 1 else INPUTS[:, :2]
    before = fitted(MLPRegressor, target, activation="tanh")
    network = from_estimator(before)
    assert (network.output, network.labels) == ("values", None)
    expected = before.predict(INPUTS)
    np.testing.assert_allclose(network.run(INPUTS).reshape(expected.shape), expected)
    after = to_estimator(network)
    np.testing.assert_allclose(after.predict(INPUTS), expected)
    after.partial_fit(INPUTS, target)


@pytest.mark.parametrize("options", [{"solver": "adam"}, {"solver": "sgd"}])
@pytest.mark.parametrize("target", ["three", "binary_texts", "multilabel"])
def test_skops_files_predict_the_same(tmp_path: Path, target: str, options: dict[str, Any]) -> None:
    before = fitted(MLPClassifier, CLASSIFIED[target], **options)
    skops.io.dump(before, tmp_path / "site.skops")
    network = load(tmp_path / "site.skops", activation="tanh")  # the file's own word counts
    assert network.activation == "relu"
    assert network.name == "site"
    save(network, tmp_path / "again.skops")
    after = skops.io.load(tmp_path / "again.skops", trusted=[])
    np.testing.assert_allclose(after.predict_proba(INPUTS), before.predict_proba(INPUTS))
    again = load(tmp_path / "again.skops")
    assert again.labels == network.labels
    for name, tensor in network.tensors.items():
        np.testing.assert_allclose(again.tensors[name], tensor, atol=1e-15)


def test_a_binary_classifier_is_two_opposite_halves() -> None:
    before = fitted(MLPClassifier, CLASSIFIED["binary"])
    logits = from_estimator(before).run(INPUTS)
    np.testing.assert_allclose(logits[:, 0], -logits[:, 1])
    shifted = logits[:, 1] - logits[:, 0]
    np.testing.assert_allclose(1 / (1 + np.exp(-shifted)), before.predict_proba(INPUTS)[:, 1])


@pytest.mark.parametrize("labels", [("c", "a", "b"), ("b", "a"), (3, 1, 2), None])
def test_classes_are_sorted_with_their_outputs(labels: tuple[Any, ...] | None) -> None:
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(4, 6)), rng.normal(size=(6, len(labels or "xyz")))]
    output = "identity" if labels else "softmax"
    network = mlp(weights, labels=labels, output=output, activation="tanh")
    estimator = to_estimator(network)
    expected = probabilities(network, INPUTS)
    columns = np.argsort(labels) if labels else np.arange(3)
    np.testing.assert_allclose(estimator.predict_proba(INPUTS), expected[:, columns])
    named = np.array(labels if labels else range(3))
    np.testing.assert_array_equal(estimator.predict(INPUTS), named[expected.argmax(axis=1)])
    assert not np.any(estimator.intercepts_[0])


def test_one_sigmoid_output_is_a_binary_classifier() -> None:
    network = mlp([np.random.default_rng(0).normal(size=(4, 1))], output="sigmoid")
    estimator = to_estimator(network)
    assert estimator.predict_proba(INPUTS).shape == (ROWS, 2)
    np.testing.assert_allclose(
        estimator.predict_proba(INPUTS)[:, 1:], probabilities(network, INPUTS)
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"activation": "gelu"}, "no activation 'gelu'"),
        ({"output": "softmax"}, "two classes"),
        ({"labels": ["a", 1]}, "different types"),
    ],
)
def test_what_scikit_learn_cannot_hold(options: dict[str, Any], words: str) -> None:
    outputs = len(options.get("labels", [0]))
    with pytest.raises(PFNMError, match=words):
        to_estimator(mlp([np.ones((2, outputs))], **options))


@pytest.mark.parametrize(
    ("estimator", "words"),
    [(MLPClassifier(), "not fitted"), (LogisticRegression(), "LogisticRegression")],
)
def test_what_is_no_fitted_perceptron(tmp_path: Path, estimator: Any, words: str) -> None:
    with pytest.raises(PFNMError, match=words):
        from_estimator(estimator)
    skops.io.dump(estimator, tmp_path / "site.skops")
    with pytest.raises(PFNMError, match=rf"site\.skops.*{words}"):
        load(tmp_path / "site.skops")


def run_me(rows: np.ndarray) -> np.ndarray:
    raise AssertionError("this must not be loaded")


def test_skops_files_with_other_types_are_refused_by_name(tmp_path: Path) -> None:
    pipeline = make_pipeline(FunctionTransformer(run_me), MLPClassifier())
    skops.io.dump(pipeline, tmp_path / "site.skops")
    with pytest.raises(PFNMError, match=r"site\.skops.*run_me"):
        load(tmp_path / "site.skops")


def test_a_poisson_regressor_is_refused() -> None:
    estimator = fitted(MLPRegressor, COUNT % 4, loss="poisson")
    with pytest.raises(PFNMError, match="'exp'"):
        from_estimator(estimator)


def test_a_classifier_of_a_single_class(tmp_path: Path) -> None:
    before = MLPClassifier(hidden_layer_sizes=(6,), solver="lbfgs", max_iter=30, random_state=0)
    before.fit(INPUTS, np.full(ROWS, "only"))
    skops.io.dump(before, tmp_path / "site.skops")
    onnx.save(skl2onnx.to_onnx(before, INPUTS[:1].astype(np.float32)), tmp_path / "site.onnx")
    for file in ("site.skops", "site.onnx"):
        network = load(tmp_path / file)
        assert (network.labels, network.output) == (("only",), "softmax")
        assert (network.run(INPUTS) > 0).all()  # the class it has seen is the likely one
    with pytest.raises(PFNMError, match="two classes"):
        save(network, tmp_path / "again.skops")


def test_outputs_that_may_be_logits_are_no_regressor(tmp_path: Path) -> None:
    network = mlp([np.ones((2, 3)), np.ones((3, 2))])
    with pytest.raises(PFNMError, match="--labels"):
        save(network, tmp_path / "site.skops")
    assert isinstance(to_estimator(mlp([np.ones((2, 3)), np.ones((3, 1))])), MLPRegressor)


def test_regressors_of_two_outputs_stay_regressors(tmp_path: Path) -> None:
    before = fitted(MLPRegressor, INPUTS[:, :2])
    skops.io.dump(before, tmp_path / "site.skops")
    save(load(tmp_path / "site.skops"), tmp_path / "site.npz")
    save(load(tmp_path / "site.npz"), tmp_path / "again.skops")
    after = skops.io.load(tmp_path / "again.skops", trusted=[])
    np.testing.assert_allclose(after.predict(INPUTS), before.predict(INPUTS))
    other = fitted(MLPRegressor, INPUTS[:, 1:3])
    assert isinstance(pfnm.fuse([before, other]).model, MLPRegressor)
