"""Two wide networks without biases, each trained on all of MNIST, fused at 1x and 1.5x.

784-400-200-100-10, PyTorch's default initialisation, otherwise the paper's local training.
`python studies/pair.py` writes results/deep/pair.jsonl, a row a seed and budget.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import pfnm
from pfnm.lab.data import data_folder, load_data
from pfnm.lab.training import Recipe, initial_network, train_sites
from pfnm.networks.network import Network

RESULTS = Path(__file__).parents[1] / "results" / "deep" / "pair.jsonl"
HIDDEN = (400, 200, 100)
SEEDS = (0, 1)
BUDGETS = (1.0, 1.5, 2.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=data_folder() / "deep-networks")
    work = parser.parse_args().work
    data = load_data("mnist")
    x, y = data.test_inputs, data.test_labels

    def accuracy(network: Network) -> float:
        return float(100 * (network.run(x).argmax(axis=1) == y).mean())

    recipe = Recipe(hidden=HIDDEN, weight_scale=None, bias_start=None)
    rows = []
    for seed in SEEDS:
        paths = [work / f"pair-{seed}" / f"site{j}.safetensors" for j in range(2)]
        if not paths[1].exists():
            paths[0].parent.mkdir(parents=True, exist_ok=True)
            rngs = np.random.default_rng([seed, 99]).spawn(4)
            starts = [initial_network(784, 10, recipe, rng) for rng in rngs[:2]]
            everything = np.arange(len(data.train_labels))
            trained = train_sites(
                starts, data.train_inputs, data.train_labels, [everything] * 2, recipe, rngs[2:]
            )
            for network, path in zip(trained, paths, strict=True):
                pfnm.save(network, path, force=True)
        networks = [pfnm.load(path) for path in paths]
        local = [accuracy(network) for network in networks]
        for budget in BUDGETS:
            fusion = pfnm.fuse(networks, budget=budget)
            row = {
                "seed": seed,
                "budget": budget,
                "locals": local,
                "accuracy": accuracy(fusion.network),
                "agreement": fusion.agreement,
            }
            rows.append(row)
            print(json.dumps(row), flush=True)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
