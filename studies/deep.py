"""The deep study: how good fusions of deep networks are, without data, at several budgets.

MNIST, 10 sites, hidden layers of 100 units, the paper's local training; both splits; defaults only;
the fusions see the networks and the class counts. Every cell is written as it is measured, so an
interrupted study goes on where it stopped. `python studies/deep.py` runs it into
results/deep/rows.jsonl; with `--table` it prints the tables of docs/deep.md from the rows.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from networks import SITES, SPLITS, site_networks

import pfnm
from pfnm.lab.baselines import naive_average
from pfnm.lab.data import Data, data_folder, load_data
from pfnm.networks.network import Array, Network
from pfnm.networks.outputs import probabilities

RESULTS = Path(__file__).parents[1] / "results" / "deep"
DEPTHS = (3, 6, 1, 2, 4)
SEEDS = (0, 1, 2, 3, 4)
BUDGETS: tuple[float | None, ...] = (1.0, 1.3, 2.0, 4.0, None)
WHOLE = (1, 2, 4)  # so many sites kept whole, side by side


def cells(
    networks: Sequence[Network], counts: Array, data: Data
) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """The name of each thing to measure, and how."""
    x, y = data.test_inputs, data.test_labels

    def accuracy(outputs: Any) -> float:
        return float(100 * (outputs.argmax(axis=1) == y).mean())

    def of(network: Network) -> dict[str, Any]:
        return {"accuracy": accuracy(network.run(x)), "parameters": network.parameters}

    def fused(**options: Any) -> dict[str, Any]:
        start = time.perf_counter()
        fusion = pfnm.fuse(networks, class_counts=counts, **options)
        seconds = time.perf_counter() - start
        return {
            **of(fusion.network),
            "widths": list(fusion.widths.values()),
            "agreement": fusion.agreement,
            "site_agreement": fusion.site_agreement,
            "seconds": seconds,
        }

    def local() -> dict[str, Any]:
        found = [of(network)["accuracy"] for network in networks]
        return {"accuracy": float(np.mean(found)), "parameters": networks[0].parameters}

    def ensemble(weights: Array) -> dict[str, Any]:
        total = sum(w * probabilities(n, x) for w, n in zip(weights, networks, strict=True))
        size = sum(network.parameters for network in networks)
        return {"accuracy": accuracy(total), "parameters": size}

    def whole(number: int) -> dict[str, Any]:
        """The sites with most examples: their networks side by side, outputs added."""
        largest = np.argsort(-counts.sum(axis=1), kind="stable")[:number]
        total = sum(networks[j].run(x) for j in largest)
        return {"accuracy": accuracy(total), "parameters": number * networks[0].parameters}

    yield "local mean", local
    yield "uniform ensemble", lambda: ensemble(np.full((SITES, 1), 1 / SITES))
    yield "class-weighted ensemble", lambda: ensemble(counts / counts.sum(axis=0))
    yield "naive average", lambda: of(naive_average(networks))
    yield "topdown", lambda: fused(method="topdown")
    for number in WHOLE:
        yield f"{number} whole", lambda number=number: whole(number)  # type: ignore[misc]
    for budget in BUDGETS:
        name = "joint none" if budget is None else f"joint {budget:g}x"
        yield name, lambda budget=budget: fused(budget=budget)  # type: ignore[misc]


def run(work: Path, seeds: Sequence[int]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / "rows.jsonl"
    done = {(r["split"], r["depth"], r["seed"], r["method"]) for r in rows()}
    data = load_data("mnist")
    with path.open("a") as file:
        for seed in seeds:
            for depth in DEPTHS:
                for split in SPLITS:
                    networks, counts = site_networks(data, split, depth, seed, work)
                    for method, measure in cells(networks, counts, data):
                        if (split, depth, seed, method) in done:
                            continue
                        key = {"split": split, "depth": depth, "seed": seed, "method": method}
                        file.write(json.dumps({**key, **measure()}) + "\n")
                        file.flush()
                    print(split, depth, seed, flush=True)


def rows() -> list[dict[str, Any]]:
    path = RESULTS / "rows.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table() -> str:
    """Points above or below the uniform ensemble of the same networks, mean over seeds."""
    found = rows()
    methods = list(dict.fromkeys(row["method"] for row in found))
    lines = []
    for split in SPLITS:
        depths = sorted({row["depth"] for row in found})
        lines.append(f"| {split} | " + " | ".join(f"{d} layers" for d in depths) + " |")
        lines.append("|---|" + "---|" * len(depths))
        for method in methods:
            texts = [_cell(found, split, depth, method) for depth in depths]
            lines.append(f"| {method} | " + " | ".join(texts) + " |")
        lines.append("")
    return "\n".join(lines)


def _cell(found: Sequence[dict[str, Any]], split: str, depth: int, method: str) -> str:
    def values(name: str) -> dict[int, float]:
        key = (split, depth, name)
        return {
            r["seed"]: r["accuracy"] for r in found if (r["split"], r["depth"], r["method"]) == key
        }

    own, reference = values(method), values("uniform ensemble")
    if not own:
        return ""
    if method == "uniform ensemble":
        return f"{np.mean(list(own.values())):.1f} %"
    difference = [accuracy - reference[seed] for seed, accuracy in own.items()]
    return f"{np.mean(difference):+.1f}"


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
