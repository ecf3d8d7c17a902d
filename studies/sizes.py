"""The size by evidence and by agreement, against factors: accuracy for size.

The networks of the deep study (MNIST, and CIFAR-10's perceptrons), seeds from 10 on being fresh.
Measured: layers as wide as the evidence says ("evidence"; "marginal" is matched by the same rules
too), factors, the paper's method, the ensembles, and `budget="auto"`, which is one of the former by
agreement. Every row is written as it is measured; an interrupted study goes on where it stopped.
Unequal widths of three layers are measured when asked for (`--depths 3 --methods 450-120-120`).
`python studies/sizes.py` runs it into results/deep/sizes.jsonl; `--table` prints the tables of
docs/sizes.md from the rows.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from networks import SITES, site_networks

import pfnm
from pfnm.api import fuse_sites
from pfnm.fusing.joint import fuse_joint
from pfnm.fusing.sites import Sites
from pfnm.fusing.sizes import FACTORS, NEAR, evident
from pfnm.lab.data import Data, data_folder, load_data
from pfnm.matching.prior import Prior
from pfnm.networks.network import Network
from pfnm.networks.outputs import probabilities

PATH = Path(__file__).parents[1] / "results" / "deep" / "sizes.jsonl"
METHODS = ["uniform ensemble", "weighted ensemble", "paper", "2x", "3x", "4x"]
METHODS += ["evidence", "marginal", "no limit"]  # the last on even splits only
# Of three layers: 400 to 500 thousand parameters on MNIST, from a heavy first layer to a light.
SHAPES = [(450, 120, 120), (400, 150, 120), (500, 150, 100), (430, 250, 155), (430, 250, 250)]
SHAPES += [(350, 200, 200), (335, 335, 335), (250, 400, 350)]
Key = tuple[str, str, int, int]


def settings() -> list[Key]:
    """Data, split, depth and seed of every federation, the most telling first."""
    splits = ("even", "authors", "dirichlet")
    found: list[Key] = []
    for seed in (0, 10):
        found += [("mnist", split, depth, seed) for depth in (3, 1) for split in splits]
        found += [("cifar10", split, depth, seed) for depth in (1, 3) for split in splits[:2]]
    for seed in (10, 0):
        found += [("mnist", split, depth, seed) for depth in (6, 2) for split in splits]
    return found


def cells(
    sites: Sites, counts: np.ndarray[Any, Any], data: Data, even: bool
) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """The name of each thing to measure, and how."""
    x, y = data.test_inputs, data.test_labels
    networks = sites.networks

    def accuracy(outputs: Any) -> float:
        return float(100 * (outputs.argmax(axis=1) == y).mean())

    def ensemble(weights: Any) -> dict[str, Any]:
        total = sum(w * probabilities(n, x) for w, n in zip(weights, networks, strict=True))
        return {"accuracy": accuracy(total), "parameters": sum(n.parameters for n in networks)}

    def of(network: Network, share: float | None) -> dict[str, Any]:
        return {
            "accuracy": accuracy(network.run(x)),
            "parameters": network.parameters,
            "widths": list(network.widths.values()),
            "agreement": share,
        }

    def within(limits: Mapping[str, int] | None, prior: Prior | None = None) -> dict[str, Any]:
        prior = Prior.fit(networks) if prior is None else prior
        fused = fuse_joint(sites, prior=prior, rng=np.random.default_rng(0), limits=limits)
        return of(fused.network, fused.agreement)

    def paper() -> dict[str, Any]:
        fused = fuse_sites(sites, method="topdown", rng=np.random.default_rng(0))
        return of(fused.network, fused.agreement)

    widest = {group: max(n.widths[group] for n in networks) for group in networks[0].graph.groups}
    found = evident(sites, np.random.default_rng(0))
    yield "uniform ensemble", lambda: ensemble(np.ones((SITES, 1)))
    yield "weighted ensemble", lambda: ensemble(counts / counts.sum(axis=0))
    yield "evidence", lambda: within(found.widths)
    for factor in FACTORS:
        limits = {group: int(factor * width) for group, width in widest.items()}
        yield f"{factor:g}x", lambda limits=limits: within(limits)  # type: ignore[misc]
    for shape in SHAPES if len(widest) == len(SHAPES[0]) else ():
        limits = dict(zip(widest, shape, strict=True))
        yield shape_name(shape), lambda limits=limits: within(limits)  # type: ignore[misc]
    yield "marginal", lambda: within(None, found.prior)
    yield "paper", paper
    if even:
        yield "no limit", lambda: within(None)


def run(work: Path, wanted: Sequence[str], seeds: Sequence[int], depths: Sequence[int]) -> None:
    PATH.parent.mkdir(parents=True, exist_ok=True)
    done = {(*_key(row), row["method"]) for row in rows()}
    loaded = {name: load_data(name) for name in ("mnist", "cifar10")}
    with PATH.open("a") as file:
        for key in settings():
            name, split, depth, seed = key
            missing = [method for method in wanted if (*key, method) not in done]
            missing = [method for method in missing if method != METHODS[-1] or split == "even"]
            if not missing or seed not in seeds or depth not in depths:
                continue
            networks, counts = site_networks(loaded[name], split, depth, seed, work, name)
            sites = pfnm.as_sites(networks, class_counts=counts)
            for method, measure in cells(sites, counts, loaded[name], split == "even"):
                if method not in missing:
                    continue
                start = time.process_time()
                row = dict(zip(("data", "split", "depth", "seed"), key, strict=True))
                row |= {"method": method, **measure(), "seconds": time.process_time() - start}
                file.write(json.dumps(row) + "\n")
                file.flush()
            print(*key, flush=True)


def shape_name(shape: Sequence[int]) -> str:
    return "-".join(map(str, shape))


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in PATH.read_text().splitlines()] if PATH.exists() else []


def _key(row: Mapping[str, Any]) -> Key:
    return row["data"], row["split"], row["depth"], row["seed"]


def auto(own: Mapping[str, Mapping[str, Any]], near: float = NEAR) -> Mapping[str, Any]:
    """What `budget="auto"` takes: the smallest of those it tries that agrees about as well."""
    most = own["uniform ensemble"]["parameters"]
    tried = sorted(
        (own[name] for name in ("evidence", *(f"{f:g}x" for f in FACTORS))),
        key=lambda row: float(row["parameters"]),
    )
    tried = tried[:1] + [row for row in tried[1:] if row["parameters"] <= most]
    best = max(row["agreement"] for row in tried)
    return next(row for row in tried if row["agreement"] >= best - near)


def table() -> str:
    """Accuracy (and thousands of parameters), the mean over seeds, a row a federation."""
    by_set: dict[Key, dict[str, Mapping[str, Any]]] = {}
    for row in rows():
        by_set.setdefault(_key(row), {})[row["method"]] = row
    whole = {key: own for key, own in by_set.items() if {"evidence", "4x"} <= set(own)}
    methods = [*METHODS[:-1], "auto", METHODS[-1]]
    lines = ["| | seeds | " + " | ".join(methods) + " |", "|---|---|" + "---|" * len(methods)]
    for kind in dict.fromkeys(key[:3] for key in whole):
        sets: Sequence[dict[str, Mapping[str, Any]]] = [
            {**own, "auto": auto(own)} for key, own in whole.items() if key[:3] == kind
        ]
        texts = [_cell([own[m] for own in sets if m in own]) for m in methods]
        name = f"{kind[0]} {kind[1]}, {kind[2]} layers"
        lines.append(f"| {name} | {len(sets)} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _cell(own: Sequence[Mapping[str, Any]]) -> str:
    if not own:
        return ""
    accuracy, size = (np.mean([row[name] for row in own]) for name in ("accuracy", "parameters"))
    return f"{accuracy:.2f} ({size / 1000:.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="print the table from the rows")
    parser.add_argument("--work", type=Path, default=data_folder() / "deep-networks")
    parser.add_argument("--methods", nargs="+", default=METHODS, help="only these")
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 10), help="only these")
    parser.add_argument("--depths", type=int, nargs="+", default=(1, 2, 3, 6), help="only these")
    arguments = parser.parse_args()
    if arguments.table:
        print(table())
    else:
        run(arguments.work, arguments.methods, arguments.seeds, arguments.depths)


if __name__ == "__main__":
    main()
