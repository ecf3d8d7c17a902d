"""How fast the engine is: against plain equations, against its floor, and as sites grow.

Engine, floor and plain equations run in one process on the same inputs; the engine's and floor's
times are medians after a first run, the plain equations, which take minutes, run once. Every number
of sites is a process of its own. Results are printed and written to benchmarks/engine.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.optimize
from plain import plain_match
from rich.console import Console
from rich.table import Table

from pfnm.matching import matching
from pfnm.matching.matching import match
from pfnm.matching.prior import Prior
from pfnm.networks.network import Array

OUT = Path(__file__).with_suffix(".json")
CLASSES = 10
UNITS = 100
SWEEPS = 5
SEED = 0
REPEATS = 5
NOISE = 1.0  # standard deviation of a site's atoms about the true ones, which have 1
QUIET = 0.3  # noise with which the true units are found again, so that their number is bounded
PRIOR = Prior(prior_variance=10.0, site_variance=1.0, mass=1.0, rules="published")


def synthetic_sites(
    sites: int, inputs: int, true_units: int, noise: float = NOISE
) -> tuple[list[Array], list[Array]]:
    """Noisy views of shared atoms [inputs, bias, classes], with uneven class shares."""
    rng = np.random.default_rng(SEED)
    dimensions = inputs + 1 + CLASSES
    true = rng.normal(size=(true_units, dimensions))
    atoms = [
        true[rng.permutation(true_units)[:UNITS]] + noise * rng.normal(size=(UNITS, dimensions))
        for _ in range(sites)
    ]
    shares = rng.dirichlet(np.full(sites, 0.5), size=CLASSES).T
    precisions = [np.concatenate([np.ones(inputs + 1), share]) for share in shares]
    return atoms, precisions


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def engine(atoms: Sequence[Array], precisions: Sequence[Array]) -> matching.Matching:
    rng = np.random.default_rng(SEED)
    return match(atoms, PRIOR, precisions=precisions, sweeps=SWEEPS, rng=rng)


def floor_of(atoms: Sequence[Array], precisions: Sequence[Array]) -> Callable[[], None]:
    """The matrix products and assignments of an engine run, to be called bare."""
    shapes: list[tuple[int, int]] = []
    problems: list[Array] = []
    inner_assign: Callable[..., Any] = vars(matching)["assign"]
    inner_solver: Callable[..., Any] = scipy.optimize.linear_sum_assignment

    def recording_assign(join: Array, found: Array, number: Array) -> Any:
        shapes.append(join.shape)
        return inner_assign(join, found, number)

    def recording_solver(matrix: Array, maximize: bool = False) -> Any:
        problems.append(matrix.copy())
        return inner_solver(matrix, maximize=maximize)

    with (
        patch.object(matching, "assign", recording_assign),
        patch.object(scipy.optimize, "linear_sum_assignment", recording_solver),
    ):
        engine(atoms, precisions)
    inputs = atoms[0].shape[1] - CLASSES
    widest = max(columns for _, columns in shapes)
    rng = np.random.default_rng(SEED)
    wide, narrow = rng.normal(size=(UNITS, inputs)), rng.normal(size=(UNITS, CLASSES))
    sums, outputs = rng.normal(size=(widest, inputs)), rng.normal(size=(widest, CLASSES))

    def bare() -> None:
        for _, columns in shapes:
            wide @ sums[:columns].T
            narrow @ outputs[:columns].T
            narrow @ outputs[:columns].T
        for problem in problems:
            inner_solver(problem, maximize=True)

    return bare


def against_plain(inputs: int) -> dict[str, Any]:
    """30 sites x 100 units, 5 sweeps: the engine, its floor, and the plain transcription."""
    sites = 30
    atoms, precisions = synthetic_sites(sites, inputs, true_units=600)
    bare = floor_of(atoms, precisions)
    ours, floors = [], []
    for _ in range(REPEATS):
        seconds, result = timed(lambda: engine(atoms, precisions))
        ours.append(seconds)
        floors.append(timed(bare)[0])
    plain_seconds, plain = timed(
        lambda: plain_match(atoms, precisions, PRIOR, SWEEPS, np.random.default_rng(SEED))
    )
    same = all(np.array_equal(a, b) for a, b in zip(plain, result.assignments, strict=True))
    engine_seconds, floor_seconds = statistics.median(ours), statistics.median(floors)
    return {
        "inputs": inputs,
        "sites": sites,
        "units": UNITS,
        "sweeps": SWEEPS,
        "global_units": result.width,
        "reassigned_per_sweep": [sweep.reassigned for sweep in result.trace],
        "plain_seconds": plain_seconds,
        "engine_seconds": engine_seconds,
        "floor_seconds": floor_seconds,
        "times_faster_than_plain": plain_seconds / engine_seconds,
        "times_the_floor": engine_seconds / floor_seconds,
        "same_assignments": same,
    }


def growth(sites: int) -> dict[str, Any]:
    """One matching at bounded global width; run in a process of its own, for its peak memory."""
    atoms, precisions = synthetic_sites(sites, inputs=784, true_units=300, noise=QUIET)
    match(atoms[:3], PRIOR, precisions=precisions[:3], sweeps=1)  # warm up
    prior = Prior(prior_variance=1.0, site_variance=QUIET, rules="recommended")
    rng = np.random.default_rng(SEED)
    seconds, result = timed(
        lambda: match(atoms, prior, precisions=precisions, sweeps=SWEEPS, rng=rng)
    )
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "sites": sites,
        "global_units": result.width,
        "sweeps": len(result.trace) - 1,
        "seconds": seconds,
        "milliseconds_per_site_and_pass": 1000 * seconds / sites / len(result.trace),
        "peak_gigabytes": kilobytes / 1024**2,
    }


def in_own_process(sites: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--growth", str(sites)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def table(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    result = Table(title=title)
    for key in rows[0]:
        result.add_column(key.replace("_", " "), justify="right")
    for row in rows:
        result.add_row(*(f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--growth", type=int, help="measure one number of sites, print JSON")
    arguments = parser.parse_args()
    if arguments.growth:
        print(json.dumps(growth(arguments.growth)))
        return
    console = Console(width=200)
    compared = [against_plain(inputs) for inputs in (784, 3072)]
    console.print(table("One matching against the plain equations and the floor", compared))
    OUT.write_text(json.dumps({"machine": machine(), "compared": compared}, indent=2) + "\n")
    grown = [in_own_process(sites) for sites in (10, 30, 100, 300, 1000)]
    console.print(table("Growth with the number of sites (784 inputs)", grown))
    result = {"machine": machine(), "compared": compared, "growth": grown}
    OUT.write_text(json.dumps(result, indent=2) + "\n")


def machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


if __name__ == "__main__":
    main()
