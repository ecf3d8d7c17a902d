"""Networks and files that many tests use."""

import gc
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pfnm import polishing
from pfnm.cli import main
from pfnm.formats import save
from pfnm.networks.network import Network
from pfnm.networks.perceptron import mlp

Run = Callable[..., tuple[int, str, str]]

# Flower reads these when it is imported; without, it writes into the user's home and asks the web.
os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}


def pytest_collection_finish() -> None:
    """What the libraries made when imported stays: nobody looks through it for garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command: its status, what it printed, and its errors."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pfnm", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        text = capsys.readouterr()
        return int(stop.value.code or 0), text.out, text.err

    return call


def random_network(
    seed: int, sizes: tuple[int, ...] = (6, 5, 4), *, biases: bool = True, name: str = "network"
) -> Network:
    """A network with random weights, inputs first."""
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=shape) for shape in pairwise(sizes)]
    own = [rng.normal(size=size) for size in sizes[1:]] if biases else None
    return mlp(weights, own, name=name)


def renamed(network: Network, rng: np.random.Generator) -> Network:
    """The same function with its hidden units in another order."""
    order = {group: rng.permutation(width) for group, width in network.widths.items()}
    tensors = {}
    for name, axes in network.graph.axes.items():
        tensors[name] = network.tensors[name]
        for dimension, axis in enumerate(axes):
            if axis.space in order:
                tensors[name] = np.take(tensors[name], order[axis.space], axis=dimension)
    return replace(network, tensors=tensors)


@pytest.fixture
def site_files(tmp_path: Path) -> list[Path]:
    """Three sites with 6 inputs, 5 to 7 units and 4 classes, and their class counts."""
    paths = []
    for j in range(3):
        path = tmp_path / f"site{j}.safetensors"
        save(random_network(j, (6, 5 + j, 4)), path)
        paths.append(path)
    counts = {f"site{j}": [j + 1, 2, 3, 4] for j in range(3)}
    (tmp_path / "counts.json").write_text(json.dumps(counts))
    return paths


@pytest.fixture
def few_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polish with a tenth of its probes."""
    for name, number in (("PLAIN", 2000), ("MIXED", 1000), ("SEEKING", 1000)):
        monkeypatch.setattr(polishing, f"{name}_PROBES", number)
