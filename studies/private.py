"""What differential privacy costs: ten sites that train with Opacus, fused once.

MNIST, even, one hidden layer. Writes results/flower/private.csv.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from pfnm.flower.models import train_one
from pfnm.flower.private import Ledger, Privacy, Spent, train_one_privately
from pfnm.lab.data import load_data
from pfnm.lab.method import accuracy
from pfnm.lab.server import Server, combine
from pfnm.lab.setting import BATCHES, SERVER, Setting, federation

RESULTS = Path("results/flower/private.csv")
COLUMNS = ("noise", "epsilon", "sites", "fused")
NOISES = (0.0, 0.6, 1.0, 2.0)
SETTING = Setting(data="mnist", split="even", hidden=(50,), epochs=5, batch_size=128)


def main() -> None:
    split = federation(SETTING, load_data("mnist"))
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("w") as file, tempfile.TemporaryDirectory() as folder:
        print(*COLUMNS, sep=",", file=file)
        for noise in NOISES:
            sent, epsilon = {}, float("inf")
            for place, (name, part) in enumerate(split.parts.items()):
                ledger = Path(folder) / f"{name}-{noise}.json"
                private = Privacy(1000.0, ledger, noise=noise or 1.0)
                train = partial(train_one_privately, privacy=private) if noise else train_one
                inputs, labels = split.data.train_inputs[part], split.data.train_labels[part]
                rng = SETTING.rng(BATCHES, 1, place)
                trained = train(split.start(place), inputs, labels, SETTING.recipe, rng)
                sent[name] = replace(trained, name=name)
                if noise:
                    steps = SETTING.epochs * -(-part.size // SETTING.batch_size)
                    spent = Spent(noise, SETTING.batch_size / part.size, steps)
                    epsilon = Ledger([spent]).epsilon(private.delta)
            server = combine(
                Server(),
                sent,
                counts=split.counts,
                method="joint",
                budget=SETTING.budget,
                input_range=split.input_range,
                rng=SETTING.rng(SERVER, 1),
            )
            assert server.network is not None
            alone = float(np.mean([accuracy(split, network) for network in sent.values()]))
            row = [noise, round(epsilon, 2), round(alone, 4)]
            row += [round(accuracy(split, server.network), 4)]
            print(*row, sep=",", file=file, flush=True)
            print(*row, sep=",", flush=True)


if __name__ == "__main__":
    main()
