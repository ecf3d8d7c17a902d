"""Reports from the command line: fuse --report, report, demo."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import Run

import pfnm
from pfnm.networks.perceptron import mlp


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("sites")
    rng = np.random.default_rng(0)
    for name in "abc":
        network = mlp([rng.normal(size=(6, 5)), rng.normal(size=(5, 3))], name=name)
        pfnm.save(network, folder / f"{name}.npz")
    return [str(folder / f"{name}.npz") for name in "abc"]


@pytest.fixture(autouse=True)
def _there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_fuse_writes_a_report_beside_its_output(files: list[str], tmp_path: Path, run: Run) -> None:
    status, printed, errors = run("fuse", *files, "-o", "global.npz", "--report")
    assert status == 0, errors
    assert "global.html" in printed
    assert "3 networks became one" in (tmp_path / "global.html").read_text()
    _, printed, _ = run("fuse", *files, "-o", "other.npz", "--report", "--json")
    assert json.loads(printed)["report"] == "other.html"
    (tmp_path / "third.html").write_text("mine")
    assert run("fuse", *files, "-o", "third.npz", "--report")[0] == 2
    assert not (tmp_path / "third.npz").exists()  # told before anything is done
    assert (tmp_path / "third.html").read_text() == "mine"


def test_report_names_the_page_it_wrote(files: list[str], tmp_path: Path, run: Run) -> None:
    pfnm.fuse(files).save(tmp_path / "fused.safetensors")
    status, printed, errors = run("report", "fused.safetensors")
    assert status == 0, errors
    assert printed.startswith("fused.html: ")
    assert run("report", "fused.safetensors")[0] == 2
    assert run("report", "fused.safetensors", "-o", "page.html")[0] == 0
    assert (tmp_path / "page.html").read_bytes() == (tmp_path / "fused.html").read_bytes()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nothing.npz"], "there is no such file"),
        (["nothing.html"], "there is no such file"),
        (["site.npz"], "no record of a fusion"),
        (["."], "run.json"),
        (["site.npz", "-o", "page.txt"], ".html"),
        (["site.npz", "-o", "no/page.html"], "folder must exist"),
    ],
)
def test_what_cannot_be_reported_is_one_line(
    files: list[str], tmp_path: Path, words: list[str], told: str, run: Run
) -> None:
    (tmp_path / "site.npz").write_bytes(Path(files[0]).read_bytes())
    status, _, errors = run("report", *words)
    assert status == 2
    assert len(errors.splitlines()) == 1
    assert told in errors
    assert [path.name for path in tmp_path.iterdir()] == ["site.npz"]
