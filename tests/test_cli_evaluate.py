"""`pfnm evaluate` and `inspect` as a person runs them, on files of every kind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import Run, random_network
from rich.console import Console

import pfnm
from pfnm.cli import files as command
from pfnm.cli.files import output_told
from pfnm.networks.network import Network, Scaling
from pfnm.networks.perceptron import mlp, perceptron

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 6))


@pytest.fixture
def table(site_files: list[Path], tmp_path: Path) -> Path:
    """The first site's own answers as a table, a quarter of them wrong."""
    answers = pfnm.load(site_files[0]).run(X).argmax(axis=1)
    answers[:10] = (answers[:10] + 1) % 4
    rows = ["f0,f1,f2,f3,f4,f5,outcome"]
    rows += [",".join(map(repr, map(float, x))) + f",{y}" for x, y in zip(X, answers, strict=True)]
    path = tmp_path / "test.csv"
    path.write_text("\n".join(rows))
    return path


def test_several_networks_in_one_table(run: Run, site_files: list[Path], table: Path) -> None:
    status, text, err = run("evaluate", *site_files, "--data", table)
    assert (status, err) == (0, "")
    lines = text.splitlines()
    assert lines[0] == f"{table}, 40 examples"
    cells = [[cell.strip() for cell in line.split("│")] for line in lines if "site" in line]
    assert [row[1] for row in cells if len(row) > 2] == ["site0", "site1", "site2"]
    assert cells[0][2] == "0.7500" or cells[1][2] == "0.7500"
    found = json.loads(run("evaluate", *site_files, "--data", table, "--json")[1])
    assert [result["name"] for result in found] == ["site0", "site1", "site2"]
    assert found[0]["file"] == str(site_files[0])
    assert found[0]["accuracy"] == 0.75
    assert found[0]["balanced_accuracy"] != found[1]["balanced_accuracy"]


