"""Local training the plain way: one site after the other, any module, any optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pfnm.errors import PFNMError
from pfnm.lab.data import Data
from pfnm.lab.training import LocalTraining, Recipe, Rngs, Trained, batch_plan, optimizer_of
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Network, Tensor
from pfnm.networks.perceptron import layers, mlp, perceptron
from pfnm.threads import one_of_torch

if TYPE_CHECKING:
    import torch

LEAST_ROWS = 2  # of a batch
PICTURES = 4  # axes of a batch of them

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
    inputs: Any,
    labels: IntArray,
    optimizer: torch.optim.Optimizer,
    recipe: Recipe,
    rng: np.random.Generator,
) -> None:
    """Train any module that gives logits, with any optimizer of its parameters.

    inputs: as the module takes them. labels: (examples,), or (examples, places) where there are
    logits (examples, places, classes).
    """
    import torch

    x, y = torch.as_tensor(inputs), torch.from_numpy(labels)
    parameters = list(module.parameters())
    starts = [p.detach().clone() for p in parameters] if recipe.proximal > 0 else []
    module.train()
    for batch in batch_plan(len(labels), recipe, rng):
        rows = torch.from_numpy(batch[batch >= 0])
        if len(rows) < min(LEAST_ROWS, recipe.batch_size) and len(labels) > 1:
            continue  # what is left over: batch normalisation has nothing to compare it with
        logits = module(x[rows])
        wanted = y[rows].flatten()
        loss = torch.nn.functional.cross_entropy(logits.reshape(len(wanted), -1), wanted)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        for p, start in zip(parameters, starts, strict=False):
            if p.grad is not None:
                p.grad.add_(p.detach() - start, alpha=recipe.proximal)
        optimizer.step()
    module.eval()


def train_one_module(
    network: Network, inputs: Tensor, labels: IntArray, recipe: Recipe, rng: np.random.Generator
) -> Network:
    """A module as the recipe says; what is random within it follows the site's randomness."""
    import torch

    module = module_of(network)
    x = network.program.examples.tensors(inputs)[0]
    if x.dim() == PICTURES:  # the faster order of convolutions on processors
        x = x.contiguous(memory_format=torch.channels_last)
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with torch.random.fork_rng(devices=[]), one_of_torch():
        torch.manual_seed(int(rng.integers(2**31)))
        train_module(
            module, x, labels, optimizer_of(list(module.parameters()), recipe), recipe, rng
        )
    return network_of(module, network)


modules = one_by_one(train_one_module)
"""The lab's training of modules. (Stacked by torch.func.vmap they were slower: docs/lab.md.)"""


def module_of(network: Network) -> torch.nn.Module:
    """A ReLU perceptron, or a network made of a module, as a PyTorch module."""
    if network.program.examples is not None:
        from pfnm.lab.modules import to_module

        return to_module(network)
    return _sequential(network)


def network_of(module: torch.nn.Module, like: Network) -> Network:
    """What `module_of` made, after training."""
    if like.program.examples is not None:
        from pfnm.lab.modules import from_module

        return from_module(module, like)
    return _perceptron_of(module, like)


def _sequential(network: Network) -> torch.nn.Sequential:
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


def _perceptron_of(module: torch.nn.Module, like: Network) -> Network:
    import torch

    linears = [part for part in module.children() if isinstance(part, torch.nn.Linear)]
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
