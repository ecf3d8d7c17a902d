"""What it costs that sites tell less of their class counts: accuracy of one fusion.

Ten sites, one hidden layer, uneven classes. Writes results/flower/counts.csv.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from pfnm.lab.data import load_data
from pfnm.lab.method import accuracy, train_local
from pfnm.lab.server import Server, combine
from pfnm.lab.setting import SERVER, Setting, federation
from pfnm.networks.graph import IntArray

RESULTS = Path("results/flower/counts.csv")
ROUNDED_TO = 10
COLUMNS = ("data", "seed", "told", "joint", "topdown")
TOLD = ("exact", "rounded", *(f"epsilon {e:g}" for e in (1.0, 0.1, 0.01, 0.001)))
TOLD += ("refused by one", "refused by all", "refused by one (guessed)", "refused by all (guessed)")


def told(counts: dict[str, IntArray], how: str, rng: np.random.Generator) -> dict[str, IntArray]:
    """The counts as the server gets them."""
    if how.startswith("refused by all"):
        return {}
    if how.startswith("refused by one"):
        return {name: own for name, own in counts.items() if name != "site0"}
    found = {}
    for name, own in counts.items():
        values = own.astype(float)
        if how.startswith("epsilon"):
            values += rng.laplace(scale=1 / float(how.split()[1]), size=own.size)
        step = ROUNDED_TO if how == "rounded" else 1
        found[name] = (step * np.rint(np.maximum(values, 0) / step)).astype(np.intp)
    return found


def main(data: str, seeds: int) -> None:
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    examples = load_data(data)
    with RESULTS.open("a") as file:
        if RESULTS.stat().st_size == 0:
            print(*COLUMNS, sep=",", file=file)
        for seed in range(seeds):
            setting = Setting(data=data, hidden=(50,), epochs=5, seed=seed)
            split = federation(setting, examples)
            sent = train_local(split).networks
            for how in TOLD:
                found = []
                for method in ("joint", "topdown"):
                    counts = told(split.counts, how, np.random.default_rng([seed, 1]))
                    server = combine(
                        Server(),
                        sent,
                        counts=counts,
                        method=method,
                        budget=setting.budget,
                        estimated=how.endswith("(guessed)"),
                        input_range=split.input_range,
                        rng=setting.rng(SERVER, 1),
                    )
                    assert server.network is not None
                    found.append(round(accuracy(split, server.network), 4))
                row = [data, seed, how, *found]
                print(*row, sep=",", file=file, flush=True)
                print(*row, sep=",", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
