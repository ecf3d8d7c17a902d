"""How fast the engine is: against plain equations, against its floor, and as sites grow.

Engine, floor (the engine's matrix products and assignments alone) and plain equations run in one
process on the same inputs; the engine's and floor's times are medians after a first run, the plain
equations, which take minutes, run once. Times are of the processor, for one thread (set
OPENBLAS_NUM_THREADS=1). Every number of sites is a process of its own. Results are printed and
written to benchmarks/engine.json.
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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.optimize
from plain import plain_match, plain_matching
from rich.console import Console
from rich.table import Table

from pfnm.fusing import topdown
from pfnm.fusing.sites import comparable
from pfnm.fusing.topdown import fuse_topdown
from pfnm.matching import matching, score
from pfnm.matching.matching import match
from pfnm.matching.posterior import Part, PartSums
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
TRAINED = 6.0  # times the made-up weights: as large as makes the lower layers wide
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
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def engine(atoms: Sequence[Array], precisions: Sequence[Array]) -> matching.Matching:
    rng = np.random.default_rng(SEED)
    return match(atoms, PRIOR, precisions=precisions, sweeps=SWEEPS, rng=rng)


def floor_of(run: Callable[[], Any]) -> Callable[[], None]:
    """The matrix products and assignments of a run, to be called bare."""
    products: list[tuple[int, int, int]] = []
    problems: list[Array] = []
    inner_products, inner_solver = PartSums.products, scipy.optimize.linear_sum_assignment
    inner_all, inner_gain = matching.with_products, score._evidence_gain  # type: ignore[attr-defined]

    def recording_products(sums: PartSums, part: Part, slots: Any) -> Any:
        result = inner_products(sums, part, slots)
        products.append((*result.shape, part.weighted.shape[1]))
        return result

    def recording_all(sites: Sequence[Part], prior: Any) -> Any:
        units = sum(len(site.weighted) for site in sites)
        products.append((units, units, sites[0].weighted.shape[1]))
        return inner_all(sites, prior)

    def recording_gain(part: Part, sums: PartSums, slots: Any) -> Any:
        gain, of_slot = inner_gain(part, sums, slots)
        if not sums.uniform:
            products.append((*gain.shape, 2 * part.weighted.shape[1]))
        return gain, of_slot

    def recording_solver(matrix: Array, maximize: bool = False) -> Any:
        problems.append(matrix.copy())
        return inner_solver(matrix, maximize=maximize)

    with (
        patch.object(PartSums, "products", recording_products),
        patch.object(matching, "with_products", recording_all),
        patch.object(score, "_evidence_gain", recording_gain),
        patch.object(scipy.optimize, "linear_sum_assignment", recording_solver),
    ):
        run()
    rng = np.random.default_rng(SEED)
    numbers = rng.normal(size=max(max(a, b) * c for a, b, c in products))

    def bare() -> None:
        for rows, columns, dimensions in products:
            left = numbers[: rows * dimensions].reshape(rows, dimensions)
            right = numbers[: columns * dimensions].reshape(columns, dimensions)
            left @ right.T
        for problem in problems:
            inner_solver(problem, maximize=True)

    return bare


def compared(
    case: str, run: Callable[[], Any], plain: Callable[[], Any], found: Callable[[Any], Any]
) -> dict[str, Any]:
    """The engine, its floor, and the plain transcription. found: the assignments of a result."""
    bare = floor_of(run)
    ours, floors = [], []
    for _ in range(REPEATS):
        seconds, result = timed(run)
        ours.append(seconds)
        floors.append(timed(bare)[0])
    plain_seconds, plain_result = timed(plain)
    pairs = zip(found(plain_result), found(result), strict=True)
    engine_seconds, floor_seconds = statistics.median(ours), statistics.median(floors)
    return {
        "case": case,
        "plain_seconds": plain_seconds,
        "engine_seconds": engine_seconds,
        "floor_seconds": floor_seconds,
        "times_faster_than_plain": plain_seconds / engine_seconds,
        "times_the_floor": engine_seconds / floor_seconds,
        "same_assignments": all(np.array_equal(a, b) for a, b in pairs),
    }


def one_layer(inputs: int) -> dict[str, Any]:
    """30 sites of 100 units, 5 sweeps."""
    atoms, precisions = synthetic_sites(30, inputs, true_units=600)
    return compared(
        f"30 sites of {UNITS} units, {inputs} inputs",
        lambda: engine(atoms, precisions).assignments,
        lambda: plain_match(atoms, precisions, PRIOR, SWEEPS, np.random.default_rng(SEED)),
        list,
    )


def three_layers() -> dict[str, Any]:
    """10 sites of three hidden layers, top-down by the published rules."""
    from joint import site_networks

    networks = [
        replace(network, tensors={name: TRAINED * t for name, t in network.tensors.items()})
        for network in site_networks(3)
    ]
    known = comparable(networks)

    def fused() -> Any:
        rng = np.random.default_rng(SEED)
        return fuse_topdown(known, prior=PRIOR, sweeps=SWEEPS, rng=rng)

    def plainly() -> Any:
        with patch.object(topdown, "match", plain_matching):
            return fused()

    return compared(
        f"10 sites of three layers of {UNITS} units, 784 inputs",
        fused,
        plainly,
        lambda fusion: [a for own in fusion.assignments.values() for a in own],
    )


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
    rows = []
    for case in (partial(one_layer, 784), three_layers, partial(one_layer, 3072)):
        rows.append(case())
        console.print(table("Matching against the plain equations and the floor", rows))
    grown = [in_own_process(sites) for sites in (10, 30, 100, 300, 1000)]
    console.print(table("Growth with the number of sites (784 inputs)", grown))
    result = {"machine": machine(), "compared": rows, "growth": grown}
    OUT.write_text(json.dumps(result, indent=2) + "\n")


def machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


if __name__ == "__main__":
    main()
