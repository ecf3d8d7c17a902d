"""How long joint fusion takes: ten networks of 784-100-...-100-10 at 2x, against their depth.

Networks are noisy copies of a few shared ones in random unit order, so that there is something to
match. Warmed up, medians of one run. Results are printed and written to benchmarks/joint.json.
"""

from __future__ import annotations

import json
import statistics
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from engine import machine, table
from rich.console import Console

import pfnm
from pfnm.networks.network import Network
from pfnm.networks.perceptron import mlp

OUT = Path(__file__).with_suffix(".json")
SITES, UNITS, INPUTS, CLASSES = 10, 100, 784, 10
SHARED = 150  # true units of a layer, of which a site has 100
NOISE = 0.5
DEPTHS = (1, 2, 3, 4, 6, 8)
REPEATS = 3


def site_networks(depth: int) -> list[Network]:
    rng = np.random.default_rng(depth)
    sizes = [INPUTS, *[SHARED] * depth, CLASSES]
    true = [rng.normal(scale=1 / np.sqrt(s[0]), size=s) for s in pairwise(sizes)]
    networks = []
    for _ in range(SITES):
        units = [np.arange(INPUTS), *(rng.permutation(SHARED)[:UNITS] for _ in range(depth))]
        units.append(np.arange(CLASSES))
        weights = [
            (w + NOISE * w.std() * rng.normal(size=w.shape))[np.ix_(below, above)]
            for w, (below, above) in zip(true, pairwise(units), strict=True)
        ]
        biases = [0.1 * rng.normal(size=w.shape[1]) for w in weights]
        networks.append(mlp([w.astype(np.float32) for w in weights], biases, output="softmax"))
    return networks


def main() -> None:
    rows = []
    pfnm.fuse(site_networks(1))  # warm up
    for depth in DEPTHS:
        networks = site_networks(depth)
        times = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            fusion = pfnm.fuse(networks)
            times.append(time.perf_counter() - start)
        seconds = statistics.median(times)
        rows.append(
            {
                "hidden layers": depth,
                "widths": str(list(fusion.widths.values())),
                "seconds": seconds,
                "seconds per layer": seconds / depth,
                "candidates": len(fusion.candidates),
            }
        )
    Console(width=160).print(table("Ten networks fused at 2x (joint)", rows))
    OUT.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
