"""Stacked local training against training one by one."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pfnm.errors import PFNMError
from pfnm.lab import training
from pfnm.lab.data import Data
from pfnm.lab.training import Recipe, batch_plan, initial_network, stacked, train_sites
from pfnm.networks.network import Network
from pfnm.networks.perceptron import layers

torch = pytest.importorskip("torch")


def one_by_one(
    network: Network, x: np.ndarray, y: np.ndarray, recipe: Recipe, seed: int
) -> Network:
    """The same training with torch's own modules, one site at a time."""
    stack = layers(network)
    parameters = []
    for layer in stack:
        parameters.append(torch.tensor(np.ascontiguousarray(layer.weight), requires_grad=True))
        if layer.bias is not None:
            parameters.append(torch.tensor(layer.bias, requires_grad=True))
    per_layer = len(parameters) // len(stack)
    starts = [parameter.detach().clone() for parameter in parameters]
    options = {"lr": recipe.learning_rate, "weight_decay": recipe.weight_decay}
    if recipe.optimizer == "sgd":
        optimizer = torch.optim.SGD(parameters, **options)
    else:
        optimizer = torch.optim.Adam(parameters, amsgrad=True, **options)
    for batch in batch_plan(len(x), recipe, np.random.default_rng(seed)):
        rows = batch[batch >= 0]
        values = torch.tensor(x[rows])
        for c in range(0, len(parameters), per_layer):
            values = (values if c == 0 else torch.relu(values)) @ parameters[c]
            if per_layer == 2:
                values = values + parameters[c + 1]
        loss = torch.nn.functional.cross_entropy(values, torch.tensor(y[rows]))
        for parameter, start in zip(parameters, starts, strict=True):
            loss = loss + recipe.proximal / 2 * ((parameter - start) ** 2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return Network(
        {
            name: (tensor.detach().numpy().T if tensor.ndim == 2 else tensor.detach().numpy())
            for name, tensor in zip(network.tensors, parameters, strict=True)
        },
        network.graph,
        network.program,
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"bias_start": None}, {"optimizer": "sgd", "learning_rate": 0.1}, {"proximal": 0.5}],
    ids=str,
)
@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_sites_at_once_are_the_same_as_one_by_one(
    options: dict[str, Any], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 50 steps of the largest site; the smallest has one batch an epoch."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(230, 6)).astype(np.float32)
    y = rng.integers(3, size=230)
    parts = [np.arange(160), np.arange(160, 165), np.arange(165, 230)]
    recipe = replace(Recipe(hidden=(8, 5), epochs=5, batch_size=16), **options)
    starts = [initial_network(6, 3, recipe, np.random.default_rng(j)) for j in range(3)]
    rngs = [np.random.default_rng(10 + j) for j in range(3)]
    threads = torch.get_num_threads()
    a_thread = -(-at_once * 20 * starts[0].parameters // threads)
    monkeypatch.setattr(training, "STACK_BYTES", a_thread)
    assert training.sites_at_once(starts[0].parameters, threads) == at_once
    together = train_sites(starts, x, y, parts, recipe, rngs)
    for j, part in enumerate(parts):
        alone = one_by_one(starts[j], x[part], y[part], recipe, 10 + j)
        for name, tensor in alone.tensors.items():
            np.testing.assert_allclose(together[j].tensors[name], tensor, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "threads", "at_once"),
    [((784, 100, 10), 1, 5), ((784, 100, 10), 2, 10), ((3072, 100, 10), 2, 2),
     ((3072, 400, 10), 2, 1)],
)  # fmt: skip
def test_sites_at_once_by_hand(sizes: tuple[int, int, int], threads: int, at_once: int) -> None:
    """8 MB a thread, 4 bytes a number, 5 numbers a weight."""
    inputs, hidden, outputs = sizes
    parameters = (inputs + 1) * hidden + (hidden + 1) * outputs
    assert training.sites_at_once(parameters, threads) == at_once


def test_a_site_that_diverges_fails_alone() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4)).astype(np.float32)
    x[:20] *= 1e30
    y = rng.integers(3, size=60)
    data = Data(x, y, x, y, ("a", "b", "c"))
    recipe = Recipe(hidden=(5,), epochs=3, optimizer="sgd")
    starts = {name: initial_network(4, 3, recipe, rng) for name in ("north", "south")}
    parts = {"north": np.arange(20), "south": np.arange(20, 60)}
    found = stacked(starts, data, parts, recipe, dict.fromkeys(starts, rng))
    assert isinstance(found["north"], PFNMError)
    assert "north: tensor" in str(found["north"])
    assert isinstance(found["south"], Network)


def test_training_learns() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    x = (3 * np.eye(3)[y] + rng.normal(size=(300, 3))).astype(np.float32)
    recipe = Recipe(hidden=(16,), epochs=5, weight_scale=None)
    start = initial_network(3, 3, recipe, rng)
    (trained,) = train_sites([start], x, y, [np.arange(300)], recipe, [rng])
    assert (trained.run(x).argmax(axis=1) == y).mean() > 0.9
