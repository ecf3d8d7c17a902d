"""ONNX graphs of convolutional networks are fused as the modules they were exported from are."""

import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from families import FAMILIES, few_probes
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from typer.testing import CliRunner

import pfnm
import pfnm.cli  # with all its commands
from pfnm.cli.console import app
from pfnm.errors import PFNMError
from pfnm.formats.onnx_graphs import holds_convolutions
from pfnm.tracing.onnx_operators import OPERATORS, Node

WIDTH = 8
OLD = ("lenet", "vgg", "resnet")  # exported by PyTorch's old exporter too
NEW = ("lenet_numbered", "vgg_batchnorm", "resnet_bottleneck", "mobilenet", "densenet", "cnn_1d")
SAME = 1e-4  # relative: rounding of two implementations in single precision

pytestmark = pytest.mark.filterwarnings("ignore::pfnm.PFNMWarning")


@pytest.fixture(autouse=True, scope="module")
def _few_probes() -> Iterator[None]:
    with few_probes():
        yield


def export(module: nn.Module, inputs: tuple[Tensor, ...], path: Path, dynamo: bool) -> Path:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporters' own
        torch.onnx.export(module.eval(), inputs, path, dynamo=dynamo, verbose=False)
    return path


def pair(name: str, folder: Path, dynamo: bool) -> list[Path]:
    """Two networks of a family as ONNX files."""
    family = FAMILIES[name]
    return [
        export(family.make(WIDTH, seed), family.inputs(0), folder / f"{seed}.onnx", dynamo)
        for seed in (0, 1)
    ]


def run(path: Path, x: Tensor) -> Tensor:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (out, *_) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    return torch.from_numpy(out)


def near(found: Tensor, expected: Tensor) -> bool:
    return bool((found - expected).abs().max() <= SAME * expected.abs().max())


CASES = [(name, True) for name in NEW] + [(name, dynamo) for name in OLD for dynamo in (0, 1)]
QUICK = [("lenet", 0), ("vgg_batchnorm", True), ("resnet", 1), ("densenet", True)]
assert set(QUICK) <= set(CASES)


@pytest.mark.parametrize(
    ("name", "dynamo"),
    [pytest.param(*own, marks=[] if own in QUICK else pytest.mark.long) for own in CASES],
)
def test_graphs_fuse_to_a_graph_that_runs(name: str, dynamo: bool, tmp_path: Path) -> None:
    files = pair(name, tmp_path, bool(dynamo))
    fusion = pfnm.fuse(files, budget=1.5, seed=1)
    out = tmp_path / "fused.onnx"
    fusion.save(out)
    (x,) = FAMILIES[name].inputs(0)
    assert near(run(out, x), fusion.model.eval()(x).detach())
    assert max(fusion.widths.values()) > max(fusion.sites.networks[0].widths.values())
    again = pfnm.load(out)
    assert again.widths == fusion.widths


@pytest.mark.parametrize("name", ["lenet", "resnet"])
def test_a_graph_fuses_as_its_module_does(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    both = [family.make(WIDTH, seed) for seed in (0, 1)]
    files = pair(name, tmp_path, True)
    x = family.inputs(0)
    some = family.inputs(1)[0].numpy()  # no statistics are left in the graph to fit inputs to
    of_modules = pfnm.fuse(both, example_inputs=x, budget=1.0, inputs=some)
    of_files = pfnm.fuse(files, example_inputs=x, budget=1.0, inputs=some)
    assert list(of_files.widths.values()) == list(of_modules.widths.values())
    assert near(of_files.model.eval()(*x).detach(), of_modules.model.eval()(*x).detach())


def test_shuffled_graphs_fuse_back(tmp_path: Path) -> None:
    family = FAMILIES["resnet"]
    module, x = family.make(WIDTH, 0), family.inputs(0)
    files = [
        export(pfnm.shuffled(module, x, seed), x, tmp_path / f"{seed}.onnx", True)
        for seed in range(3)
    ]
    pfnm.fuse(files, budget=1.0).save(tmp_path / "fused.onnx")
    assert near(run(tmp_path / "fused.onnx", *x), module(*x).detach())


def test_one_row_at_a_time(tmp_path: Path) -> None:
    """A graph for one row, its rows in a number: traced with two, written for one."""
    x = torch.randn(1, 3, 8, 8)

    def module(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(36, 5)
        )

    files = [export(module(s), (x,), tmp_path / f"{s}.onnx", True) for s in (0, 1)]
    fusion = pfnm.fuse(files, budget=2.0)
    fusion.save(tmp_path / "fused.onnx")
    assert near(run(tmp_path / "fused.onnx", x), fusion.model(x).detach())


def test_vectors_that_exporters_share_are_each_their_own(tmp_path: Path) -> None:
    """All biases zero: one tensor in the file, which must not tie the layers."""

    def module(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        body = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 6, 3), nn.ReLU(),
                             nn.Flatten(), nn.Linear(96, 4))  # fmt: skip
        for parameter in body.parameters():
            if parameter.ndim == 1:
                nn.init.zeros_(parameter)
        return body

    x = torch.randn(2, 3, 8, 8)
    files = [export(module(s), (x,), tmp_path / f"{s}.onnx", True) for s in (0, 1)]
    fusion = pfnm.fuse(files, budget=1.5)
    assert list(fusion.widths.values()) == [9, 9]


