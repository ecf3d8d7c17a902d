"""What is written can be read again, and is what other libraries expect."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from safetensors.torch import load_file

from pfnm.errors import PFNMError
from pfnm.formats import check_target, load, save
from pfnm.formats.content import notes_of
from pfnm.networks.activations import ACTIVATIONS
from pfnm.networks.network import Network
from pfnm.networks.outputs import OUTPUTS
from pfnm.networks.perceptron import mlp

SIZES = (3, 3, 3, 3)
KEEPING_ALL = [".safetensors", ".npz", ".pt", ".pth", ".ckpt", ".checkpoint", ".bin", ".onnx"]
EVERY = [*KEEPING_ALL, ".skops"]


def network(
    dtype: str = "float64",
    activation: str = "tanh",
    output: str = "softmax",
    transposed: bool = True,
    bias: bool = True,
) -> Network:
    rng = np.random.default_rng(0)
    shapes = list(pairwise(SIZES))
    # Names whose order says nothing, and layers of one shape: only our notes can tell.
    stems = ["start", "middle", "end"]
    return mlp(
        [rng.normal(size=shape).astype(dtype) for shape in shapes],
        [rng.normal(size=shape[1]).astype(dtype) if bias else None for shape in shapes],
        names=[(f"{stem}.weight", f"{stem}.bias" if bias else None) for stem in stems],
        transposed=transposed,
        activation=activation,
        output=output,
        labels=["x", "y", "z"],
        name="site",
        metadata={"sites": [{"name": "a"}, {"name": "b"}], "prior": {"variance": 1.5}},
    )


def inputs(dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(1).normal(size=(7, SIZES[0])).astype(dtype)


def assert_equal(found: Network, expected: Network) -> None:
    assert set(found.tensors) == set(expected.tensors)
    for name, tensor in expected.tensors.items():
        np.testing.assert_array_equal(found.tensors[name], tensor)
        assert found.tensors[name].dtype == tensor.dtype
    assert dict(found.graph.axes) == dict(expected.graph.axes)
    for field in ("activation", "output", "labels", "name", "metadata"):
        assert getattr(found, field) == getattr(expected, field)


@pytest.mark.parametrize("extension", KEEPING_ALL)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("transposed", [True, False])
def test_save_then_load_is_equal(
    tmp_path: Path, extension: str, dtype: str, transposed: bool
) -> None:
    before = network(dtype, transposed=transposed)
    save(before, tmp_path / f"site{extension}")
    assert_equal(load(tmp_path / f"site{extension}"), before)


@pytest.mark.parametrize("extension", KEEPING_ALL)
def test_layers_without_bias(tmp_path: Path, extension: str) -> None:
    before = network(bias=False)
    save(before, tmp_path / f"site{extension}")
    assert_equal(load(tmp_path / f"site{extension}"), before)


def test_half_precision_is_kept_where_the_format_has_it(tmp_path: Path) -> None:
    for extension in (".safetensors", ".npz", ".pt"):
        save(network("float16"), tmp_path / f"site{extension}")
        assert load(tmp_path / f"site{extension}").dtype == np.float16
    save(network("float16"), tmp_path / "site.onnx")
    assert load(tmp_path / "site.onnx").dtype == np.float32


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_onnxruntime_runs_every_activation(tmp_path: Path, activation: str, dtype: str) -> None:
    before = network(dtype, activation, "identity")
    path = tmp_path / "site.onnx"
    save(before, path)
    onnx.checker.check_model(path, full_check=True)
    (found,) = onnxruntime.InferenceSession(path).run(["output"], {"input": inputs(dtype)})
    assert found.dtype == dtype
    np.testing.assert_allclose(found, before.run(inputs(dtype)), atol=1e-5)
    assert load(path).activation == activation


@pytest.mark.parametrize("output", OUTPUTS)
def test_onnxruntime_runs_every_output(tmp_path: Path, output: str) -> None:
    before = network("float32", output=output)
    path = tmp_path / "site.onnx"
    save(before, path)
    (found,) = onnxruntime.InferenceSession(path).run(["output"], {"input": inputs("float32")})
    np.testing.assert_allclose(found, OUTPUTS[output](before.run(inputs())), atol=1e-5)


@pytest.mark.parametrize("extension", [".safetensors", ".pt"])
def test_torch_module_loads_the_file(tmp_path: Path, extension: str) -> None:
    modules = {
        "start": torch.nn.Linear(3, 3),
        "a": torch.nn.Tanh(),
        "middle": torch.nn.Linear(3, 3),
        "b": torch.nn.Tanh(),
        "end": torch.nn.Linear(3, 3),
    }
    module = torch.nn.Sequential()
    for name, part in modules.items():
        module.add_module(name, part)
    before, path = network("float32"), tmp_path / f"site{extension}"
    save(before, path)
    state = load_file(path) if extension == ".safetensors" else torch.load(path)
    module.load_state_dict(state)
    found = module(torch.tensor(inputs("float32"))).detach().numpy()
    np.testing.assert_allclose(found, before.run(inputs()), atol=1e-5)


def test_a_checkpoint_is_bare_and_keeps_its_notes(tmp_path: Path) -> None:
    before, path = network("float32"), tmp_path / "site.pt"
    save(before, path)
    for mapped in (False, True):
        state = torch.load(path, weights_only=True, mmap=mapped)
        assert list(state) == list(before.tensors)
        for name, tensor in before.tensors.items():
            np.testing.assert_array_equal(state[name], tensor)
    save(before, tmp_path / "again.pt")
    assert path.read_bytes() == (tmp_path / "again.pt").read_bytes()
    # What other tools save of it has lost the notes, and is still a network.
    torch.save(state, tmp_path / "other.pt")
    assert load(tmp_path / "other.pt").metadata == {}
    assert load(path).metadata == before.metadata


def test_a_checkpoint_with_its_notes_inside_is_still_read(tmp_path: Path) -> None:
    before, path = network(), tmp_path / "site.pt"
    state = {name: torch.tensor(before.tensors[name]) for name in sorted(before.tensors)}
    torch.save({"state_dict": state, "pfnm": notes_of(before)}, path)
    assert_equal(load(path), before)


@pytest.mark.parametrize("extension", EVERY)
def test_an_existing_file_is_replaced_only_by_force(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"site{extension}"
    path.write_text("precious")
    with pytest.raises(PFNMError, match="exists already"):
        save(network(), path)
    with pytest.raises(PFNMError, match=r"exists already.*--force .*force=True"):
        check_target(path)
    check_target(path, force=True)
    assert path.read_text() == "precious"
    save(network(), path, force=True)
    assert load(path).sizes["output"] == 3
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_nothing_is_left_behind_when_writing_fails(tmp_path: Path) -> None:
    with pytest.raises(PFNMError, match=r"missing.*folder must exist"):
        save(network(), tmp_path / "missing" / "site.npz")
    (tmp_path / "site.npz").mkdir()
    with pytest.raises(PFNMError, match="is a folder"):
        save(network(), tmp_path / "site.npz", force=True)
    with pytest.raises(PFNMError, match=r"scikit-learn has no activation 'gelu'"):
        save(network(activation="gelu"), tmp_path / "site.skops")
    assert [found.name for found in tmp_path.iterdir()] == ["site.npz"]


def test_an_interrupt_removes_the_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        assert [found.suffix for found in tmp_path.iterdir()] == [".tmp"]
        raise KeyboardInterrupt

    monkeypatch.setattr("os.link", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(network(), tmp_path / "site.npz")
    assert not list(tmp_path.iterdir())


def test_metadata_must_be_json_and_leave_our_keys_alone(tmp_path: Path) -> None:
    weights = [np.ones((2, 2))]
    with pytest.raises(PFNMError, match="JSON"):
        save(mlp(weights, metadata={"a": object()}), tmp_path / "a.npz")
    with pytest.raises(PFNMError, match="'labels'"):
        save(mlp(weights, metadata={"labels": 1}), tmp_path / "a.npz")


def run(code: str, *arguments: object) -> str:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_importing_formats_loads_no_heavy_library() -> None:
    heavy = {"torch", "onnx", "sklearn", "skops"}
    loaded = run("import sys, pfnm.formats; print(*sys.modules)").split()
    assert not heavy & set(loaded)


@pytest.mark.parametrize(
    ("extension", "library", "extra"),
    [(".pt", "torch", "torch"), (".onnx", "onnx", "onnx"), (".skops", "skops", "sklearn")],
)
def test_a_missing_library_names_the_extra(
    tmp_path: Path, extension: str, library: str, extra: str
) -> None:
    path = tmp_path / f"site{extension}"
    path.write_text("anything")
    code = (
        "import sys; sys.modules[sys.argv[2]] = None\n"
        "import pfnm.formats as formats\n"
        "from pfnm.errors import PFNMError\n"
        "try: formats.load(sys.argv[1])\n"
        "except PFNMError as error: print(error)"
    )
    told = run(code, path, library)
    assert str(path) in told
    assert f"pip install 'pfnm[{extra}]'" in told
