"""Polish in the deep study: fused and polished, beside what a user could do instead.

The networks of `deep.py`, and the same on the authors' split, on CIFAR-10 and on digits. Every cell
is written as it is measured, into results/deep/polish.jsonl; `--table` prints the tables of
docs/deep.md from the rows. What stands beside polish has the same size and the same training: from
random weights ("scratch"), from as many of the largest sites as fit side by side ("largest"), and
those kept whole without training ("whole").
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from networks import side_by_side, site_networks

import pfnm
from pfnm.fusing.probes import said_together
from pfnm.fusing.sites import comparable
from pfnm.lab.data import Data, data_folder, load_data
from pfnm.lab.training import Recipe, initial_network
from pfnm.networks.network import Network
from pfnm.networks.outputs import probabilities

ROWS = Path(__file__).parents[1] / "results" / "deep" / "polish.jsonl"
CELLS = {
    "mnist": [
        *(("even", 6), ("even", 3), ("dirichlet", 3), ("dirichlet", 1)),
        *(("authors", 3), ("authors", 1)),
    ],
    "cifar10": [(split, depth) for split in ("even", "authors") for depth in (1, 3)],
    "digits": [(split, depth) for split in ("even", "authors") for depth in (1, 3)],
}
SEEDS = {"mnist": (0, 1, 2, 3, 4), "cifar10": (0,), "digits": (0,)}
BUDGETS = (1.0, 2.0)
SHOWN = ("fused", "polished", "scratch", "largest", "whole")

Row = dict[str, Any]


def rows() -> list[Row]:
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def run(work: Path, name: str, seeds: Sequence[int]) -> None:
    data = load_data(name)
    done = {(r["data"], r["split"], r["depth"], r["seed"], r["budget"]) for r in rows()}
    for seed in seeds:
        for split, depth in CELLS[name]:
            for budget in BUDGETS:
                key = {"data": name, "split": split, "depth": depth, "seed": seed, "budget": budget}
                if tuple(key.values()) in done:
                    continue
                row = {**key, **measured(data, name, split, depth, seed, int(budget), work)}
                with ROWS.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(row, flush=True)


def measured(
    data: Data, name: str, split: str, depth: int, seed: int, times: int, work: Path
) -> Row:
    networks, counts = site_networks(data, split, depth, seed, work, name)
    x, y = data.test_inputs, data.test_labels
    sites = comparable(networks, counts)

    def right(outputs: Any) -> float:
        return float(100 * (outputs.argmax(axis=1) == y).mean())

    def of(network: Network) -> float:
        return right(network.run(x))

    outputs = [probabilities(network, x) for network in networks]
    shares = sites.class_shares[:, None]
    fused = pfnm.fuse(networks, class_counts=counts, budget=float(times))
    begin = time.perf_counter()
    polished = fused.polish()
    seconds = time.perf_counter() - begin
    by_size = np.argsort(-counts.sum(axis=1), kind="stable")[:times]
    whole = side_by_side([sites.networks[j] for j in by_size])
    recipe = Recipe(hidden=tuple(fused.widths.values()))
    scratch = initial_network(x.shape[1], counts.shape[1], recipe, np.random.default_rng(seed))
    others = {
        what: replace(fused, network=start).polish().network
        for what, start in (("scratch", scratch), ("largest", whole))
    }
    return {
        "ensemble": right(np.mean(outputs, axis=0)),
        "weighted": right((shares * outputs).sum(axis=0)),
        "together": right(said_together(sites, [n.run(x).T for n in networks]).T),
        "fused": of(fused.network),
        "polished": of(polished.network),
        **{what: of(network) for what, network in others.items()},
        "whole": of(whole),
        "agreement_fused": fused.agreement,
        "agreement_polished": polished.agreement,
        "kept": polished.polish_record is not None and polished.polish_record.kept,
        "seconds": seconds,
    }


def table(names: Iterable[str]) -> str:
    """Points against the uniform ensemble of the same networks, mean over seeds."""
    heads = ["", "uniform", "weighted", "together"]
    heads += [f"{budget:g}x {what}" for budget in BUDGETS for what in SHOWN]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    found = rows()
    for name in names:
        for split, depth in CELLS[name]:
            own = [r for r in found if (r["data"], r["split"], r["depth"]) == (name, split, depth)]
            cells = [f"{np.mean([r['ensemble'] for r in own]):.1f} %"]
            cells += [_points(own, what) for what in ("weighted", "together")]
            for budget in BUDGETS:
                at = [r for r in own if r["budget"] == budget]
                cells += [_points(at, what) for what in SHOWN]
            lines.append(f"| {name} {split}, {depth} layers | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _points(own: Sequence[Row], what: str) -> str:
    return f"{np.mean([r[what] - r['ensemble'] for r in own]):+.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="print the table from the rows")
    parser.add_argument("--data", nargs="+", default=list(CELLS), help="only these")
    parser.add_argument("--seeds", type=int, nargs="+", help="only these")
    parser.add_argument("--work", type=Path, default=data_folder() / "deep-networks")
    arguments = parser.parse_args()
    if arguments.table:
        print(table(arguments.data))
    else:
        for name in arguments.data:
            run(arguments.work, name, arguments.seeds or SEEDS[name])


if __name__ == "__main__":
    main()
