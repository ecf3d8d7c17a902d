"""Runs: every method, left-out sites, resuming after any interruption."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import Forked, started

from pfnm import threads as working
from pfnm.errors import PFNMError
from pfnm.lab.data import load_data
from pfnm.lab.folders import locked
from pfnm.lab.methods import METHODS
from pfnm.lab.plain import module_of, network_of, one_by_one, train_module
from pfnm.lab.records import read_rows, read_run
from pfnm.lab.runs import resume, simulate
from pfnm.lab.setting import Setting, federation
from pfnm.lab.training import Recipe
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Network, Tensor

torch = pytest.importorskip("torch")

FOR_PERCEPTRONS = {name: method for name, method in METHODS.items() if method.perceptrons}
SMALL = Setting(sites=4, hidden=(12,), rounds=3, epochs=2, later_epochs=1)


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in rows]


def test_every_method_runs_and_is_recorded(tmp_path: Path) -> None:
    rows = simulate(SMALL, tmp_path / "run")
    assert rows == read_rows(tmp_path / "run")
    for name, method in FOR_PERCEPTRONS.items():
        own = [row for row in rows if row["method"] == name]
        assert [row["round"] for row in own] == ([1] if method.round is None else [1, 2, 3])
        assert all(0 <= row["accuracy"] <= 1 for row in own)
        assert method.title in (tmp_path / "run" / "table.md").read_text()
    (pfnm,) = [row for row in rows if (row["method"], row["round"]) == ("pfnm", 2)]
    site = (64 * 12 + 12 + 12 * 10 + 10) * 4  # float32
    assert pfnm["bytes_down"] == {f"site{j}": site for j in range(4)}
    assert pfnm["bytes_up"] == {f"site{j}": site + 10 * 8 for j in range(4)}
    (first,) = [row for row in rows if (row["method"], row["round"]) == ("dsgd", 1)]
    assert first["bytes_up"]["site0"] == first["communications"] * site
    marks = [2**k for k in range(20) if 2**k <= first["communications"]]
    assert [step for step, _ in first["within"]] == marks
    assert all(row["within"] == [] for row in rows if (row["method"], row["round"]) != ("dsgd", 1))
    description = json.loads((tmp_path / "run" / "run.json").read_text())
    assert description["setting"]["rounds"] == 3
    assert np.sum(list(description["class_counts"].values())) == 1433


def test_deep_networks_and_no_counts(tmp_path: Path) -> None:
    setting = replace(SMALL, hidden=(12, 8), rounds=2, share_counts=False)
    rows = simulate(setting, tmp_path / "run")
    assert {row["method"] for row in rows} == set(FOR_PERCEPTRONS) - {"kmeans", "weighted"}
    site = (64 * 12 + 12 + 12 * 8 + 8 + 8 * 10 + 10) * 4  # no counts beside the weights
    assert all(set(row["bytes_up"].values()) == {site} for row in rows if row["method"] == "pfnm")
    with pytest.raises(PFNMError, match="needs class counts"):
        simulate(replace(setting, methods=("weighted",)), tmp_path / "other")
    with pytest.raises(PFNMError, match="kmeans is for one hidden layer"):
        simulate(replace(setting, methods=("kmeans",)), tmp_path / "other")


def nan_at(bad: str, rounds: set[int]) -> Any:
    """Local training in which one site sends NaN in some rounds, as a plain module would."""
    calls = {"n": 0}

    def train(
        network: Network, x: Tensor, y: IntArray, recipe: Recipe, rng: np.random.Generator
    ) -> Network:
        module = module_of(network)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        train_module(module, x, y, optimizer, recipe, rng)
        return network_of(module, network)

    plain: Any = one_by_one(train)

    def training(starts: Any, data: Any, parts: Any, recipe: Any, rngs: Any) -> Any:
        calls["n"] += 1
        result = plain(starts, data, parts, recipe, rngs)
        if calls["n"] in rounds and bad in result:
            tensors = dict(result[bad].tensors)
            broken = {n: np.full_like(t, np.nan) for n, t in tensors.items()}
            try:
                result[bad] = replace(result[bad], tensors=broken)
            except PFNMError as error:
                result[bad] = error
        return result

    return training


def test_a_site_that_sends_nan_is_left_out_and_named(tmp_path: Path) -> None:
    setting = replace(SMALL, methods=("pfnm", "fedavg"), rounds=3)
    rows = simulate(setting, tmp_path / "run", train=nan_at("site2", {2, 5}))
    pfnm = {row["round"]: row for row in rows if row["method"] == "pfnm"}
    assert pfnm[1]["left_out"] == {}
    assert "site2: tensor" in pfnm[2]["left_out"]["site2"]
    assert "NaN" in pfnm[2]["left_out"]["site2"]
    assert set(pfnm[2]["bytes_up"]) == {"site0", "site1", "site3"}
    assert pfnm[3]["left_out"] == {}
    assert set(pfnm[3]["bytes_down"]) == {f"site{j}" for j in range(4)}  # back at its own units
    assert all(row["accuracy"] > 0.3 for row in rows)


def test_half_of_the_sites_missing_one_late_and_some_lost(tmp_path: Path) -> None:
    setting = replace(
        SMALL, methods=("pfnm", "pfnm-joint", "fedavg", "dsgd"), rounds=4, fraction=0.5, sites=6
    )
    rows = simulate(setting, tmp_path / "run")
    assert all(len(row["bytes_up"]) == 3 for row in rows)
    assert len({tuple(row["bytes_up"]) for row in rows}) > 1
    late = replace(setting, fraction=1.0, joins={"site1": 3}, failures=0.3)
    rows = simulate(late, tmp_path / "late")
    there = {(row["method"], row["round"]): set(row["bytes_up"]) for row in rows}
    lost = {(row["method"], row["round"]): set(row["left_out"]) for row in rows}
    assert any(lost.values())
    for (method, number), sites in there.items():
        assert ("site1" in sites | lost[method, number]) == (number >= 3)
        assert not sites & lost[method, number]


def test_ours_goes_over_to_averaging_the_whole_network(tmp_path: Path) -> None:
    rows = simulate(replace(SMALL, methods=("pfnm-joint",), rounds=6), tmp_path / "run")
    whole = [4 * row["parameters"] for row in rows]  # bytes: weights are in single precision
    sent = [set(row["bytes_down"].values()) for row in rows]
    changed = next(number for number in range(1, 6) if sent[number] == {whole[number - 1]})
    assert changed >= 2  # nothing is known to gain or not before the second round
    assert all(sent[number] == {whole[number - 1]} for number in range(changed, 6))
    assert len({tuple(row["widths"]) for row in rows[changed - 1 :]}) == 1
    assert rows[-1]["accuracy"] > rows[0]["accuracy"]


def test_rounds_in_which_nobody_is_left_change_nothing(tmp_path: Path) -> None:
    setting = replace(SMALL, methods=("pfnm", "fedavg", "dsgd"), failures=0.99)
    rows = simulate(setting, tmp_path / "run")
    assert len(rows) == 9
    assert sum(len(row["left_out"]) for row in rows) >= 30
    assert all(row["bytes_up"] == {} for row in rows if len(row["left_out"]) == 4)


def test_one_site_with_broken_data_is_left_out_by_every_method(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(400, 2000)).astype(np.float32)
    y = (x[:, 0] > 0.5).astype(int)
    setting = replace(SMALL, data=str(tmp_path / "mine.npz"), split="even", rounds=2)
    np.savez(setting.data, x=x, y=y)
    whole = federation(setting, load_data(setting.data))
    # The examples of site2 become too large for any training.
    rows = whole.data.train_inputs[whole.parts["site2"]]
    x[np.isin(x[:, 0], rows[:, 0])] *= 3e38
    np.savez(setting.data, x=x, y=y)
    found = simulate(setting, tmp_path / "run")
    for row in found:
        assert set(row["left_out"]) == {"site2"}, row["method"]
        assert row["accuracy"] is not None
    assert {row["method"] for row in found} == set(FOR_PERCEPTRONS)


def test_divergence_leaves_a_site_out_by_itself(tmp_path: Path) -> None:
    setting = replace(SMALL, methods=("fedavg", "ensemble"), sgd_rate=1e12)
    rows = simulate(setting, tmp_path / "run")
    last = rows[-1]
    assert last["method"] == "fedavg"
    assert set(last["left_out"]) == {f"site{j}" for j in range(4)}
    assert last["accuracy"] is None
    with pytest.raises(PFNMError, match="no site could be trained"):
        simulate(replace(SMALL, learning_rate=1e30), tmp_path / "none")
    with pytest.raises(PFNMError, match="a budget of 5 units, a whole number"):
        simulate(replace(SMALL, budget=5), tmp_path / "narrow")
    assert not (tmp_path / "narrow").exists()


def test_what_is_wrong_with_a_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(PFNMError, match="there is no run in it"):
        resume(tmp_path)
    run = tmp_path / "run"
    simulate(replace(SMALL, methods=("local",)), run)
    with pytest.raises(PFNMError, match="there is a run already"):
        simulate(SMALL, run)
    description = json.loads((run / "run.json").read_text())
    replace(read_run(run), data_sha256="0").write(run)
    with pytest.raises(PFNMError, match="not what the run began with"):
        resume(run)
    (run / "run.json").write_text(json.dumps(description))
    with pytest.raises(PFNMError, match="began with the training"):
        resume(run, train=one_by_one(lambda network, *_: network))
    damages: list[tuple[dict[str, Any], str]] = [
        ({"threads": 0}, "was changed since"),
        ({"data_dir": 0}, "cannot be read"),
        ({"setting": "abc"}, "another version"),
        ({"setting": {**description["setting"], "seed": 1}}, "was changed since"),
        ({"setting": {**description["setting"], "sites": "x"}}, "cannot be read"),
        ({"setting": {**description["setting"], "hidden": 5}}, "cannot be read"),
    ]
    for damage, message in damages:
        (run / "run.json").write_text(json.dumps({**description, **damage}))
        with pytest.raises(PFNMError, match=message):
            resume(run)
    del description["setting"]["alpha"]
    (run / "run.json").write_text(json.dumps(description))
    with pytest.raises(PFNMError, match="another version of pfnm"):
        resume(run)
    for text in ("{", "[" * 100_000, "1", "\0"):
        (run / "run.json").write_text(text)
        with pytest.raises(PFNMError, match="cannot be read"):
            resume(run)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sites": 1}, "sites is 1, expected at least 2"),
        ({"fraction": 0.0}, "fraction must lie"),
        ({"joins": {"north": 2}}, "there is no north"),
        ({"hidden": ()}, "expected the width"),
        ({"learning_rate": -1.0}, "learning_rate is -1.0"),
        ({"weight_decay": float("nan")}, "weight_decay is nan"),
        ({"proximal": -1.0}, "proximal is -1.0"),
    ],
)
def test_settings_are_checked(change: dict[str, Any], message: str) -> None:
    with pytest.raises(PFNMError, match=message):
        replace(SMALL, **change)


KILLED = replace(
    SMALL,
    methods=("kmeans", "joint", "pfnm", "fedavg", "dsgd"),
    rounds=4,
    fraction=0.75,
    failures=0.1,
)


def begin_or_resume(folder: Path) -> None:
    if (folder / "run.json").exists():
        resume(folder)
    else:
        simulate(KILLED, folder)


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.long)])
def test_a_killed_run_resumes_to_the_same_result(tmp_path: Path, kills: int) -> None:
    begin = time.monotonic()
    status, errors = Forked(begin_or_resume, tmp_path / "whole").ended()
    assert status == 0, errors
    lasts = time.monotonic() - begin
    expected = read_rows(tmp_path / "whole")
    rng = np.random.default_rng(kills)
    killed, attempt, folder = 0, 0, tmp_path / "killed0"
    while True:
        child = Forked(begin_or_resume, folder)
        if killed < kills:
            child.process.join(lasts * rng.uniform(0.2, 0.9))
            if child.process.is_alive():
                child.kill()
                killed += 1
                continue
        status, errors = child.ended()
        assert status == 0, errors
        assert without_times(read_rows(folder)) == without_times(expected)
        for path in sorted((tmp_path / "whole" / "global").iterdir()):
            assert (folder / "global" / path.name).read_bytes() == path.read_bytes(), path.name
        assert not list(folder.rglob("*.tmp"))
        if killed >= kills:
            break
        attempt += 1
        folder = tmp_path / f"killed{attempt}"
    assert killed == kills


def test_a_run_goes_on_with_its_own_number_of_threads(tmp_path: Path) -> None:
    before = working.in_use()
    seen: list[dict[str, int]] = []
    setting = replace(SMALL, methods=("local",), epochs=1)
    simulate(setting, tmp_path, threads=3, on_row=lambda row: seen.append(working.in_use()))
    resume(tmp_path, on_row=lambda row: seen.append(working.in_use()))
    assert seen == [{"blas": 1, "torch": 3}] * 2
    assert working.in_use() == before


def test_a_second_process_in_a_folder_is_told_so(tmp_path: Path) -> None:
    simulate(replace(SMALL, methods=("local",), epochs=1), tmp_path)
    with locked(tmp_path):
        told = started("simulate", "--resume", tmp_path).ended()
    assert told == (2, f"pfnm: {tmp_path}: another process is at work in it; wait for it\n")
    resume(tmp_path)  # nobody is at work in it any more


def test_a_row_cut_short_and_rows_ahead_of_a_checkpoint_are_done_again(tmp_path: Path) -> None:
    setting = replace(SMALL, methods=("ensemble", "pfnm"))
    rows = simulate(setting, tmp_path / "run")
    metrics = tmp_path / "run" / "metrics.jsonl"
    ahead = json.dumps({**rows[-1], "round": 4, "accuracy": 0.0})
    metrics.write_text(metrics.read_text() + ahead + "\n" + ahead[:20])
    again = resume(tmp_path / "run")
    assert without_times(again) == without_times(rows)
    lines = metrics.read_text().splitlines()
    metrics.write_text("\n".join([lines[0], "1", "\xff", *lines[2:]]))  # a row is lost
    (tmp_path / "run" / "checkpoints" / ".left.0123abcd.tmp").write_text("of a killed process")
    again = resume(tmp_path / "run")
    assert without_times(again) == without_times(rows)
    assert not list((tmp_path / "run").rglob("*.tmp"))
    checkpoint = tmp_path / "run" / "checkpoints" / "method-pfnm.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    with pytest.raises(PFNMError, match="damaged"):
        resume(tmp_path / "run")
