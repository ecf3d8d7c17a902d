"""What methods of others make of the networks that studies/quality.py fuses: at equal widths.

    python studies/peers.py NETWORKS [--sets vgg resnet20 ...] [--seeds 0] [--made]
    python studies/peers.py --table

The plain average, Git Re-Basin and OT fusion by weights; BatchNorm's statistics as averaged,
computed anew on 200 real pictures without labels, and with --made on 500 of those that ours makes
up. NETWORKS as for studies/quality.py. Rows go to results/modules/peers.jsonl as they come; what is
there already is passed over.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from quality import RESULTS, SETS, Test, networks, reference

import pfnm
from pfnm.lab.baselines import naive_average
from pfnm.lab.modules import from_module, remembering, to_match, whole_network
from pfnm.lab.peers import ot_fusion, rebasin
from pfnm.networks.network import Network, Tensor

PEERS = RESULTS.with_name("peers.jsonl")
MADE = 500
MERGES: dict[str, Callable[[Sequence[Network]], Network]] = {
    "plain average": naive_average,
    "Git Re-Basin": lambda sites: rebasin(sites, np.random.default_rng(0)),
    "OT fusion": ot_fusion,
}
AS_AVERAGED, ON_REAL, ON_MADE = "as averaged", "on 200 real", "on made-up"


def run(folder: Path, name: str, seed: int, made: bool) -> None:
    """Measure what is not measured yet of one set."""
    done = {(row["method"], row["statistics"]) for row in rows() if _is(row, name, seed)}
    kinds = [AS_AVERAGED, ON_REAL, *([ON_MADE] if made else [])]
    wanted = [(m, k) for m in MERGES for k in kinds if (m, k) not in done]
    if not wanted:
        return
    own, test = SETS[name], Test(SETS[name].data)
    modules, counts = networks(folder, name, seed)
    like = whole_network(modules[0], torch.rand(2, *own.shape))
    sites = [from_module(module, like) for module in modules]
    matched = pfnm.as_sites(
        [to_match(site) for site in sites],
        class_counts=counts,
        inputs="pictures:" + "x".join(map(str, own.shape)),
    )
    known = reference(matched, test)
    inputs: dict[str, Tensor] = {ON_REAL: test.real}
    if any(kind == ON_MADE for _, kind in wanted):
        inputs[ON_MADE] = matched.inputs.make(matched.networks, MADE, np.random.default_rng(0))
    for method in dict.fromkeys(method for method, _ in wanted):
        begin = time.process_time()
        merged = MERGES[method](sites)
        seconds = time.process_time() - begin
        for kind in [kind for other, kind in wanted if other == method]:
            network = remembering(merged, inputs[kind]) if kind in inputs else merged
            row = {
                "set": name,
                "seed": seed,
                **known,
                "method": method,
                "statistics": kind,
                "accuracy": test.accuracy(network),
                "seconds": round(seconds, 1),
            }
            with PEERS.open("a") as file:
                file.write(json.dumps(row) + "\n")


def rows() -> list[dict[str, Any]]:
    """What was measured."""
    return [json.loads(line) for line in PEERS.read_text().splitlines()] if PEERS.exists() else []


def _is(row: dict[str, Any], name: str, seed: int) -> bool:
    return bool(row["set"] == name and row["seed"] == seed)


def table() -> str:
    """One line a set and seed; of each method the accuracy by statistics."""
    lines = [
        f"| networks | seed | locals | ensemble | {' | '.join(MERGES)} |",
        "|---|---|---|---|---|---|---|",
    ]
    found = rows()
    for name, seed in dict.fromkeys((row["set"], row["seed"]) for row in found):
        own = [row for row in found if _is(row, name, seed)]
        cells = [name, str(seed), ", ".join(f"{a:.1f}" for a in own[0]["locals"])]
        cells.append(f"{own[0]['ensemble']:.1f}")
        for method in MERGES:
            by = {row["statistics"]: row["accuracy"] for row in own if row["method"] == method}
            kinds = (AS_AVERAGED, ON_MADE, ON_REAL)
            cells.append(", ".join(f"{by[kind]:.1f}" if kind in by else "-" for kind in kinds))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", type=Path, nargs="?")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--made", action="store_true")
    parser.add_argument("--table", action="store_true")
    told = parser.parse_args()
    if told.table:
        print(table())
    else:
        torch.set_num_threads(1)
        PEERS.parent.mkdir(parents=True, exist_ok=True)
        for one in told.sets:
            for number in told.seeds:
                run(told.networks, one, number, told.made)
