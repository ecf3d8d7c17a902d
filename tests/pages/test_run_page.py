"""The pages of simulations and experiments."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import browser, check_answers, check_opens

from pfnm.errors import PFNMError
from pfnm.lab.methods import METHODS
from pfnm.lab.runs import simulate
from pfnm.lab.setting import Setting
from pfnm.pages.page import Table
from pfnm.report.of import report_of

RESULTS = Path(__file__).parents[2] / "results"
EXPERIMENTS = ("sites", "depth", "rounds", "sensitivity", "timing")
LARGEST = 5_000_000  # bytes


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """25 sites and 20 rounds, in small."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    methods = ("local", "ensemble", "weighted", "topdown", "pfnm", "fedavg")
    setting = Setting(
        data="digits", sites=25, rounds=20, hidden=(20,), epochs=2, later_epochs=1,
        methods=methods, failures=0.02,
    )  # fmt: skip
    simulate(setting, folder, threads=1)
    return folder


def test_a_run_is_told_by_its_end(run: Path) -> None:
    page = report_of(run)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = {row["method"]: row["accuracy"] for row in rows}
    best = max(("topdown", "pfnm", "fedavg"), key=lambda name: last[name])
    assert f"{last[best]:.1%} ({METHODS[best].title})" in page.title
    assert f"{last['ensemble']:.1%}" in page.title
    assert page.figures["Sites"][0] == "25"
    assert len(page.html.encode()) < LARGEST
    names = [section.name for section in page.sections]
    assert names == ["Rounds", "Methods", "Classes", "Costs", "Left out", "Provenance"]
    (table,) = page.sections[4].parts
    assert isinstance(table, Table)
    lost = {(site, row["round"]) for row in rows for site in row["left_out"]}
    assert {(site, number) for site, number, *_ in table.rows} == lost
    assert len(table.rows) == len(lost)  # a line, whichever methods it happened to


def test_a_run_that_was_stopped_says_so(run: Path, tmp_path: Path) -> None:
    assert not report_of(run).warnings
    shutil.copytree(run, tmp_path / "run")
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(rows[:-15]))
    (warning,) = report_of(tmp_path / "run").warnings
    assert (
        f"Not measured, or not to the end: {METHODS['fedavg'].title} (5 of 20 rounds)." in warning
    )
    assert "--resume" in warning


def test_what_is_no_run_is_told_so(run: Path, tmp_path: Path) -> None:
    with pytest.raises(PFNMError, match=r"run\.json.*experiment\.json"):
        report_of(tmp_path)
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").write_text("")
    with pytest.raises(PFNMError, match="no rows yet"):
        report_of(tmp_path / "run")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_has_its_panels_and_claims(name: str) -> None:
    page = report_of(RESULTS / name)
    assert len(page.html.encode()) < LARGEST
    assert [section.name for section in page.sections][-2:] == ["Claims", "Provenance"]


@pytest.mark.parametrize(
    "damaged", ["{", "[]", "{}", '{"experiment": {"name": "sites"}}', '{"experiment": 1}']
)
def test_a_damaged_experiment_is_one_line(tmp_path: Path, damaged: str) -> None:
    shutil.copy(RESULTS / "timing" / "rows.csv", tmp_path)
    (tmp_path / "experiment.json").write_text(damaged)
    with pytest.raises(PFNMError, match="cannot be read"):
        report_of(tmp_path)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 390)])
def test_a_browser_shows_a_run(
    chromium: Any, run: Path, tmp_path: Path, scheme: str, width: int
) -> None:
    report_of(run).save(tmp_path / "page.html")
    check_opens(chromium, tmp_path / "page.html", scheme, width)


def test_the_page_of_a_run_answers(chromium: Any, run: Path, tmp_path: Path) -> None:
    report_of(run).save(tmp_path / "page.html")
    check_answers(chromium, tmp_path / "page.html")


@pytest.mark.parametrize(
    ("name", "scheme", "width"),
    [("sites", "dark", 1200), ("rounds", "light", 390), ("sensitivity", "dark", 390),
     ("timing", "light", 1200)],
)  # fmt: skip
def test_a_browser_shows_an_experiment(
    chromium: Any, tmp_path: Path, name: str, scheme: str, width: int
) -> None:
    report_of(RESULTS / name).save(tmp_path / "page.html")
    check_opens(chromium, tmp_path / "page.html", scheme, width)


def test_the_page_of_an_experiment_answers(chromium: Any, tmp_path: Path) -> None:
    report_of(RESULTS / "sites").save(tmp_path / "page.html")
    check_answers(chromium, tmp_path / "page.html")
