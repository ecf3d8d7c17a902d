"""Inputs and labels from .npz, .csv and .parquet files, right and wrong."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pfnm.errors import PFNMError
from pfnm.formats.data import read_data, read_examples, read_inputs

FEATURES = ("age", "weight", "height")
X = np.array([[1.0, 2.5, -3.0], [4.0, 5.0, 6.0]])


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@given(
    values=arrays(float, (4, 3), elements=st.floats(allow_nan=False, allow_infinity=False)),
    labels=st.one_of(
        st.lists(st.integers(-(10**17), 10**17), min_size=4, max_size=4),
        st.lists(
            st.sampled_from(["ill", "well", "not; sure", 'so "so", la', "A07"]),
            min_size=4,
            max_size=4,
        ),
    ),
    delimiter=st.sampled_from(",;\t"),
    header=st.booleans(),
    order=st.permutations(range(4)),
    blank=st.booleans(),
    mark=st.booleans(),
)
def test_a_table_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    values: np.ndarray,
    labels: list[Any],
    delimiter: str,
    header: bool,
    order: list[int],
    blank: bool,
    mark: bool,
) -> None:
    path = tmp_path_factory.mktemp("data") / "test.csv"
    columns = [*map(list, values.T), labels]
    names = [*FEATURES, "outcome"]
    with path.open("w", newline="", encoding="utf-8-sig" if mark else "utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        if header:
            writer.writerow([names[place] for place in order])
        for row in zip(*columns, strict=True):
            writer.writerow([row[place] for place in order])
            file.write("\n" * blank)
    label = None if header else str(order.index(3) + 1)
    found = read_data(path, label=label, features=FEATURES if header else None, inputs=3)
    expected = values if header else values[:, [place for place in order if place < 3]]
    np.testing.assert_array_equal(found.inputs, expected)
    assert found.targets is not None
    assert found.targets.tolist() == labels
    assert found.features == (FEATURES if header else None)


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        ("1 2", [1, 2]),
        ("1.0 2", [1, 2]),
        ("3.000e+00 1e2", [3, 100]),
        ("1.5 2", [1.5, 2.0]),
        ("007 008", ["007", "008"]),
        ("a 2", ["a", "2"]),
        ("True false", ["True", "false"]),
        ("1 NA", ["1", "NA"]),
    ],
)
def test_labels_are_whole_numbers_numbers_or_texts(
    tmp_path: Path, cells: str, labels: list[Any]
) -> None:
    first, second = cells.split()
    path = written(tmp_path / "test.csv", f"a,Class\n1,{first}\n2,{second}\n")
    targets = read_examples(path)[1].tolist()
    assert targets == labels
    assert [type(target) for target in targets] == [type(label) for label in labels]


@pytest.mark.parametrize(
    ("text", "label", "inputs", "targets"),
    [
        ("5,3,setosa\n6,2,virginica\n", "-1", [[5, 3], [6, 2]], ["setosa", "virginica"]),
        ("0,1,y\n5,3,7\n", None, [[5, 3]], [7]),  # names as pandas gives them
        ("0,1,y\n5,3,n\n", None, [[5, 3]], ["n"]),
        ("1.5,2,y\n5,3,n\n", "3", [[1.5, 2], [5, 3]], ["y", "n"]),  # yes and no, not a name
        ("5,3,ill\n5,3,9\n5,3,ill\n", "3", [[5, 3]] * 3, ["ill", "9", "ill"]),
        (",a,b,y\n0,5,3,7\n", None, [[5, 3]], [7]),  # row names as pandas and R write them
        ("a,flag,y\n1,True,0\n2,FALSE,1\n", None, [[1, 1], [2, 0]], [0, 1]),
        ('"a", "b,c", y\n1, 2,3\n', None, [[1, 2]], [3]),
        ("a,b,y\r\n1,2,3\r\n,,\r\n", None, [[1, 2]], [3]),
        ("a\n1\n2\n", None, [[1], [2]], None),
        ("1\n2\n", None, [[1], [2]], None),
    ],
)
def test_tables_as_people_have_them(
    tmp_path: Path, text: str, label: str | None, inputs: Any, targets: list[Any] | None
) -> None:
    path = written(tmp_path / "test.csv", text)
    found = read_data(path, label=label)
    assert found.inputs.tolist() == inputs
    assert (None if found.targets is None else found.targets.tolist()) == targets


@pytest.mark.parametrize("names", ["a;b;y\n", ""])
def test_decimal_commas(tmp_path: Path, names: str) -> None:
    (tmp_path / "test.csv").write_text(f"{names}1,5;2;0,5\n-3;4e0;1\n")
    x, y = read_examples(tmp_path / "test.csv", label="3" if not names else None)
    assert x.tolist() == [[1.5, 2], [-3, 4]]
    assert y.tolist() == [0.5, 1]


def test_other_columns_do_not_matter_where_the_inputs_have_names(tmp_path: Path) -> None:
    text = "id,height,weight,age,y,note\np1,3,2,1,0,\np2,6,5,4,1,nan\n"
    path = written(tmp_path / "test.csv", text)
    found = read_data(path, features=FEATURES)
    assert found.inputs.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert found.features == FEATURES
    # A column called y may be an input: the network says so by name, or takes as many.
    assert read_data(path, features=("age", "y"), label="height").inputs.tolist() == [
        [1, 0],
        [4, 1],
    ]
    path = written(tmp_path / "plane.csv", "x,y\n1,2\n")
    assert read_inputs(path, inputs=2)[1] is None
    assert read_inputs(path, inputs=1)[1] is not None


def test_several_targets(tmp_path: Path) -> None:
    path = written(tmp_path / "test.csv", "a,b,c\n1,2,3\n4,5,6\n")
    assert read_examples(path, label="c,a")[1].tolist() == [[3, 1], [6, 4]]
    np.savez(tmp_path / "test.npz", x=X, first=[1, 2], second=[3, 4])
    assert read_examples(tmp_path / "test.npz", label="first")[1].tolist() == [1, 2]
    found = read_examples(tmp_path / "test.npz", label="first,second")[1]
    assert found.tolist() == [[1, 3], [2, 4]]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("a,b,y\n1,2,0\n3,,1\n", {}, "column 'b' in line 3 is empty"),
        ("a,b,y\n1,2,0\n\n3,nan,1\n", {}, "column 'b' in line 4 is 'nan'"),
        ("a,b,y\n1,2,0\n3,1e999,1\n", {}, "column 'b' in line 3 is '1e999'"),
        ("a,b,y\n1,2,0\n3,4,\n", {}, "column 'y' in line 3 is empty"),
        ("a;b;y\n1,5;2;0\n1.5;2;0\n", {}, "'1,5'.* decimal point"),
        ("a;b;y\n" + "1,5;2;0\n" * 30 + "1.5;2;0\n", {}, "'1.5'.* decimal point"),
        ('a,b,y\n1,2,0\n"1,5",2,0\n', {}, "decimal point"),
        ("a,b,y\n1,Rome,0\n", {}, "column 'b' in line 2 is 'Rome', .* --label b"),
        ("1,2,Rome\n3,4,Oslo\n", {}, "column 3 in line 1 is 'Rome', .* --label 3"),
        ("a,b,y\n1,2,0\n3,4\n", {}, "line 3 has 2 cells, expected 3"),
        ("a,b,c\n1,2,0\n", {}, r"no column is called y, .*\(columns: a, b, c\).*--label"),
        ("1,2,0\n1,2,0\n", {}, r"\(columns: 1, 2, 3\).*--label"),
        ("a,b,Y,class\n1,2,0,0\n", {}, "Y, class may all be the label"),
        ("a,b,y\n1,2,0\n", {"label": "z"}, r"no column 'z' \(columns: a, b, y\)"),
        ("a,b,y\n1,2,0\n", {"label": "4"}, "no column '4'"),
        ("a,y,y\n1,2,0\n", {"label": "y"}, "2 columns are called 'y'"),
        ("age,height,y\n1,2,0\n", {"features": FEATURES}, "input 'weight' is no column"),
        ("y,no\n1,2\n", {"features": FEATURES}, "input 'age' and 2 more is no column"),
        ("age,age,y\n1,2,0\n", {"features": ["age"]}, "2 columns are called 'age'"),
        ("age,y\n1,2\n", {"features": ["age"], "label": "age"}, "is one of the network's inputs"),
        ("a,b,y\n1,2,0\n", {"inputs": 3, "label": "y"}, r"2 columns .*'y' \(a, b\).* 3 inputs"),
        ("a,b,y\n", {}, "no rows"),
        ("\n \n", {}, "nothing but blank lines"),
        ('a,y\n"1,2\n', {}, "line 2 cannot be read"),
    ],
)
def test_tables_that_cannot_be_used(
    tmp_path: Path, text: str, options: dict[str, Any], words: str
) -> None:
    path = written(tmp_path / "test.csv", text)
    with pytest.raises(PFNMError, match=rf"test\.csv: .*{words}") as caught:
        read_examples(path, **options)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_bytes("größe,y\n1,2\n".encode("cp1252"))
    with pytest.raises(PFNMError, match="no text in UTF-8"):
        read_data(tmp_path / "test.csv")
    (tmp_path / "test.parquet").write_bytes(b"PAR1 is how it begins")
    with pytest.raises(PFNMError, match=r"test\.parquet: not a readable"):
        read_data(tmp_path / "test.parquet")
    (tmp_path / "test.xlsx").write_bytes(b"PK")
    with pytest.raises(PFNMError, match=r"unknown extension '\.xlsx'; data is read from \.csv"):
        read_data(tmp_path / "test.xlsx")
    np.savez(tmp_path / "test.npz", x=X)
    with pytest.raises(PFNMError, match=r"no array named 'z' \(found: x\)"):
        read_data(tmp_path / "test.npz", label="z")


def test_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {
        "weight": pa.array([2.5, 5.0], pa.float32()),
        "age": pa.array([1, 4], pa.int8()),
        "name": ["p1", None],
        "height": [True, False],
        "Outcome": pa.array(["ill", "well"]).dictionary_encode(),
        "grade": [3.0, 1.0],
        "price": [1.5, None],
        "day": pa.array([0, 1], pa.date32()),
        "__index_level_0__": [7, 8],
    }
    path = tmp_path / "test.parquet"
    parquet.write_table(pa.table(columns), path)
    found = read_data(path, features=FEATURES)
    assert found.inputs.tolist() == [[1, 2.5, 1], [4, 5, 0]]
    assert found.targets is not None
    assert found.targets.tolist() == ["ill", "well"]
    targets = read_examples(path, features=FEATURES, label="grade")[1]
    assert (targets.tolist(), targets.dtype.kind) == ([3, 1], "i")
    for features, words in (
        (["name"], "column 'name' in row 2 is empty"),
        (["price"], "column 'price' in row 2 is empty"),
        (["day"], "column 'day' holds date32"),
        (["Outcome"], "column 'Outcome' holds .*, expected numbers"),
        (["size"], "input 'size' is no column"),
    ):
        with pytest.raises(PFNMError, match=words):
            read_data(path, features=features, label="grade")
    parquet.write_table(pa.table({"a": [1.0, 2.0], "y": [0, 1], "__index_level_0__": [7, 8]}), path)
    assert read_examples(path)[0].tolist() == [[1], [2]]


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(PFNMError, match=r"pip install 'pfnm\[tables\]'"):
        read_data(tmp_path / "test.parquet")


def test_pictures_are_rows(tmp_path: Path) -> None:
    np.savez(tmp_path / "test.npz", x=np.zeros((2, 3, 4, 5)), y=[0, 1])
    assert read_examples(tmp_path / "test.npz")[0].shape == (2, 60)


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (np.ones((2, 3)), np.array(5), "do not go together"),
        (np.ones((2, 3)), np.ones((2, 1, 1)), "do not go together"),
        (np.ones((2, 3), complex), np.ones(2), "inputs hold complex"),
        (np.full((2, 3), np.nan), np.ones(2), "inputs hold NaN"),
        (np.ones((2, 3)), np.full(2, np.inf), "labels hold NaN"),
        (np.ones((2, 3)), np.zeros(2, "M8[s]"), "labels hold datetime"),
    ],
)
def test_examples_that_cannot_be_used(
    tmp_path: Path, x: np.ndarray, y: np.ndarray, words: str
) -> None:
    np.savez(tmp_path / "test.npz", x=x, y=y)
    with pytest.raises(PFNMError, match=rf"test\.npz.*{words}"):
        read_examples(tmp_path / "test.npz")


def test_examples_in_one_array_or_of_bytes(tmp_path: Path) -> None:
    np.save(tmp_path / "test.npy", np.ones((2, 3)))
    with pytest.raises(PFNMError, match="one array"):
        read_examples(tmp_path / "test.npy")
    np.savez(tmp_path / "test.npz", x=np.ones((2, 3), bool), y=np.array([b"a", b"b"]))
    assert read_examples(tmp_path / "test.npz")[1].tolist() == ["a", "b"]
