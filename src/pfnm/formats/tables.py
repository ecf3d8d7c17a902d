"""Small files beside the networks: class counts, labels, weights of the sites, labelled data."""

from __future__ import annotations

import csv
import json
import reprlib
from collections import Counter
from collections.abc import Mapping, Sequence
from math import isfinite
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfnm.core.errors import PFNMError
from pfnm.core.labels import union
from pfnm.core.network import OUTPUT, Array, Label, Network
from pfnm.formats import check_readable, told

Counts = Mapping[str, Sequence[float] | Mapping[str, float]]

INPUT_NAMES = ("x", "X", "x_test", "X_test", "inputs", "data", "images")
LABEL_NAMES = ("y", "Y", "y_test", "Y_test", "labels", "target", "targets")
HOW_TO_SAVE = "save them with numpy.savez(file, x=x, y=y)"


def read_json(path: str | Path) -> Any:
    """The content of a JSON file, or one line that says why not."""

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        refuse_repeated(path, [key for key, _ in pairs])
        return dict(pairs)

    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise PFNMError(f"{path}: cannot be read: {told(error)}; check the path") from None
    try:
        return json.loads(text, object_pairs_hook=mapping)
    except json.JSONDecodeError as error:
        raise PFNMError(
            f"{path}: not valid JSON, line {error.lineno}: {error.msg}; correct it"
        ) from None
    except (ValueError, RecursionError) as error:  # thousands of digits, or of nested lists
        raise PFNMError(f"{path}: not such JSON as pfnm reads: {told(error)}; correct it") from None


def refuse_repeated(path: str | Path, names: Sequence[str]) -> None:
    """An error if a name stands twice: which entry is meant, nobody can tell."""
    for name, count in Counter(names).items():
        if count > 1:
            raise PFNMError(f"{path}: {name!r} stands {count} times; leave one")


def read_class_counts(path: str | Path) -> Counts:
    """Examples of each class at each site.

    A JSON object from site name to a list (in the order of the site's outputs) or to an object from
    label to count; or a CSV file with a row for each site: its name, then a count for each class.
    A first row that starts with "site" names the classes.
    """
    if Path(path).suffix.lower() == ".csv":
        return _read_counts_csv(path)
    content = read_json(path)
    if not isinstance(content, dict) or not all(
        isinstance(counts, list | dict) for counts in content.values()
    ):
        raise PFNMError(
            f"{path}: expected a JSON object from site name to a list of counts, one a class"
        )
    return content


