"""Every file that cannot be used is one error in one line that names it."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from pfnm.errors import PFNMError
from pfnm.formats import FORMATS, load, save
from pfnm.networks.perceptron import mlp

STATE = {"fc.weight": torch.ones(2, 2)}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)
HTML = b"<!DOCTYPE html>\n<html>\n<body>404 Not Found</body>\n</html>\n"


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(PFNMError) as caught:
        load(path, **options)
    told = str(caught.value)
    assert told.startswith(f"{path}: ")
    assert "\n" not in told
    return told


@pytest.mark.parametrize("extension", FORMATS)
def test_files_that_cannot_be_read(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"site{extension}"
    assert "No such file" in refusal(path)
    path.mkdir()
    assert "directory" in refusal(path)
    path.rmdir()
    path.touch()
    assert "empty" in refusal(path)


@pytest.mark.parametrize("extension", FORMATS)
@pytest.mark.parametrize("data", [PNG, HTML, b"\x80", b"PK\x03\x04", b"\0" * 100])
def test_files_of_another_kind(tmp_path: Path, extension: str, data: bytes) -> None:
    path = tmp_path / f"site{extension}"
    path.write_bytes(data)
    refusal(path)


@pytest.mark.parametrize("extension", FORMATS)
@pytest.mark.parametrize("part", [0.2, 0.6, 0.98])
def test_truncated_files(tmp_path: Path, extension: str, part: float) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / f"site{extension}"
    save(mlp([rng.normal(size=(20, 30)), rng.normal(size=(30, 3))], output="softmax"), path)
    data = path.read_bytes()
    path.write_bytes(data[: int(part * len(data))])
    refusal(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "site.npz"
    path.write_bytes(b"x")
    path.chmod(0)
    assert "Permission denied" in refusal(path)


def test_an_unknown_extension_lists_the_known(tmp_path: Path) -> None:
    told = refusal(tmp_path / "site.weights")
    assert all(extension in told for extension in FORMATS)


class Exploit:
    """What runs a command where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize("how", ["torch", "pickle", "pickle2"])
def test_a_checkpoint_never_runs_code(tmp_path: Path, how: str) -> None:
    path, mark = tmp_path / "site.pt", tmp_path / "mark"
    if how == "torch":
        torch.save({"state_dict": {"w": Exploit(mark)}}, path)
    else:
        protocol = 2 if how == "pickle2" else None
        path.write_bytes(pickle.dumps(Exploit(mark), protocol=protocol))
    assert "more than tensors" in refusal(path)
    assert not mark.exists()


def test_an_npz_never_runs_code(tmp_path: Path) -> None:
    path, mark = tmp_path / "site.npz", tmp_path / "mark"
    np.savez(path, w=np.array([Exploit(mark)], dtype=object))
    assert "'w'" in refusal(path)
    assert not mark.exists()


def test_a_whole_module_is_more_than_tensors(tmp_path: Path) -> None:
    path = tmp_path / "site.pt"
    torch.save(torch.nn.Linear(2, 3), path)
    assert "more than tensors" in refusal(path)
    assert "state_dict" in refusal(path)


@pytest.mark.parametrize(
    ("stored", "word"),
    [
        ([1, 2], "list"),
        ({"epoch": 3}, "epoch"),
        (
            {"fc.weight": torch.ones(2, 2), "fc.bias": [1.0, 2.0]},
            "'fc.bias' of the state dict is list",
        ),
        ({0: torch.ones(2, 2)}, "entry 0"),
        ({"generator": STATE, "critic": STATE, "epoch": 3}, "under 'generator', 'critic'"),
        ({"optimizer": {"state": {0: {"momentum": torch.ones(2, 2)}}}}, "'optimizer' (dict)"),
        ({"model": torch.nn.Linear(2, 2)}, "'model' (torch.nn.modules.linear.Linear)"),
        ({"fc.weight": torch.ones(2, 2, dtype=torch.int8)}, "int8"),
        ({"fc.weight": torch.ones(2, 2).to(torch.float8_e4m3fn)}, "'fc.weight' holds torch.float8"),
        ({"fc.weight": torch.eye(2).to_sparse()}, "'fc.weight' is sparse"),
        (torch.nn.Sequential(torch.nn.BatchNorm1d(2)).state_dict(), "normalisation"),
        (torch.ones(2), "Tensor"),
    ],
)
def test_checkpoints_without_a_state_dict(tmp_path: Path, stored: object, word: str) -> None:
    path = tmp_path / "site.pt"
    torch.save(stored, path)
    assert word in refusal(path)


