"""Multilayer perceptrons as `Network`s: building one, its layers in order, running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pfnm.errors import PFNMError
from pfnm.networks.activations import ACTIVATIONS
from pfnm.networks.graph import INPUT, OUTPUT, Axis, UnitGraph
from pfnm.networks.network import Label, Network, Scaling, Tensor
from pfnm.networks.outputs import OUTPUTS
from pfnm.networks.program import Map, Visitor

ROWS = 1024  # of the inputs at a time, so that a layer's values stay in the processor's cache


@dataclass(frozen=True)
class Layer:
    """One layer: its weight as (inputs, outputs), whether it is stored transposed, its bias."""

    weight_name: str
    weight: Tensor
    transposed: bool
    bias_name: str | None
    bias: Tensor | None


@dataclass(frozen=True)
class Perceptron:
    """Runs x -> activation(x W + b) -> ... on arrays or tensors, also stacks of them."""

    activation: str
    maps: tuple[Map, ...]
    activation_told: bool = True
    examples: None = None

    def probes(self, count: int, times: float = 1) -> int:
        """All of them: a perceptron is quick."""
        return count

    def numbers(self, tensors: Mapping[str, Any]) -> int:
        """How many numbers one input has."""
        return int(_layer(tensors, self.maps[0]).weight.shape[-2])

    def run(
        self,
        tensors: Mapping[str, Any],
        inputs: Any,
        visit: Visitor | None = None,
        first: Any = None,
        rows: int | None = None,
    ) -> Any:
        """The outputs (examples, outputs) before the output function; see `Program.run`."""
        if visit is not None or not isinstance(inputs, np.ndarray) or len(inputs) <= ROWS:
            return self._run(tensors, inputs, visit, first)
        blocks = [slice(start, start + ROWS) for start in range(0, len(inputs), ROWS)]
        known = [None if first is None else first[rows] for rows in blocks]
        return np.concatenate(
            [
                self._run(tensors, inputs[rows], None, own)
                for rows, own in zip(blocks, known, strict=True)
            ]
        )

    def in_one_frame(self, sites: Sequence[Mapping[str, Any]], inputs: Callable[[], Any]) -> Any:
        """As they are: each of its hidden units does something of its own."""
        return sites

    def first_values(self, tensors: Mapping[str, Any], inputs: Any) -> Any:
        """The values that leave the first layer, (examples, units)."""
        layer = _layer(tensors, self.maps[0])
        starts = range(0, max(len(inputs), 1), ROWS)
        return np.concatenate([_values(layer, inputs[start : start + ROWS]) for start in starts])

    def _run(
        self, tensors: Mapping[str, Any], inputs: Any, visit: Visitor | None, first: Any
    ) -> Any:
        activation = ACTIVATIONS[self.activation]
        features = inputs
        for depth, own in enumerate(self.maps):
            if depth == 0 and first is not None:
                values = first
            else:
                features = features if depth == 0 else activation(values)
                values = _values(_layer(tensors, own), features)
            if visit is not None:
                changed = visit(own, features, values)
                if changed is not None:
                    values = _values(_layer({**tensors, **changed}, own), features)
        return values


def _values(layer: Layer, features: Any) -> Any:
    """What leaves a layer, (examples, units)."""
    values = features @ layer.weight
    return values if layer.bias is None else values + layer.bias


def _check_activation(name: str, activation: str) -> None:
    if activation not in ACTIVATIONS:
        raise PFNMError(
            f"{name}: unknown activation {activation!r}; choose one of {', '.join(ACTIVATIONS)}"
        )


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
    _check_activation(name, activation)
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
    maps = []
    for c, (weight, bias, (weight_name, bias_name)) in enumerate(
        zip(weights, biases, names, strict=True)
    ):
        below, above = Axis.of(spaces[c]), Axis.of(spaces[c + 1])
        own_bias = None if bias is None else bias_name
        reads, writes = (1, 0) if transposed else (0, 1)
        maps.append(Map(weight_name, own_bias, "linear", reads, writes))
        tensors[weight_name] = np.asarray(weight).T if transposed else np.asarray(weight)
        axes[weight_name] = (above, below) if transposed else (below, above)
        if bias is not None:
            assert bias_name is not None
            tensors[bias_name] = np.asarray(bias)
            axes[bias_name] = (above,)
    return Network(
        tensors,
        UnitGraph(axes, groups),
        Perceptron(activation, tuple(maps), activation_told),
        output=output,
        labels=None if labels is None else tuple(labels),
        name=name,
        metadata=metadata or {},
        features=None if features is None else tuple(features),
        scaling=scaling,
    )


def layers(network: Network) -> list[Layer]:
    """The layers of a multilayer perceptron, bottom to top; an error for any other network."""
    return [_layer(network.tensors, own) for own in perceptron(network).maps]


def perceptron(network: Network) -> Perceptron:
    """The program of a multilayer perceptron; an error for any other network."""
    if not isinstance(network.program, Perceptron):
        raise PFNMError(f"{network.name} is no multilayer perceptron, which this needs")
    return network.program


def _layer(tensors: Mapping[str, Any], own: Map) -> Layer:
    weight = tensors[own.weight]
    bias = None if own.bias is None else tensors[own.bias]
    transposed = own.writes == 0
    return Layer(own.weight, weight.T if transposed else weight, transposed, own.bias, bias)


def in_terms_of(network: Network, template: Network) -> Network:
    """The same multilayer perceptron with the template's tensor names and axis order."""
    if network.graph == template.graph and network.program.maps == template.program.maps:
        return network
    if not isinstance(template.program, Perceptron):
        raise _built_otherwise(network, template)
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
    program = replace(perceptron(network), maps=template.program.maps)
    return replace(network, tensors=tensors, graph=template.graph, program=program)


def _built_otherwise(network: Network, template: Network) -> PFNMError:
    ours, theirs = network.graph, template.graph
    odd = sorted(set(ours.axes) ^ set(theirs.axes))
    differ = [n for n in theirs.axes if n in ours.axes and ours.axes[n] != theirs.axes[n]]
    named = f" (tensor {(odd or differ)[0]!r})" if odd or differ else ""
    return PFNMError(
        f"{network.name} is built otherwise than {template.name}{named}; fuse networks that differ "
        "only in weights and widths"
    )


def with_activation(network: Network, activation: str) -> Network:
    """The perceptron with what its hidden units do, as a person tells it."""
    _check_activation(network.name, activation)
    return replace(
        network, program=replace(perceptron(network), activation=activation, activation_told=True)
    )
