"""Local training the plain way: one site after the other, any module, any optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pfnm.errors import PFNMError
from pfnm.lab.data import Data
from pfnm.lab.training import LocalTraining, Recipe, Rngs, Trained, batch_plan
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Network, Tensor
from pfnm.networks.perceptron import layers, mlp, perceptron

if TYPE_CHECKING:
    import torch

TrainOne = Callable[[Network, Tensor, IntArray, Recipe, np.random.Generator], Network]
"""One site: from its network, its inputs and labels, the recipe and its randomness."""


def one_by_one(train_one: TrainOne) -> LocalTraining:
    """Sites trained one after the other by a function; one that raises has failed, alone."""

    def train(
        starts: Mapping[str, Network],
        data: Data,
        parts: Mapping[str, IntArray],
        recipe: Recipe,
        rngs: Rngs,
    ) -> Trained:
        result: Trained = {}
        for name, start in starts.items():
            inputs, labels = data.train_inputs[parts[name]], data.train_labels[parts[name]]
            try:
                trained = train_one(start, inputs, labels, recipe, rngs[name])
                result[name] = replace(trained, name=name)
            except Exception as error:  # whatever a user's function raises
                result[name] = PFNMError(f"{name}: training failed ({error})")
        return result

    return train


def train_module(
    module: torch.nn.Module,
    inputs: Tensor,
    labels: IntArray,
    optimizer: torch.optim.Optimizer,
    recipe: Recipe,
    rng: np.random.Generator,
) -> None:
    """Train any module that gives logits, with any optimizer of its parameters."""
    import torch

    x, y = torch.from_numpy(np.ascontiguousarray(inputs)), torch.from_numpy(labels)
    module.train()
    for batch in batch_plan(len(labels), recipe, rng):
        rows = torch.from_numpy(batch[batch >= 0])
        loss = torch.nn.functional.cross_entropy(module(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    module.eval()


def module_of(network: Network) -> torch.nn.Sequential:
    """A ReLU network as a PyTorch module."""
    import torch

    if network.activation != "relu":
        raise PFNMError(f"{network.name}: its activation is {network.activation!r}, expected relu")
    stack = layers(network)
    modules: list[torch.nn.Module] = []
    for layer in stack:
        inputs, units = layer.weight.shape
        linear = torch.nn.Linear(inputs, units, bias=layer.bias is not None)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(np.ascontiguousarray(layer.weight.T)))
            if layer.bias is not None:
                linear.bias.copy_(torch.from_numpy(np.ascontiguousarray(layer.bias)))
        modules += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*modules[:-1])


def network_of(module: torch.nn.Sequential, like: Network) -> Network:
    """What `module_of` made, after training."""
    import torch

    linears = [part for part in module if isinstance(part, torch.nn.Linear)]
    weights = [linear.weight.detach().numpy().T.copy() for linear in linears]
    biases = [
        linear.bias.detach().numpy().copy()
        for linear in linears
        if layers(like)[0].bias is not None
    ]
    return mlp(
        weights,
        biases or None,
        activation=perceptron(like).activation,
        output=like.output,
        labels=like.labels,
        name=like.name,
    )
