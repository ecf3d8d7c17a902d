"""Fused pipelines beside their sites, on splits of scikit-learn's small tables.

    python studies/pipelines.py --seeds 20 > results/pipelines.csv

The best of three sites is found in two ways: on the very rows all are judged by, which flatters
it, and on the other half of the rows held out, as somebody who has to choose one would.
"""

from __future__ import annotations

import argparse
import csv
import sys
import warnings
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pfnm

DATA = {"wine": load_wine, "breast cancer": load_breast_cancer}
SPLITS = ("location", "dirichlet 1.0", "dirichlet 0.5")
SITES = 3
LEAST_ROWS = 8  # of a site; fewer are no site
FIRST_SEED = 1000  # none that a constant of the method was looked at on


def parts(split: str, rows: np.ndarray, target: np.ndarray, rng: np.random.Generator) -> list[Any]:
    """The rows of each site, two classes at least everywhere."""
    if split == "location":
        standard = (rows - rows.mean(axis=0)) / rows.std(axis=0)
        along = standard @ rng.normal(size=rows.shape[1])
        order = np.argsort(along + along.std() * rng.normal(size=len(rows)) / 2)
        return list(np.split(order, [len(order) // 4, len(order) * 3 // 5]))
    alpha = float(split.split()[1])
    while True:
        site = np.empty(len(rows), dtype=int)
        for label in np.unique(target):
            of_class = np.flatnonzero(target == label)
            site[of_class] = rng.choice(SITES, len(of_class), p=rng.dirichlet([alpha] * SITES))
        found = [np.flatnonzero(site == j) for j in range(SITES)]
        if all(len(f) >= LEAST_ROWS and len(set(target[f])) > 1 for f in found):
            return found


def trial(data: str, split: str, seed: int) -> dict[str, Any]:
    """One federation: accuracies on the rows held out, and on the half nobody chose by."""
    rng = np.random.default_rng(seed)
    rows, held, target, answers = train_test_split(
        *DATA[data](return_X_y=True), test_size=0.4, random_state=seed
    )
    sites, counts = [], []
    for j, mine in enumerate(parts(split, rows, target, rng)):
        site = make_pipeline(StandardScaler(), MLPClassifier((20,), max_iter=200, random_state=j))
        sites.append(site.fit(rows[mine], target[mine]))
        counts.append(np.bincount(target[mine], minlength=target.max() + 1))
    fusion = pfnm.fuse(sites, class_counts=counts)
    right = [model.predict(held) == answers for model in (*sites, fusion.model)]
    mix = rng.permutation(len(held))
    chosen_by, judged_by = mix[: len(mix) // 2], mix[len(mix) // 2 :]
    picked = max(range(SITES), key=lambda j: right[j][chosen_by].mean())
    return {
        "data": data,
        "split": split,
        "seed": seed,
        "mean_site": np.mean([r.mean() for r in right[:SITES]]),
        "best_site": max(r.mean() for r in right[:SITES]),
        "fused": right[SITES].mean(),
        "picked_site": right[picked][judged_by].mean(),
        "fused_same_rows": right[SITES][judged_by].mean(),
    }


def main() -> None:
    """Write a row a federation, and the means to standard error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", pfnm.PFNMWarning)
    writer: csv.DictWriter[str] | None = None
    for data in DATA:
        for split in SPLITS:
            rows = []
            for seed in range(FIRST_SEED, FIRST_SEED + seeds):
                rows.append(trial(data, split, seed))
                if writer is None:
                    writer = csv.DictWriter(sys.stdout, rows[0], lineterminator="\n")
                    writer.writeheader()
                writer.writerow(rows[-1])
                sys.stdout.flush()
            means = {name: np.mean([r[name] for r in rows]) for name in list(rows[0])[3:]}
            told = ", ".join(f"{name} {100 * mean:.1f}" for name, mean in means.items())
            print(f"{data}, {split}: {told}", file=sys.stderr)


if __name__ == "__main__":
    main()
