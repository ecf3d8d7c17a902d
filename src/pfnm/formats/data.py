"""Data beside the networks: inputs, and labels or targets, from .npz, .csv and .parquet files."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pfnm.errors import PFNMError
from pfnm.formats import check_readable, told
from pfnm.formats.arrays import npz_member, npz_members
from pfnm.formats.delimited import open_text
from pfnm.formats.limits import DATA_BYTES, NPY_START, Allowance
from pfnm.formats.parquet import open_parquet
from pfnm.networks.network import Array

EXTENSIONS = (".csv", ".tsv", ".parquet", ".npz")
INPUT_NAMES = ("x", "X", "x_test", "X_test", "inputs", "data", "images")
LABEL_NAMES = ("y", "Y", "y_test", "Y_test", "labels", "target", "targets")
LABEL_COLUMNS = ("y", "label", "labels", "target", "class", "outcome")  # in capitals too
HOW_TO_SAVE = "save them with numpy.savez(file, x=x, y=y)"
MOST_LISTED = 10  # columns in a message


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs (examples, inputs), their labels or targets, and the inputs' names, where known."""

    inputs: Array
    targets: NDArray[Any] | None
    features: tuple[str, ...] | None
    shape: tuple[int, ...] = ()
    """Of one input in the file, where it is more than a row."""


