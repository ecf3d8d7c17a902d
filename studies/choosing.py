"""Which judge chooses the best of a fusion's candidates: their objective, or agreement on probes?

On some network sets of the deep study, every candidate's test accuracy beside both. `python
studies/choosing.py` writes results/deep/choosing.jsonl, a row a candidate, and prints the table.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from networks import site_networks
from scipy.stats import spearmanr

from pfnm.fusing.activity import activities
from pfnm.fusing.budget import width_limits
from pfnm.fusing.joint import (
    ALL,
    FIT_PROBES,
    MATCH_PROBES,
    joint_states,
    repaired,
    ridges_for,
)
from pfnm.fusing.probes import CHECK_PROBES, probe, probes_for, sure_agreement
from pfnm.fusing.refit import Making
from pfnm.fusing.sites import comparable
from pfnm.fusing.wanted import refit_targets
from pfnm.lab.data import Data, data_folder, load_data
from pfnm.matching.prior import Prior

RESULTS = Path(__file__).parents[1] / "results" / "deep" / "choosing.jsonl"
SETS = [(split, depth, 0) for split in ("even", "dirichlet") for depth in (3, 6)]
BUDGETS = (1.0, 2.0)
JUDGES = ("sure_agreement", "objective")


def candidates(data: Data, split: str, depth: int, seed: int, work: Path) -> list[dict[str, Any]]:
    networks, counts = site_networks(data, split, depth, seed, work)
    sites, prior = comparable(networks, counts), Prior.fit(networks)
    rngs = np.random.default_rng(0).spawn(4)
    active = activities(sites, probes_for(sites, MATCH_PROBES, rngs[0]))
    to_fit = probe(sites, FIT_PROBES, rngs[1])
    to_check = probe(sites, CHECK_PROBES, rngs[2], to_judge=True)
    rows = []
    for budget in BUDGETS:
        limits = width_limits(networks, budget)
        for emphasis in (0.0, *ALL.emphases):
            states = joint_states(sites, prior, limits, active, emphasis, None, rngs[3], None)
            for sweep, (matchings, _) in enumerate(states, start=1):
                found = {group: own.assignments for group, own in matchings.items()}
                (targets,) = refit_targets(sites, [found], to_fit)
                making = Making(
                    sites, partial(repaired, sites, found), to_fit, partial(dict, targets)
                )
                for ridge, network in making.networks((None, *ridges_for(sites))):
                    right = network.run(data.test_inputs).argmax(axis=1) == data.test_labels
                    rows.append(
                        {
                            "split": split, "depth": depth, "seed": seed, "budget": budget,
                            "emphasis": emphasis, "joint_sweep": sweep, "ridge": ridge,
                            "accuracy": float(100 * right.mean()),
                            "sure_agreement": sure_agreement(network, to_check),
                            "objective": sum(m.objective for m in matchings.values()),
                        }
                    )  # fmt: skip
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| networks | budget | best candidate | chosen by sure agreement | chosen by objective | "
        "Spearman of sure agreement | of objective |",
        "|---|---|---|---|---|---|---|",
    ]
    for split, depth, _ in SETS:
        for budget in BUDGETS:
            own = [
                r for r in rows if (r["split"], r["depth"], r["budget"]) == (split, depth, budget)
            ]
            accuracy = [r["accuracy"] for r in own]
            chosen = [max(own, key=lambda r, judge=judge: r[judge])["accuracy"] for judge in JUDGES]  # type: ignore[misc]
            ranks = [spearmanr(accuracy, [r[judge] for r in own]).statistic for judge in JUDGES]
            cells = [f"{split}, {depth} layers", f"{budget:g}x", f"{max(accuracy):.1f}"]
            cells += [f"{value:.1f}" for value in chosen] + [f"{value:.2f}" for value in ranks]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=data_folder() / "deep-networks")
    work = parser.parse_args().work
    data = load_data("mnist")
    rows = [row for name in SETS for row in candidates(data, *name, work)]
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(table(rows))


if __name__ == "__main__":
    main()
