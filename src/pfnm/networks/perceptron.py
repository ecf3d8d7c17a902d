"""Multilayer perceptrons as `Network`s: building one, its layers in order, running it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import erf, expit, softmax

from pfnm.errors import PFNMError
from pfnm.networks.network import (
    INPUT,
    OUTPUT,
    Axis,
    BoolArray,
    Label,
    Network,
    Scaling,
    Tensor,
    UnitGraph,
)

ROWS = 1024  # of the inputs at a time, so that a layer's values stay in the processor's cache
LEAKY_SLOPE = 0.01  # PyTorch's and ONNX's default slope of a leaky ReLU

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "sigmoid": expit,
    "identity": lambda x: x,
    "leaky_relu": lambda x: np.where(x > 0, x, LEAKY_SLOPE * x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "gelu": lambda x: x * (1 + erf(x / np.sqrt(2))) / 2,
    "silu": lambda x: x * expit(x),
}
OUTPUTS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda x: x,
    "values": lambda x: x,
    "softmax": lambda x: softmax(x, axis=1),
    "sigmoid": expit,
}
HEADS = ("sigmoid", "softmax", "values")  # the outputs a person may state where a file does not


@dataclass(frozen=True)
class Layer:
    """One layer: its weight as (inputs, outputs), whether it is stored transposed, its bias."""

    weight_name: str
    weight: Tensor
    transposed: bool
    bias_name: str | None
    bias: Tensor | None


def mlp(
    weights: Sequence[Tensor],
    biases: Sequence[Tensor | None] | None = None,
    *,
    names: Sequence[tuple[str, str | None]] | None = None,
    transposed: bool = True,
    activation: str = "relu",
    output: str = "identity",
    labels: Sequence[Label] | None = None,
    name: str = "network",
    metadata: Mapping[str, Any] | None = None,
    features: Sequence[str] | None = None,
    scaling: Scaling | None = None,
    activation_told: bool = True,
) -> Network:
    """The network x -> activation(x W + b) -> ... with weights given as (inputs, outputs).

    `names` holds (weight name, bias name) of each layer; by default layers.0.weight, layers.0.bias
    and so on. With `transposed`, weights are stored as (outputs, inputs), as PyTorch does.
    """
    if activation not in ACTIVATIONS:
        raise PFNMError(
            f"{name}: unknown activation {activation!r}; choose one of {', '.join(ACTIVATIONS)}"
        )
    if output not in OUTPUTS:
        raise PFNMError(f"{name}: unknown output {output!r}; choose one of {', '.join(OUTPUTS)}")
    if not weights:
        raise PFNMError(f"{name}: no layers found")
    biases = [None] * len(weights) if biases is None else biases
    if names is None:
        names = [(f"layers.{c}.weight", f"layers.{c}.bias") for c in range(len(weights))]
    groups = tuple(f"hidden{c}" for c in range(1, len(weights)))
    spaces = (INPUT, *groups, OUTPUT)
    tensors: dict[str, Tensor] = {}
    axes: dict[str, tuple[Axis, ...]] = {}
    for c, (weight, bias, (weight_name, bias_name)) in enumerate(
        zip(weights, biases, names, strict=True)
    ):
        below, above = Axis(spaces[c]), Axis(spaces[c + 1])
        tensors[weight_name] = np.asarray(weight).T if transposed else np.asarray(weight)
        axes[weight_name] = (above, below) if transposed else (below, above)
        if bias is not None:
            assert bias_name is not None
            tensors[bias_name] = np.asarray(bias)
            axes[bias_name] = (above,)
    return Network(
        tensors,
        UnitGraph(axes, groups),
        activation=activation,
        output=output,
        labels=None if labels is None else tuple(labels),
        name=name,
        metadata=metadata or {},
        features=None if features is None else tuple(features),
        scaling=scaling,
        activation_told=activation_told,
    )


def layers(network: Network) -> list[Layer]:
    """The layers of a multilayer perceptron, bottom to top; an error for any other network."""
    spaces = (INPUT, *network.graph.groups, OUTPUT)
    by_spaces = {
        tuple(sorted(axis.space for axis in axes)): name
        for name, axes in network.graph.axes.items()
        if all(axis.block == 1 for axis in axes)
    }
    found = []
    for below, above in pairwise(spaces):
        weight_name = by_spaces.pop(tuple(sorted((below, above))), None)
        if weight_name is None:
            raise PFNMError(
                f"{network.name}: no weight leads from {below!r} to {above!r}; this needs a "
                "multilayer perceptron"
            )
        weight = network.tensors[weight_name]
        transposed = network.graph.axes[weight_name][0].space != below
        bias_name = by_spaces.pop((above,), None)
        bias = None if bias_name is None else network.tensors[bias_name]
        found.append(
            Layer(weight_name, weight.T if transposed else weight, transposed, bias_name, bias)
        )
    if by_spaces:
        odd = next(iter(by_spaces.values()))
        raise PFNMError(
            f"{network.name}: tensor {odd!r} is no part of a multilayer perceptron's layers"
        )
    return found


def in_terms_of(network: Network, template: Network) -> Network:
    """The same multilayer perceptron with the template's tensor names and axis order."""
    if network.graph == template.graph:
        return network
    ours, theirs = layers(network), layers(template)
    if len(ours) != len(theirs):
        raise PFNMError(
            f"{network.name} has {len(ours) - 1} hidden layers, {template.name} has "
            f"{len(theirs) - 1}; pfnm fuses networks of equal depth"
        )
    tensors: dict[str, Tensor] = {}
    for our, their in zip(ours, theirs, strict=True):
        tensors[their.weight_name] = our.weight.T if their.transposed else our.weight
        if our.bias is not None and their.bias_name is not None:
            tensors[their.bias_name] = our.bias
        elif our.bias_name or their.bias_name:
            having, without = (network, template) if our.bias_name else (template, network)
            raise PFNMError(
                f"{having.name} has a bias {our.bias_name or their.bias_name!r}, {without.name} "
                "has none there; fuse networks that all have it, or all have not"
            )
    return replace(network, tensors=tensors, graph=template.graph)


