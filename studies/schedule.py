"""Rounds of ours, which match and then average, beside those of FedAvg and PFNM (results/rounds).

    PFNM_DATA=FOLDER python studies/schedule.py RUNS [--trials 1] [--data mnist] [--splits even]

A row for each round in results/schedule.csv, as it ends; RUNS is a folder for the runs, which go on
where they stopped. `--table` prints them beside FedAvg and PFNM of the same trials, and draws them
(results/schedule.png).
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pfnm.experiments.trials import UNITS
from pfnm.lab.records import Row
from pfnm.lab.runs import resume, simulate
from pfnm.lab.setting import Setting, paper_training

RESULTS = Path(__file__).parents[1] / "results"
TABLE = RESULTS / "schedule.csv"
METHOD = "pfnm-joint"
SITES = 25
ROUNDS = {"even": 20, "authors": 50}  # as in results/rounds
CASE = ("data", "split", "depth", "trial", "budget")
FOUND = ("round", "accuracy", "widths", "megabytes_up", "megabytes_down")
RIVALS = {"fedavg": "FedAvg", "pfnm": "PFNM"}
Panel = tuple[str, str, str]
"""Data set, split, hidden layers."""
OURS = ("ours, 2x", "ours, 1x")
STYLES: Mapping[str, Mapping[str, Any]] = {
    "ours, 2x": {"color": "#009E73"},
    "ours, 1x": {"color": "#009E73", "ls": "--"},
    "FedAvg": {"color": "#E69F00"},
    "PFNM": {"color": "#0072B2"},
}
PANEL = 3.1  # inches
RESOLUTION = 130
WEIGHT_BYTES = 4
SHOWN = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 40, 50)
MEGABYTE = 1e6


def main() -> None:
    """All cases, those that are done already left out."""
    options = arguments()
    torch.set_num_threads(1)
    if options.table:
        print(table())
        figure(TABLE.with_suffix(".png"))
        return
    for trial, depth, split, budget in product(
        range(options.trials), options.depths, options.splits, options.budgets
    ):
        case = dict(zip(CASE, (options.data, split, depth, trial, budget), strict=True))
        run(case, options)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="?", default=Path("schedule-runs"))
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--splits", nargs="+", choices=ROUNDS, default=list(ROUNDS))
    parser.add_argument("--depths", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--budgets", type=float, nargs="+", default=[2.0, 1.0])
    parser.add_argument("--table", action="store_true")
    return parser.parse_args()


def run(case: Mapping[str, Any], options: argparse.Namespace) -> None:
    setting = Setting(
        data=case["data"],
        sites=SITES,
        split=case["split"],
        hidden=(UNITS,) * case["depth"],
        budget=case["budget"],
        methods=(METHOD,),
        rounds=ROUNDS[case["split"]],
        seed=case["trial"],
        **paper_training(case["data"]),
    )
    folder = options.runs / "-".join(map(str, case.values()))
    folder.parent.mkdir(parents=True, exist_ok=True)

    def on_row(row: Row) -> None:
        keep(case, row)

    if (folder / "run.json").exists():
        resume(folder, on_row=on_row)
    else:
        simulate(setting, folder, threads=1, on_row=on_row)


def keep(case: Mapping[str, Any], row: Row) -> None:
    """Write a round's row, if it is not there yet."""
    up, down = (sum(row[key].values()) / MEGABYTE for key in ("bytes_up", "bytes_down"))
    widths = " ".join(map(str, row["widths"]))
    found = (row["round"], row["accuracy"], widths, f"{up:.2f}", f"{down:.2f}")
    own = {**case, **dict(zip(FOUND, found, strict=True))}
    known = {tuple(other[key] for key in (*CASE, "round")) for other in rows(TABLE)}
    if tuple(str(own[key]) for key in (*CASE, "round")) in known:
        return
    new = not TABLE.exists()
    with TABLE.open("a", newline="") as file:
        writer = csv.DictWriter(file, (*CASE, *FOUND), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(own)


def rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def series() -> dict[Panel, dict[str, list[dict[str, str]]]]:
    """By panel and title: rows of ours, and of its rivals in the same trials and rounds."""
    ours, theirs = rows(TABLE), rows(RESULTS / "rounds" / "rows.csv")
    found: dict[Panel, dict[str, list[dict[str, str]]]] = {}
    for row in ours:
        title = f"ours, {float(row['budget']):g}x"
        found.setdefault(panel_of(row), {}).setdefault(title, []).append(row)
    for panel, own in found.items():
        trials = {row["trial"] for some in own.values() for row in some}
        for method, title in RIVALS.items():
            own[title] = [
                row
                for row in theirs
                if panel_of(row) == panel and row["method"] == method and row["trial"] in trials
            ]
    return found


def panel_of(row: Mapping[str, str]) -> Panel:
    return row["data"], row["split"], row["depth"]


def table() -> str:
    """Means over the trials that ours has, in %, and megabytes up and down in a round."""
    lines = ["| data, split, layers | method | trials | MB a round | " + _joined(SHOWN)]
    lines.append("|---|---|---|---|" + "---|" * len(SHOWN))
    for panel, methods in series().items():
        for title, found in methods.items():
            trials = len({row["trial"] for row in found})
            means = (_mean(found, number) for number in SHOWN)
            said = f"| {', '.join(panel)} | {title} | {trials} | {_megabytes(panel, found)} | "
            lines.append(said + _joined(means))
    return "\n".join(lines)


def _joined(values: Iterable[Any]) -> str:
    return " | ".join(map(str, values)) + " |"


def _mean(found: list[dict[str, str]], number: int) -> str:
    values = [float(r["accuracy"]) for r in found if r["round"] == str(number)]
    return f"{100 * np.mean(values):.2f}" if values else ""


def _megabytes(panel: Panel, found: list[dict[str, str]]) -> str:
    """Of all sites, in the last round there is."""
    last = max(found, key=lambda row: int(row["round"]))
    if "megabytes_up" in last:
        return f"{float(last['megabytes_up']) + float(last['megabytes_down']):.0f}"
    (site,) = {  # FedAvg's network is as large as a site's, which is what sites of PFNM send
        int(row["parameters"])
        for row in rows(RESULTS / "rounds" / "rows.csv")
        if panel_of(row) == panel and row["method"] == "fedavg"
    }
    return f"{2 * SITES * WEIGHT_BYTES * site / MEGABYTE:.0f}"


def figure(path: Path) -> None:
    """Accuracy by round, a panel for each data set, split and depth that ours has rows of."""
    from matplotlib.figure import Figure

    found = series()
    drawing = Figure(figsize=(PANEL * len(found), PANEL), layout="constrained")
    grid = drawing.subplots(1, len(found), squeeze=False)
    for axes, (panel, methods) in zip(grid[0], found.items(), strict=True):
        measured = max(int(r["round"]) for name in methods if name in OURS for r in methods[name])
        for title, own in methods.items():
            numbers = sorted({int(r["round"]) for r in own if int(r["round"]) <= measured})
            means = [float(_mean(own, number)) for number in numbers]
            axes.plot(numbers, means, label=title, **STYLES.get(title, {}))
        data, split, depth = panel
        trials = len({r["trial"] for name in methods if name in OURS for r in methods[name]})
        axes.set_title(f"{data}, {split}, {depth} hidden, {trials} trial(s)", fontsize=9)
        axes.set_xlabel("round")
        axes.grid(alpha=0.3)
    grid[0, 0].set_ylabel("test accuracy (%)")
    grid[0, 0].legend(fontsize=8)  # the first panel has all methods
    drawing.savefig(path, dpi=RESOLUTION)


if __name__ == "__main__":
    main()
