"""The networks of the deep study: trained once, kept as files, so that the study can be resumed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.linalg import block_diag

import pfnm
from pfnm.lab.data import Data
from pfnm.lab.partition import dirichlet, homogeneous
from pfnm.lab.setting import Setting, paper_training
from pfnm.lab.training import initial_network, train_sites
from pfnm.networks.network import Array, Network, Tensor
from pfnm.networks.perceptron import layers

SITES = 10
UNITS = 100
ALPHA = 0.5
LEAST_EXAMPLES = 10
SPLITS = ("even", "dirichlet", "authors")


def site_networks(
    data: Data, split: str, depth: int, seed: int, folder: Path, name: str = "mnist"
) -> tuple[list[Network], Array]:
    """Ten networks with `depth` hidden layers of 100 units, and their class counts (10, 10).

    name: of the data, for its training and its folder.
    """
    other = "" if name == "mnist" else f"{name}-"
    place = folder / f"{other}{split}-{depth}-{seed}"
    paths = [place / f"site{j}.safetensors" for j in range(SITES)]
    if not (place / "counts.json").exists():
        place.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng([seed, SPLITS.index(split)])
        labels = data.train_labels
        if split == "even":
            parts = homogeneous(labels, SITES, rng)
        else:
            capped = split == "authors"
            parts = dirichlet(labels, SITES, ALPHA, rng, LEAST_EXAMPLES, capped=capped)
        recipe = Setting(data=name, hidden=(UNITS,) * depth, **paper_training(name)).recipe
        rngs = np.random.default_rng([seed, SPLITS.index(split), depth]).spawn(2 * SITES)
        inputs = data.train_inputs.shape[1]
        starts = [initial_network(inputs, 10, recipe, own) for own in rngs[:SITES]]
        trained = train_sites(starts, data.train_inputs, labels, parts, recipe, rngs[SITES:])
        for network, path in zip(trained, paths, strict=True):
            pfnm.save(network, path, force=True)
        counts = [np.bincount(labels[part], minlength=10).tolist() for part in parts]
        (place / "counts.json").write_text(json.dumps(counts))
    return [pfnm.load(path) for path in paths], np.array(
        json.loads((place / "counts.json").read_text())
    )


def side_by_side(networks: Sequence[Network]) -> Network:
    """Networks kept whole in one: hidden layers beside each other, outputs added."""
    stacks = [layers(network) for network in networks]
    top = len(stacks[0]) - 1
    tensors: dict[str, Tensor] = {}
    for depth, own in enumerate(zip(*stacks, strict=True)):
        first = own[0]
        assert first.bias_name is not None
        blocks = [layer.weight for layer in own]
        biases = [layer.bias for layer in own if layer.bias is not None]
        whole: Tensor = np.concatenate(blocks, axis=1 if depth == 0 else 0)
        if 0 < depth < top:
            whole = block_diag(*blocks).astype(whole.dtype)
        tensors[first.weight_name] = whole.T.copy() if first.transposed else whole
        tensors[first.bias_name] = np.concatenate(biases) if depth < top else np.sum(biases, axis=0)
    return replace(networks[0], tensors=tensors, name="side by side")
