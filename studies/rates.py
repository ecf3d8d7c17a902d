"""Which rate FedAvg's SGD should have on each data set: chosen on the training data.

    PFNM_DATA=FOLDER python studies/rates.py [mnist] [cifar10]

One round of the paper's local training with every rate, from a shared start; a row each in
results/rates.csv, written as it comes. `paper_training` holds what was chosen; the experiments
choose again in every trial, from those that were best here.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import torch

from pfnm.experiments.trials import UNITS
from pfnm.lab.data import Data, load_data
from pfnm.lab.method import Local, State, accuracy
from pfnm.lab.methods import METHODS
from pfnm.lab.setting import Setting, federation, paper_training

RATES = {  # at the last, training comes to little or nothing
    "mnist": (0.003, 0.01, 0.03, 0.1, 0.3, 0.6, 1.0),
    "cifar10": (0.003, 0.01, 0.03, 0.1, 0.3),
}
CASES = ((5, 1), (10, 1), (25, 1), (10, 2), (25, 2), (10, 4), (10, 6))  # sites, hidden layers
CASE = ("data", "split", "sites", "depth", "rate")
FOUND = ("train_accuracy", "accuracy")
TABLE = Path(__file__).parents[1] / "results" / "rates.csv"


def main() -> None:
    """All rows that are not there yet; the accuracy of each rate at the end."""
    torch.set_num_threads(1)
    names = sys.argv[1:] or ["mnist", "cifar10"]
    there = {tuple(row[name] for name in CASE) for row in _rows()}
    for name in names:
        data = load_data(name)
        for split, (sites, depth), rate in product(("even", "authors"), CASES, RATES[name]):
            case = (name, split, str(sites), str(depth), str(rate))
            if case not in there:
                _append((*case, *_measured(data, name, split, sites, depth, rate)))
    for name in names:
        for rate in RATES[name]:
            own = [row for row in _rows() if (row["data"], float(row["rate"])) == (name, rate)]
            trained, tested = (np.mean([float(row[value]) for row in own]) for value in FOUND)
            print(f"{name:8} {rate:<6g} training {trained:.4f}  test {tested:.4f}")


def _measured(
    data: Data, name: str, split: str, sites: int, depth: int, rate: float
) -> tuple[str, str]:
    training = {**paper_training(name), "sgd_rate": rate}
    setting = Setting(data=name, sites=sites, split=split, hidden=(UNITS,) * depth, **training)
    sites_there = federation(replace(setting, rounds=1), data)
    each = METHODS["fedavg"].round
    assert each is not None
    state, _ = each(sites_there, State(), Local({}, {}), 1)
    network = state.server.network
    if network is None:
        return "0", "0"  # every site's training came to values that are not finite
    right = network.run(data.train_inputs).argmax(axis=1) == data.train_labels
    return f"{right.mean():.4f}", f"{accuracy(sites_there, network):.4f}"


def _rows() -> list[dict[str, str]]:
    if not TABLE.exists():
        return []
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file))


def _append(row: tuple[str, ...]) -> None:
    new = not TABLE.exists()
    with TABLE.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow((*CASE, *FOUND))
        writer.writerow(row)


if __name__ == "__main__":
    main()
