"""Folders of runs under disturbance: other people's files, two processes, kills, full disks."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Run
from processes import started
from safetensors import safe_open
from safetensors.numpy import save_file

import pfnm
from pfnm.errors import PFNMError, PFNMWarning
from pfnm.lab.records import read_rows, read_run
from pfnm.lab.runs import resume, simulate
from pfnm.lab.setting import Setting
from pfnm.threads import limited

pytest.importorskip("torch")

TINY = ["--sites", "3", "--hidden", "9", "--epochs", "1", "--later-epochs", "1", "--rounds", "2"]
METHODS = ["--methods", "local,pfnm,fedavg"]
SMALL = Setting(sites=3, hidden=(9,), rounds=2, epochs=1, later_epochs=1, methods=("local", "pfnm"))


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in rows]


def test_of_two_processes_one_has_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "race"
    words = ["simulate", *TINY, *METHODS, "-o", folder, "--seed"]
    seeds = {seed: started(*words, seed) for seed in (1, 2)}
    found = {seed: process.ended() for seed, process in seeds.items()}
    assert sorted(status for status, _ in found.values()) == [0, 2]
    (winner,) = [seed for seed, (status, _) in found.items() if status == 0]
    (lost,) = [errors for status, errors in found.values() if status == 2]
    assert "at work in it" in lost or "there is a run already" in lost
    assert read_run(folder).setting.seed == winner
    setting = replace(SMALL, seed=winner, methods=("local", "pfnm", "fedavg"))
    alone = simulate(setting, tmp_path / "alone")
    assert without_times(read_rows(folder)) == without_times(alone)


def test_default_folders_do_not_collide(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(4):  # some of them within a second
        assert run("simulate", *TINY, "--methods", "local")[0] == 0
    assert len(list((tmp_path / "runs").iterdir())) == 4


def test_a_folder_that_is_no_run_is_left_alone(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "below").mkdir()
    names = ("lock", "table.md", "metrics.jsonl", ".a.tmp", ".b.01234567.tmp", "below/.c.tmp")
    for name in names:
        (tmp_path / name).write_text("precious")
    for folder in (tmp_path, tmp_path / "lock"):
        with pytest.raises(PFNMError, match=r"is not empty|is no folder"):
            simulate(SMALL, folder)
    monkeypatch.chdir(tmp_path)
    status, _, errors = run("simulate", *TINY, "-o", "")
    assert status == 2
    assert "is not empty" in errors
    assert {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*")} == {*names, "below"}
    assert all((tmp_path / name).read_text() == "precious" for name in names)


def test_a_lock_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    simulate(replace(SMALL, methods=("local",)), tmp_path)
    (tmp_path / "notes").write_text("precious")
    (tmp_path / "lock").unlink()
    (tmp_path / "lock").symlink_to(tmp_path / "notes")
    with pytest.raises(PFNMError, match="move it away"):
        resume(tmp_path)
    assert (tmp_path / "notes").read_text() == "precious"


def test_rows_do_not_depend_on_how_many_threads_there_are(tmp_path: Path) -> None:
    setting = replace(SMALL, hidden=(40,), methods=("pfnm", "joint"))
    rows = []
    for threads in (1, 2):
        with limited(threads):
            found = simulate(setting, tmp_path / str(threads), threads=1)
        rows.append(without_times(found))
    assert rows[0] == rows[1]


def test_other_versions_are_told_of(tmp_path: Path, run: Run) -> None:
    simulate(replace(SMALL, methods=("local",)), tmp_path)
    begun = read_run(tmp_path)
    elsewhere = replace(begun, versions={**begun.versions, "numpy": "1.0"}, processor="a Z80")
    elsewhere.write(tmp_path)
    for path in (tmp_path / "checkpoints").iterdir():
        path.unlink()
    with pytest.warns(PFNMWarning) as told:
        resume(tmp_path)
    assert ["numpy 1.0" in str(told[0].message), "Z80" in str(told[1].message)] == [True, True]
    status, _, errors = run("simulate", "--resume", tmp_path)
    assert status == 0
    assert "began with numpy 1.0" in errors


def test_whole_numbers_in_a_setting_can_be_resumed(tmp_path: Path) -> None:
    setting = replace(SMALL, alpha=1, fraction=1, methods=("local",))
    rows = simulate(setting, tmp_path)
    assert without_times(resume(tmp_path)) == without_times(rows)


def test_a_folder_whose_first_file_could_not_be_written_can_be_used(tmp_path: Path) -> None:
    words = ["simulate", *TINY, "--methods", "local", "-o", tmp_path / "run"]
    status, errors = started(*words, most=500).ended()
    assert status == 2
    assert "run.json: cannot be written" in errors
    assert started(*words).ended()[0] == 0


def test_checkpoints_of_another_run_are_not_taken(tmp_path: Path) -> None:
    for seed in (0, 1):
        simulate(replace(SMALL, seed=seed), tmp_path / str(seed))
    for path in (tmp_path / "0" / "checkpoints").iterdir():
        (tmp_path / "1" / "checkpoints" / path.name).write_bytes(path.read_bytes())
    with pytest.raises(PFNMError, match="of a run with other settings"):
        resume(tmp_path / "1")


@pytest.mark.parametrize(
    "damage",
    [
        {"run": None},
        {"round": "two"},
        {"round": 0},
        {"groups": ["hidden1", "hidden2"]},
        {"assigned": ["north"]},
        {"sent": 5},
        {"network": False},
    ],
)
def test_damaged_notes_are_told(tmp_path: Path, damage: dict[str, Any]) -> None:
    simulate(SMALL, tmp_path)
    path = tmp_path / "checkpoints" / "method-pfnm.safetensors"
    with safe_open(path, framework="numpy") as file:
        note = json.loads(file.metadata()["pfnm"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    save_file(tensors, path, {"pfnm": json.dumps({**note, **damage})})
    with pytest.raises(PFNMError, match="damaged"):
        resume(tmp_path)


def test_units_that_are_not_there_are_told(tmp_path: Path) -> None:
    simulate(SMALL, tmp_path)
    path = tmp_path / "checkpoints" / "method-pfnm.safetensors"
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    tensors["assignment/hidden1/site0"] += 1000
    save_file(tensors, path, metadata)
    with pytest.raises(PFNMError, match="not there"):
        resume(tmp_path)


def test_rows_without_their_keys_are_done_again(tmp_path: Path) -> None:
    rows = simulate(SMALL, tmp_path)
    metrics = tmp_path / "metrics.jsonl"
    lines = metrics.read_text().splitlines()
    lines[0] = json.dumps({"method": "local", "round": 1})
    metrics.write_text("\n".join([*lines, "[" * 100_000, '{"method": 3}', "NaN"]) + "\n")
    assert sorted(without_times(resume(tmp_path)), key=str) == sorted(without_times(rows), key=str)


DISTURBANCES = ("second", "kill", "full")
PAIRS = list(itertools.product(DISTURBANCES, repeat=2))
QUICK_PAIRS = [("second", "kill"), ("kill", "full"), ("full", "second")]


def begun_or_resumed(folder: Path) -> list[Any]:
    if (folder / "run.json").exists():
        return ["simulate", "--resume", folder]
    return ["simulate", *TINY, *METHODS, "-o", folder]


def disturbed(what: str, words: list[Any], lasts: float, rng: np.random.Generator) -> None:
    """Run a command while this happens to it."""
    if what == "second":
        statuses = [process.ended()[0] for process in (started(*words), started(*words))]
        assert {*statuses} <= {0, 2}
    elif what == "kill":
        process = started(*words)
        time.sleep(lasts * rng.uniform(0.3, 0.95))
        process.kill()
    else:
        status, errors = started(*words, most=int(rng.integers(1, 12_000))).ended()
        assert status in (0, 2)
        assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("one", "other"),
    [pytest.param(*p, marks=[] if p in QUICK_PAIRS else pytest.mark.long) for p in PAIRS],
)
def test_a_run_survives_any_two_disturbances(tmp_path: Path, one: str, other: str) -> None:
    rng = np.random.default_rng(PAIRS.index((one, other)))
    folder = tmp_path / "run"
    since = time.monotonic()
    assert started(*begun_or_resumed(tmp_path / "whole")).ended()[0] == 0
    lasts = time.monotonic() - since
    for what in (one, other):
        disturbed(what, begun_or_resumed(folder), lasts, rng)
    status, errors = started(*begun_or_resumed(folder)).ended()
    assert status == 0, errors
    assert without_times(read_rows(folder)) == without_times(read_rows(tmp_path / "whole"))
    for path in (tmp_path / "whole" / "global").iterdir():
        assert (folder / "global" / path.name).read_bytes() == path.read_bytes()
    assert not list(folder.rglob("*.tmp"))


@pytest.mark.parametrize(
    ("one", "other"),
    [pytest.param(*p, marks=[] if p in QUICK_PAIRS else pytest.mark.long) for p in PAIRS],
)
def test_an_output_survives_any_two_disturbances(
    tmp_path: Path, site_files: list[Path], one: str, other: str
) -> None:
    rng = np.random.default_rng(PAIRS.index((one, other)))
    whole, out = (tmp_path / f"{name}{site_files[0].suffix}" for name in ("whole", "global"))
    out.write_bytes(site_files[0].read_bytes())  # what is replaced must be there until it is
    words = ["fuse", *site_files, "-o", out, "--force"]
    since = time.monotonic()
    assert started(*words[:-2], whole).ended()[0] == 0
    lasts = time.monotonic() - since
    for what in (one, other):
        disturbed(what, words, lasts, rng)
        assert pfnm.load(out).parameters in (
            pfnm.load(site_files[0]).parameters,
            pfnm.load(whole).parameters,
        )
    assert started(*words).ended()[0] == 0
    for name, tensor in pfnm.load(whole).tensors.items():
        np.testing.assert_array_equal(pfnm.load(out).tensors[name], tensor)
