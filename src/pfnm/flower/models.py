"""What sites train: a perceptron as the lab has it, or any PyTorch module."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pfnm.conversion import load_module
from pfnm.errors import PFNMError
from pfnm.formats import load, save
from pfnm.formats.states import save_state
from pfnm.lab.plain import train_one_module
from pfnm.lab.training import Recipe, train_sites
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Network, Tensor

if TYPE_CHECKING:
    import torch

MakeNetwork = Callable[[int, int, Recipe, np.random.Generator], Network]
"""A network before training: from its number of inputs, of outputs, the recipe, its randomness."""
MakeModule = Callable[[], "torch.nn.Module"]
"""A module before training; what is random in it is drawn from PyTorch's own generator."""

SEEDS = 2**31  # of PyTorch's generator, as the lab draws them


def network_like(module: torch.nn.Module, example_inputs: Any) -> Network:
    """A module as a network, traced and proved on example inputs."""
    from pfnm.lab.modules import whole_network

    if example_inputs is None:
        raise PFNMError("a module is traced on inputs; give example_inputs, a batch as it takes it")
    return whole_network(module.eval(), example_inputs)


def of_modules(make: MakeModule, example_inputs: Any) -> MakeNetwork:
    """The same of a function that makes modules, traced once on example inputs.

    It is called with PyTorch's generator seeded for the site, and must make the same architecture
    each time.
    """
    like: Network | None = None

    def network(inputs: int, outputs: int, recipe: Recipe, rng: np.random.Generator) -> Network:
        import torch

        from pfnm.lab.modules import from_module

        nonlocal like
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(SEEDS)))
            module = make()
        if like is None:
            like = network_like(module, example_inputs)
        found = from_module(module, like)
        if found.numbers != inputs:
            raise PFNMError(
                f"the module takes {found.numbers} numbers, and the data has {inputs}; give inputs "
                "as the module takes them"
            )
        return found

    return network


def train_one(
    network: Network, inputs: Tensor, labels: IntArray, recipe: Recipe, rng: np.random.Generator
) -> Network:
    """A site's training, as in the lab."""
    if network.program.examples is None:
        return train_sites([network], inputs, labels, [np.arange(len(labels))], recipe, [rng])[0]
    return train_one_module(network, inputs, labels, recipe, rng)


def at_home(network: Network, inputs: Tensor) -> Network:
    """A network from the server as a site goes on with it: the same function.

    A module's batch normalisation then remembers the site's own inputs.
    """
    if network.program.examples is None:
        return network
    from pfnm.lab.modules import at_home as remembering

    return remembering(network, inputs)


def read_network(path: str | Path, like: Network, name: str) -> Network:
    """A trained network of the kind that `like` is, of whatever widths, from a file."""
    if like.program.examples is None:
        return load(path, name=name)
    from pfnm.lab.modules import from_module, to_module

    return from_module(load_module(path, to_module(like)), like)


def write_network(network: Network, path: str | Path) -> None:
    """A network as a file, one before it replaced: of modules their weights (`pfnm.load`)."""
    if network.program.examples is None:
        save(network, path, force=True)
        return
    from pfnm.lab.modules import state_of

    state = {key: tensor.numpy() for key, tensor in state_of(network).items()}
    save_state(state, {"kind": "global"}, path, force=True)
