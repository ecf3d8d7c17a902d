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
from sklearn.neural_network import MLPClassifier, MLPRegressor
from torch import nn

from pfnm.core.errors import PFNMError
from pfnm.core.mlp import forward, probabilities
from pfnm.formats import load

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(6, 4))


def export(module: nn.Module, path: Path, dynamo: bool = True) -> None:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    example = torch.randn(2, 2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporters' own
        torch.onnx.export(module.eval(), (example,), path, dynamo=dynamo, verbose=False)


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
    np.testing.assert_allclose(forward(found, INPUTS), expected, atol=1e-5)


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
    np.testing.assert_allclose(forward(found, INPUTS).reshape(expected.shape), expected, atol=1e-6)


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
    }
    arrays = {name: RNG.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    made = [
        helper.make_node(operator, list(names), [result], **(attributes[0] if attributes else {}))
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
        opset_imports=[helper.make_opsetid("", 17)],
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
    ],
)
def test_graphs_run_as_onnxruntime_runs_them(tmp_path: Path, nodes: list[Any]) -> None:
    path = tmp_path / "site.onnx"
    graph(path, nodes)
    (expected,) = onnxruntime.InferenceSession(path).run(["y"], {"x": INPUTS.astype(np.float32)})
    np.testing.assert_allclose(forward(load(path), INPUTS), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([("MatMul", "xA", "h"), ("Relu", "h", "y")], r"'y' \(Relu\).*after the last layer"),
        ([("Relu", "x", "y")], r"no Gemm or MatMul.*found Relu"),
        ([("Mul", ("x", "half"), "s"), ("MatMul", "sA", "y")], "'s' has changed"),
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
        ([("MatMul", "xA", "h"), ("ArgMax", "h", "i"), ("Softmax", "i", "y")], r"'y' \(Softmax\)"),
        ([("Gemm", "xAd", "y")], r"'d' has shape \(5, 1\)"),
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
