"""Which tells mismatches better: margins, or how often units stay together in samples?

Shuffled noisy copies of the units of a trained network, of which the truth is known, matched as a
fusion matches them, at the true width and at one site's. Measured: how probable it is that a unit
with the wrong ones looks less sure than one with the right ones (0.5 is chance), and the processor
time. Into results/confidence.jsonl; `--table` prints the means.
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
from scipy.stats import rankdata

from pfnm.lab.data import data_folder, load_data
from pfnm.matching.confidence import confidence
from pfnm.matching.evidence import moments
from pfnm.matching.matching import match
from pfnm.matching.prior import Prior
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array, BoolArray, Network
from pfnm.networks.perceptron import layers

PATH = Path(__file__).parents[1] / "results" / "confidence.jsonl"
SITES = 6
NOISES = (1.5, 2.0, 2.5, 3.0)  # of the weights' deviation
SEEDS = (0, 1, 2)


def units_of(network: Network) -> Array:
    first, second = layers(network)
    assert first.bias is not None
    return np.concatenate([first.weight.T, first.bias[:, None], second.weight], axis=1).astype(
        float
    )


def margins(atoms: Sequence[Array], assignments: Sequence[IntArray], width: int) -> Array:
    """What a unit would lose, in log evidence, in its second best place: (units of all sites,)."""
    sites, columns = len(atoms), atoms[0].shape[1]
    site, between, mass = moments(assignments, atoms, np.ones((sites, columns)))
    assert site is not None
    p, p_0 = 1 / site, 1 / between
    sums, members = np.zeros((width, columns)), np.zeros(width)
    for own, places in zip(atoms, assignments, strict=True):
        sums[places] += p * own
        members[places] += 1
    found = []
    for own, places in zip(atoms, assignments, strict=True):
        others, m = sums.copy(), members.copy()
        others[places] -= p * own
        m[places] -= 1
        seen = p_0 + m * p
        square = np.square(others).sum(axis=1)
        joint = np.square(p * own).sum(axis=1)[:, None] + 2 * p * own @ others.T + square
        with np.errstate(divide="ignore"):
            score = joint / (seen + p) - square / seen + 2 * np.log(m / (sites - m))
        score -= columns * np.log1p(p / seen)
        new = np.square(p * own).sum(axis=1) / (p + p_0) - columns * np.log1p(p / p_0)
        new += 2 * np.log(mass / sites)
        rows = np.arange(len(own))
        alone = m[places] == 0
        here = np.where(alone, new, score[rows, places])
        score[rows, places] = -np.inf
        rival = np.maximum(score.max(axis=1), np.where(alone, -np.inf, new))
        found.append((here - rival) / 2)
    return np.concatenate(found)


def told_apart(sure: Array, wrong: BoolArray) -> float:
    ranks, count = rankdata(sure)[wrong], int(wrong.sum())
    pairs = count * int((~wrong).sum())
    return 1 - float(ranks.sum() - count * (count + 1) / 2) / pairs


def measured(networks: Sequence[Network], noise: float, kind: str, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    pool = units_of(networks[0])
    units = 100
    if kind != "copies":  # sites that share some of their units
        pool, units = np.concatenate([pool, units_of(networks[1])[:50]]), 70
    orders = [rng.permutation(len(pool))[:units] for _ in range(SITES)]
    atoms = [pool[o] + noise * pool.std() * rng.normal(size=(units, pool.shape[1])) for o in orders]
    scale = float(np.mean([own.var() for own in atoms]))
    limit = units if kind == "parts, one site's width" else len(pool)
    prior = Prior(prior_variance=30 * scale, site_variance=3 * scale)
    matching = match(atoms, prior, sweeps=3, width_limit=limit)
    truth, places = np.concatenate(orders), np.concatenate(matching.assignments)
    usual = np.array([np.bincount(truth[places == i]).argmax() for i in range(matching.width)])
    wrong = usual[places] != truth
    row: dict[str, Any] = {"wrong": float(wrong.mean())}
    begun = time.process_time()
    row["margins"] = told_apart(margins(atoms, matching.assignments, matching.width), wrong)
    row["margin_seconds"] = time.process_time() - begun
    begun = time.process_time()
    weights, mean = np.ones((SITES, pool.shape[1])), np.zeros(pool.shape[1])
    drawn = confidence(atoms, matching.assignments, weights, mean, rng=rng)
    row["samples"] = told_apart(np.concatenate(drawn), wrong)
    row["sample_seconds"] = time.process_time() - begun
    return row


def run(work: Path) -> None:
    networks, _ = site_networks(load_data("mnist"), "even", 1, 0, work)
    with PATH.open("w") as file:
        for noise in NOISES:
            for kind in ("copies", "parts", "parts, one site's width"):
                for seed in SEEDS:
                    key = {"noise": noise, "kind": kind, "seed": seed}
                    row = measured(networks, noise, kind, seed)
                    file.write(json.dumps({**key, **row}) + "\n")


def table() -> str:
    rows = [json.loads(line) for line in PATH.read_text().splitlines()]
    lines = ["| | noise | wrong | margins | samples |", "|---|---|---|---|---|"]
    for kind, noise in dict.fromkeys((row["kind"], row["noise"]) for row in rows):
        own = [row for row in rows if (row["kind"], row["noise"]) == (kind, noise)]
        cells = [np.mean([row[name] for row in own]) for name in ("wrong", "margins", "samples")]
        lines.append(f"| {kind} | {noise} | {cells[0]:.0%} | {cells[1]:.2f} | {cells[2]:.2f} |")
    means = [np.mean([row[name] for row in rows]) for name in ("margins", "samples")]
    lines.append(f"| all | | | {means[0]:.3f} | {means[1]:.3f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="print the table from the rows")
    parser.add_argument("--work", type=Path, default=data_folder() / "deep-networks")
    arguments = parser.parse_args()
    print(table()) if arguments.table else run(arguments.work)


if __name__ == "__main__":
    main()
