"""Polish in the deep study: fused and polished, at one and two sites' width.

The networks of `deep.py`. Every cell is written as it is measured, into results/deep/polish.jsonl;
`--table` prints the table of docs/deep.md from the rows.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from networks import site_networks

import pfnm
from pfnm.core.mlp import forward, probabilities
from pfnm.core.network import Network
from pfnm.federated.data import Data, data_folder, load_data

ROWS = Path(__file__).parents[1] / "results" / "deep" / "polish.jsonl"
CELLS = (("even", 6), ("even", 3), ("dirichlet", 3), ("dirichlet", 1))
BUDGETS = (1.0, 2.0)
SEEDS = (0, 1, 2, 3, 4)


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def run(work: Path, seeds: Sequence[int], data: Data) -> None:
    done = {(r["split"], r["depth"], r["seed"], r["budget"]) for r in rows()}
    x, y = data.test_inputs, data.test_labels

    def accuracy(network: Network) -> float:
        return float(100 * (forward(network, x).argmax(axis=1) == y).mean())

    for seed in seeds:
        for split, depth in CELLS:
            networks, counts = site_networks(data, split, depth, seed, work)
            mean = np.mean([probabilities(network, x) for network in networks], axis=0)
            ensemble = float(100 * (mean.argmax(axis=1) == y).mean())
            for budget in BUDGETS:
                if (split, depth, seed, budget) in done:
                    continue
                fused = pfnm.fuse(networks, class_counts=counts, budget=budget)
                begin = time.perf_counter()
                polished = pfnm.polish(fused, networks, class_counts=counts)
                row = {
                    **{"split": split, "depth": depth, "seed": seed, "budget": budget},
                    "ensemble": ensemble,
                    "fused": accuracy(fused.network),
                    "polished": accuracy(polished.network),
                    "kept": polished.network.metadata["polish"]["kept"],
                    "seconds": time.perf_counter() - begin,
                }
                with ROWS.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(row, flush=True)


def table() -> str:
    """Points against the uniform ensemble of the same networks, mean over seeds."""
    heads = [f"{b:g}x {what}" for b in BUDGETS for what in ("fused", "polished")]
    lines = ["| | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
    for split, depth in CELLS:
        cells = []
        for budget in BUDGETS:
            own = [
                r for r in rows() if (r["split"], r["depth"], r["budget"]) == (split, depth, budget)
            ]
            for what in ("fused", "polished"):
                cells.append(f"{np.mean([r[what] - r['ensemble'] for r in own]):+.2f}")
        lines.append(f"| {split}, {depth} layers | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="print the table from the rows")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="only these")
    parser.add_argument("--work", type=Path, default=data_folder() / "deep-networks")
    arguments = parser.parse_args()
    if arguments.table:
        print(table())
    else:
        run(arguments.work, arguments.seeds, load_data("mnist"))


if __name__ == "__main__":
    main()
