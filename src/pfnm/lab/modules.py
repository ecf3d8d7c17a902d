"""PyTorch modules in a federation: networks with every tensor that a module trains.

To be matched, a network has batch normalisation folded away; to be trained or averaged as it
stands, it has it whole, with what it remembers. Sites and server exchange whole networks, and the
server folds them while it matches. A perceptron is both at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from pfnm.networks.network import Label, Network, Tensor
from pfnm.threads import one_of_torch
from pfnm.tracing.folding import Folding
from pfnm.tracing.modules import from_modules, program_of
from pfnm.tracing.resize import resized
from pfnm.tracing.rules.call import Map
from pfnm.tracing.running import ModuleProgram

if TYPE_CHECKING:
    import torch

MEMORY_ROWS = 512  # of a site's own inputs, by which batch normalisation's memory is set


@dataclass(frozen=True, eq=False, kw_only=True)
class WholeProgram(ModuleProgram):
    """Runs a traced module on all of its tensors: nothing is folded."""

    module: nn.Module
    """Any module of the architecture."""
    matched: Network
    """A network of it in the form that is matched."""

    @cached_property
    def folding(self) -> Folding:
        """None."""
        return Folding(())


def whole_network(
    module: nn.Module, example_inputs: Any, labels: tuple[Label, ...] | None = None
) -> Network:
    """A module as a network with all of its tensors; traced, and proved on example inputs."""
    (matched,) = from_modules([module], example_inputs, labels=[labels])
    own = program_of(matched)
    graph = replace(own.trace.graph, rigid=matched.graph.rigid, constant=matched.graph.constant)
    program = WholeProgram(own.trace, own.examples, module=module, matched=matched)
    tensors = own.trace.tensors(module)
    return Network(tensors, graph, program, labels=labels, name=matched.name)


def to_match(network: Network) -> Network:
    """The network in the form that is matched: batch normalisation folded into what is before."""
    program = network.program
    if not isinstance(program, WholeProgram):
        return network
    like = program.matched
    folding = program_of(like).folding
    return replace(
        like,
        tensors=dict(folding.fold(network.tensors)),
        memory=folding.memory(network.tensors) or None,
        name=network.name,
        labels=network.labels,
    )


def whole_again(network: Network, like: Network) -> Network:
    """A matched network in the whole form that `like` has: the same outputs.

    Batch normalisation is at rest: it remembers a mean of 0 and a variance of 1.
    """
    if not isinstance(like.program, WholeProgram):
        return network
    tensors = program_of(network).folding.unfold(network.tensors)
    return replace(like, tensors=tensors, name=network.name, labels=network.labels)


def at_home(network: Network, inputs: Tensor) -> Network:
    """The network with batch normalisation's memory from inputs of its own: the same outputs.

    While a module trains, each batch is normalised by itself; from here that changes little.
    """
    program = network.program
    if not isinstance(program, WholeProgram):
        return network
    matched = to_match(network)
    own = program_of(matched)
    if not own.folding.norms:
        return network
    rows = inputs[np.linspace(0, len(inputs) - 1, min(MEMORY_ROWS, len(inputs))).astype(int)]
    statistics = own.statistics(matched.tensors, rows)
    return replace(network, tensors=own.folding.unfold(matched.tensors, statistics))


def remembering(network: Network, inputs: Tensor) -> Network:
    """The network, whose batch normalisation remembers these inputs instead: other outputs.

    In one pass: each normalisation sees what the ones before it have become.
    """
    program = network.program
    if not isinstance(program, WholeProgram):
        return network
    tensors: dict[str, Any] = dict(network.tensors)

    def look(at: Map, features: torch.Tensor, *_: Any) -> dict[str, Any] | None:
        if at.statistics is None:
            return None
        rows = features.double().movedim(1, -1).flatten(0, -2)
        found = (rows.mean(dim=0), rows.var(dim=0, correction=0))
        new = {
            name: own.numpy().astype(tensors[name].dtype)
            for name, own in zip(at.statistics, found, strict=True)
        }
        tensors.update(new)
        return new

    args, kwargs = program.examples.placed(program.examples.tensors(inputs))
    with one_of_torch():
        program.trace.program.run(network.tensors, args, kwargs, visit=look)
    return replace(network, tensors=tensors)


def to_module(network: Network) -> nn.Module:
    """A whole network as a module of its own."""
    return resized(_whole(network).module, state_of(network))


def from_module(module: nn.Module, like: Network) -> Network:
    """A module of the architecture that `like` is of, as a whole network.

    Its tensors lie in memory as if they had been sent: in another order sums are rounded otherwise.
    """
    tensors = _whole(like).trace.tensors(module)
    return replace(like, tensors={name: own.copy(order="C") for name, own in tensors.items()})


def state_of(network: Network) -> dict[str, torch.Tensor]:
    """The tensors of a whole network as a module's state."""
    return _whole(network).trace.state(network.tensors)


def _whole(network: Network) -> WholeProgram:
    program = network.program
    assert isinstance(program, WholeProgram)
    return program
