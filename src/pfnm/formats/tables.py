"""Small files beside the networks: class counts, labels, weights of the sites."""

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

from pfnm.errors import PFNMError
from pfnm.formats import told
from pfnm.formats.delimited import delimiter_of, is_number
from pfnm.formats.limits import JSON_BYTES, Allowance, check_regular
from pfnm.networks.graph import OUTPUT
from pfnm.networks.labels import union
from pfnm.networks.network import Array, Label, Network

MOST_LISTED = 10  # classes in a message
HOW_TO_COUNT = (
    "the networks' outputs have no names: give a list of counts in their order, or name them "
    "(labels, --labels)"
)
Counts = Mapping[str, Sequence[float] | Mapping[str, float]]


def read_json(path: str | Path) -> Any:
    """The content of a JSON file, or one line that says why not."""

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        refuse_repeated(path, [key for key, _ in pairs])
        return dict(pairs)

    Allowance(path).take("its content", JSON_BYTES * check_regular(path))
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
    A first row that starts with "site", or has no number in it, names the classes.
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
    Allowance(path).take("its content", JSON_BYTES * check_regular(path))
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            lines = [line for line in file if line.strip()]
        reader = csv.reader(lines, delimiter=delimiter_of(lines) if lines else ",")
        rows = [[cell.strip() for cell in row] for row in reader if any(row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PFNMError(f"{path}: cannot be read: {told(error)}") from None
    header = rows.pop(0)[1:] if rows and names_columns(rows[0]) else None
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


def names_columns(row: Sequence[str]) -> bool:
    """Whether the first row of class counts names the classes: it has no count in it."""
    return row[0].lower() in ("site", "") or (len(row) > 1 and not any(map(is_number, row[1:])))


def names_classes(counts: object) -> bool:
    """Whether one site's counts are by class: a mapping, or a Series as `value_counts` gives."""
    return isinstance(counts, Mapping) or hasattr(counts, "to_dict")


def named_counts(frame: Any, networks: Sequence[Network]) -> Any:
    """Counts in a DataFrame, by the names of its rows and columns where it has some.

    Rows are sites, columns classes; numbered from 0 on they are in the sites' or outputs' order.
    """
    sites, classes = (
        None if list(names) == list(range(len(names))) else list(names)
        for names in (frame.index, frame.columns)
    )
    rows = np.asarray(frame).tolist()
    if sites is None and classes is None:
        return rows
    if sites is None:
        if len(rows) != len(networks):
            raise PFNMError(f"class counts of {len(rows)} sites for {len(networks)} networks")
        sites = [network.name for network in networks]
    refuse_repeated("class counts", sites)
    if classes is not None:
        refuse_repeated("class counts", classes)
        rows = [dict(zip(classes, row, strict=True)) for row in rows]
    return dict(zip(sites, rows, strict=True))


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
        named = networks[j].labels is not None
        for label, count in _by_label(name, counts[name], own[j], labels, named).items():
            matrix[j, labels.index(label)] = count
    return matrix


def _by_label(
    name: str,
    counts: Sequence[float] | Mapping[str, float],
    own: tuple[Label, ...],
    labels: tuple[Label, ...],
    named: bool,
) -> dict[Label, float]:
    """One site's counts by label; a number for each class or an error that says what is wrong.

    named: whether these labels are names, and not the outputs' numbers.
    """
    try:
        if not isinstance(counts, Mapping) and names_classes(counts):
            counts = dict(counts.to_dict())  # type: ignore[attr-defined]  # a Series
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
            shown = ", ".join(map(str, labels[:MOST_LISTED]))
            shown += ", ..." if len(labels) > MOST_LISTED else ""
            raise PFNMError(
                f"class counts: site {name!r}: no site knows a class {unknown[0]!r} (classes: "
                f"{shown}); {'leave it out' if named else HOW_TO_COUNT}"
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
            isinstance(label, str | bool) or is_finite(label) for label in labels
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
