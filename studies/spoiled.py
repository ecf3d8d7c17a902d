"""One of ten sites spoiled in each way: accuracy with and without the robust option.

MNIST, ten sites, one hidden layer, five rounds of the lab's server with what Flower's strategy adds
(unusable and outsized answers are left out always). Adds to results/flower/spoiled.csv: how many
seeds, and which ways if not all.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pfnm.errors import PFNMError
from pfnm.lab.data import load_data
from pfnm.lab.method import accuracy, train_local
from pfnm.lab.robust import odd_ones
from pfnm.lab.schedule import rate_share
from pfnm.lab.server import Server, combine, too_large
from pfnm.lab.setting import ADMITTING, BATCHES, SERVER, Federation, Setting, federation
from pfnm.lab.training import train_sites
from pfnm.networks.network import Network

RESULTS = Path("results/flower/spoiled.csv")
ROUNDS = 5
COLUMNS = (
    *("split", "seed", "spoiled", "robust", *(f"round{k}" for k in range(1, ROUNDS + 1))),
    *("averaged", "times_out", "left_out"),  # rounds averaged, rounds without the bad site, names
)
WAYS = (
    "nothing",
    "absent",
    "labels turned",
    "random labels",
    "noise",
    "copy",
    "x3",
    "x20",
    "x1000",
    "NaN",
)
BAD = "site0"


def spoil(
    split: Federation, way: str, start: Network, sent: Network, other: Network, number: int
) -> Network:
    """What the bad site sends in place of what it would, trained from the same start; an error
    where it cannot be a network at all."""
    rng = np.random.default_rng([split.setting.seed, number])
    if way in ("labels turned", "random labels"):
        labels, part = split.data.train_labels.copy(), split.parts[BAD]
        wrong = (labels[part] + 1) % 10
        labels[part] = wrong if way == "labels turned" else rng.integers(10, size=part.size)
        recipe = replace(split.setting.recipe_of(number), epochs=split.setting.epochs)
        rngs = [split.setting.rng(BATCHES, number, 0)]
        return train_sites([start], split.data.train_inputs, labels, [part], recipe, rngs)[0]
    if way == "copy":
        return other
    scale = {"x3": 3.0, "x20": 20.0, "x1000": 1000.0, "NaN": np.nan}.get(way, 1.0)
    tensors = {
        key: (t.std() * rng.normal(size=t.shape)).astype(t.dtype) if way == "noise" else scale * t
        for key, t in sent.tensors.items()
    }
    return replace(sent, tensors=tensors)


def run(split: Federation, honest: dict[str, Network], way: str, robust: bool) -> list[object]:
    setting, server = split.setting, Server()
    found: list[object] = []
    out: list[str] = []
    averaged = 0
    for number in range(1, ROUNDS + 1):
        averaged += server.averaging
        returned = dict(honest)
        starts = {name: server.part(name) for name in honest if server.starts(name)}
        if starts:
            recipe = setting.recipe_of(number)
            rate = rate_share(server, number) * recipe.learning_rate
            trained = split.trained(starts, replace(recipe, learning_rate=rate), number)
            returned |= {n: own for n, own in trained.items() if isinstance(own, Network)}
        if way == "absent":
            del returned[BAD]
        elif way != "nothing":
            start, sent = starts.get(BAD, split.start(0)), returned[BAD]
            try:
                returned[BAD] = spoil(split, way, start, sent, returned["site1"], number)
            except PFNMError:  # no network at all: left out as it is read
                del returned[BAD]
                out.append(BAD)
        for name in too_large(server, returned):
            del returned[name]
            out.append(name)
        if robust:
            within, rng = split.input_range, setting.rng(ADMITTING, number)
            for name in odd_ones(server, returned, split.counts, input_range=within, rng=rng):
                del returned[name]
                out.append(name)
        server = combine(
            server,
            returned,
            counts=split.counts,
            method="joint",
            budget=setting.budget,
            input_range=split.input_range,
            rng=setting.rng(SERVER, number),
        )
        assert server.network is not None
        found.append(round(accuracy(split, server.network), 4))
    return [*found, averaged, out.count(BAD), " ".join(sorted(set(out)))]


def main(seeds: int, ways: Sequence[str]) -> None:
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    data = load_data("mnist")
    with RESULTS.open("a") as file:
        if RESULTS.stat().st_size == 0:
            print(*COLUMNS, sep=",", file=file, flush=True)
        for seed in range(seeds):
            for kind in ("even", "dirichlet"):
                setting = Setting(
                    data="mnist", split=kind, hidden=(50,), epochs=3, later_epochs=1, seed=seed
                )
                split = federation(setting, data)
                honest = dict(train_local(split).networks)
                for way in ways:
                    for robust in (False, True):
                        row = [kind, seed, way, robust, *run(split, honest, way, robust)]
                        print(*row, sep=",", file=file, flush=True)
                        print(*row, sep=",", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:] or WAYS)