def graph(nodes: list[Any], path: Path, arrays: dict[str, Any], shape: list[Any]) -> Path:
    made = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in arrays.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(made, opset_imports=opset, ir_version=8), path)
    return path


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


CONV = helper.make_node("Conv", ["x", "w"], ["a"], name="conv")


@pytest.mark.parametrize(
    ("nodes", "shape", "message"),
    [
        ([CONV, helper.make_node("Det", ["a"], ["y"], name="own")], [2, 3, 8, 8],
         r"'own' \(Det\) is no operator pfnm knows in a convolutional network"),
        ([CONV, helper.make_node("Relu", ["a"], ["y"], domain="own.domain", name="r")],
         [2, 3, 8, 8], r"'r' \(own.domain.Relu\) is no operator"),
        ([CONV, helper.make_node("Relu", ["a"], ["y"])], ["n", 3, "h", "w"],
         r"states no shape .*example_inputs"),
        ([helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="SAME", name="conv")],
         [2, 3, 8, 8], r"'conv' \(Conv\) has auto_pad=SAME"),
        ([CONV, helper.make_node("Add", ["a", "nowhere"], ["y"], name="add")], [2, 3, 8, 8],
         r"'add' \(Add\) takes 'nowhere', which nothing gives"),
        ([CONV, helper.make_node("Flatten", ["a"], ["y"], axis=2, name="f")], [2, 3, 8, 8],
         r"'f' \(Flatten\) flattens from axis 2"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_by_name(
    nodes: list[Any], shape: list[Any], message: str, tmp_path: Path
) -> None:
    files = [graph(nodes, tmp_path / f"{s}.onnx", {"w": weights(4, 3, 3, 3)}, shape) for s in "ab"]
    with pytest.raises(PFNMError, match=message):
        pfnm.fuse(files)


def test_the_limit_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = pair("lenet", tmp_path, False)
    monkeypatch.setenv("PFNM_MAX_BYTES", "100")
    with pytest.raises(PFNMError, match="beyond 100 bytes"):
        pfnm.fuse(files)


def test_a_file_without_convolutions_is_quickly_told(tmp_path: Path) -> None:
    relu = helper.make_node("Relu", ["x"], ["y"], name="Conv")
    assert not holds_convolutions(graph([relu], tmp_path / "a.onnx", {}, [2, 3]))
    (tmp_path / "b.onnx").write_bytes(b"\x22\x04Conv and nothing else")
    assert not holds_convolutions(tmp_path / "b.onnx")
    assert holds_convolutions(
        graph([CONV], tmp_path / "c.onnx", {"w": weights(4, 3, 3, 3)}, [2, 3, 8, 8])
    )


def test_on_the_command_line(tmp_path: Path) -> None:
    files = [str(path) for path in pair("lenet", tmp_path, False)]
    out = tmp_path / "fused.onnx"
    done = CliRunner().invoke(app, ["fuse", *files, "-o", str(out), "--budget", "1.5x"])
    assert done.exit_code == 0, done.output
    assert json_notes(out)["kind"] == "fusion"
    assert pfnm.load(out).numbers == pfnm.load(files[0]).numbers
    done = CliRunner().invoke(app, ["fuse", *files, "-o", str(tmp_path / "f.safetensors")])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, ["inspect", files[0]])
    assert done.exit_code == 0, done.output
    network = pfnm.load(files[0])
    assert f"{network.parameters:,} parameters, float32\n" in done.output
    assert all(f" {group} " in done.output for group in network.graph.groups)
    told = " ".join(done.output.split())
    assert "No multilayer perceptron: it is traced, and fused as any other file" in told
    assert f"pfnm fuse {Path(files[0]).name} ..." in told


def json_notes(path: Path) -> dict[str, Any]:
    import json

    (notes,) = [own.value for own in onnx.load(path).metadata_props if own.key == "pfnm"]
    return dict(json.loads(notes))


# -- operators, beside onnxruntime ---------------------------------------------------------------

SIMPLE: dict[str, Callable[[], dict[str, Any]]] = {
    **dict.fromkeys(("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign", "Selu", "Abs"), dict),
    **dict.fromkeys(("Neg", "Exp", "HardSwish", "Erf", "Identity", "Softmax"), dict),
    "Elu": lambda: {"alpha": 0.7},
    "Celu": lambda: {"alpha": 0.7},
    "LeakyRelu": lambda: {"alpha": 0.2},
    "HardSigmoid": lambda: {"alpha": 0.3, "beta": 0.4},
    "GlobalAveragePool": dict,
    "GlobalMaxPool": dict,
    "MaxPool": lambda: {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 0, 1]},
    "AveragePool": lambda: {
        "kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 0], "count_include_pad": 1,
    },
    "Flatten": dict,
    "Transpose": lambda: {"perm": [0, 2, 3, 1]},
    "LogSoftmax": lambda: {"axis": 1},
    "ReduceMean": lambda: {"axes": [2, 3], "keepdims": 0},
    "ReduceMax": lambda: {"axes": [1]},
}  # fmt: skip