class Table(Protocol):
    """A file of named columns. Without names (`named`), they are positions from 1."""

    @property
    def path(self) -> str: ...  # noqa: D102
    @property
    def names(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def named(self) -> bool: ...  # noqa: D102
    def read(  # noqa: D102
        self, inputs: Sequence[int], labels: Sequence[int]
    ) -> tuple[Array, list[NDArray[Any]]]: ...


def read_examples(
    path: str | Path,
    *,
    label: str | None = None,
    features: Sequence[str] | None = None,
    inputs: int | None = None,
) -> tuple[Array, NDArray[Any]]:
    """Inputs (examples, inputs) and labels or targets, as `read_data` finds them; both needed."""
    examples = read_data(path, label=label, features=features, inputs=inputs)
    return examples.inputs, labels_in(examples, path)


def labels_in(examples: Examples, path: str | Path) -> NDArray[Any]:
    """The labels or targets that a file's examples must have."""
    if examples.targets is None:
        raise _no_label(path, examples)
    return examples.targets


def read_inputs(
    path: str | Path,
    *,
    label: str | None = None,
    features: Sequence[str] | None = None,
    inputs: int | None = None,
) -> tuple[Array, NDArray[Any] | None]:
    """The same, the labels where there are some."""
    examples = read_data(path, label=label, features=features, inputs=inputs)
    return examples.inputs, examples.targets


def read_data(
    path: str | Path,
    *,
    label: str | None = None,
    features: Sequence[str] | None = None,
    inputs: int | None = None,
) -> Examples:
    """Inputs, and labels or targets where there are some, from a .csv, .parquet or .npz file.

    label: the column (of an .npz file the array) of labels; several targets with commas; a column
    also by its position, 1 the first and -1 the last. By default the one that is called y, label,
    labels, target, class or outcome. features: the names of the network's inputs; in a table with
    names these columns are read, in this order, whatever else there is. Without them all columns
    but the label are inputs, in the file's order. inputs: how many the network takes, if known.
    Of what would take more than 2 GiB as numbers of 64 bits nothing is read; PFNM_MAX_BYTES in the
    environment sets another limit.
    """
    check_readable(str(path))
    Allowance(path, DATA_BYTES).take("its content", Path(path).stat().st_size)
    extension = Path(path).suffix.lower()
    if extension in (".npz", ".npy"):
        return _read_npz(path, label)
    if extension in (".parquet", ".pq"):
        return _read_table(open_parquet(path), label, features, inputs)
    if extension in (".csv", ".tsv", ".txt"):
        expected = {*LABEL_COLUMNS, *(name.lower() for name in (label, *(features or ())) if name)}
        return _read_table(open_text(path, expected), label, features, inputs)
    raise PFNMError(
        f"{path}: unknown extension {extension!r}; data is read from {', '.join(EXTENSIONS)}"
    )


def _read_table(
    table: Table, label: str | None, features: Sequence[str] | None, inputs: int | None
) -> Examples:
    labels = _label_columns(table, label, features or ())
    # Row names, as pandas and R write them, have no name of their own.
    index = [0] if table.named and table.names[0] == "" and all(table.names[1:]) else []
    if features is not None and table.named:
        chosen = _by_name(table, [name.strip() for name in features], labels)
    else:
        others = [place for place in range(len(table.names)) if place not in index]
        if label is None and len(others) == inputs:
            labels = []  # the network takes them all, so "y" is one of its inputs
        chosen = [place for place in others if place not in labels]
        if not chosen or (inputs is not None and len(chosen) != inputs):
            beside = f" beside the label {table.names[labels[0]]!r}" if labels else ""
            raise PFNMError(
                f"{table.path}: {len(chosen)} columns{beside} ({_listed(table, chosen)}), the "
                f"network takes {inputs or 'at least 1'} inputs; leave the other columns out, or "
                "name the column of labels (--label)"
            )
    values, columns = table.read(chosen, labels)
    targets = None if not columns else columns[0] if len(columns) == 1 else np.column_stack(columns)
    names = tuple(table.names[place] for place in chosen) if table.named else None
    return Examples(values, targets, names)


def _label_columns(table: Table, label: str | None, features: Sequence[str]) -> list[int]:
    """The columns that hold labels: as told, or by their usual names."""
    if label is not None:
        told_names = [label] if label in table.names else label.split(",")
        return [_column(table, name.strip()) for name in told_names]
    if not table.named:
        return []
    usual = [
        place
        for place, name in enumerate(table.names)
        if name.lower() in LABEL_COLUMNS and name not in features
    ]
    if len(usual) > 1:
        raise PFNMError(
            f"{table.path}: {_listed(table, usual)} may all be the label; say which (--label)"
        )
    return usual


def _column(table: Table, name: str) -> int:
    """The column of this name, or at this position."""
    if table.names.count(name) == 1:
        return table.names.index(name)
    if name in table.names:
        raise PFNMError(f"{table.path}: {table.names.count(name)} columns are called {name!r}")
    count = len(table.names)
    if name.lstrip("-").isdecimal() and 1 <= abs(int(name)) <= count:
        return int(name) - 1 if int(name) > 0 else count + int(name)
    raise PFNMError(
        f"{table.path}: there is no column {name!r} (columns: {_listed(table, range(count))}); "
        "correct --label"
    )


def _by_name(table: Table, features: Sequence[str], labels: Sequence[int]) -> list[int]:
    missing = [name for name in features if name not in table.names]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise PFNMError(
            f"{table.path}: the network's input {missing[0]!r}{more} is no column (columns: "
            f"{_listed(table, range(len(table.names)))}); add it, or rename the columns"
        )
    for name, count in Counter(table.names).items():
        if count > 1 and name in features:
            raise PFNMError(f"{table.path}: {count} columns are called {name!r}; leave one")
    chosen = [table.names.index(name) for name in features]
    for place in labels:
        if place in chosen:
            raise PFNMError(
                f"{table.path}: the label {table.names[place]!r} is one of the network's inputs; "
                "name another column (--label)"
            )
    return chosen


def _listed(table: Table, places: Sequence[int]) -> str:
    shown = ", ".join(table.names[place] or "''" for place in places[:MOST_LISTED])
    return shown + (", ..." if len(places) > MOST_LISTED else "")


def _no_label(path: str | Path, examples: Examples) -> PFNMError:
    if Path(path).suffix.lower() == ".npz":
        return PFNMError(f"{path}: no array named {' or '.join(LABEL_NAMES[:2])}; {HOW_TO_SAVE}")
    names = examples.features or tuple(map(str, range(1, examples.inputs.shape[1] + 1)))
    shown = ", ".join(names[:MOST_LISTED]) + (", ..." if len(names) > MOST_LISTED else "")
    return PFNMError(
        f"{path}: no column is called {', '.join(LABEL_COLUMNS)} (columns: {shown}); name the "
        "column of labels (--label)"
    )


def _read_npz(path: str | Path, label: str | None) -> Examples:
    try:
        with open(path, "rb") as opened:
            if opened.read(len(NPY_START)) == NPY_START:
                raise PFNMError(
                    f"{path}: one array, not an .npz file with arrays x and y; {HOW_TO_SAVE}"
                )
        with zipfile.ZipFile(path) as archive:
            file = Arrays(str(path), archive)
            x = file.first_of(INPUT_NAMES)
            y = file.first_of(LABEL_NAMES) if label is None else file.named(label)
            if x is None:
                raise PFNMError(
                    f"{path}: no array named {' or '.join(INPUT_NAMES[:2])} (found: "
                    f"{', '.join(file.names) or 'none'}); {HOW_TO_SAVE}"
                )
    except PFNMError:
        raise
    except Exception as error:  # whatever zipfile and numpy raise on a damaged file
        raise PFNMError(f"{path}: not a readable .npz file: {told(error)}; {HOW_TO_SAVE}") from None
    if x.ndim < 2 or len(x) == 0 or (y is not None and (y.ndim not in (1, 2) or len(x) != len(y))):
        labelled = "" if y is None else f" and labels {y.shape}"
        raise PFNMError(
            f"{path}: inputs {x.shape}{labelled} do not go together; give one row of each for "
            "every example"
        )
    for what, array, kinds in (("inputs", x, "biuf"), ("labels", y, "biufSU")):
        if array is None:
            continue
        if array.dtype.kind not in kinds:
            raise PFNMError(
                f"{path}: the {what} hold {array.dtype}, expected real numbers; convert them"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise PFNMError(f"{path}: the {what} hold NaN or infinite values; leave such rows out")
    allowance = Allowance(path, DATA_BYTES)
    if y is not None and y.dtype.kind == "S":
        allowance.take("its labels", y.nbytes * np.dtype("U1").itemsize)
        y = _as_text(path, y)
    allowance.take("its inputs", x.size * np.dtype(float).itemsize)
    shape = x.shape[1:] if x.ndim > 2 else ()
    return Examples(x.reshape(len(x), -1).astype(float, copy=False), y, None, shape)


def _as_text(path: str | Path, labels: NDArray[Any]) -> NDArray[Any]:
    try:
        return np.char.decode(labels, "utf-8")
    except UnicodeDecodeError:
        raise PFNMError(
            f"{path}: the labels are bytes that are no text in UTF-8; save them as texts"
        ) from None


class Arrays:
    """The arrays of an .npz file, each read when it is asked for."""

    def __init__(self, path: str, archive: zipfile.ZipFile) -> None:
        self.path, self.archive = path, archive
        self.names = npz_members(path, archive)
        self.allowance = Allowance(path, DATA_BYTES)

    def read(self, name: str) -> NDArray[Any]:
        """The array of this name."""
        return npz_member(self.archive, self.path, name, self.allowance)

    def first_of(self, names: Sequence[str]) -> NDArray[Any] | None:
        """The array under the first of these names that is there."""
        return next((self.read(name) for name in names if name in self.names), None)

    def named(self, label: str) -> NDArray[Any]:
        """The array of labels by its name, or several of them side by side."""
        names = [label] if label in self.names else [name.strip() for name in label.split(",")]
        for name in names:
            if name not in self.names:
                raise PFNMError(
                    f"{self.path}: no array named {name!r} (found: "
                    f"{', '.join(self.names) or 'none'}); correct --label"
                )
        columns = [self.read(name) for name in names]
        return np.column_stack(columns) if len(columns) > 1 else columns[0]
