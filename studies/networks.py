"""The networks of the deep study: trained once, kept as files, so that the study can be resumed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import pfnm
from pfnm.core.network import Array, Network
from pfnm.federated.data import Data
from pfnm.federated.partition import dirichlet, homogeneous
from pfnm.federated.training import Recipe, initial_network, train_sites

SITES = 10
UNITS = 100
ALPHA = 0.5
LEAST_EXAMPLES = 10
SPLITS = ("even", "dirichlet")


def site_networks(
    data: Data, split: str, depth: int, seed: int, folder: Path
) -> tuple[list[Network], Array]:
    """Ten networks with `depth` hidden layers of 100 units, and their class counts (10, 10)."""
    place = folder / f"{split}-{depth}-{seed}"
    paths = [place / f"site{j}.safetensors" for j in range(SITES)]
    if not (place / "counts.json").exists():
        place.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng([seed, SPLITS.index(split)])
        labels = data.train_labels
        if split == "even":
            parts = homogeneous(labels, SITES, rng)
        else:
            parts = dirichlet(labels, SITES, ALPHA, rng, LEAST_EXAMPLES)
        recipe = Recipe(hidden=(UNITS,) * depth)
        rngs = np.random.default_rng([seed, SPLITS.index(split), depth]).spawn(2 * SITES)
        starts = [initial_network(784, 10, recipe, own) for own in rngs[:SITES]]
        trained = train_sites(starts, data.train_inputs, labels, parts, recipe, rngs[SITES:])
        for network, path in zip(trained, paths, strict=True):
            pfnm.save(network, path, force=True)
        counts = [np.bincount(labels[part], minlength=10).tolist() for part in parts]
        (place / "counts.json").write_text(json.dumps(counts))
    return [pfnm.load(path) for path in paths], np.array(
        json.loads((place / "counts.json").read_text())
    )
