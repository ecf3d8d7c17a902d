"""How good fused language models are: bits per character of text nobody trained on, no data.

    python studies/text_quality.py [--sets lstm transformer] [--budgets 1 2] [--seeds 10]
    python studies/text_quality.py --table

Three sites train the lab's models on Python's own documentation, as `pfnm simulate` does. Rows go
to results/modules/text.jsonl as they come; what is there already is passed over.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy
import torch
from quality import RESULTS

import pfnm
from pfnm.fusing.joint import FIT_PROBES, repaired, ridges_for
from pfnm.fusing.probes import probe
from pfnm.fusing.refit import Making
from pfnm.fusing.sites import Sites
from pfnm.fusing.wanted import refit_targets
from pfnm.lab.data import Data, load_data
from pfnm.lab.method import train_local
from pfnm.lab.modules import to_match
from pfnm.lab.setting import Setting, federation, usual_training
from pfnm.networks.network import Array, Network

ROWS = RESULTS.with_name("text.jsonl")
MODELS = ("lstm", "transformer")
SITES, EPOCHS = 3, 12
TESTED = 120  # windows


class Test:
    """Windows of text, each with the character that follows its last."""

    def __init__(self, data: Data) -> None:
        self.x = data.test_inputs[:TESTED].astype(np.float32)
        self.y = data.test_labels[:TESTED].ravel()

    def logs(self, network: Network) -> Array:
        found: Array = scipy.special.log_softmax(network.run(self.x).astype(float), axis=1)
        return found

    def bits(self, logs: Array) -> float:
        return float(-logs[np.arange(self.y.size), self.y].mean() / np.log(2))


def measured(sites: Sites, budget: float, test: Test) -> Iterator[dict[str, Any]]:
    """Of one budget: units merged, these refitted, what is chosen, and that polished."""
    begin = time.process_time()
    fusion = pfnm.fuse(sites, budget=budget)
    chosen = {
        "way": "fused",
        "bits": test.bits(test.logs(fusion.network)),
        "agreement": fusion.agreement,
        "site_agreement": fusion.site_agreement,
        "parameters": fusion.network.parameters,
        "seconds": round(time.process_time() - begin, 1),
    }
    sites = fusion.sites  # residual streams in one frame
    to_fit = probe(sites, FIT_PROBES, np.random.default_rng(0))
    (targets,) = refit_targets(sites, [fusion.assignments], to_fit)
    making = Making(
        sites, partial(repaired, sites, fusion.assignments), to_fit, partial(dict, targets)
    )
    for ridge, network in making.networks((None, *ridges_for(sites))):
        way = "averaged" if ridge is None else f"refitted {ridge:g}"
        yield {"way": way, "bits": test.bits(test.logs(network))}
    yield chosen
    begin = time.process_time()
    taught = fusion.polish()
    yield {
        "way": "polished",
        "bits": test.bits(test.logs(taught.network)),
        "agreement": taught.agreement,
        "seconds": round(time.process_time() - begin, 1),
    }


def run(name: str, seed: int, budgets: list[float]) -> None:
    """Measure what is not measured yet."""
    done = {row["budget"] for row in rows() if (row["set"], row["seed"]) == (name, seed)}
    wanted = [budget for budget in budgets if budget not in done]
    if not wanted:
        return
    data = load_data("pydoc")
    training = {**usual_training("pydoc", name), "epochs": EPOCHS, "seed": seed}
    setting = Setting(data="pydoc", model=name, sites=SITES, split="even", **training)
    trained = train_local(federation(setting, data)).networks
    sites, test = pfnm.as_sites([to_match(own) for own in trained.values()]), Test(data)
    logs = [test.logs(network) for network in sites.networks]
    known = {
        "set": name,
        "seed": seed,
        "locals": [test.bits(own) for own in logs],
        "ensemble": test.bits(scipy.special.logsumexp(logs, axis=0) - np.log(SITES)),
    }
    for budget in wanted:
        found = [{**known, "budget": budget, **row} for row in measured(sites, budget, test)]
        with ROWS.open("a") as out:
            out.writelines(json.dumps(row) + "\n" for row in found)


def rows() -> list[dict[str, Any]]:
    """What was measured."""
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def table() -> str:
    """One line a set, seed and budget."""
    ways = list(dict.fromkeys(row["way"] for row in rows()))
    lines = [f"| networks | seed | locals | ensemble | budget | {' | '.join(ways)} |"]
    lines.append("|---" * (5 + len(ways)) + "|")
    found = rows()
    for name, seed, budget in dict.fromkeys((r["set"], r["seed"], r["budget"]) for r in found):
        own = [r for r in found if (r["set"], r["seed"], r["budget"]) == (name, seed, budget)]
        bits = {row["way"]: f"{row['bits']:.2f}" for row in own}
        cells = [name, str(seed), ", ".join(f"{b:.2f}" for b in own[0]["locals"])]
        cells += [f"{own[0]['ensemble']:.2f}", f"{budget:g}x", *(bits.get(w, "") for w in ways)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--budgets", nargs="+", type=float, default=[1.0, 2.0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[10])
    parser.add_argument("--table", action="store_true")
    told = parser.parse_args()
    if told.table:
        print(table())
    else:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore", pfnm.PFNMWarning)
        for one in told.sets:
            for number in told.seeds:
                run(one, number, told.budgets)
