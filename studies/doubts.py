"""What can be told of the sites' classes from their networks alone: how well, and how often wrong.

    PFNM_DATA=FOLDER python studies/doubts.py [--seeds 0 1] [--fuse]

Federations of many kinds (`federations.py`); for each, a row in results/doubts.jsonl: how well
several statistics rank the true class shares, what `class_doubts` says, and with --fuse what the
fusion is worth with no class counts, the true ones and estimated ones. `--table` prints the tables.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from federations import DATA, EVEN, SCENARIOS, UNEVEN, Federation, federation
from scipy.stats import spearmanr

import pfnm
from pfnm.fusing.doubts import (
    SHARPENING,
    class_doubts,
    estimated_shares,
    likeness,
    order_gains,
    probabilities,
    unevenness,
)
from pfnm.fusing.inputs import UNIT_RANGE, InputRange, Units
from pfnm.fusing.probes import Probing, probe
from pfnm.fusing.sites import Sites, comparable
from pfnm.lab.data import data_folder
from pfnm.networks.network import Array, Network
from pfnm.networks.perceptron import layers

RESULTS = Path(__file__).parents[1] / "results" / "doubts.jsonl"
PROBES = 1000


def statistics(sites: Sites, probing: Probing) -> dict[str, Array]:
    """What may tell the shares of classes, (J, K) each: of the last layer, or of answers."""
    tops = [layers(network)[-1] for network in sites.networks]
    answers = probabilities(sites, probing)
    logits = np.array(list(probing.outputs), dtype=float)
    said = answers.argmax(axis=1)
    classes = range(answers.shape[1])
    return {
        "bias": np.array([top.bias for top in tops]),
        "norm": np.array([np.linalg.norm(top.weight, axis=0) for top in tops]),
        "mean weight": np.array([top.weight.mean(axis=0) for top in tops]),
        "mean logit": logits.mean(axis=2),
        "deviation of logit": logits.std(axis=2),
        "answers": np.array([(said == k).mean(axis=1) for k in classes]).T,
        "mean probability": np.log(np.maximum(answers.mean(axis=2), 1e-12)),
    }


def ranked(values: Array, counts: Array, known: Any) -> float | None:
    """Rank correlation with the true log shares, both less site and class means."""
    shares = np.log((counts + 1) / counts.sum(axis=1, keepdims=True))
    if not known.all() or np.ptp(shares, axis=0).max() < 0.2:
        return None

    def centred(table: Array) -> Array:
        result: Array = table - table.mean(axis=1, keepdims=True)
        return np.ravel(result - result.mean(axis=0))

    return float(spearmanr(centred(values), centred(shares)).statistic)


def measured(found: Federation, within: InputRange, fused: bool) -> dict[str, Any]:
    """One row: the statistics' correlations, the doubts, and what fusions are worth."""
    sites = replace(comparable(found.networks), inputs=Units(within))
    probing = probe(sites, PROBES, np.random.default_rng(0))
    answers = probabilities(sites, probing, SHARPENING)
    gains = order_gains(likeness(answers))
    row: dict[str, Any] = {
        "sites": len(found.networks),
        "uneven": round(unevenness(answers.mean(axis=2), sites.known), 3),
        "gain": round(float(gains.max()), 3),
        "doubts": [doubt.kind for doubt in class_doubts(sites, probing)],
    }
    if found.scenario in UNEVEN:
        row["rank"] = {
            name: None if rho is None or np.isnan(rho) else round(rho, 3)
            for name, values in statistics(sites, probing).items()
            for rho in [ranked(values, found.counts, sites.known)]
        }
    if fused and found.scenario in EVEN + UNEVEN:
        row["accuracy"] = worth(found, sites, probing)
    return row


