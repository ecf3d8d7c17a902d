"""How `pfnm fuse-many` grows with the number of sites: processor time and memory, 10 to 10,000.

Networks of 784-100-10 whose hidden units are noisy views of 300 true ones, written to a folder (3
GB for 10,000); every number of sites is a process of its own, one pass and one sweep over a sample
of at most 1,000, no limit of the width. Results are printed and written to benchmarks/many.json,
the figure to docs/many.svg.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from engine import machine, table
from rich.console import Console

import pfnm
from pfnm.networks.perceptron import mlp

OUT = Path(__file__).with_suffix(".json")
FIGURE = Path(__file__).parents[1] / "docs" / "many.svg"
INPUTS, UNITS, CLASSES, TRUE = 784, 100, 10, 300
NOISE = 0.3  # of a site's weights about the true ones, by the true ones' standard deviation
NUMBERS = (10, 30, 100, 300, 1000, 3000, 10_000)
SAMPLE = 1000
SEED = 0
MAIN = "from pfnm.cli import main; main()"


def write_sites(folder: Path, number: int) -> None:
    """The sites' files, those that are not there yet."""
    true = np.random.default_rng(SEED)
    inward = true.normal(scale=0.1, size=(INPUTS, TRUE))
    outward = true.normal(scale=0.3, size=(TRUE, CLASSES))
    for j in range(number):
        path = folder / f"site{j}.safetensors"
        if path.exists():
            continue
        rng = np.random.default_rng([SEED, j])
        own = rng.permutation(TRUE)[:UNITS]
        weights = [
            (w + NOISE * w.std() * rng.normal(size=w.shape)).astype(np.float32)
            for w in (inward[:, own], outward[own])
        ]
        biases = [np.full(UNITS, 0.1, np.float32), np.full(CLASSES, 0.1, np.float32)]
        pfnm.save(mlp(weights, biases, output="softmax"), path)


def measured(folder: Path, number: int) -> dict[str, Any]:
    """One command in a process of its own: its processor time, time on the clock and memory."""
    files = [str(folder / f"site{j}.safetensors") for j in range(number)]
    with TemporaryDirectory() as place:
        command = [sys.executable, "-c", MAIN, "fuse-many", *files, "--json"]
        command += ["--budget", "none", "--sample", str(min(SAMPLE, number))]
        command += ["-o", f"{place}/global.safetensors"]
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        told = json.loads(process.stdout.read())
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    seconds = used.ru_utime + used.ru_stime
    return {
        "sites": number,
        "global_units": told["width"],
        "processor_seconds": seconds,
        "clock_seconds": time.perf_counter() - begin,
        "milliseconds_per_site": 1000 * seconds / number,
        "peak_gigabytes": used.ru_maxrss / 1024**2,
    }


def draw(rows: list[dict[str, Any]]) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "pfnm"
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    sites = [row["sites"] for row in rows]
    for axis, name, unit in zip(
        axes,
        ("processor_seconds", "peak_gigabytes"),
        ("processor time, s", "memory, GB"),
        strict=True,
    ):
        axis.plot(sites, [row[name] for row in rows], "o-", color="#1f6f8b")
        axis.set(xscale="log", xlabel="sites", ylabel=unit)
        axis.grid(alpha=0.3)
    axes[0].set_yscale("log")
    axes[1].set_ylim(0, 4)
    figure.suptitle(
        "pfnm fuse-many: networks of 784-100-10, one pass and one sweep over 1,000 sites"
    )
    figure.savefig(FIGURE, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the sites are, or are to be written")
    parser.add_argument("--most", type=int, default=NUMBERS[-1], help="sites")
    options = parser.parse_args()
    rows = []
    with TemporaryDirectory() as place:
        folder = options.folder or Path(place)
        folder.mkdir(exist_ok=True)
        for number in (n for n in NUMBERS if n <= options.most):
            write_sites(folder, number)
            rows.append(measured(folder, number))
            Console(width=160).print(table("Many sites", rows[-1:]))
    OUT.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2) + "\n")
    draw(rows)


if __name__ == "__main__":
    main()
