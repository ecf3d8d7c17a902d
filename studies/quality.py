"""How good fused modules are: small networks of pictures, fused, refitted and taught without data.

    python studies/quality.py NETWORKS [--sets vgg vgg-classes ...] [--cells 1:fused 2:polished ...]
    python studies/quality.py --table

NETWORKS is the folder that studies/module_networks.py fills. Rows go to results/modules/rows.jsonl
as they come; what is there already is passed over.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import pfnm
from pfnm.fusing.inputs import Like
from pfnm.fusing.probes import said_together
from pfnm.fusing.sites import Sites
from pfnm.fusion import Fusion
from pfnm.lab.data import load_data
from pfnm.lab.models import MODELS
from pfnm.networks.network import Network, Tensor

RESULTS = Path(__file__).parents[1] / "results" / "modules" / "rows.jsonl"
TESTED = 4000  # test pictures: accuracy is then known to half a point
REAL = 200  # unlabelled pictures, where some are given
REAL_SEED = 1


@dataclass(frozen=True)
class Set:
    """Networks of one of the lab's architectures, trained at some sites."""

    model: str
    arguments: dict[str, Any]
    data: str
    sites: int
    shape: tuple[int, int, int]
    split: str = "even"


CIFAR, MNIST = (3, 32, 32), (1, 28, 28)
SETS = {
    "lenet-even": Set("lenet", {}, "mnist", 5, MNIST),
    "lenet-dirichlet": Set("lenet", {}, "mnist", 5, MNIST, "dirichlet"),
    "vgg": Set("vgg", {}, "cifar10", 2, CIFAR),
    "vggplain": Set("vgg", {"batch_norm": False}, "cifar10", 2, CIFAR),
    "vgg-classes": Set("vgg", {}, "cifar10", 2, CIFAR, "classes"),
    "resnet20": Set("resnet20", {}, "cifar10", 2, CIFAR),
    "resnet20five": Set("resnet20", {}, "cifar10", 5, CIFAR),
}


def made(own: Set) -> nn.Module:
    """A network of a set, before training."""
    model, usual = MODELS[own.model]
    return model(**{"shape": own.shape, **usual, **own.arguments})


def networks(folder: Path, name: str, seed: int) -> tuple[list[nn.Module], list[list[int]]]:
    """The sites' modules and their class counts."""
    modules, counts, own = [], [], SETS[name]
    for site in range(own.sites):
        file = folder / f"{name}-seed{seed}-site{site}.pt"
        module = made(own)
        module.load_state_dict(torch.load(file, weights_only=True))
        modules.append(module.eval())
        counts.append(json.loads(file.with_suffix(".json").read_text())["class_counts"])
    return modules, counts


class Test:
    """Test pictures, some of which are given away without their labels."""

    def __init__(self, name: str) -> None:
        data = load_data(name)
        order = np.random.default_rng(REAL_SEED).permutation(len(data.test_labels))[:TESTED]
        self.x = data.test_inputs[order].astype(np.float32)
        self.y = data.test_labels[order]
        picked = np.random.default_rng(REAL_SEED).permutation(len(data.train_labels))[:REAL]
        self.real = data.train_inputs[picked].astype(np.float32)

    def accuracy(self, network: Network) -> float:
        return self.right(network.run(self.x))

    def right(self, outputs: Tensor) -> float:
        return float(100 * (outputs.argmax(axis=1) == self.y).mean())


def reference(sites: Sites, test: Test) -> dict[str, Any]:
    """What to compare with: the sites, and their ensembles."""
    outputs = [network.run(test.x) for network in sites.networks]
    likely = [torch.from_numpy(own).softmax(dim=1).numpy() for own in outputs]
    tensors = {
        n: np.mean([s.tensors[n] for s in sites.networks], axis=0)
        for n in sites.networks[0].tensors
    }
    average = sites.networks[0].program.run(tensors, test.x)
    return {
        "locals": [test.right(own) for own in outputs],
        "ensemble": test.right(np.mean(likely, axis=0)),
        "together": test.right(said_together(sites, [own.T for own in outputs]).T),
        "average": test.right(average),
    }


