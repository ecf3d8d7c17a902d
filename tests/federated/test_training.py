"""Stacked local training against training one by one."""

import numpy as np
import pytest

from pfnm.core.mlp import forward, layers
from pfnm.core.network import Network
from pfnm.federated.training import Recipe, batch_plan, initial_network, train_sites

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
    optimizer = torch.optim.Adam(
        parameters, lr=recipe.learning_rate, weight_decay=recipe.weight_decay, amsgrad=True
    )
    for batch in batch_plan(len(x), recipe, np.random.default_rng(seed)):
        rows = batch[batch >= 0]
        values = torch.tensor(x[rows])
        for c in range(0, len(parameters), per_layer):
            values = (values if c == 0 else torch.relu(values)) @ parameters[c]
            if per_layer == 2:
                values = values + parameters[c + 1]
        loss = torch.nn.functional.cross_entropy(values, torch.tensor(y[rows]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return Network(
        {
            name: (tensor.detach().numpy().T if tensor.ndim == 2 else tensor.detach().numpy())
            for name, tensor in zip(network.tensors, parameters, strict=True)
        },
        network.graph,
    )


@pytest.mark.parametrize("biases", [True, False])
def test_all_sites_at_once_is_the_same_as_one_by_one(biases: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(130, 6)).astype(np.float32)
    y = rng.integers(3, size=130)
    parts = [np.arange(70), np.arange(70, 75), np.arange(75, 130)]
    recipe = Recipe(hidden=(8, 5), epochs=3, batch_size=16, bias_start=0.1 if biases else None)
    starts = [initial_network(6, 3, recipe, np.random.default_rng(j)) for j in range(3)]
    rngs = [np.random.default_rng(10 + j) for j in range(3)]
    together = train_sites(starts, x, y, parts, recipe, rngs)
    for j, part in enumerate(parts):
        alone = one_by_one(starts[j], x[part], y[part], recipe, 10 + j)
        for name, tensor in alone.tensors.items():
            np.testing.assert_allclose(together[j].tensors[name], tensor, rtol=0, atol=1e-5)


def test_training_learns() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    x = (3 * np.eye(3)[y] + rng.normal(size=(300, 3))).astype(np.float32)
    recipe = Recipe(hidden=(16,), epochs=5, weight_scale=None)
    start = initial_network(3, 3, recipe, rng)
    (trained,) = train_sites([start], x, y, [np.arange(300)], recipe, [rng])
    assert (forward(trained, x).argmax(axis=1) == y).mean() > 0.9