def test_the_table_fits_a_terminal(
    run: Run, site_files: list[Path], table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Console(width=80, highlight=False, markup=False, emoji=False)
    monkeypatch.setattr(command, "out", terminal)
    long = site_files[1].with_name("a_site_with_a_name_as_long_as_people_give_them.safetensors")
    site_files[1].rename(long)
    _, text, _ = run("evaluate", site_files[0], long, "--data", table)
    rows = [line for line in text.splitlines() if line[0] in "┏┃│└"]
    assert max(map(len, rows)) <= 80
    for word in ("balanced", "accuracy", "AUROC", "Brier", "calib."):
        assert word in text


def test_one_network_with_all_there_is(run: Run, site_files: list[Path], table: Path) -> None:
    options = ("evaluate", site_files[0], "--data", table, "--per-class", "--confusion")
    status, text, _ = run(*options)
    assert status == 0
    for words in ("│ accuracy          │ 0.7500 │", "calibration error", "precision", "taken for"):
        assert words in text
    found = json.loads(run(*options, "--json")[1])
    assert (found["file"], found["data"]) == (str(site_files[0]), str(table))
    assert sum(map(sum, found["confusion"]["counts"])) == found["examples"] == 40
    assert [row["label"] for row in found["classes"]] == [0, 1, 2, 3]


def test_labels_and_notes(run: Run, site_files: list[Path], table: Path, tmp_path: Path) -> None:
    lines = table.read_text().splitlines()
    named = tmp_path / "named.csv"
    words = ["cat", "dog", "eel", "fox"]
    named.write_text("\n".join([lines[0], *(f"{r[:-1]}{words[int(r[-1])]}" for r in lines[1:])]))
    options = ("evaluate", *site_files[:2], "--data", named)
    status, _, err = run(*options)
    assert (status, err.count("\n")) == (2, 1)
    assert "site0.safetensors has 4 outputs without names" in err
    labels = tmp_path / "labels.json"
    for content in (words, {"site0": words, "site1": words}):
        labels.write_text(json.dumps(content))
        found = json.loads(run(*options, "--labels", labels, "--json")[1])
        assert found[0]["accuracy"] == 0.75
    shifted = tmp_path / "shifted.csv"
    shifted.write_text("\n".join([lines[0], *(f"{r[:-1]}{int(r[-1]) + 1}" for r in lines[1:])]))
    _, text, _ = run("evaluate", site_files[0], "--data", shifted)
    assert "note: labels 1 to 4 were taken as outputs 0 to 3" in text


def test_one_output_needs_a_head(run: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "logit.npz", w=np.array([[1.0], [0.0]]))
    np.savez(tmp_path / "test.npz", x=np.eye(2) - 0.5, y=[1, 0])
    options = ("evaluate", tmp_path / "logit.npz", "--data", tmp_path / "test.npz", "--json")
    status, _, err = run(*options)
    assert status == 2
    assert "logit.npz has 1 output" in err
    assert "--head sigmoid or --head values" in err
    assert json.loads(run(*options, "--head", "sigmoid")[1])["accuracy"] == 1
    assert json.loads(run(*options, "--head", "values")[1])["mean_absolute_error"] == 0.5
    assert run(*options, "--head", "softmax")[0] == 2
    assert "one output, not known whether" in run("inspect", tmp_path / "logit.npz")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("site0.safetensors --data missing.csv", "missing.csv: cannot be read"),
        ("site0.safetensors --data test.csv --label z", "no column 'z'"),
        ("site0.safetensors --data test.csv --label f1", "1 targets of float64"),
        ("site0.safetensors --data test.csv --head logits", "unknown head 'logits'"),
        ("site0.safetensors narrow.npz --data test.csv", "narrow.npz takes 3 inputs, site0"),
        ("narrow.npz --data test.csv", "test.csv: 6 columns beside the label 'outcome'"),
        ("site0.safetensors site0.safetensors --data test.csv", "the same file"),
        ("site0.safetensors", "--data"),
    ],
)
def test_bad_input_is_one_line(
    arguments: str, message: str, run: Run, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(table.parent)
    np.savez("narrow.npz", w=np.eye(3))
    status, text, err = run("evaluate", *arguments.split())
    assert (status, text, err.count("\n")) == (2, "", 1)
    assert message in err


def test_columns_go_by_name_where_the_network_has_names(run: Run, table: Path) -> None:
    names = tuple(f"f{place}" for place in range(6))
    path = table.parent / "site0.safetensors"
    pfnm.save(replace(pfnm.load(path), features=names), path, force=True)
    lines = [line.split(",") for line in table.read_text().splitlines()]
    turned = table.with_name("turned.csv")
    turned.write_text("\n".join(";".join([*reversed(cells), "p1"]) for cells in lines[:1]) + "\n")
    with turned.open("a") as file:
        file.writelines(";".join([*reversed(cells), "Rome"]) + "\n" for cells in lines[1:])
    result = run("evaluate", table.parent / "site0.safetensors", "--data", turned, "--json")
    assert json.loads(result[1])["accuracy"] == 0.75


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (mlp([np.ones((2, 1))], output="sigmoid"), "one probability"),
        (mlp([np.ones((2, 1))], output="values"), "one value"),
        (mlp([np.ones((2, 3))], output="softmax"), "3 classes that exclude each other"),
        (mlp([np.ones((2, 3))], output="values"), "3 values"),
        (mlp([np.ones((2, 3))]), "--head tells otherwise"),
    ],
)
def test_outputs_in_words(network: Network, words: str) -> None:
    assert words in output_told(network)


def test_inspect_tells_of_the_inputs(run: Run, tmp_path: Path) -> None:
    column = np.arange(10.0)
    network = replace(
        random_network(0, (10, 5, 2)),
        features=tuple(f"f{place}" for place in range(10)),
        scaling=Scaling(column, column + 1, column - 9, column + 9),
        program=replace(perceptron(random_network(0, (10, 5, 2))), activation_told=False),
    )
    pfnm.save(network, tmp_path / "any.npz")
    _, text, _ = run("inspect", tmp_path / "any.npz")
    for words in ("inputs: f0, f1, f2, f3, f4, f5, ... (10)", "centre 0, 1, 2,", "scale 1, 2, 3,"):
        assert words in text
    assert "activation relu (not stated; --activation tells)" in text
    found = json.loads(run("inspect", tmp_path / "any.npz", "--json")[1])
    assert found["features"][9] == "f9"
    assert found["scaling"]["high"] == [float(value) for value in column + 9]
    assert found["activation_told"] is False
