"""Class counts, labels and weights, right and wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pfnm.errors import PFNMError
from pfnm.formats.tables import (
    counts_matrix,
    read_class_counts,
    read_json,
    read_site_weights,
)
from pfnm.networks.perceptron import mlp

SITES = [mlp([np.ones((2, 2))], labels=["x", "y"], name=name) for name in ("a", "b")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "RecursionError"),
        ("1" * 5000, "digits"),
        ('{"a": [1, 2], "a": [3, 4]}', "'a' stands 2 times"),
        ("{", "line 1"),
    ],
)
def test_json_that_cannot_be_read(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "counts.json"
    path.write_text(text)
    with pytest.raises(PFNMError, match=rf"counts\.json.*{words}") as caught:
        read_json(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("extension", ["csv", "json"])
def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"counts.{extension}"
    counts = {"a": {"x": 1.0, "y": 2.0}, "b": {"x": 3.0, "y": 4.0}}
    text = "site,x,y\na,1,2\nb,3,4\n" if extension == "csv" else json.dumps(counts)
    path.write_text(text, encoding="utf-8-sig")
    assert read_class_counts(path) == counts


@pytest.mark.parametrize("text", ["site,x,x\na,1,2\n", "a,1,2\na,3,4\n"])
def test_a_name_that_stands_twice_in_a_csv(tmp_path: Path, text: str) -> None:
    (tmp_path / "counts.csv").write_text(text)
    with pytest.raises(PFNMError, match="stands 2 times"):
        read_class_counts(tmp_path / "counts.csv")


@pytest.mark.parametrize(
    "counts",
    [
        np.array([1, 2]),
        [np.int64(1), np.float32(2)],
        {"x": np.int32(1), "y": np.float64(2)},
        (1, 2.0),
    ],
)
def test_counts_of_numpy(counts: Any) -> None:
    assert counts_matrix({"a": counts, "b": [3, 4]}, SITES).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "counts",
    [None, 5, np.array(5), [1, None], ["1", "2"], [True, 1], [1, -1], [1, np.inf], [1, 10**400]],
    ids=lambda value: str(value)[:12],
)
def test_counts_that_are_none(counts: Any) -> None:
    with pytest.raises(PFNMError, match="class counts: site 'b' has"):
        counts_matrix({"a": [1, 2], "b": counts}, SITES)


@pytest.mark.parametrize(
    "weight", [0, -1, "1", True, float("inf"), 10**400], ids=lambda w: str(w)[:12]
)
def test_weights_that_are_none(tmp_path: Path, weight: Any) -> None:
    (tmp_path / "weights.json").write_text(json.dumps({"a": weight}))
    with pytest.raises(PFNMError, match="weight of 'a' is"):
        read_site_weights(tmp_path / "weights.json", ["a"])


@pytest.mark.parametrize("first", ["hospital;well;ill\n", "site;well;ill\n", ";well;ill\n", ""])
def test_counts_as_a_spreadsheet_writes_them(tmp_path: Path, first: str) -> None:
    (tmp_path / "counts.csv").write_text(f"{first}north;3;4\nsouth;5;6\n")
    found = read_class_counts(tmp_path / "counts.csv")
    rows = [list(own.values()) if isinstance(own, dict) else own for own in found.values()]
    assert (list(found), rows) == (["north", "south"], [[3, 4], [5, 6]])
    assert isinstance(found["north"], dict) == bool(first)
