"""Units chosen instead of merged: all sites' networks side by side, trimmed to a width.

From the bottom, each layer keeps the units from which what all the others do can best be worked
out (pivoted Cholesky of their products on probes, weighted by what goes out of them), and the layer
above is fitted by least squares to what it got before; the outputs to what the sites say together.
Probes are made up, or real inputs without labels. Beside it the default fusion of the same width.

A row for each in results/deep/trimming.jsonl, as it is measured; an interrupted study goes on where
it stopped. `--table` prints the table of docs/sizes.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from networks import UNITS, side_by_side, site_networks

import pfnm
from pfnm.fusing.joint import fuse_joint
from pfnm.fusing.probes import (
    CHECK_PROBES,
    IMPOSSIBLE,
    Probing,
    agreement,
    probe,
    sure_agreement,
)
from pfnm.fusing.sites import Sites
from pfnm.lab.data import Data, data_folder, load_data
from pfnm.matching.prior import Prior
from pfnm.networks.network import Array, Network
from pfnm.networks.perceptron import layers

PATH = Path(__file__).parents[1] / "results" / "deep" / "trimming.jsonl"
SPLITS, SEEDS, DEPTH = ("dirichlet", "even"), (0, 10), 3
WIDTHS = (UNITS, 2 * UNITS, 335)  # the last: half of the sites' parameters together
PROBES = 3000
RIDGE = 1e-4  # of the mean square of what a unit does
CASE = ("split", "seed", "width", "method")


def keep(does: Array, out: Array, count: int) -> Array:
    """The units (columns of `does`) that tell most of all, `out` being how much each counts."""
    scaled = (does - does.mean(axis=0)) * out
    products = scaled.T @ scaled
    _, pivots, _, _ = scipy.linalg.lapack.dpstrf(products, tol=0.0)
    chosen: Array = np.sort(pivots[:count] - 1)
    return chosen


def trimmed(network: Network, inputs: Array, wanted: Array, width: int) -> Network:
    """The network with so many units a layer. wanted: (inputs, outputs), what should come out."""
    own = layers(network)
    weights = [layer.weight.astype(float) for layer in own]
    biases = [np.asarray(layer.bias, dtype=float) for layer in own]
    values, does = [], inputs
    for weight, bias in zip(weights, biases, strict=True):
        values.append(does @ weight + bias)
        does = np.maximum(values[-1], 0)
    values[-1] = wanted
    does = inputs
    for at in range(len(own) - 1):
        does = np.maximum(does @ weights[at] + biases[at], 0)
        kept = keep(does, np.linalg.norm(weights[at + 1], axis=1), width)
        weights[at], biases[at], does = weights[at][:, kept], biases[at][kept], does[:, kept]
        known = np.concatenate([does, np.ones((len(does), 1))], axis=1)
        gram = known.T @ known
        gram[np.diag_indices_from(gram)] += RIDGE * np.trace(gram) / len(gram)
        found = np.linalg.solve(gram, known.T @ values[at + 1])
        weights[at + 1], biases[at + 1] = found[:-1], found[-1]
    tensors = dict(network.tensors)
    for layer, weight, bias in zip(own, weights, biases, strict=True):
        assert layer.bias_name is not None
        stored = weight.T.copy() if layer.transposed else weight
        tensors[layer.weight_name] = stored.astype(np.float32)
        tensors[layer.bias_name] = bias.astype(np.float32)
    return replace(network, tensors=tensors)


def said(sites: Sites, outputs: Sequence[Any]) -> Array:
    """The sites' log probabilities, each by its share of the class, centred: (inputs, outputs)."""
    logs = [scipy.special.log_softmax(np.asarray(o, dtype=float), axis=0) for o in outputs]
    shares = sites.class_shares
    total = sum(s[:, None] * np.maximum(o, IMPOSSIBLE) for s, o in zip(shares, logs, strict=True))
    result: Array = (total - np.mean(total, axis=0)).T
    return result


def run(work: Path, data: Data) -> None:
    done = {tuple(row[name] for name in CASE) for row in rows()}
    for seed, split in product(SEEDS, SPLITS):
        networks, counts = site_networks(data, split, DEPTH, seed, work)
        sites = pfnm.as_sites(networks, class_counts=counts)
        rng = np.random.default_rng(seed)
        probing, to_check = (
            probe(sites, PROBES, rng),
            probe(sites, CHECK_PROBES, rng, to_judge=True),
        )
        real = data.train_inputs[rng.permutation(len(data.train_inputs))[:PROBES]]
        given = pfnm.as_sites(networks, class_counts=counts, inputs=real)
        outputs = [network.run(real).T for network in networks]
        kinds = {
            "": (sites, probing.inputs, probing.outputs),
            ", real inputs": (given, real, outputs),
        }
        whole = side_by_side(networks)
        for width, kind, method in product(WIDTHS, kinds, ("fused", "trimmed")):
            case = (split, seed, width, method + kind)
            if case in done:
                continue
            start = time.process_time()
            known, inputs, answers = kinds[kind]
            if method == "fused":
                limits = dict.fromkeys(networks[0].graph.groups, width)
                generator = np.random.default_rng(0)
                prior = Prior.fit(networks)
                network = fuse_joint(known, prior=prior, rng=generator, limits=limits).network
            else:
                network = trimmed(whole, inputs.astype(float), said(known, answers), width)
            row = dict(zip(CASE, case, strict=True)) | measured(network, data, to_check)
            with PATH.open("a") as file:
                file.write(json.dumps(row | {"seconds": time.process_time() - start}) + "\n")
            print(row, flush=True)


def measured(network: Network, data: Data, to_check: Probing) -> dict[str, Any]:
    answers = network.run(data.test_inputs).argmax(axis=1)
    return {
        "accuracy": float(100 * (answers == data.test_labels).mean()),
        "parameters": network.parameters,
        "agreement": agreement(network, to_check),
        "sure_agreement": sure_agreement(network, to_check),
    }


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in PATH.read_text().splitlines()] if PATH.exists() else []


def table() -> str:
    """Accuracy and, in brackets, sure agreement: a row for each width, a column for each method."""
    found = {tuple(row[name] for name in CASE): row for row in rows()}
    methods = ["fused", "trimmed", "fused, real inputs", "trimmed, real inputs"]
    lines = ["| | " + " | ".join(methods) + " |", "|---|" + "---|" * len(methods)]
    for split, seed, width in sorted({case[:3] for case in found}):
        cells = [found.get((split, seed, width, method)) for method in methods]
        texts = [f"{c['accuracy']:.2f} ({c['sure_agreement']:.2f})" if c else "" for c in cells]
        lines.append(f"| {split}, seed {seed}, {width} units | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="print the table from the rows")
    parser.add_argument("--work", type=Path, default=data_folder() / "deep-networks")
    arguments = parser.parse_args()
    if arguments.table:
        print(table())
    else:
        run(arguments.work, load_data("mnist"))


if __name__ == "__main__":
    main()