def worth(found: Federation, sites: Sites, probing: Probing) -> dict[str, float]:
    """The test accuracy of the best site, and of fusions by what is told of the shares."""
    x, y = found.data.test_inputs, found.data.test_labels

    def accuracy(network: Network) -> float:
        return round(float((network.run(x).argmax(axis=1) == y).mean()), 4)

    result = {"best site": max(accuracy(network) for network in sites.networks)}
    seen = np.where(sites.known, found.counts, 0)
    tables = {"none": None, "estimated": estimated_shares(sites, probing)}
    if (seen.sum(axis=0) > 0).all():
        tables["counts"] = seen
    for name, table in tables.items():
        ends = (found.within.low, found.within.high)
        fusion = pfnm.fuse(found.networks, class_counts=table, input_range=ends)
        result[name] = accuracy(fusion.network)
    return result


def run(work: Path, seeds: Sequence[int], names: Sequence[str], fused: bool) -> None:
    done = {(r["data"], r["scenario"], r["seed"], r["range"], "accuracy" in r) for r in rows()}
    with RESULTS.open("a") as file:
        for seed in seeds:
            for data in names:
                for scenario in SCENARIOS:
                    more = fused and scenario in EVEN + UNEVEN
                    if (data, scenario, seed, "told", more) in done:
                        continue
                    found = federation(data, scenario, seed, work)
                    if found is None:
                        continue
                    ranges = {"told": found.within}
                    if found.within is not UNIT_RANGE:
                        ranges["not told"] = UNIT_RANGE
                    for told, within in ranges.items():
                        key = {"data": data, "scenario": scenario, "seed": seed, "range": told}
                        row = measured(found, within, fused and told == "told")
                        file.write(json.dumps({**key, **row}) + "\n")
                    file.flush()


def rows() -> list[dict[str, Any]]:
    return (
        [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    )


def table() -> str:
    """How often there is a doubt; how statistics rank shares; what fusions are worth."""
    every = rows()
    lines = ["| scenario | federations | shares | labels | 5+ sites | shares | labels |"]
    lines.append("|---|" + "---|" * 6)
    for scenario in SCENARIOS:
        cells = []
        for least in (2, 5):
            own = [r for r in every if r["scenario"] == scenario and r["sites"] >= least]
            rates = [np.mean([kind in r["doubts"] for r in own]) for kind in ("shares", "labels")]
            cells += [str(len(own)), *(f"{100 * rate:.0f} %" for rate in rates)]
        lines.append(f"| {scenario} | " + " | ".join(cells) + " |")
    ranks = [r["rank"] for r in every if "rank" in r and r["rank"]["bias"] is not None]
    lines += ["", "| statistic | rank correlation, mean | lowest tenth |", "|---|---|---|"]
    for name in ranks[0]:
        values = [r[name] for r in ranks if r[name] is not None]
        lines.append(f"| {name} | {np.mean(values):.2f} | {np.quantile(values, 0.1):.2f} |")
    lines += ["", "| scenario | n | best site | none | estimated | counts | worst est. - none |"]
    lines.append("|---|" + "---|" * 6)
    for scenario in EVEN + UNEVEN:
        own = [r["accuracy"] for r in every if r["scenario"] == scenario and "accuracy" in r]
        own = [a for a in own if "counts" in a]
        if own:
            means = [
                f"{100 * np.mean([a[name] for a in own]):.1f}"
                for name in ("best site", "none", "estimated", "counts")
            ]
            worst = 100 * min(a["estimated"] - a["none"] for a in own)
            lines.append(f"| {scenario} | {len(own)} | {' | '.join(means)} | {worst:+.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="print the tables from the rows")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--data", nargs="+", default=DATA)
    parser.add_argument("--fuse", action="store_true", help="fuse too, which takes longer")
    parser.add_argument("--work", type=Path, default=data_folder() / "federations")
    arguments = parser.parse_args()
    if arguments.table:
        print(table())
    else:
        torch.set_num_threads(1)
        run(arguments.work, arguments.seeds, arguments.data, arguments.fuse)


if __name__ == "__main__":
    main()