def _read_counts_csv(path: str | Path) -> Counts:
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file) if any(row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PFNMError(f"{path}: cannot be read: {told(error)}") from None
    header = rows.pop(0)[1:] if rows and rows[0][0].lower() in ("site", "") else None
    refuse_repeated(path, header or ())
    refuse_repeated(path, [row[0] for row in rows])
    counts: dict[str, Sequence[float] | Mapping[str, float]] = {}
    for site, *cells in rows:
        try:
            numbers = [float(cell or 0) for cell in cells]
        except ValueError:
            raise PFNMError(
                f"{path}: site {site!r} has a count that is no number; correct it"
            ) from None
        if header is not None and len(header) != len(numbers):
            raise PFNMError(
                f"{path}: site {site!r} has {len(numbers)} counts, the first row names "
                f"{len(header)} classes; give as many"
            )
        counts[site] = numbers if header is None else dict(zip(header, numbers, strict=True))
    return counts


def counts_matrix(counts: Counts, networks: Sequence[Network]) -> Array:
    """The counts as (J, K), K being the union of the sites' labels."""
    names = [network.name for network in networks]
    for name in names:
        if name not in counts:
            known = ", ".join(map(str, counts)) or "none"
            raise PFNMError(f"class counts: site {name!r} is missing (given: {known}); add it")
    extra = [name for name in counts if name not in names]
    if extra:
        raise PFNMError(
            f"class counts: {extra[0]!r} is not a site (sites: {', '.join(names)}); leave it out"
        )
    own = [network.labels or tuple(range(network.sizes[OUTPUT])) for network in networks]
    labels = union(own)
    matrix = np.zeros((len(networks), len(labels)))
    for j, name in enumerate(names):
        for label, count in _by_label(name, counts[name], own[j], labels).items():
            matrix[j, labels.index(label)] = count
    return matrix


def _by_label(
    name: str,
    counts: Sequence[float] | Mapping[str, float],
    own: tuple[Label, ...],
    labels: tuple[Label, ...],
) -> dict[Label, float]:
    """One site's counts by label; a number for each class or an error that says what is wrong."""
    try:
        values = list(counts.values() if isinstance(counts, Mapping) else counts)
    except TypeError:  # None, or a bare number
        raise PFNMError(
            f"class counts: site {name!r} has {counts!r}, expected a list of counts, one a class"
        ) from None
    for value in values:
        if not is_finite(value) or value < 0:
            raise PFNMError(
                f"class counts: site {name!r} has a count that is no finite number from zero up; "
                "give the number of examples of each class"
            )
    if isinstance(counts, Mapping):
        by_text = {str(label): label for label in labels}
        unknown = [text for text in counts if str(text) not in by_text]
        if unknown:
            raise PFNMError(
                f"class counts: site {name!r}: no site knows a class {unknown[0]!r}; leave it out"
            )
        return {by_text[str(text)]: count for text, count in counts.items()}
    if len(values) != len(own):
        raise PFNMError(
            f"class counts: site {name!r} has {len(values)} counts for {len(own)} classes; give "
            "one for each output of its network"
        )
    return dict(zip(own, values, strict=True))


def is_finite(value: object) -> bool:
    """Whether this is a number, Python's or numpy's, that a float can hold."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)
    except OverflowError:
        return False


def read_labels(path: str | Path, names: Sequence[str]) -> list[list[Label] | None]:
    """The labels of each site's outputs: one list for all sites, or an object from site to list."""
    content = read_json(path)
    if isinstance(content, list):
        content = dict.fromkeys(names, content)
    if not isinstance(content, dict):
        raise PFNMError(f"{path}: expected a list of labels, or an object from site name to list")
    extra = [name for name in content if name not in names]
    if extra:
        raise PFNMError(
            f"{path}: {extra[0]!r} is not a site (sites: {', '.join(names)}); leave it out"
        )
    for name, labels in content.items():
        if not isinstance(labels, list) or not all(
            isinstance(v, str | int | float) for v in labels
        ):
            raise PFNMError(f"{path}: the labels of {name!r} are no list of names or numbers")
    return [content.get(name) for name in names]


def read_site_weights(path: str | Path, names: Sequence[str]) -> list[float]:
    """How much each site counts: a JSON object from site name to a positive number."""
    content = read_json(path)
    if not isinstance(content, dict) or set(content) != set(names):
        raise PFNMError(f"{path}: expected a JSON object with the sites {', '.join(names)}")
    for name, weight in content.items():
        if not is_finite(weight) or not weight > 0:
            raise PFNMError(
                f"{path}: the weight of {name!r} is {reprlib.repr(weight)}, expected a number "
                "above zero"
            )
    return [float(content[name]) for name in names]


def read_examples(path: str | Path) -> tuple[Array, NDArray[Any]]:
    """Inputs (examples, inputs) and labels or targets from an .npz file (names x and y, say)."""
    x, y = read_inputs(path)
    if y is None:
        raise PFNMError(f"{path}: no array named {' or '.join(LABEL_NAMES[:2])}; {HOW_TO_SAVE}")
    return x, y


def read_inputs(path: str | Path) -> tuple[Array, NDArray[Any] | None]:
    """The same, the labels where there are some."""
    check_readable(str(path))
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise PFNMError(
                f"{path}: one array, not an .npz file with arrays x and y; {HOW_TO_SAVE}"
            )
        with loaded as file:
            x, y = (_first_of(file, names) for names in (INPUT_NAMES, LABEL_NAMES))
            if x is None:
                raise PFNMError(
                    f"{path}: no array named {' or '.join(INPUT_NAMES[:2])} (found: "
                    f"{', '.join(file) or 'none'}); {HOW_TO_SAVE}"
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
    labels = y.astype(str) if y is not None and y.dtype.kind == "S" else y
    return x.reshape(len(x), -1).astype(float), labels


def _first_of(file: Mapping[str, Any], names: Sequence[str]) -> NDArray[Any] | None:
    return next((file[name] for name in names if name in file), None)
