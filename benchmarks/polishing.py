"""How long polish takes, and what half the time costs.

Ten networks of 784-100-100-100-10 trained on MNIST (the authors' Dirichlet split and the even one),
fused at 2x; probes included, PyTorch's default threads. Results are printed and written to
benchmarks/polishing.json.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from engine import machine, table
from rich.console import Console

import pfnm
from pfnm.lab.data import load_data
from pfnm.lab.method import accuracy, train_local
from pfnm.lab.setting import Setting, federation

OUT = Path(__file__).with_suffix(".json")
SITES, HIDDEN, BUDGET = 10, (100, 100, 100), 2.0
SPLITS = ("even", "authors")


def main() -> None:
    data = load_data("mnist")
    rows = []
    for split in SPLITS:
        sites = federation(Setting(sites=SITES, split=split, hidden=HIDDEN), data)
        networks, counts = list(train_local(sites).networks.values()), list(sites.counts.values())
        fused = pfnm.fuse(networks, class_counts=counts, budget=BUDGET)
        fused.polish(seconds=1)  # warm up
        limit = None
        for name in ("polished", "in half the time"):
            begin = time.perf_counter()
            polished = fused.polish(seconds=limit)
            seconds = time.perf_counter() - begin
            limit = seconds / 2
            rows.append(
                {
                    "split": split,
                    "": name,
                    "seconds": seconds,
                    "epochs": polished.record()["polish"]["epochs"],
                    "fused (%)": 100 * accuracy(sites, fused.network),
                    "polished (%)": 100 * accuracy(sites, polished.network),
                }
            )
    Console(width=160).print(table("Polish: ten networks of three hidden layers at 2x", rows))
    OUT.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
