"""How long good files of every format take to load, and to save.

A network of 784-512-512-10 and one of sixty small layers, in each format, loaded and saved many
times in one process; `--against` a checkout of another version measures that in turn with this one,
a fresh process for each round. Medians. Results are printed and written to benchmarks/loading.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from engine import machine, table
from rich.console import Console

import pfnm
from pfnm.networks.perceptron import mlp

OUT = Path(__file__).with_suffix(".json")
HERE = Path(__file__).parents[1]
FORMATS = ("safetensors", "npz", "pt", "onnx", "skops")
WIDTHS = {"wide": (784, 512, 512, 10), "deep": (20,) * 61}
REPEATS = 5  # of each file in one process, after one that does not count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="a checkout of another version")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measured(options.measure)))
        return
    trees = {"this tree": HERE}
    if options.against is not None:
        trees["against"] = options.against
    times: dict[str, dict[str, list[float]]] = {name: {} for name in trees}
    with TemporaryDirectory() as place:
        write_files(Path(place))
        for _ in range(options.rounds):
            for name, tree in trees.items():
                for what, spent in in_process(tree, place).items():
                    times[name].setdefault(what, []).append(spent)
    rows: list[dict[str, Any]] = []
    for what in times["this tree"]:
        here = median(times["this tree"][what])
        row = {"what": what, "ms": f"{1000 * here:.1f}"}
        if options.against is not None:
            there = median(times["against"][what])
            row |= {"against, ms": f"{1000 * there:.1f}", "ratio": f"{here / there:.2f}"}
        rows.append(row)
    Console(width=120).print(table("Loading and saving (medians)", rows))
    OUT.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2) + "\n")


def write_files(place: Path) -> None:
    rng = np.random.default_rng(0)
    for name, widths in WIDTHS.items():
        pairs = list(pairwise(widths))
        weights = [rng.normal(size=pair).astype(np.float32) / 9 for pair in pairs]
        biases = [rng.normal(size=pair[1]).astype(np.float32) for pair in pairs]
        for extension in FORMATS:
            pfnm.save(mlp(weights, biases, output="softmax"), place / f"{name}.{extension}")


def in_process(tree: Path, place: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", place]
    path = os.pathsep.join([str(tree / "src"), str(Path(__file__).parent)])
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measured(place: Path) -> dict[str, float]:
    """Seconds to load and to save every file, each the median of several times."""
    found = {}
    for file in sorted(place.glob("*.*")):
        network = pfnm.load(file)
        times: dict[str, list[float]] = {"load": [], "save": []}
        for number in range(1 + REPEATS):
            begin = time.perf_counter()
            pfnm.load(file)
            loaded = time.perf_counter()
            pfnm.save(network, file.with_name(f"{number}-{os.getpid()}-copy{file.suffix}"))
            times["load"].append(loaded - begin)
            times["save"].append(time.perf_counter() - loaded)
        for what, spent in times.items():
            found[f"{what} {file.name}"] = median(spent[1:])
        for copy in place.glob(f"*-{os.getpid()}-copy*"):
            copy.unlink()
    return found


if __name__ == "__main__":
    main()
