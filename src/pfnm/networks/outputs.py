"""What a network's outputs mean: the function after them, and what a person may tell of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import scipy

from pfnm.errors import PFNMError
from pfnm.networks.graph import OUTPUT
from pfnm.networks.network import BoolArray, Network, Tensor

OUTPUTS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda x: x,
    "values": lambda x: x,
    "softmax": lambda x: scipy.special.softmax(x, axis=1),
    "sigmoid": lambda x: scipy.special.expit(x),  # noqa: PLW0108  (loaded late)
}
HEADS = ("sigmoid", "softmax", "values")  # the outputs a person may state where a file does not


def probabilities(network: Network, inputs: Tensor, known: BoolArray | None = None) -> Tensor:
    """A classifier's probabilities (examples, classes): softmax, or sigmoids where it says so.

    known: (classes,), those it has outputs for; the others get none.
    """
    output = "sigmoid" if network.output == "sigmoid" else "softmax"
    values = network.run(inputs)
    return OUTPUTS[output](values if known is None else np.where(known, values, -np.inf))


def with_head(network: Network, head: str | None) -> Network:
    """The network with what its outputs are, as a person tells it; None tells nothing.

    "sigmoid": each output is a probability of its own; "softmax": the outputs exclude each other;
    "values": a regression. What the network states itself must agree; "identity" states nothing.
    """
    if head is None or head == network.output:
        return network
    if head not in HEADS:
        raise PFNMError(f"{network.name}: unknown head {head!r}; choose one of {', '.join(HEADS)}")
    if network.output != "identity":
        raise PFNMError(
            f"{network.name}: its output is {network.output!r}, the head given {head!r}; leave the "
            "head out or correct it"
        )
    if head == "softmax" and network.sizes[OUTPUT] == 1:
        raise PFNMError(
            f"{network.name}: one output alone cannot be a softmax; give the head sigmoid or values"
        )
    return replace(network, output=head)