def preactivations(
    network: Network, inputs: Tensor, first: Tensor | None = None
) -> Iterator[Tensor]:
    """The value of every layer before its activation, (examples, units), bottom to top.

    first: that of the first layer, where it is known already.
    """
    stack = layers(network)
    _check_inputs(network, inputs)
    activation = ACTIVATIONS[network.activation]
    values = inputs
    for depth, layer in enumerate(stack):
        if depth == 0 and first is not None:
            values = first
        else:
            values = (values if depth == 0 else activation(values)) @ layer.weight
            if layer.bias is not None:
                values = values + layer.bias
        yield values


def forward(network: Network, inputs: Tensor, first: Tensor | None = None) -> Tensor:
    """The outputs (examples, outputs) before the output function.

    first: what `first_layer` gives, where it is known already.
    """
    _check_inputs(network, inputs)
    outputs = []
    for start in range(0, max(len(inputs), 1), ROWS):
        rows = slice(start, start + ROWS)
        known = None if first is None else first[rows]
        *_, values = preactivations(network, inputs[rows], known)
        outputs.append(values)
    return np.concatenate(outputs)


def first_layer(network: Network, inputs: Tensor) -> Tensor:
    """The value of the first layer before its activation, (examples, units)."""
    blocks = (inputs[start : start + ROWS] for start in range(0, max(len(inputs), 1), ROWS))
    return np.concatenate([next(preactivations(network, block)) for block in blocks])


def _check_inputs(network: Network, inputs: Tensor) -> None:
    if inputs.ndim != 2 or inputs.shape[1] != network.sizes[INPUT]:
        raise PFNMError(
            f"{network.name} takes {network.sizes[INPUT]} inputs, the data has shape "
            f"{inputs.shape}; give one row of that many numbers for each example"
        )


def probabilities(network: Network, inputs: Tensor, known: BoolArray | None = None) -> Tensor:
    """A classifier's probabilities (examples, classes): softmax, or sigmoids where it says so.

    known: (classes,), those it has outputs for; the others get none.
    """
    output = "sigmoid" if network.output == "sigmoid" else "softmax"
    values = forward(network, inputs)
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
