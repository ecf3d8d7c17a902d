"""Small files beside the networks: class counts, labels, weights of the sites, labelled data."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pfnm.core.errors import PFNMError
from pfnm.core.labels import union
from pfnm.core.network import OUTPUT, Array, IntArray, Label, Network
from pfnm.formats import told

Counts = Mapping[str, Sequence[float] | Mapping[str, float]]

INPUT_NAMES = ("x", "X", "x_test", "X_test", "inputs", "data", "images")
LABEL_NAMES = ("y", "Y", "y_test", "Y_test", "labels", "target", "targets")


def read_json(path: str | Path) -> Any:
    """The content of a JSON file, or one line that says why not."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise PFNMError(f"{path}: cannot be read: {told(error)}") from None
    except json.JSONDecodeError as error:
        raise PFNMError(f"{path}: not valid JSON, line {error.lineno}: {error.msg}") from None


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
        with Path(path).open(newline="", encoding="utf-8") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file) if any(row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PFNMError(f"{path}: cannot be read: {told(error)}") from None
    header = rows.pop(0)[1:] if rows and rows[0][0].lower() in ("site", "") else None
    counts: dict[str, Sequence[float] | Mapping[str, float]] = {}
    for site, *cells in rows:
        if site in counts:
            raise PFNMError(f"{path}: site {site!r} stands twice")
        try:
            numbers = [float(cell or 0) for cell in cells]
        except ValueError:
            raise PFNMError(f"{path}: site {site!r} has a count that is no number") from None
        if header is not None and len(header) != len(numbers):
            raise PFNMError(f"{path}: site {site!r} has {len(numbers)} counts, not {len(header)}")
        counts[site] = numbers if header is None else dict(zip(header, numbers, strict=True))
    return counts


def counts_matrix(counts: Counts, networks: Sequence[Network]) -> Array:
    """The counts as (J, K), K being the union of the sites' labels."""
    names = [network.name for network in networks]
    for name in names:
        if name not in counts:
            known = ", ".join(counts) or "none"
            raise PFNMError(f"class counts: site {name!r} is missing (given: {known})")
    extra = [name for name in counts if name not in names]
    if extra:
        raise PFNMError(f"class counts: {extra[0]!r} is not a site (sites: {', '.join(names)})")
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
    values = list(counts.values() if isinstance(counts, Mapping) else counts)
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        raise PFNMError(f"class counts: site {name!r} has a count that is no number")
    if isinstance(counts, Mapping):
        by_text = {str(label): label for label in labels}
        unknown = [text for text in counts if str(text) not in by_text]
        if unknown:
            raise PFNMError(f"class counts: site {name!r}: no site knows a class {unknown[0]!r}")
        return {by_text[str(text)]: count for text, count in counts.items()}
    if len(counts) != len(own):
        raise PFNMError(
            f"class counts: site {name!r} has {len(counts)} counts for {len(own)} classes; give "
            "one for each output of its network"
        )
    return dict(zip(own, counts, strict=True))


def read_labels(path: str | Path, names: Sequence[str]) -> list[list[Label] | None]:
    """The labels of each site's outputs: one list for all sites, or an object from site to list."""
    content = read_json(path)
    if isinstance(content, list):
        content = dict.fromkeys(names, content)
    if not isinstance(content, dict):
        raise PFNMError(f"{path}: expected a list of labels, or an object from site name to list")
    extra = [name for name in content if name not in names]
    if extra:
        raise PFNMError(f"{path}: {extra[0]!r} is not a site (sites: {', '.join(names)})")
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
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not weight > 0:
            raise PFNMError(f"{path}: the weight of {name!r} is {weight!r}, expected above zero")
    return [float(content[name]) for name in names]


def read_examples(path: str | Path) -> tuple[Array, Array | IntArray]:
    """Inputs (examples, inputs) and labels or targets from an .npz file (names x and y, say)."""
    try:
        with np.load(path, allow_pickle=False) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise PFNMError(f"{path}: not an .npz file with arrays x and y")
            x, y = (_first_of(path, file, names) for names in (INPUT_NAMES, LABEL_NAMES))
    except PFNMError:
        raise
    except Exception as error:  # whatever zipfile and numpy raise on a damaged file
        raise PFNMError(f"{path}: not a readable .npz file: {told(error)}") from None
    if x.ndim < 2 or len(x) != len(y) or len(x) == 0:
        raise PFNMError(f"{path}: inputs {x.shape} and labels {y.shape} do not go together")
    if not np.issubdtype(x.dtype, np.number):
        raise PFNMError(f"{path}: inputs hold {x.dtype}, expected numbers")
    return x.reshape(len(x), -1).astype(float), y


def _first_of(path: str | Path, file: Mapping[str, Any], names: Sequence[str]) -> Any:
    for name in names:
        if name in file:
            return file[name]
    raise PFNMError(
        f"{path}: no array named {' or '.join(names[:2])} (found: {', '.join(file) or 'none'})"
    )