BUDGETS = (1, 1.5, 2)
WAYS = ("fused", "polished", "fused, 200 real", "polished, 200 real")


def measured(sites: Sites, budget: float, polish: bool) -> Iterator[tuple[bool, Fusion, float]]:
    """The fusion, and if wanted the polished one, each with the processor's seconds it took."""
    begin = time.process_time()
    fusion = pfnm.fuse(sites, budget=budget)
    yield False, fusion, time.process_time() - begin
    if polish:
        begin = time.process_time()
        fusion = fusion.polish()
        yield True, fusion, time.process_time() - begin


def run(folder: Path, names: list[str], cells: list[tuple[float, str]], seeds: list[int]) -> None:
    """Measure what is not measured yet."""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    done = {(r["set"], r["seed"], r["budget"], r["way"]) for r in rows()}
    for name in names:
        for seed in seeds:
            wanted = [cell for cell in cells if (name, seed, *cell) not in done]
            if wanted:
                _measure(folder, name, seed, wanted)


def _measure(folder: Path, name: str, seed: int, wanted: list[tuple[float, str]]) -> None:
    own, test = SETS[name], Test(SETS[name].data)
    modules, counts = networks(folder, name, seed)
    example = (2, *own.shape)
    kind = "pictures:" + "x".join(map(str, own.shape))
    plain = pfnm.as_sites(
        modules, example_inputs=torch.rand(example), class_counts=counts, inputs=kind
    )
    for real in (False, True):
        here = {(b, w) for b, w in wanted if ("real" in w) == real}
        if not here:
            continue
        sites = plain  # and with real inputs the same made-up ones beside them
        if real:
            sites = replace(plain, inputs=Like(plain.inputs, test.real, mixed=False))
        base = {"set": name, "seed": seed, **reference(sites, test)}
        for budget in sorted({b for b, _ in here}):
            polish = any(w.startswith("polished") for b, w in here if b == budget)
            for polished, fusion, seconds in measured(sites, budget, polish):
                way = ("polished" if polished else "fused") + (", 200 real" if real else "")
                row = {
                    **base, "budget": budget, "way": way,
                    "accuracy": test.accuracy(fusion.network),
                    "agreement": fusion.agreement, "site_agreement": fusion.site_agreement,
                    "parameters": fusion.network.parameters,
                    "site_parameters": sites.networks[0].parameters,
                    "seconds": round(seconds, 1),
                    "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                }  # fmt: skip
                with RESULTS.open("a") as file:
                    file.write(json.dumps(row) + "\n")


def rows() -> list[dict[str, Any]]:
    """What was measured."""
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def table() -> str:
    """One line a set, budget and seed."""
    lines = [
        "| networks | seed | locals | ensemble | plain average | budget | fused | polished | "
        "fused, 200 real | polished, 200 real |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    found = rows()
    for name, seed, budget in dict.fromkeys((r["set"], r["seed"], r["budget"]) for r in found):
        own = {
            r["way"]: r for r in found if (r["set"], r["seed"], r["budget"]) == (name, seed, budget)
        }
        first = next(iter(own.values()))
        cells = [name, str(seed), ", ".join(f"{a:.1f}" for a in first["locals"])]
        cells += [f"{first['ensemble']:.1f}", f"{first['average']:.1f}", f"{budget:g}x"]
        cells += [f"{own[way]['accuracy']:.1f}" if way in own else "" for way in WAYS]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", type=Path, nargs="?")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    every = [f"{budget}:{way}" for budget in BUDGETS for way in WAYS]
    parser.add_argument("--cells", nargs="+", default=every, help="BUDGET:WAY")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--table", action="store_true")
    told = parser.parse_args()
    if told.table:
        print(table())
    else:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore", pfnm.PFNMWarning)
        cells = [(float(b), way) for b, _, way in (cell.partition(":") for cell in told.cells)]
        run(told.networks, told.sets, cells, told.seeds)