@pytest.mark.parametrize("extension", [".npz", ".safetensors"])
def test_weights_that_are_no_numbers(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"site{extension}"

    def write(**arrays: np.ndarray) -> None:
        if extension == ".npz":
            np.savez(path, **arrays)  # type: ignore[arg-type]
        else:
            save_file(arrays, path)

    write(W1=np.ones((2, 2), int))
    assert "'W1'" in refusal(path)
    assert "floating point" in refusal(path)
    write(W1=np.array([[1.0, np.nan]]))
    assert "'W1' holds NaN" in refusal(path)


def test_a_tensor_there_twice(tmp_path: Path) -> None:
    npz, member = tmp_path / "site.npz", io.BytesIO()
    np.save(member, np.ones((2, 2)))
    with zipfile.ZipFile(npz, "w") as archive:
        archive.writestr("W1.npy", member.getvalue())
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("W1.npy", member.getvalue())
    assert "'W1' is there 2 times" in refusal(npz)

    entry = json.dumps({"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]})
    header = f'{{"W1": {entry}, "W1": {entry}}}'.encode()
    path = tmp_path / "site.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    assert "'W1' is there 2 times" in refusal(path)


def test_labels_that_differ_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "site.npz"
    save(mlp([np.ones((2, 2))], labels=["a", "b"]), path)
    assert load(path, labels=["a", "b"]).labels == ("a", "b")
    assert "['b', 'a']" in refusal(path, labels=["b", "a"])


def test_options_that_do_not_exist_or_fit(tmp_path: Path) -> None:
    path = tmp_path / "site.npz"
    np.savez(path, W1=np.ones((2, 3)))
    assert "unknown activation 'step'" in refusal(path, activation="step")
    assert "unknown output 'max'" in refusal(path, output="max")
    assert "2 labels for 3 outputs" in refusal(path, labels=["a", "b"])


@pytest.mark.parametrize(
    "notes",
    [
        "[]",
        "3",
        "{",
        '{"layers": 3}',
        '{"layers": [["W1"]]}',
        '{"layers": [[null, "W1"]]}',
        '{"labels": 5}',
        '{"labels": [["a"], ["b"]]}',
        '{"labels": [{}, {}]}',
        '{"sites": 5}',
        '{"sites": [{}]}',
        '{"activation": ["relu"]}',
        '{"transposed": "no"}',
    ],
)
def test_notes_that_are_not_ours(tmp_path: Path, notes: str) -> None:
    path = tmp_path / "site.safetensors"
    save_file({"W1": np.ones((2, 2))}, path, metadata={"pfnm": notes})
    refusal(path)


def test_notes_of_a_checkpoint_that_hold_tensors(tmp_path: Path) -> None:
    path = tmp_path / "site.pt"
    state = {"fc.weight": torch.ones(2, 2)}
    torch.save({"state_dict": state, "pfnm": {"mine": torch.ones(2)}}, path)
    assert "notes" in refusal(path)


def test_sites_in_the_metadata_have_names(tmp_path: Path) -> None:
    with pytest.raises(PFNMError, match="'sites' in the metadata"):
        save(mlp([np.ones((2, 2))], metadata={"sites": ["a"]}), tmp_path / "site.npz")
