"""Pipelines of scalers and an MLP: into one network, through files, fused, and back."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import skl2onnx
import skops.io
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

import pfnm
from pfnm.errors import PFNMError
from pfnm.formats import load, save
from pfnm.frameworks.sklearn import from_estimator, to_estimator
from pfnm.fusing.sites import comparable
from pfnm.networks.network import Network, Scaling
from pfnm.networks.outputs import probabilities
from pfnm.networks.perceptron import mlp
from pfnm.networks.scaling import Affine, pooled, taking_plain, taking_scaled

RNG = np.random.default_rng(0)
ROWS = np.array([0.0, 200.0, 5.0, 2.0]) + np.array([1.0, 30.0, 0.01, 0.0]) * RNG.normal(
    size=(60, 4)
)
CLASSES = np.arange(60) % 3
LOW, HIGH = ROWS.min(axis=0), ROWS.max(axis=0)
MEAN, DEVIATION = ROWS.mean(axis=0), ROWS.std(axis=0)
MEDIAN = np.median(ROWS, axis=0)


def quietly(estimator: Any, rows: np.ndarray = ROWS, target: np.ndarray = CLASSES) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(rows, target)


def perceptron(seed: int = 0, **options: Any) -> Any:
    return MLPClassifier((6, 5), max_iter=3, random_state=seed, **options)


def scaling_of(network: Network) -> Scaling:
    assert network.scaling is not None
    return network.scaling


def test_folding_by_hand() -> None:
    weight, bias = Affine(np.array([0.5, 2.0]), np.array([-1.0, 3.0])).folded_into(
        np.array([[4.0, 0.0], [1.0, 10.0]]), np.array([0.0, 1.0])
    )
    np.testing.assert_array_equal(weight, [[2.0, 0.0], [2.0, 20.0]])
    np.testing.assert_array_equal(bias, [-1.0, 31.0])


def test_pooling_by_hand() -> None:
    sites = [
        Scaling(*np.array([[0.0, 7.0, 1.0], [3.0, 1.0, 1.0], [-9.0, 7.0, 1.0], [9.0, 7.0, 1.0]])),
        Scaling(*np.array([[8.0, 7.0, 3.0], [5.0, 1.0, 2.0], [-7.0, 7.0, 0.0], [23.0, 7.0, 9.0]])),
    ]
    together = pooled(sites)
    np.testing.assert_array_equal(together.centre, [4.0, 7.0, 2.0])
    # Variances 9 and 25 within, 16 between; a column that never varies; 0 and 4 within, 1 between.
    np.testing.assert_allclose(together.scale, np.sqrt([33.0, 1.0, 3.0]))
    np.testing.assert_array_equal(together.low, [-9.0, 7.0, 0.0])
    np.testing.assert_array_equal(together.high, [23.0, 7.0, 9.0])


@given(st.integers(0, 1000), st.booleans())
def test_scaled_and_plain_inputs_are_one_function(seed: int, biased: bool) -> None:
    rng = np.random.default_rng(seed)
    biases = [rng.normal(size=5), rng.normal(size=2)] if biased else None
    network = mlp([rng.normal(size=(3, 5)), rng.normal(size=(5, 2))], biases, activation="tanh")
    centre, scale = 100 * rng.normal(size=3), 10 ** rng.uniform(-3, 3, size=3)
    scaling = Scaling(centre, scale, centre - scale, centre + scale)
    inner = taking_scaled(network, scaling)
    rows = centre + scale * rng.normal(size=(4, 3))
    shown = (rows - (centre if biased else 0)) / scale
    np.testing.assert_allclose(inner.run(shown), network.run(rows), rtol=1e-6, atol=1e-6)
    again = taking_plain(inner, scaling)
    assert inner.scaling is None
    assert again.scaling is scaling
    np.testing.assert_allclose(again.run(rows), network.run(rows), rtol=1e-6, atol=1e-6)


QUARTILES = np.subtract(*np.percentile(ROWS, [75, 25], axis=0))
NORMAL = 3 / 1.3489795  # three deviations, in distances between the quartiles of a normal column
SCALERS: list[tuple[Any, Any]] = [
    (StandardScaler(), (MEAN - 3 * DEVIATION, MEAN + 3 * DEVIATION)),
    (StandardScaler(with_mean=False), (MEAN - 3 * DEVIATION, MEAN + 3 * DEVIATION)),
    (StandardScaler(with_std=False), (MEAN - 3, MEAN + 3)),
    (StandardScaler(with_mean=False, with_std=False), (np.full(4, -3.0), np.full(4, 3.0))),
    (MinMaxScaler(), (LOW, HIGH)),
    (MinMaxScaler((-2, 5)), (LOW, HIGH)),
    (MaxAbsScaler(), (-np.abs(ROWS).max(axis=0), np.abs(ROWS).max(axis=0))),
    (RobustScaler(), (MEDIAN - NORMAL * QUARTILES, MEDIAN + NORMAL * QUARTILES)),
    (RobustScaler(unit_variance=True), (MEDIAN - NORMAL * QUARTILES, MEDIAN + NORMAL * QUARTILES)),
    (RobustScaler(with_scaling=False), (MEDIAN - 3, MEDIAN + 3)),
    (RobustScaler(with_centering=False, quantile_range=(0, 100)), (None, None)),
    (make_pipeline(StandardScaler(with_std=False), MinMaxScaler()), (LOW, HIGH)),
    (
        make_pipeline(None, MaxAbsScaler(), "passthrough", make_pipeline(RobustScaler())),
        (-np.abs(ROWS).max(axis=0), np.abs(ROWS).max(axis=0)),
    ),
]
VARYING = slice(0, 3)  # the last column never varies, and scalers differ in what they make of it


@pytest.mark.parametrize(("scaler", "ends"), SCALERS, ids=[str(s) for s, _ in SCALERS])
def test_scalers_fold_exactly_and_tell_the_range(scaler: Any, ends: Any) -> None:
    before = quietly(make_pipeline(clone(scaler), perceptron()))
    network = from_estimator(before)
    scaling = scaling_of(network)
    np.testing.assert_allclose(probabilities(network, ROWS), before.predict_proba(ROWS), atol=1e-12)
    if ends[0] is not None:
        np.testing.assert_allclose(scaling.low[VARYING], ends[0][VARYING])
        np.testing.assert_allclose(scaling.high[VARYING], ends[1][VARYING])
    after = to_estimator(network)
    assert isinstance(after, Pipeline)
    np.testing.assert_allclose(after.predict_proba(ROWS), before.predict_proba(ROWS), atol=1e-9)


def test_a_column_that_never_varies() -> None:
    rows = ROWS.copy()
    rows[:, 3] = 1e6 + 1e-9 * RNG.normal(size=60)  # rounding, to scikit-learn and to us
    scaling = scaling_of(
        from_estimator(quietly(make_pipeline(StandardScaler(), perceptron()), rows))
    )
    assert scaling.low[3] == scaling.high[3]
    assert scaling.scale[3] == 1


def test_regressors_in_pipelines() -> None:
    for target in (ROWS[:, 0], ROWS[:, :2]):
        perceptron_ = MLPRegressor(hidden_layer_sizes=(6,), max_iter=3, random_state=0)
        before = quietly(make_pipeline(MinMaxScaler(), perceptron_), target=target)
        network = from_estimator(before)
        expected = before.predict(ROWS)
        np.testing.assert_allclose(network.run(ROWS).reshape(expected.shape), expected)
        after = to_estimator(network)
        np.testing.assert_allclose(after.predict(ROWS), expected)
        assert isinstance(after[-1], MLPRegressor)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("search", [GridSearchCV, RandomizedSearchCV])
def test_searches_are_their_best_estimator(tmp_path: Path, search: Any, inside: bool) -> None:
    options = {"n_iter": 2, "random_state": 0} if search is RandomizedSearchCV else {}
    if inside:
        found = search(perceptron(), {"alpha": [0.1, 1.0]}, cv=2, **options)
        before = quietly(make_pipeline(StandardScaler(), found))
    else:
        steps = Pipeline([("scale", StandardScaler()), ("net", perceptron())])
        before = quietly(search(steps, {"net__alpha": [0.1, 1.0]}, cv=2, **options))
    skops.io.dump(before, tmp_path / "site.skops")
    for network in (from_estimator(before), load(tmp_path / "site.skops")):
        assert network.scaling is not None
        np.testing.assert_allclose(probabilities(network, ROWS), before.predict_proba(ROWS))
    if not inside:
        assert list(to_estimator(network, like=before).named_steps) == ["scale", "net"]


@pytest.mark.parametrize(
    "step",
    [
        Normalizer(),
        PCA(2),
        PolynomialFeatures(),
        SimpleImputer(),
        QuantileTransformer(n_quantiles=10),
        PowerTransformer(),
        SelectKBest(k=2),
        ColumnTransformer([("some", StandardScaler(), [0, 1])]),
        FunctionTransformer(np.tanh),
    ],
    ids=lambda step: type(step).__name__,
)
def test_other_steps_are_refused_by_name(tmp_path: Path, step: Any) -> None:
    rows = ROWS[:, :3]
    pipeline = quietly(Pipeline([("odd", step), ("net", perceptron())]), rows)
    with pytest.raises(PFNMError, match=rf"'odd' is .*{type(step).__name__}.*beforehand, the same"):
        from_estimator(pipeline)
    with pytest.raises(PFNMError, match=rf"site0.*{type(step).__name__}"):
        pfnm.fuse([pipeline, pipeline])
    skops.io.dump(pipeline, tmp_path / "site.skops")
    with pytest.raises(
        PFNMError, match=rf"site\.skops.*({type(step).__name__}|tanh|f_class|numpy)"
    ):
        load(tmp_path / "site.skops")


class Shy(StandardScaler):  # type: ignore[misc]
    """A scaler that does something else."""

    def transform(self, *rows: Any) -> Any:
        return np.abs(super().transform(*rows))


@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (quietly(make_pipeline(MinMaxScaler(clip=True), perceptron())), "that clips.*clip=False"),
        (quietly(make_pipeline(Shy(), perceptron())), "is Shy"),
        (make_pipeline(StandardScaler(), perceptron()), "not fitted; fit"),
        (Pipeline([("a", StandardScaler()), ("b", quietly(perceptron()))]), "'a' .*not fitted"),
        (
            Pipeline([("a", StandardScaler().fit(ROWS[:, :2])), ("b", quietly(perceptron()))]),
            "2 columns, the MLP takes 4",
        ),
        (quietly(make_pipeline(StandardScaler(), LogisticRegression())), "LogisticRegression"),
        (quietly(make_pipeline(StandardScaler())), "found StandardScaler"),
        (Pipeline([("nothing", "passthrough")]), "found Pipeline"),
        (GridSearchCV(perceptron(), {"alpha": [1]}), "refit=True"),
        (
            quietly(TransformedTargetRegressor(MLPRegressor(max_iter=2)), target=ROWS[:, 0]),
            "found TransformedTargetRegressor",
        ),
    ],
)
def test_what_cannot_be_folded_is_said(estimator: Any, words: str) -> None:
    with pytest.raises(PFNMError, match=words) as caught:
        from_estimator(estimator, name="clinic")
    assert str(caught.value).startswith("clinic: ")
    assert "\n" not in str(caught.value)


def named(rows: np.ndarray, names: str, seed: int = 0) -> Any:
    """A pipeline as one fitted to a table with these columns is."""
    order = ["abcd".index(name) for name in names]
    pipeline = quietly(make_pipeline(StandardScaler(), perceptron(seed)), rows[:, order])
    pipeline[0].feature_names_in_ = np.array(list(names), dtype=object)
    return pipeline


def test_names_of_columns_are_kept(tmp_path: Path) -> None:
    before = named(ROWS, "abcd")
    bare = quietly(perceptron())
    bare.feature_names_in_ = np.array(list("abcd"), dtype=object)
    assert from_estimator(bare).features == tuple("abcd")
    assert list(to_estimator(from_estimator(bare)).feature_names_in_) == list("abcd")
    skops.io.dump(before, tmp_path / "site.skops")
    network = load(tmp_path / "site.skops")
    assert network.features == tuple("abcd")
    save(network, tmp_path / "again.skops")
    after = skops.io.load(tmp_path / "again.skops", trusted=[])
    assert list(after.feature_names_in_) == list("abcd")


def test_columns_in_another_order_are_put_in_one() -> None:
    networks = [from_estimator(named(ROWS, names)) for names in ("abcd", "dacb")]
    sites = comparable(networks)
    for before, after, names in zip(networks, sites.networks, ("abcd", "dacb"), strict=True):
        order = ["abcd".index(name) for name in names]
        assert after.features == tuple("abcd")
        np.testing.assert_allclose(after.run(ROWS), before.run(ROWS[:, order]))
    centre = scaling_of(sites.networks[1]).centre
    np.testing.assert_allclose(centre, MEAN)
    assert sites.networks[0].scaling is sites.networks[1].scaling


def test_names_that_some_sites_lack() -> None:
    first, second = (from_estimator(named(ROWS, names)) for names in ("abcd", "dacb"))
    unnamed = replace(first, features=None)
    assert comparable([unnamed, first]).networks[0].features == tuple("abcd")
    with pytest.raises(PFNMError, match=r"does not name its inputs.*different orders"):
        comparable([unnamed, first, second])
    other = replace(first, features=("a", "b", "x", "d"), name="clinic")
    with pytest.raises(PFNMError, match=r"clinic names input 2 'x' and has no 'c'.*names it 'c'"):
        comparable([first, other])


@pytest.mark.parametrize("extension", ["safetensors", "npz", "pt", "onnx"])
def test_files_keep_names_and_scaling(tmp_path: Path, extension: str) -> None:
    network = from_estimator(named(ROWS, "abcd"))
    save(network, tmp_path / f"site.{extension}")
    again = load(tmp_path / f"site.{extension}")
    assert again.features == tuple("abcd")
    for part in ("centre", "scale", "low", "high"):
        expected = getattr(scaling_of(network), part)
        np.testing.assert_array_equal(getattr(scaling_of(again), part), expected)
    np.testing.assert_allclose(again.run(ROWS), network.run(ROWS))
    assert isinstance(to_estimator(again), Pipeline)


GOOD: dict[str, list[Any]] = {
    "centre": [0.0] * 4,
    "scale": [1.0] * 4,
    "low": [0.0] * 4,
    "high": [1] * 4,
}


@pytest.mark.parametrize(
    ("note", "value", "words"),
    [
        ("features", "abcd", "see 'features'"),
        ("features", [1, 2, 3, 4], "see 'features'"),
        ("features", ["a", "b"], "2 names of inputs for 4"),
        ("scaling", [1.0], "see 'scaling'"),
        ("scaling", {**GOOD, "more": [1.0] * 4}, "see 'scaling'"),
        ("scaling", {**GOOD, "scale": [1.0, 1.0, 0.0, 1.0]}, "see 'scaling'"),
        ("scaling", {**GOOD, "scale": [1.0] * 3}, "see 'scaling'"),
        ("scaling", {**GOOD, "centre": [0.0, 0.0, 0.0, float("nan")]}, "see 'scaling'"),
        ("scaling", {**GOOD, "centre": [0.0, 0.0, 0.0, 10**400]}, "see 'scaling'"),
        ("scaling", {**GOOD, "low": [0.0, 0.0, 0.0, 2.0]}, "see 'scaling'"),
        ("scaling", {key: values[:3] for key, values in GOOD.items()}, "of 3 inputs.*takes 4"),
    ],
)
def test_notes_that_are_not_ours(tmp_path: Path, note: str, value: Any, words: str) -> None:
    path = tmp_path / "site.npz"
    save(from_estimator(named(ROWS, "abcd")), path)
    with np.load(path) as stored:
        arrays = dict(stored)
    notes = json.loads(arrays["__pfnm__"].item())
    arrays["__pfnm__"] = np.array(json.dumps({**notes, note: value}))
    np.savez(path, **arrays)
    with pytest.raises(PFNMError, match=rf"site\.npz: .*{words}") as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_a_fused_pipeline_is_one_again() -> None:
    pipelines = [
        quietly(
            Pipeline([("scale", RobustScaler()), ("net", perceptron(j))]),
            ROWS[j::3],
            CLASSES[: len(ROWS[j::3])],
        )
        for j in range(3)
    ]
    fusion = pfnm.fuse(pipelines)
    model = fusion.model
    assert list(model.named_steps) == ["scale", "net"]
    expected = probabilities(fusion.network, ROWS)
    np.testing.assert_allclose(model.predict_proba(ROWS), expected, atol=1e-9)
    scaled = model[:-1].transform(ROWS)
    assert np.abs(scaled[:, VARYING].mean(axis=0)).max() < 1  # nearly standardised
    model[-1].partial_fit(scaled, CLASSES)
    part = to_estimator(fusion.site_part(1))
    np.testing.assert_allclose(
        part.predict_proba(ROWS), probabilities(fusion.site_part(1), ROWS), atol=1e-9
    )
    again = quietly(clone(model).set_params(net__max_iter=3))
    assert again.predict(ROWS).shape == (60,)
    identity = [quietly(make_pipeline(FunctionTransformer(), perceptron(j))) for j in range(2)]
    assert [type(step) for step in pfnm.fuse(identity).model] == [MLPClassifier]


SPLITS = 4


def sites_of(data: Any, seed: int) -> tuple[list[Any], list[Any], np.ndarray, np.ndarray]:
    """Pipelines of three sites that differ in size, scales and classes, and rows held out."""
    rng = np.random.default_rng(seed)
    rows, held, target, answers = train_test_split(
        *data(return_X_y=True), test_size=0.4, random_state=seed
    )
    standard = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    along = standard @ rng.normal(size=rows.shape[1])
    order = np.argsort(along + along.std() * rng.normal(size=len(rows)) / 2)
    pipelines, counts = [], []
    for j, mine in enumerate(np.split(order, [len(order) // 4, len(order) * 3 // 5])):
        network = MLPClassifier((20,), max_iter=200, random_state=j)
        pipelines.append(
            quietly(make_pipeline(StandardScaler(), network), rows[mine], target[mine])
        )
        counts.append(np.bincount(target[mine], minlength=target.max() + 1))
    return pipelines, counts, held, answers


@pytest.mark.parametrize("data", [load_wine, load_breast_cancer])
def test_fused_pipelines_are_as_good_as_the_best_site(data: Any) -> None:
    best, fused = [], []
    for seed in range(SPLITS):
        pipelines, counts, held, answers = sites_of(data, seed)
        best.append(max(pipeline.score(held, answers) for pipeline in pipelines))
        fused.append(pfnm.fuse(pipelines, class_counts=counts).model.score(held, answers))
    # A point less is allowed, because the best site is picked on the very rows held out.
    assert np.mean(fused) > np.mean(best) - 0.01


@pytest.mark.parametrize("extension", ["skops", "onnx"])
def test_files_of_pipelines_fuse_as_the_live_ones(tmp_path: Path, extension: str) -> None:
    pipelines, counts, held, _ = sites_of(load_wine, 0)
    files = [tmp_path / f"site{j}.{extension}" for j in range(3)]
    for pipeline, file in zip(pipelines, files, strict=True):
        if extension == "skops":
            skops.io.dump(pipeline, file)
        else:
            onnx.save(skl2onnx.to_onnx(pipeline, held[:1]), file)
    save(pfnm.fuse(files, class_counts=counts).network, tmp_path / f"global.{extension}")
    again = load(tmp_path / f"global.{extension}")
    live = pfnm.fuse(pipelines, class_counts=counts)
    np.testing.assert_allclose(
        probabilities(again, held), probabilities(live.network, held), atol=1e-6
    )
    expected = scaling_of(live.network)
    np.testing.assert_allclose(scaling_of(again).scale, expected.scale)