@pytest.mark.parametrize("name", SIMPLE)
def test_operators_compute_as_onnxruntime_does(name: str, tmp_path: Path) -> None:
    attributes, x = SIMPLE[name](), torch.from_numpy(weights(2, 3, 7, 8))
    path = graph([helper.make_node(name, ["x"], ["y"], **attributes)], tmp_path / "m.onnx", {},
                 [2, 3, 7, 8])  # fmt: skip
    found = OPERATORS[name](Node(name, name, ("x",), ("y",), attributes), x)
    assert near(found, run(path, x))


def test_selu_has_numbers_of_its_own(tmp_path: Path) -> None:
    attributes: dict[str, Any] = {"alpha": 1.0, "gamma": 2.0}
    x = torch.from_numpy(weights(2, 3, 7, 8))
    path = graph([helper.make_node("Selu", ["x"], ["y"], **attributes)], tmp_path / "m.onnx", {},
                 [2, 3, 7, 8])  # fmt: skip
    assert near(OPERATORS["Selu"](Node("Selu", "s", ("x",), ("y",), attributes), x), run(path, x))


@pytest.mark.parametrize("where", ["asymmetric", "half_pixel", None])
@pytest.mark.parametrize("nearest", ["floor", "ceil", "round_prefer_floor", None])
def test_resizing_is_as_in_onnxruntime_or_refused(
    where: str | None, nearest: str | None, tmp_path: Path
) -> None:
    told = {"coordinate_transformation_mode": where, "nearest_mode": nearest}
    attributes = {name: value for name, value in told.items() if value is not None}
    x, scales = torch.from_numpy(weights(2, 3, 4, 5)), np.array([1, 1, 3, 3], dtype=np.float32)
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], **attributes)
    path = graph([node], tmp_path / "m.onnx", {"scales": scales}, [2, 3, 4, 5])
    resize = Node("Resize", "r", ("x", "", "scales"), ("y",), attributes)
    try:
        found = OPERATORS["Resize"](resize, x, None, scales)
    except PFNMError:
        assert (where or "half_pixel", nearest or "round_prefer_floor") not in [
            ("asymmetric", "floor"),
            ("half_pixel", "round_prefer_floor"),
        ]
    else:
        assert near(found, run(path, x))


@pytest.mark.parametrize(
    "attributes",
    [
        {"pads": [1, 1, 1, 1], "strides": [2, 2]},
        {"pads": [0, 1, 1, 0], "dilations": [2, 1]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 3]},
        {"auto_pad": "SAME_LOWER", "strides": [3, 2]},
        {"auto_pad": "VALID"},
    ],
)
def test_convolutions_compute_as_onnxruntime_does(
    attributes: dict[str, Any], tmp_path: Path
) -> None:
    x, w = torch.from_numpy(weights(2, 3, 7, 8)), weights(5, 3, 3, 2)
    node = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
    path = graph([node], tmp_path / "m.onnx", {"w": w}, [2, 3, 7, 8])
    found = OPERATORS["Conv"](
        Node("Conv", "c", ("x", "w"), ("y",), attributes), x, torch.from_numpy(w)
    )
    assert near(found, run(path, x))
