"""The data of a hospital: a file in a deployment, a part of scikit-learn's digits in simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from numpy.typing import NDArray

from pfnm.formats.data import read_examples
from pfnm.lab.data import load_data
from pfnm.lab.partition import split

Examples = tuple[NDArray[Any], NDArray[Any]]
INPUTS, CLASSES = 64, 10  # pictures of 8 by 8 points, from 0 to 1
HELD_BACK = 5  # of a hospital's examples every fifth is kept for measuring
SEED, ALPHA = 0, 1.0  # how hospitals differ in what they have: a Dirichlet split


def examples_of(place: int, hospitals: int) -> Examples:
    """Everything that one of so many hospitals has."""
    digits = load_data("digits")
    inputs = np.concatenate([digits.train_inputs, digits.test_inputs])
    labels = np.concatenate([digits.train_labels, digits.test_labels])
    rng = np.random.default_rng(SEED)
    part = split("dirichlet", labels, hospitals, rng, ALPHA)[place]
    return inputs[part], labels[part]


def write_files(folder: Path, names: list[str]) -> dict[str, Path]:
    """A file for each hospital, as each would have its own."""
    paths = {name: folder / f"{name}.npz" for name in names}
    for place, path in enumerate(paths.values()):
        inputs, labels = examples_of(place, len(names))
        np.savez(path, x=inputs, y=labels)
    return paths


def train_data(context: Context) -> Examples:
    """What a hospital trains on."""
    inputs, labels = _everything(context)
    kept = np.arange(len(labels)) % HELD_BACK != 0
    return inputs[kept], labels[kept]


def test_data(context: Context) -> Examples:
    """What a hospital measures on."""
    inputs, labels = _everything(context)
    return inputs[::HELD_BACK], labels[::HELD_BACK]


def _everything(context: Context) -> Examples:
    config = context.node_config
    if "data" in config:
        return read_examples(str(config["data"]))
    return examples_of(int(config["partition-id"]), int(config["num-partitions"]))
