"""Small federations of many kinds, to see what can be told of the sites' classes from networks.

Every federation is drawn by its name (data set, scenario, seed): sites, widths, depth, activation,
first weights, weight decay, epochs and trainer differ. Trained once and kept as files.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pfnm.formats import load, save
from pfnm.frameworks.sklearn import from_estimator
from pfnm.fusing.inputs import UNIT_RANGE, InputRange
from pfnm.lab.data import Data, load_data
from pfnm.lab.partition import by_label, by_size, dirichlet, homogeneous
from pfnm.networks.graph import OUTPUT, IntArray
from pfnm.networks.network import Array, Network, Tensor
from pfnm.networks.perceptron import mlp

EVEN = ("even", "sizes", "small", "rare")
"""Like shares: plain; of different size; few and wrongly labelled examples; classes rare alike."""
UNEVEN = ("dirichlet 5", "dirichlet 1", "dirichlet 0.5", "dirichlet 0.1", "shards")
OTHER_LABELS = ("permuted one", "permuted all", "swapped", "subsets", "subset one")
PERMUTED_UNEVEN = ("permuted dirichlet 0.5",)
SCENARIOS = EVEN + UNEVEN + OTHER_LABELS + PERMUTED_UNEVEN
DATA = ("digits", "mnist", "synthetic", "fashion", "wine", "cancer", "twenty")
MOST_EXAMPLES = 2500  # of a data set, all sites together: small sites, trained in seconds
LEAST_EXAMPLES = 10
SMALL = (20, 60)  # examples at a small site
WRONG = 0.1  # of a small site's labels
RARE = 10  # times fewer examples of a third of the classes, everywhere alike
SUBSET = 0.6  # of the classes at a site that knows some only


@dataclass(frozen=True, eq=False)
class Federation:
    """Networks, what each has seen, and what its outputs mean."""

    name: str
    scenario: str
    networks: list[Network]
    meaning: list[IntArray]
    """For each site, the class that each of its outputs stands for."""
    counts: Array
    """(J, classes) by true class."""
    data: Data
    within: InputRange
    drawn: dict[str, Any]

    @property
    def output_counts(self) -> Array:
        """(J, outputs): examples of what each output stands for."""
        return np.array([own[m] for own, m in zip(self.counts, self.meaning, strict=True)])


@cache
def data_set(name: str) -> tuple[Data, InputRange]:
    """A data set of at most `MOST_EXAMPLES` for training, and the range of its inputs."""
    rng = np.random.default_rng(0)
    if name in ("digits", "mnist", "fashion"):
        data, within = load_data(name), UNIT_RANGE
    else:
        data, within = _table(name), InputRange(-3, 3)
    rows = rng.permutation(len(data.train_labels))[:MOST_EXAMPLES]
    tests = rng.permutation(len(data.test_labels))[:2000]
    return replace(
        data,
        train_inputs=data.train_inputs[rows],
        train_labels=data.train_labels[rows],
        test_inputs=data.test_inputs[tests],
        test_labels=data.test_labels[tests],
    ), within


def _table(name: str) -> Data:
    """Standardised columns; made-up ones for the two largest."""
    from sklearn.datasets import load_breast_cancer, load_wine, make_classification

    if name == "wine":
        x, y = load_wine(return_X_y=True)
    elif name == "cancer":
        x, y = load_breast_cancer(return_X_y=True)
    else:
        classes, features = (5, 15) if name == "synthetic" else (20, 40)
        x, y = make_classification(
            8000,
            features,
            n_informative=2 * features // 3,
            n_classes=classes,
            n_clusters_per_class=2,
            class_sep=2.0,
            random_state=0,
        )
    x = ((x - x.mean(axis=0)) / x.std(axis=0)).astype(np.float32)
    rows = np.random.default_rng(0).permutation(len(y))
    cut = len(y) * 4 // 5
    x, y = x[rows], y[rows].astype(np.int64)
    classes_named = tuple(str(k) for k in range(y.max() + 1))
    return Data(x[:cut], y[:cut], x[cut:], y[cut:], classes_named)


def federation(data_name: str, scenario: str, seed: int, folder: Path) -> Federation | None:
    """The federation of this name; None where the data set has too few classes for it."""
    data, within = data_set(data_name)
    classes = len(data.classes)
    if classes < 3 and scenario in ("subsets", "subset one", "shards"):
        return None
    name = f"{data_name}-{scenario.replace(' ', '')}-{seed}"
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    drawn = _drawn(data_name, scenario, rng)
    try:
        parts, meaning, labels = _split(data, scenario, drawn["sites"], rng)
    except ValueError:
        return None
    counts = np.array([np.bincount(data.train_labels[p], minlength=classes) for p in parts])
    if scenario in OTHER_LABELS + PERMUTED_UNEVEN and all(
        np.array_equal(own, meaning[0]) for own in meaning
    ):
        return None  # two classes, swapped everywhere: nothing differs
    place = folder / name
    paths = [place / f"site{j}.safetensors" for j in range(drawn["sites"])]
    if not (place / "drawn.json").exists():
        place.mkdir(parents=True, exist_ok=True)
        for path, own, means, y in zip(paths, parts, meaning, labels, strict=True):
            network = _trained(data.train_inputs[own], y, means, drawn, rng)
            named = replace(network, name=path.stem)
            save(named, path, force=True)
        (place / "drawn.json").write_text(json.dumps(drawn))
    networks = [load(path) for path in paths]
    if scenario in OTHER_LABELS + PERMUTED_UNEVEN:
        networks = [replace(network, labels=None) for network in networks]
        if len({network.sizes[OUTPUT] for network in networks}) > 1:
            return None  # scikit-learn leaves out a class it has not seen: this is told at once
    elif any(network.labels is not None for network in networks):
        networks = [replace(n, labels=n.labels or tuple(range(classes))) for n in networks]
    return Federation(name, scenario, networks, meaning, counts, data, within, drawn)


def _drawn(data_name: str, scenario: str, rng: np.random.Generator) -> dict[str, Any]:
    few = {"wine": 3, "cancer": 5}.get(data_name, 10)
    sites = int(rng.integers(2, few + 1))
    trainer = str(rng.choice(["torch", "torch", "torch", "sklearn", "paper"]))
    if data_name == "cancer" and trainer == "sklearn":
        trainer = "torch"
    depth = int(rng.integers(1, 4))
    width = int(rng.choice([30, 50, 100]))
    alike = rng.random() < 0.7
    return {
        "sites": sites,
        "trainer": trainer,
        "widths": [
            [int(width if alike else rng.integers(20, 101)) for _ in range(depth)]
            for _ in range(sites)
        ],
        "activation": str(rng.choice(["relu", "relu", "tanh"])),
        "decay": float(rng.choice([0, 0, 1e-4, 1e-2])),
        "epochs": int(rng.choice([5, 10, 20])),
        "rate": float(rng.choice([1e-3, 3e-3])),
    }


def _split(
    data: Data, scenario: str, sites: int, rng: np.random.Generator
) -> tuple[list[IntArray], list[IntArray], list[IntArray]]:
    """Each site's examples, what its outputs mean, and its labels (its own numbers of classes)."""
    y, classes = data.train_labels, len(data.classes)
    parts = _parts(y, scenario, sites, classes, rng)
    meaning = _meaning(scenario, sites, classes, rng)
    labels = []
    for j, own in enumerate(meaning):
        parts[j] = parts[j][np.isin(y[parts[j]], own)]
        place = np.full(classes, -1)
        place[own] = np.arange(len(own))
        found = place[y[parts[j]]]
        if scenario == "small":
            wrong = rng.random(found.size) < WRONG
            found = np.where(wrong, rng.integers(classes, size=found.size), found)
        labels.append(found)
    return parts, meaning, labels


