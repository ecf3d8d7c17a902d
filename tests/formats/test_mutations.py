"""Whatever a file holds, reading it gives a network or one line, and soon."""

from __future__ import annotations

import functools
import io
import json
import os
import struct
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pfnm.errors import PFNMError
from pfnm.formats import FORMATS, load, save
from pfnm.formats.data import read_data
from pfnm.formats.tables import read_class_counts, read_labels, read_site_weights
from pfnm.networks.network import Network, Scaling
from pfnm.networks.perceptron import mlp

EXAMPLES = int(os.environ.get("PFNM_MUTATIONS", "40"))
SECONDS = 10  # for one file of a few kilobytes, on a busy machine
EXTENSIONS = (".safetensors", ".npz", ".pt", ".onnx", ".skops")

few = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])

# What stands in the place of a number, a text or a list in our notes or in a header.
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 10**20)
    | st.floats()
    | st.sampled_from(["", "W1", "relu", "softmax", "layers.0.weight", "../../x", "\x1b[2J", "\0"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "low", "high", "centre", "scale"]), inner)
    ),
    max_leaves=6,
)
edits = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from(["flip", "cut", "drop", "repeat", "swap"])),
    min_size=1,
    max_size=4,
)


@functools.cache
def valid(extension: str) -> bytes:
    """A network with all that a file may say of one."""
    rng = np.random.default_rng(0)
    network = mlp(
        [rng.normal(size=(4, 5)), rng.normal(size=(5, 3))],
        [rng.normal(size=5), rng.normal(size=3)],
        activation="tanh",
        output="softmax",
        labels=["a", "b", "c"],
        features=["p", "q", "r", "s"],
        scaling=Scaling(np.zeros(4), np.ones(4), -np.ones(4), np.ones(4)),
        metadata={"sites": [{"name": "one"}]},
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"site{extension}"
        save(network, path)
        return path.read_bytes()


def mutated(data: bytes, edits: list[tuple[float, str]]) -> bytes:
    for where, kind in edits:
        place = int(where * (len(data) - 1)) if data else 0
        head, byte, tail = data[:place], data[place : place + 1], data[place + 1 :]
        if kind == "flip":
            data = head + bytes(b ^ 0xFF for b in byte) + tail
        elif kind == "cut":
            data = head
        elif kind == "drop":
            data = head + tail[7:]
        elif kind == "repeat":
            data = head + byte * 9 + tail
        else:
            data = tail + head
    return data


def answers(read: Callable[[Path], object], name: str, data: bytes) -> object:
    """What reading a file of this content gives; an error of another kind fails the test."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        start = time.monotonic()
        result, story = None, str(path)
        try:
            result = read(path)
        except PFNMError as error:
            story = str(error)
        assert time.monotonic() - start < SECONDS
        assert str(path) in story
        assert "\n" not in story
        return result


def check(extension: str, data: bytes) -> None:
    network = answers(load, f"site{extension}", data)
    assert network is None or isinstance(network, Network)


def members_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive_of(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


@pytest.mark.parametrize("extension", EXTENSIONS)
@few
@given(edits=edits)
def test_any_bytes(extension: str, edits: list[tuple[float, str]]) -> None:
    check(extension, mutated(valid(extension), edits))


@pytest.mark.parametrize("extension", [".npz", ".pt", ".skops"])
@few
@given(which=st.floats(0, 1), edits=edits)
def test_any_bytes_in_an_archive(
    extension: str, which: float, edits: list[tuple[float, str]]
) -> None:
    members = members_of(valid(extension))
    name = list(members)[int(which * (len(members) - 1))]
    members[name] = mutated(members[name], edits)
    check(extension, archive_of(members, zipfile.ZIP_DEFLATED))


@pytest.mark.parametrize("extension", [".safetensors", ".npz", ".pt", ".onnx"])
@few
@given(
    key=st.sampled_from(
        ["activation", "output", "labels", "layers", "transposed", "features", "scaling", "sites"]
    ),
    value=json_values,
)
def test_any_notes(extension: str, key: str, value: Any) -> None:
    data = valid(extension)
    if extension == ".safetensors":
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8 : 8 + size])
        notes = json.loads(header["__metadata__"]["pfnm"])
        header["__metadata__"]["pfnm"] = json.dumps({**notes, key: value})
        changed = json.dumps(header).encode()
        check(extension, struct.pack("<Q", len(changed)) + changed + data[8 + size :])
    elif extension == ".onnx":
        model = onnx.load_from_string(data)
        (prop,) = model.metadata_props
        prop.value = json.dumps({**json.loads(prop.value), key: value})
        check(extension, model.SerializeToString())
    else:
        members = members_of(data)
        name = next(name for name in members if "pfnm" in name)
        if extension == ".pt":
            members[name] = json.dumps({**json.loads(members[name]), key: value}).encode()
        else:
            notes = json.loads(np.load(io.BytesIO(members[name])).item())
            buffer = io.BytesIO()
            np.save(buffer, np.array(json.dumps({**notes, key: value})))
            members[name] = buffer.getvalue()
        check(extension, archive_of(members))


@few
@given(
    key=st.sampled_from(["dtype", "shape", "data_offsets"]),
    value=json_values | st.lists(st.integers(-1, 2**62), max_size=3),
)
def test_any_header_of_a_safetensors_file(key: str, value: Any) -> None:
    data = valid(".safetensors")
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header["layers.0.weight"][key] = value
    changed = json.dumps(header).encode()
    check(".safetensors", struct.pack("<Q", len(changed)) + changed + data[8 + size :])


@few
@given(
    place=st.floats(0, 1),
    operator=st.sampled_from(["Cast", "Reshape", "Concat", "Softmax", "Dropout", "Gemm", "Neg"]),
    attribute=st.sampled_from(["axis", "to", "alpha", "transA", "perm", "norm"]),
    value=st.integers(-2, 12) | st.floats(-2, 2) | st.just("L1"),
)
def test_any_node_of_an_onnx_model(place: float, operator: str, attribute: str, value: Any) -> None:
    model = onnx.load_from_string(valid(".onnx"))
    node = model.graph.node[int(place * (len(model.graph.node) - 1))]
    node.op_type = operator
    node.attribute.append(onnx.helper.make_attribute(attribute, value))
    check(".onnx", model.SerializeToString())


@functools.cache
def valid_data() -> dict[str, bytes]:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.ones((3, 2)), y=np.array([b"a", b"b", b"c"]))
    return {"data.npz": buffer.getvalue(), "data.csv": b"p,q,y\n1,2,a\n3,4,b\n5,6,c\n"}


@pytest.mark.parametrize("name", ["data.npz", "data.csv"])
@few
@given(edits=edits)
def test_any_data(name: str, edits: list[tuple[float, str]]) -> None:
    answers(read_data, name, mutated(valid_data()[name], edits))


@few
@given(value=json_values | st.dictionaries(st.sampled_from(["a", "b"]), json_values))
def test_any_table(value: Any) -> None:
    data = json.dumps(value).encode()
    answers(lambda path: read_labels(path, ["a", "b"]), "labels.json", data)
    answers(lambda path: read_site_weights(path, ["a", "b"]), "weights.json", data)
    answers(read_class_counts, "counts.json", data)


def test_every_format_is_here() -> None:
    assert {FORMATS[extension].title for extension in EXTENSIONS} == {
        kind.title for kind in FORMATS.values()
    }
