"""ONNX models as torch and skl2onnx export them, and graphs that are no perceptrons."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import skl2onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from skl2onnx.common.data_types import FloatTensorType, Int64TensorType
from sklearn.base import clone
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    RobustScaler,
    StandardScaler,
)
from torch import nn

from pfnm.errors import PFNMError
from pfnm.formats import load, onnx_writer, save
from pfnm.networks.outputs import probabilities
from pfnm.networks.perceptron import mlp

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(6, 4))


def export(
    module: nn.Module, path: Path, dynamo: bool = True, example: torch.Tensor | None = None
) -> None:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    example = torch.randn(2, 2, 2) if example is None else example
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporters' own
        torch.onnx.export(module.eval(), (example,), path, dynamo=dynamo, verbose=False)


class Shaped(nn.Module):
    """A perceptron that flattens by a product of lengths, and ends in one number a row."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Probabilities, without an axis of outputs."""
        return torch.sigmoid(self.body(x.view(x.shape[0], x.shape[1] * x.shape[2])).view(-1))


def test_shapes_by_products_and_outputs_without_an_axis(tmp_path: Path) -> None:
    module, rows = Shaped().eval(), torch.randn(7, 3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        torch.onnx.export(
            module, (rows,), tmp_path / "site.onnx", dynamo=False, input_names=["x"],
            dynamic_axes={"x": {0: "rows"}},
        )  # fmt: skip
    found = load(tmp_path / "site.onnx")
    expected = module(rows).detach().numpy()
    inputs = rows.reshape(7, 12).numpy()
    np.testing.assert_allclose(probabilities(found, inputs)[:, -1], expected, atol=1e-5)


@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize(
    ("names", "middle", "end"),
    [
        ("relu-identity", nn.ReLU(), nn.Identity()),
        ("silu-softmax", nn.SiLU(), nn.Softmax(1)),
        ("gelu-sigmoid", nn.GELU(), nn.Sigmoid()),
        ("sigmoid-softmax", nn.Sigmoid(), nn.LogSoftmax(1)),
        ("identity-identity", nn.Identity(), nn.Identity()),
    ],
)
def test_torch_exports(
    tmp_path: Path, names: str, middle: nn.Module, end: nn.Module, dynamo: bool
) -> None:
    torch.manual_seed(0)
    body = nn.Sequential(
        nn.Flatten(),
        nn.Linear(4, 6),
        middle,
        nn.Dropout(),
        nn.Linear(6, 5, bias=False),
        middle,
        nn.Linear(5, 3),
    )
    export(nn.Sequential(body, end), tmp_path / "site.onnx", dynamo)
    found = load(tmp_path / "site.onnx", activation="elu")  # the graph's own word counts
    assert f"{found.activation}-{found.output}" == names
    expected = body(torch.tensor(INPUTS, dtype=torch.float32)).detach().numpy()
    np.testing.assert_allclose(found.run(INPUTS), expected, atol=1e-5)


def classifier(target: np.ndarray, activation: str = "tanh") -> Any:
    rows = RNG.normal(size=(len(target), 4))
    estimator = MLPClassifier(hidden_layer_sizes=(6, 5), activation=activation, random_state=0)
    return estimator.partial_fit(rows, target, classes=np.unique(target))


COUNT = np.arange(30)


@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize("activation", ["relu", "logistic"])
@pytest.mark.parametrize(
    "target",
    [
        COUNT % 3 + 5,
        np.array(["low", "high", "mid"])[COUNT % 3],
        COUNT % 2,
        np.array(["yes", "no"])[COUNT % 2],
    ],
    ids=["three", "three texts", "two", "two texts"],
)
def test_skl2onnx_classifiers(
    tmp_path: Path, target: np.ndarray, activation: str, zipmap: bool
) -> None:
    estimator = classifier(target, activation)
    exported = skl2onnx.to_onnx(
        estimator, INPUTS[:1].astype(np.float32), options={"zipmap": zipmap}
    )
    onnx.save(exported, tmp_path / "site.onnx")
    found = load(tmp_path / "site.onnx")
    assert found.labels == tuple(estimator.classes_.tolist())
    expected = estimator.predict_proba(INPUTS)
    np.testing.assert_allclose(probabilities(found, INPUTS), expected, atol=1e-5)


@pytest.mark.parametrize("outputs", [1, 3])
def test_skl2onnx_regressors(tmp_path: Path, outputs: int) -> None:
    target = RNG.normal(size=(30, outputs))
    estimator = MLPRegressor(hidden_layer_sizes=(6,), random_state=0)
    estimator.partial_fit(RNG.normal(size=(30, 4)), target if outputs > 1 else target.ravel())
    onnx.save(skl2onnx.to_onnx(estimator, INPUTS[:1]), tmp_path / "site.onnx")
    found = load(tmp_path / "site.onnx")
    assert (found.output, found.labels) == ("identity", None)
    assert found.dtype == np.float64
    expected = estimator.predict(INPUTS)
    np.testing.assert_allclose(found.run(INPUTS).reshape(expected.shape), expected, atol=1e-6)


SCALES = np.array([1.0, 30.0, 0.01, 1.0])
CENTRES = np.array([0.0, 200.0, 5.0, -3.0])
ROWS = CENTRES + SCALES * RNG.normal(size=(30, 4))
SCALERS = [
    StandardScaler(),
    StandardScaler(with_mean=False),
    StandardScaler(with_std=False),
    MinMaxScaler((-1, 2)),
    MaxAbsScaler(),
    RobustScaler(unit_variance=True),
    make_pipeline(StandardScaler(), MinMaxScaler()),
    FunctionTransformer(),
]


def pipeline(scaler: Any, target: np.ndarray = COUNT % 3) -> Any:
    perceptron = MLPClassifier((6, 5), random_state=0, max_iter=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that training could go on
        return make_pipeline(clone(scaler), perceptron).fit(ROWS, target)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scaler", SCALERS, ids=str)
def test_skl2onnx_pipelines(tmp_path: Path, scaler: Any, dtype: Any) -> None:
    estimator = pipeline(scaler)
    onnx.save(skl2onnx.to_onnx(estimator, ROWS[:1].astype(dtype)), tmp_path / "site.onnx")
    found = load(tmp_path / "site.onnx")
    assert found.dtype == dtype
    inputs = ROWS.astype(dtype)
    expected = estimator.predict_proba(inputs)
    tolerance = 1e-10 if dtype is np.float64 else 1e-3  # 5 +- 0.01, in 32 bits
    np.testing.assert_allclose(probabilities(found, inputs), expected, atol=tolerance)
    assert (found.scaling is None) == isinstance(scaler, FunctionTransformer)
    save(found, tmp_path / "again.onnx")
    again = load(tmp_path / "again.onnx")
    np.testing.assert_array_equal(again.run(inputs), found.run(inputs))
    if found.scaling is not None and again.scaling is not None:
        np.testing.assert_array_equal(again.scaling.low, found.scaling.low)


def test_ranges_that_exported_scalers_tell(tmp_path: Path) -> None:
    path = tmp_path / "site.onnx"
    low, high = ROWS.min(axis=0), ROWS.max(axis=0)
    mean, deviation = ROWS.mean(axis=0), ROWS.std(axis=0)
    ranges = {
        StandardScaler(): (mean - 3 * deviation, mean + 3 * deviation),
        MinMaxScaler(): (low, high),
        make_pipeline(StandardScaler(), MinMaxScaler()): (
            mean - 3 * deviation,
            mean + 3 * deviation,
        ),
    }
    for scaler, expected in ranges.items():
        onnx.save(skl2onnx.to_onnx(pipeline(scaler), ROWS[:1]), path)
        scaling = load(path).scaling
        assert scaling is not None
        np.testing.assert_allclose((scaling.low, scaling.high), expected, rtol=1e-6)


def test_columns_that_are_inputs_by_themselves(tmp_path: Path) -> None:
    estimator = pipeline(StandardScaler())
    kinds = [FloatTensorType, Int64TensorType, FloatTensorType, FloatTensorType]
    types = [(name, kind([None, 1])) for name, kind in zip("dabc", kinds, strict=True)]
    onnx.save(skl2onnx.convert_sklearn(estimator, initial_types=types), tmp_path / "site.onnx")
    found = load(tmp_path / "site.onnx")
    assert found.features == ("d", "a", "b", "c")
    expected = estimator.predict_proba(ROWS)
    np.testing.assert_allclose(probabilities(found, ROWS), expected, atol=1e-3)


class Normalised(nn.Module):
    """A perceptron that scales its inputs itself."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.body = nn.Sequential(nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 3))
        self.norm = nn.BatchNorm1d(12)
        self.norm.load_state_dict(
            {
                "running_mean": torch.arange(12.0),
                "running_var": torch.arange(1.0, 13.0),
                "weight": torch.ones(12) / 2,
                "bias": torch.ones(12),
            }
        )
        self.mean = nn.Parameter(torch.tensor([0.4, 0.5, 0.6]).reshape(3, 1, 1))
        self.deviation = nn.Parameter(torch.tensor([0.2, 0.3, 0.4]).reshape(3, 1, 1))

    def forward(self, x: torch.Tensor) -> Any:
        if self.kind == "channels":
            x = (x - self.mean) / self.deviation
        elif self.kind == "bytes":
            x = x / 255.0
        elif self.kind == "both sides":
            x = 2 * x - 1
        x = torch.flatten(x, 1)
        return self.body(self.norm(x) if self.kind == "batch norm" else x)


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        ("channels", np.repeat([-0.2, -0.4, -0.6], 4), np.repeat([1.0, 1.4, 1.8], 4)),
        ("bytes", np.zeros(12), np.full(12, 255.0)),
        ("both sides", np.zeros(12), np.ones(12)),
        (
            "batch norm",
            np.arange(12) - 3 * np.sqrt(np.arange(1, 13)),
            np.arange(12) + 3 * np.sqrt(np.arange(1, 13)),
        ),
    ],
)
def test_torch_modules_that_scale_their_inputs(
    tmp_path: Path, kind: str, low: np.ndarray, high: np.ndarray
) -> None:
    torch.manual_seed(0)
    module = Normalised(kind).eval()
    example = torch.rand(2, 3, 2, 2)
    export(module, tmp_path / "site.onnx", kind == "channels", example)
    found = load(tmp_path / "site.onnx")
    expected = module(example).detach().numpy()
    np.testing.assert_allclose(found.run(example.reshape(2, 12).numpy()), expected, atol=1e-5)
    assert found.scaling is not None
    np.testing.assert_allclose(found.scaling.low, low, atol=1e-4)
    np.testing.assert_allclose(found.scaling.high, high, rtol=1e-4)


def graph(path: Path, nodes: list[tuple[Any, ...]]) -> None:
    """A model of (operator, inputs, output, attributes) from the input x and these constants."""
    shapes = {
        "A": (4, 5),
        "B": (5, 5),
        "C": (5, 3),
        "a": (5,),
        "c": (1, 3),
        "d": (5, 1),
        "half": (),
        "u": (1, 4),
        "v": (4,),
    }
    arrays = {name: RNG.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    arrays["w"] = np.abs(arrays["v"])
    made = [
        helper.make_node(
            operator,
            list(names),
            [result],
            domain="ai.onnx.ml" if operator == "Scaler" else "",
            **(attributes[0] if attributes else {}),
        )
        for operator, names, result, *attributes in nodes
    ]
    model = helper.make_model(
        helper.make_graph(
            made,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 4])],
            [helper.make_tensor_value_info(made[-1].output[0], TensorProto.FLOAT, [None, None])],
            [numpy_helper.from_array(array, name) for name, array in arrays.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)],
        ir_version=8,
    )
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize(
    "nodes",
    [
        [("MatMul", "xA", "h"), ("Add", "ah", "i"), ("Relu", "i", "r"), ("Gemm", "rC", "y")],
        [
            ("Gemm", "xAa", "h", {"alpha": 2.0, "beta": -0.5}),
            ("LeakyRelu", "h", "r"),
            ("Gemm", "rC", "s"),
            ("Add", "sc", "y"),
        ],
        [
            ("Transpose", "A", "T"),
            ("Gemm", "xTa", "h", {"transB": 1}),
            ("Neg", "h", "m"),
            ("Exp", "m", "e"),
            ("Identity", "C", "D"),
            ("Tanh", "h", "t"),
            ("MatMul", "tD", "y"),
        ],
        [
            ("Shape", "x", "n"),
            ("Reshape", "xn", "z"),
            ("MatMul", "zA", "h"),
            ("Tanh", "h", "t"),
            ("MatMul", "tC", "y"),
        ],
        [
            ("Sub", "vx", "i"),
            ("Div", "iu", "j"),
            ("Neg", "j", "k"),
            ("Mul", ("half", "k"), "l"),
            ("MatMul", "lA", "h"),
            ("Tanh", "h", "t"),
            ("MatMul", "tC", "y"),
        ],
        [
            ("BatchNormalization", "xvvvw", "i", {"epsilon": 0.1}),
            ("Gemm", "iAa", "h"),
            ("Tanh", "h", "t"),
            ("MatMul", "tC", "y"),
        ],
    ],
)
def test_graphs_run_as_onnxruntime_runs_them(tmp_path: Path, nodes: list[Any]) -> None:
    path = tmp_path / "site.onnx"
    graph(path, nodes)
    (expected,) = onnxruntime.InferenceSession(path).run(["y"], {"x": INPUTS.astype(np.float32)})
    np.testing.assert_allclose(load(path).run(INPUTS), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([("MatMul", "xA", "h"), ("Relu", "h", "y")], r"'y' \(Relu\).*after the last layer"),
        ([("Relu", "x", "y")], r"no Gemm or MatMul.*found Relu"),
        ([("Tanh", "x", "s"), ("MatMul", "sA", "y")], r"'s' \(Tanh\) changes the inputs"),
        ([("Mul", "xx", "s"), ("MatMul", "sA", "y")], r"'s' \(Mul\) changes the inputs"),
        ([("Div", ("half", "x"), "s"), ("MatMul", "sA", "y")], r"'s' \(Div\) changes"),
        ([("Sub", "xa", "s"), ("MatMul", "sA", "y")], r"'s' \(Sub\) changes the inputs"),
        ([("Scaler", "x", "s", {"scale": [1.0, 2.0]}), ("MatMul", "sA", "y")], r"\(Scaler\) cha"),
        (
            [("MatMul", "xA", "h"), ("Add", "xh", "s"), ("MatMul", "sC", "y")],
            r"'s' \(Add\) joins two branches",
        ),
        (
            [
                ("MatMul", "xA", "h"),
                ("MatMul", "hB", "i"),
                ("Add", "ih", "s"),
                ("MatMul", "sC", "y"),
            ],
            r"'s' \(Add\) joins two branches",
        ),
        (
            [("MatMul", "xA", "h"), ("MatMul", "hB", "i"), ("MatMul", "hC", "y")],
            r"'y' \(MatMul\) starts a second branch",
        ),
        (
            [
                ("MatMul", "xA", "h"),
                ("Relu", "h", "r"),
                ("MatMul", "rB", "i"),
                ("Tanh", "i", "t"),
                ("MatMul", "tC", "y"),
            ],
            r"'y' \(MatMul\) follows tanh.*relu",
        ),
        (
            [("MatMul", "xA", "h"), ("LeakyRelu", "h", "r", {"alpha": 0.2}), ("MatMul", "rC", "y")],
            "'r' computes an activation",
        ),
        (
            [("MatMul", "xA", "h"), ("Softplus", "h", "r"), ("MatMul", "rC", "y")],
            r"'r' \(Softplus\)",
        ),
        (
            [("MatMul", "xA", "h"), ("Mul", "ha", "r"), ("MatMul", "rC", "y")],
            r"'r' \(Mul\) takes 'a'",
        ),
        ([("Gemm", "xAc", "y")], "'c' has shape"),
        ([("Gemm", "xA", "y", {"transA": 1})], "from the right"),
        ([("MatMul", "xA", "h"), ("MatMul", "hB", "i"), ("MatMul", "iB", "y")], "another layer"),
        ([("MatMul", "xA", "h"), ("Sigmoid", "h", "p"), ("Sub", "ap", "y")], r"'y' \(Sub\)"),
        (
            [("MatMul", "xA", "h"), ("MatMul", "hC", "y"), ("Softmax", "h", "z")],
            r"'z' \(Softmax\) uses a value from below the last layer",
        ),
        ([("MatMul", "xA", "h"), ("Softmax", "h", "y", {"axis": 0})], "over the last axis"),
        (
            [("MatMul", "xA", "h"), ("ArgMax", "h", "i", {"axis": 1}), ("Softmax", "i", "y")],
            r"'y' \(Softmax\)",
        ),
        ([("Gemm", "xAd", "y")], r"'d' has shape \(5, 1\)"),
        (
            [("MatMul", "xA", "h"), ("Add", "ha", "g"), ("Relu", "h", "k"), ("MatMul", "kC", "y")],
            "none of the graph's outputs",
        ),
        (
            [("MatMul", "xA", "h"), ("Add", "ha", "g"), ("Softmax", "h", "y")],
            "none of the graph's outputs",
        ),
        ([("MatMul", "xA", "h"), ("Add", "hd", "y")], r"'y' \(Add\)"),
        (
            [("MatMul", "xA", "h"), ("Max", "hhh", "r"), ("MatMul", "rC", "y")],
            r"'r' \(Max\) has inputs",
        ),
    ],
)
def test_graphs_that_are_no_perceptrons(tmp_path: Path, nodes: list[Any], words: str) -> None:
    graph(tmp_path / "site.onnx", nodes)
    with pytest.raises(PFNMError, match=rf"site\.onnx: .*{words}"):
        load(tmp_path / "site.onnx")


def broken(change: Callable[[Any], object], path: Path) -> str:
    graph(path, [("MatMul", "xA", "y")])
    model = onnx.load(path)
    change(model)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(PFNMError) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_other_defects(tmp_path: Path) -> None:
    path = tmp_path / "site.onnx"
    twice = broken(lambda m: m.graph.initializer.append(m.graph.initializer[0]), path)
    assert "'A' is there 2 times" in twice
    assert "2 inputs" in broken(lambda m: m.graph.input.add(name="other"), path)
    whole = numpy_helper.from_array(np.ones((4, 5), np.int64), "A")
    assert "'A' holds int64" in broken(lambda m: m.graph.initializer[0].CopyFrom(whole), path)
    endless = numpy_helper.from_array(np.full((4, 5), np.inf), "A")
    assert "site.onnx: tensor 'A'" in broken(
        lambda m: m.graph.initializer[0].CopyFrom(endless), path
    )


@pytest.mark.parametrize("location", ["site.data", "../outside.data"])
def test_external_data(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    graph(folder / "site.onnx", [("MatMul", "xA", "y")])
    model = onnx.load(folder / "site.onnx")
    inside = location == "site.data"
    onnx.save(
        model,
        folder / "site.onnx",
        save_as_external_data=True,
        location="site.data",
        size_threshold=0,
    )
    if inside:
        assert load(folder / "site.onnx").sizes == {"input": 4, "output": 5}
        (folder / "site.data").unlink()
    else:
        (folder / "site.data").rename(tmp_path / "outside.data")
        bare = onnx.load(folder / "site.onnx", load_external_data=False)
        for tensor in bare.graph.initializer:
            tensor.external_data[0].value = location
        (folder / "site.onnx").write_bytes(bare.SerializeToString())
    with pytest.raises(PFNMError, match=r"site\.onnx"):
        load(folder / "site.onnx")


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        *(
            ([("MatMul", "xA", "h"), ("Cast", "h", "i", {"to": to}), ("MatMul", "iC", "y")], "type")
            for to in (TensorProto.INT32, TensorProto.BOOL, TensorProto.FLOAT16)
        ),
        ([("Cast", "x", "i", {"to": TensorProto.INT64}), ("MatMul", "iA", "y")], r"\(Cast\)"),
        ([("MatMul", "xA", "h"), ("Cast", "h", "y", {"to": TensorProto.INT32})], r"\(Cast\)"),
        (
            [("MatMul", "xA", "h"), ("Flatten", "h", "i", {"axis": 0}), ("MatMul", "iC", "y")],
            r"\(Flatten\) changes the shape",
        ),
        ([("Flatten", "x", "i", {"axis": 2}), ("MatMul", "iA", "y")], r"\(Flatten\) changes"),
        (
            [("MatMul", "xA", "h"), ("Relu", "h", "r", {"beta": 2.0}), ("MatMul", "rC", "y")],
            "'beta'",
        ),
        ([("Gemm", "xA", "y", {"gamma": 2.0})], "the attribute 'gamma'"),
        (
            [("MatMul", "xA", "h"), ("Normalizer", "h", "y", {"norm": "L1"})],
            r"\(Normalizer\) is no operator",
        ),
        ([("MatMul", "xA", "h"), ("ArgMax", "h", "y", {"axis": 0})], r"\(ArgMax\)"),
        (
            [("MatMul", "xA", "h"), ("Sigmoid", "h", "p"), ("Concat", "pp", "y", {"axis": 1})],
            r"\(Concat\)",
        ),
        (
            [("MatMul", "xA", "h"), ("Sigmoid", "h", "p"), ("Binarizer", "p", "y")],
            r"\(Binarizer\)",
        ),
    ],
)
def test_graphs_that_compute_something_else(tmp_path: Path, nodes: list[Any], words: str) -> None:
    graph(tmp_path / "site.onnx", nodes)
    with pytest.raises(PFNMError, match=rf"site\.onnx: .*{words}"):
        load(tmp_path / "site.onnx")


@pytest.mark.parametrize("last", [("MatMul", "hC", "y"), ("Softmax", "h", "y")])
def test_a_graph_that_ends_before_its_last_node(tmp_path: Path, last: tuple[str, ...]) -> None:
    path = tmp_path / "site.onnx"
    graph(path, [("MatMul", "xA", "h"), last])
    model = onnx.load(path)
    model.graph.output[0].name = "h"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(PFNMError, match="none of the graph's outputs"):
        load(path)


def test_dropout_as_in_training_and_odd_shapes(tmp_path: Path) -> None:
    path = tmp_path / "site.onnx"

    def between(operator: str, **constants: np.ndarray) -> onnx.ModelProto:
        graph(path, [("MatMul", "xA", "h"), (operator, "h", "i"), ("MatMul", "iC", "y")])
        model = onnx.load(path)
        node = model.graph.node[1]
        node.input.extend(constants)
        model.graph.initializer.extend(
            numpy_helper.from_array(array, name) for name, array in constants.items()
        )
        path.write_bytes(model.SerializeToString())
        return model

    ratio = np.array(0.5, np.float32)
    between("Dropout", ratio=ratio, training=np.array(False))
    assert load(path).sizes == {"input": 4, "hidden1": 5, "output": 3}
    between("Dropout", ratio=ratio, training=np.array(True))
    with pytest.raises(PFNMError, match="as in training"):
        load(path)
    between("Reshape", shape=np.array([-1, 5]))
    assert load(path).sizes == {"input": 4, "hidden1": 5, "output": 3}
    between("Reshape", shape=np.array([5, -1]))
    with pytest.raises(PFNMError, match="changes the shape"):
        load(path)


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
@pytest.mark.parametrize(
    "names",
    [
        [("input", "output"), ("hidden", "pfnm.layer1")],
        [("pfnm.one", "pfnm.half"), ("pfnm.sqrt2", "pfnm.layer2")],
        [("pfnm.layer1.gelu1", "pfnm.layer1.relu1"), ("input_", "output_")],
        [("input", "input_"), ("input__", "pfnm.one")],
    ],
)
def test_tensors_called_like_parts_of_the_graph(
    tmp_path: Path, activation: str, names: list[tuple[str, str | None]]
) -> None:
    path = tmp_path / "site.onnx"
    weights = [RNG.normal(size=(4, 5)), RNG.normal(size=(5, 3))]
    biases = [RNG.normal(size=5), RNG.normal(size=3)]
    network = mlp(weights, biases, names=names, activation=activation)
    save(network, path)
    session = onnxruntime.InferenceSession(path)
    (found,) = session.run(None, {session.get_inputs()[0].name: INPUTS})
    np.testing.assert_allclose(found, network.run(INPUTS), atol=1e-5)
    assert list(load(path).tensors) == list(network.tensors)
    np.testing.assert_allclose(load(path).run(INPUTS), found, atol=1e-5)


def test_a_model_that_computes_something_else_is_not_written() -> None:
    network = mlp([np.ones((4, 3), np.float32)])
    data = onnx_writer.write(network)
    other = mlp([np.full((4, 3), 1.1, np.float32)])
    with pytest.raises(PFNMError, match="computes other values"):
        onnx_writer.check_values(other, data, np.dtype(np.float32))
