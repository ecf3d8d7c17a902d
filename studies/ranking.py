"""Does agreement rank fusions as test accuracy does? Over budgets, variances and seeds.

The networks of `deep.py`. Every fusion is written as it is measured, into
results/deep/ranking.jsonl; `--table` prints the table of docs/deep.md from the rows.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from networks import site_networks
from scipy.stats import spearmanr

import pfnm
from pfnm.lab.data import data_folder, load_data

ROWS = Path(__file__).parents[1] / "results" / "deep" / "ranking.jsonl"
SETS = (("even", 6), ("even", 3), ("dirichlet", 3), ("dirichlet", 1), ("authors", 3))
SEEDS = (0, 1, 2, 3, 4)
BUDGETS = (1.0, 1.3, 2.0, 4.0, None)
SPREADS = (1.0, 3.0, 10.0)

Row = dict[str, Any]


def rows() -> list[Row]:
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def run(work: Path, seeds: Sequence[int]) -> None:
    data = load_data("mnist")
    keys = ("split", "depth", "seed", "budget", "spread")
    done = {tuple(row[key] for key in keys) for row in rows()}
    for seed, (split, depth) in product(seeds, SETS):
        networks, counts = site_networks(data, split, depth, seed, work)
        for budget, spread in product(BUDGETS, SPREADS):
            if (split, depth, seed, budget, spread) in done:
                continue
            fusion = pfnm.fuse(networks, class_counts=counts, budget=budget, spread=spread)
            right = fusion.network.run(data.test_inputs).argmax(axis=1) == data.test_labels
            row = {
                **dict(zip(keys, (split, depth, seed, budget, spread), strict=True)),
                "accuracy": float(100 * right.mean()),
                "agreement": fusion.agreement,
                "site_agreement": fusion.site_agreement,
            }
            with ROWS.open("a") as file:
                file.write(json.dumps(row) + "\n")
        print(split, depth, seed, flush=True)


def table() -> str:
    """Spearman's rank correlation over all seeds together, and within each, on average."""
    lines = ["| networks | fusions | all seeds | within a seed |", "|---|---|---|---|"]
    found = rows()
    for split, depth in SETS:
        own = [r for r in found if (r["split"], r["depth"]) == (split, depth)]
        within = [_rank([r for r in own if r["seed"] == seed]) for seed in SEEDS]
        lines.append(
            f"| {split}, {depth} layers | {len(own)} | {_rank(own):.3f} | {np.mean(within):.3f} |"
        )
    return "\n".join(lines)


def _rank(own: Sequence[Row]) -> float:
    result = spearmanr([r["agreement"] for r in own], [r["accuracy"] for r in own])
    return float(result.statistic)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="print the table from the rows")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="only these")
    parser.add_argument("--work", type=Path, default=data_folder() / "deep-networks")
    arguments = parser.parse_args()
    if arguments.table:
        print(table())
    else:
        run(arguments.work, arguments.seeds)


if __name__ == "__main__":
    main()
