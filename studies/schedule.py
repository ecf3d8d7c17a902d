"""Rounds of ours, which match and then average, beside those of FedAvg and PFNM (results/rounds).

    PFNM_DATA=FOLDER python studies/schedule.py RUNS [--trials 1] [--rounds 20] [--data mnist]

A row for each round in results/schedule.csv, as it ends; RUNS is a folder for the runs, which go on
where they stopped. `--table` prints them beside FedAvg and PFNM of the same trials.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Mapping
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
CASE = ("data", "split", "depth", "trial", "budget")
FOUND = ("round", "accuracy", "widths", "megabytes_up", "megabytes_down")
RIVALS = ("fedavg", "pfnm")
SHOWN = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 40, 50)
MEGABYTE = 1e6


def main() -> None:
    """All cases, those that are done already left out."""
    options = arguments()
    torch.set_num_threads(1)
    if options.table:
        print(table())
        return
    for depth, trial, split, budget in product(
        options.depths, range(options.trials), ("authors", "even"), options.budgets
    ):
        case = dict(zip(CASE, (options.data, split, depth, trial, budget), strict=True))
        run(case, options)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="?", default=Path("schedule-runs"))
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
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
        rounds=options.rounds,
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


def table() -> str:
    """Means over the trials that ours has, rival by rival."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    ours, theirs = rows(TABLE), rows(RESULTS / "rounds" / "rows.csv")
    panels = list(dict.fromkeys((r["data"], r["split"], r["depth"]) for r in ours))
    yield "| data, split, layers | method | trials | " + " | ".join(map(str, SHOWN)) + " |"
    yield "|---|---|---|" + "---|" * len(SHOWN)
    for panel in panels:
        own = [r for r in ours if (r["data"], r["split"], r["depth"]) == panel]
        trials = {r["trial"] for r in own}
        series = {
            f"ours, {float(budget):g}x": [r for r in own if r["budget"] == budget]
            for budget in dict.fromkeys(r["budget"] for r in own)
        }
        for name in RIVALS:
            series[name] = [
                r
                for r in theirs
                if (r["data"], r["split"], r["depth"]) == panel
                and r["method"] == name
                and r["trial"] in trials
            ]
        for name, found in series.items():
            yield f"| {', '.join(panel)} | {name} | {len({r['trial'] for r in found})} | " + (
                " | ".join(_mean(found, number) for number in SHOWN) + " |"
            )


def _mean(found: list[dict[str, str]], number: int) -> str:
    values = [float(r["accuracy"]) for r in found if r["round"] == str(number)]
    return f"{100 * np.mean(values):.2f}" if values else ""


if __name__ == "__main__":
    main()
