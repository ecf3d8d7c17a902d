"""Does `match` find the number of true vectors, whatever the sites, the noise and the start?

Each site sees 100 of 300 vectors of 784 dimensions, with noise (a multiple of the signal's
deviation). The prior by evidence from starts a hundredfold apart, then one matching. Rows are
written as they are measured, into results/recovery.jsonl; `--table` prints them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pfnm.matching.evidence import prior_by_evidence
from pfnm.matching.matching import Matching, match
from pfnm.matching.prior import Prior
from pfnm.networks.network import Array

PATH = Path(__file__).parents[1] / "results" / "recovery.jsonl"
SITES = (10, 30, 100, 1000)
NOISES = (0.1, 1.0, 2.0)
STARTS = (0.01, 1.0)  # of the atoms' variance
TRUE, UNITS, DIMENSIONS = 300, 100, 784


def seen_vectors(sites: int, noise: float, seed: int) -> tuple[list[Array], int]:
    """The atoms of every site, and how many of the true vectors any of them has seen."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(TRUE, DIMENSIONS))
    seen = [rng.permutation(TRUE)[:UNITS] for _ in range(sites)]
    atoms = [vectors[own] + noise * rng.normal(size=(UNITS, DIMENSIONS)) for own in seen]
    return atoms, np.unique(np.concatenate(seen)).size


def measured(sites: int, noise: float, start: float) -> dict[str, Any]:
    atoms, seen = seen_vectors(sites, noise, sites)

    def solve(some: Sequence[int], prior: Prior) -> Matching:
        return match([atoms[j] for j in some], prior)

    begun = time.process_time()
    weights = np.ones((sites, DIMENSIONS))
    prior = prior_by_evidence(solve, atoms, weights, np.zeros(DIMENSIONS), start)
    found = match(atoms, prior)
    return {
        "seen": seen,
        "found": found.width,
        "site_variance": prior.site_variance,
        "prior_variance": prior.prior_variance,
        "evidence": found.evidence,
        "seconds": time.process_time() - begun,
    }


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in PATH.read_text().splitlines()] if PATH.exists() else []


def run(most: int) -> None:
    done = {(row["sites"], row["noise"], row["start"]) for row in rows()}
    for noise in reversed(NOISES):
        for sites in SITES:
            for start in STARTS:
                if sites > most or (sites, noise, start) in done:
                    continue
                key = {"sites": sites, "noise": noise, "start": start}
                with PATH.open("a") as file:
                    file.write(json.dumps({**key, **measured(sites, noise, start)}) + "\n")


def table() -> str:
    lines = ["| sites | noise | start | seen | found | variances | seconds |", "|---|" + "---|" * 6]
    for r in sorted(rows(), key=lambda r: (r["sites"], r["noise"], r["start"])):
        variances = f"{r['site_variance']:.3f}, {r['prior_variance']:.3f}"
        cells = (r["sites"], r["noise"], r["start"], r["seen"], r["found"], variances)
        lines.append("| " + " | ".join(map(str, cells)) + f" | {r['seconds']:.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="print the table from the rows")
    parser.add_argument("--most", type=int, default=max(SITES), help="no more sites than these")
    arguments = parser.parse_args()
    print(table()) if arguments.table else run(arguments.most)


if __name__ == "__main__":
    main()
