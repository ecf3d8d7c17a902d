"""How long good files of every format take to load, and to save.

A network of 784-512-512-10 and one of sixty small layers, in each format, as pfnm writes it and
with bare tensors as others write them, loaded and saved many times. `--against` a checkout of
another version does so in turn with this one, a process each, one file at a time. Medians of the
processor's time, which other programs disturb little; what a disk takes is not in it. Results are
printed and written to benchmarks/loading.json.
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

import pfnm

OUT = Path(__file__).with_suffix(".json")
HERE = Path(__file__).parents[1]
FORMATS = ("safetensors", "npz", "pt", "onnx", "skops")
WIDTHS = {"wide": (784, 512, 512, 10), "deep": (20,) * 61}
WARM = 2  # times that do not count: libraries are imported, caches filled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="a checkout of another version")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--only", default="", help="files or verbs with this in their name")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    from engine import machine, table
    from rich.console import Console

    with TemporaryDirectory() as place:
        write_files(Path(place))
        trees = [Tree(HERE)] + ([] if options.against is None else [Tree(options.against)])
        rows = [
            row(verb, file, trees, options.rounds)
            for file in sorted(Path(place).glob("*.*"))
            for verb in (("load",) if "bare" in file.name else ("load", "save"))
            if options.only in f"{verb} {file.name}"
        ]
        for tree in trees:
            tree.end()
    Console(width=120).print(table("Loading and saving (medians, processor time)", rows))
    OUT.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2) + "\n")


def row(verb: str, file: Path, trees: list[Tree], rounds: int) -> dict[str, Any]:
    """The median time of each version for one file, and of the ratio, round by round."""
    times = [[tree.time(verb, file) for tree in trees] for _ in range(WARM + rounds)][WARM:]
    found = {"what": f"{verb} {file.name}", "ms": f"{1000 * median(t[0] for t in times):.2f}"}
    if len(trees) > 1:
        found["against, ms"] = f"{1000 * median(there for _, there in times):.2f}"
        found["ratio"] = f"{median(here / there for here, there in times):.2f}"
    return found


def write_files(place: Path) -> None:
    """Networks of two kinds in every format, and their bare tensors."""
    import torch
    from safetensors.numpy import save_file

    from pfnm.networks.perceptron import mlp

    rng = np.random.default_rng(0)
    for name, widths in WIDTHS.items():
        pairs = list(pairwise(widths))
        weights = [rng.normal(size=pair).astype(np.float32) / 9 for pair in pairs]
        biases = [rng.normal(size=pair[1]).astype(np.float32) for pair in pairs]
        network = mlp(weights, biases, output="softmax")
        for extension in FORMATS:
            pfnm.save(network, place / f"{name}.{extension}")
        tensors = {key: np.ascontiguousarray(tensor) for key, tensor in network.tensors.items()}
        save_file(tensors, place / f"{name}-bare.safetensors")
        np.savez_compressed(place / f"{name}-bare.npz", **tensors)  # type: ignore[arg-type]
        state_dict = {key: torch.tensor(tensor) for key, tensor in tensors.items()}
        torch.save(state_dict, place / f"{name}-bare.pt")


class Tree:
    """A version of pfnm in a process of its own, which does what it is asked and says how long."""

    def __init__(self, tree: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            env={**os.environ, "PYTHONPATH": str(tree / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def time(self, verb: str, file: Path) -> float:
        """Seconds of processor time."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([verb, str(file)]), file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def end(self) -> None:
        """End the process."""
        self.process.communicate()


def serve() -> None:
    """Load or save, line by line, as the standard input asks for it."""
    for line in sys.stdin:
        verb, name = json.loads(line)
        file = Path(name)
        copy = file.with_name(f"{os.getpid()}-copy{file.suffix}")
        network = pfnm.load(file) if verb == "save" else None
        begin = time.process_time()
        if network is None:
            pfnm.load(file)
        else:
            pfnm.save(network, copy)
        print(time.process_time() - begin, flush=True)
        copy.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