def _parts(
    y: IntArray, scenario: str, sites: int, classes: int, rng: np.random.Generator
) -> list[IntArray]:
    """The positions of each site's examples."""
    kind, _, alpha = scenario.removeprefix("permuted ").partition(" ")
    if kind == "dirichlet":
        return dirichlet(y, sites, float(alpha), rng, LEAST_EXAMPLES)
    if scenario == "shards":
        return by_label(y, sites, rng)
    if scenario == "sizes":
        return by_size(y, sites, 0.5, rng, 3 * LEAST_EXAMPLES)
    if scenario == "rare":
        rare = rng.choice(classes, size=max(1, classes // 3), replace=False)
        rows = np.flatnonzero(~np.isin(y, rare) | (rng.random(y.size) < 1 / RARE))
        return [rows[part] for part in homogeneous(y[rows], sites, rng)]
    parts = homogeneous(y, sites, rng)
    if scenario == "small":
        parts = [rng.permutation(part)[: rng.integers(*SMALL)] for part in parts]
    return parts


def _meaning(scenario: str, sites: int, classes: int, rng: np.random.Generator) -> list[IntArray]:
    """The class that each output stands for, of each site."""
    same = np.arange(classes)
    meaning = [same.copy() for _ in range(sites)]
    if scenario.startswith("permuted"):
        others = range(sites) if scenario == "permuted all" else [int(rng.integers(sites))]
        for j in others:
            while (meaning[j] != same).mean() <= 0.5:
                meaning[j] = rng.permutation(classes)
    elif scenario == "swapped":
        pair = rng.choice(classes, size=2, replace=False)
        meaning[int(rng.integers(sites))][pair] = pair[::-1]
    elif scenario.startswith("subset"):
        known = max(2, int(np.ceil(SUBSET * classes)))
        usual = np.sort(rng.choice(classes, size=known, replace=False))
        other = int(rng.integers(sites))
        meaning = [usual for _ in range(sites)]
        for j in range(sites) if scenario == "subsets" else [other]:
            taken = usual if j == 0 or scenario == "subset one" else meaning[0]
            meaning[j] = taken
            while np.array_equal(meaning[j], taken):
                meaning[j] = np.sort(rng.choice(classes, size=known, replace=False))
    return meaning


def _trained(
    x: Tensor, y: IntArray, meaning: IntArray, drawn: dict[str, Any], rng: np.random.Generator
) -> Network:
    widths = drawn["widths"][0]
    drawn["widths"].append(drawn["widths"].pop(0))
    if drawn["trainer"] == "sklearn" and len(np.unique(y)) > 2:
        return _by_sklearn(x, y, widths, drawn, rng)
    return _by_torch(x, y, len(meaning), widths, drawn, rng)


def _by_sklearn(
    x: Tensor, y: IntArray, widths: list[int], drawn: dict[str, Any], rng: np.random.Generator
) -> Network:
    """scikit-learn's classifier; unseen classes keep an output that was never trained up."""
    import warnings

    from sklearn.neural_network import MLPClassifier

    model = MLPClassifier(
        tuple(widths),
        activation=drawn["activation"],
        max_iter=drawn["epochs"],
        learning_rate_init=drawn["rate"],
        random_state=int(rng.integers(2**31)),
        alpha=drawn["decay"],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x, y)
    return from_estimator(model)


def _by_torch(
    x: Tensor,
    y: IntArray,
    outputs: int,
    widths: list[int],
    drawn: dict[str, Any],
    rng: np.random.Generator,
) -> Network:
    torch.manual_seed(int(rng.integers(2**31)))
    sizes = [x.shape[1], *widths, outputs]
    stack = [torch.nn.Linear(a, b) for a, b in pairwise(sizes)]
    parameters = [p for layer in stack for p in layer.parameters()]
    paper = drawn["trainer"] == "paper"
    if paper:
        for p in parameters:
            torch.nn.init.normal_(p, std=0.1) if p.ndim == 2 else torch.nn.init.constant_(p, 0.1)
    optimizer = torch.optim.Adam(
        parameters,
        lr=0.01 if paper else drawn["rate"],
        weight_decay=1e-6 if paper else drawn["decay"],
        amsgrad=paper,
        fused=True,
    )
    bend = torch.tanh if drawn["activation"] == "tanh" else torch.relu
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))
    for _ in range(drawn["epochs"]):
        for rows in torch.split(torch.from_numpy(rng.permutation(len(y))), 32):
            values = inputs[rows]
            for layer in stack[:-1]:
                values = bend(layer(values))
            loss = torch.nn.functional.cross_entropy(stack[-1](values), labels[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return mlp(
        [layer.weight.detach().numpy().T.copy() for layer in stack],
        [layer.bias.detach().numpy().copy() for layer in stack],
        activation=drawn["activation"],
        output="softmax",
    )
