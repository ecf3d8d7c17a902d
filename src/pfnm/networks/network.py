"""A network as named tensors, and the graph that says which of their axes are permuted together."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pfnm.errors import PFNMError

Array = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]
Tensor = NDArray[np.floating[Any]]
Label = str | int | float | bool

INPUT = "input"  # the space of a network's inputs: all sites share its coordinates
MOST_LISTED = 8  # labels in a representation
OUTPUT = "output"  # the space of its outputs: shared too, and what class counts and labels speak of


@dataclass(frozen=True)
class Axis:
    """One axis of a tensor: the space it indexes, `block` consecutive entries for each unit."""

    space: str
    block: int = 1

    def entries(self, units: IntArray) -> IntArray:
        """The positions along this axis that belong to `units`, in their order."""
        if self.block == 1:
            return units
        return (units[:, None] * self.block + np.arange(self.block)).ravel()


@dataclass(frozen=True)
class UnitGraph:
    """The space of every axis of every tensor.

    A space listed in `groups` (bottom to top) is a unit group: its axes are permuted together and
    the order of its units means nothing. Every other space is fixed: its coordinates mean the same
    at every site.
    """

    axes: Mapping[str, tuple[Axis, ...]]
    groups: tuple[str, ...]

    def __post_init__(self) -> None:
        spaces = {axis.space for axes in self.axes.values() for axis in axes}
        for group in self.groups:
            if group not in spaces:
                raise PFNMError(f"unit group {group!r} has no tensor axis; leave it out")
        for name, axes in self.axes.items():
            found = [axis.space for axis in axes if axis.space in self.groups]
            if len(set(found)) < len(found):
                raise PFNMError(
                    f"tensor {name!r} has two axes in unit group {found[0]!r}; pfnm matches groups "
                    "with one axis for each tensor"
                )

    def is_group(self, axis: Axis) -> bool:
        """Whether the axis belongs to a unit group (and not to a fixed space)."""
        return axis.space in self.groups

    def tensors_of(self, space: str) -> tuple[str, ...]:
        """The names of the tensors with an axis in `space`."""
        return tuple(n for n, axes in self.axes.items() if any(a.space == space for a in axes))


@dataclass(frozen=True, eq=False)
class Scaling:
    """What a scaler before a network tells of its inputs, (inputs,) each.

    The network takes inputs as they are, for the scaler is folded into its first layer; training it
    on is better done on (x - centre) / scale. The values lie between low and high.
    """

    centre: Array
    scale: Array
    low: Array
    high: Array

    def check(self, name: str, inputs: int | None) -> None:
        """An error unless there is a finite number of each for each input, and scales are > 0."""
        columns = (self.centre, self.scale, self.low, self.high)
        if any(column.shape != (inputs,) for column in columns):
            raise PFNMError(
                f"{name}: its scaling is of {self.centre.size} inputs, but it takes {inputs}; give "
                "one number for each"
            )
        finite = all(np.isfinite(column).all() for column in columns)
        if not (finite and (self.scale > 0).all() and (self.low <= self.high).all()):
            raise PFNMError(
                f"{name}: its scaling holds what is no centre, scale above 0, low and high; scale "
                "the inputs anew"
            )


@dataclass(frozen=True, eq=False, repr=False)
class Network:
    """Named tensors, their unit graph, and what is needed to run and read the network.

    `output` is the function after the last layer: "softmax", "sigmoid", "identity" (logits, or a
    regression), or "values" (a regression, known to be one). `labels` are the names of the outputs
    (classes), `features` those of the inputs, and `scaling` is what a scaler told of the inputs,
    where they are known. `name` is the site's. `activation_told` is false where nobody stated the
    activation.
    """

    tensors: Mapping[str, Tensor]
    graph: UnitGraph
    activation: str = "relu"
    output: str = "identity"
    labels: tuple[Label, ...] | None = None
    name: str = "network"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    features: tuple[str, ...] | None = None
    scaling: Scaling | None = None
    activation_told: bool = True

    def __post_init__(self) -> None:
        odd = sorted(set(self.tensors) ^ set(self.graph.axes))
        if odd:
            raise PFNMError(
                f"{self.name}: tensor {odd[0]!r} is in only one of the tensors and the unit graph"
            )
        for tensor_name, axes in self.graph.axes.items():  # before anything asks for a size
            shape = self.tensors[tensor_name].shape
            if len(shape) != len(axes):
                raise PFNMError(
                    f"{self.name}: tensor {tensor_name!r} has shape {shape}, expected {len(axes)} "
                    "axes"
                )
        for tensor_name, tensor in self.tensors.items():
            self._check(tensor_name, tensor)
        outputs = self.sizes.get(OUTPUT)
        if self.labels is not None:
            if len(self.labels) != outputs:
                raise PFNMError(
                    f"{self.name}: {len(self.labels)} labels for {outputs} outputs; give one label "
                    "for each output"
                )
            if len(set(self.labels)) < len(self.labels):
                raise PFNMError(f"{self.name}: a label stands twice in {list(self.labels)}")
        inputs = self.sizes.get(INPUT)
        if self.features is not None and len(self.features) != inputs:
            raise PFNMError(
                f"{self.name}: {len(self.features)} names of inputs for {inputs} inputs; give one "
                "for each"
            )
        if self.scaling is not None:
            self.scaling.check(self.name, inputs)

    def _check(self, name: str, tensor: Tensor) -> None:
        axes = self.graph.axes[name]
        if not np.issubdtype(tensor.dtype, np.floating):
            raise PFNMError(
                f"{self.name}: tensor {name!r} holds {tensor.dtype}, expected floating point"
            )
        if tensor.size == 0:
            raise PFNMError(f"{self.name}: tensor {name!r} is empty, shape {tensor.shape}")
        if not np.isfinite(tensor).all():
            raise PFNMError(
                f"{self.name}: tensor {name!r} holds NaN or infinite values; train this site again "
                "or leave it out"
            )
        for axis, length in zip(axes, tensor.shape, strict=True):
            if length != self.sizes[axis.space] * axis.block:
                raise PFNMError(
                    f"{self.name}: tensor {name!r} has shape {tensor.shape}, but {axis.space!r} "
                    f"has {self.sizes[axis.space]} units of {axis.block} entries in another tensor"
                )

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The number of units of every space, fixed ones included."""
        found: dict[str, int] = {}
        for name, axes in self.graph.axes.items():
            for axis, length in zip(axes, self.tensors[name].shape, strict=True):
                found.setdefault(axis.space, length // axis.block)
        return found

    @property
    def widths(self) -> dict[str, int]:
        """The number of units of every group, bottom to top."""
        return {group: self.sizes[group] for group in self.graph.groups}

    @property
    def parameters(self) -> int:
        """The number of weights and biases."""
        return sum(tensor.size for tensor in self.tensors.values())

    def predict(self, inputs: ArrayLike) -> NDArray[Any]:
        """The label, or the values, that the network gives to each input (see `predicting.py`)."""
        from pfnm.networks.predicting import predict  # which knows how a network runs

        return predict(self, inputs)

    def __repr__(self) -> str:
        sizes = " - ".join(str(self.sizes[space]) for space in self._spaces)
        labels = "not told" if self.labels is None else _listed(self.labels)
        told = "" if self.activation_told else " (not told)"
        return "\n".join(
            [
                f"Network {self.name!r}: {sizes}",
                f"  {self.parameters:,} parameters, {self.dtype}",
                f"  activation {self.activation}{told}",
                f"  output {self.output}",
                f"  labels {labels}",
            ]
        )

    def _repr_html_(self) -> str:
        title, *rows = map(html.escape, repr(self).splitlines())
        return f"<p><b>{title}</b></p><ul>{''.join(f'<li>{row}</li>' for row in rows)}</ul>"

    @property
    def _spaces(self) -> list[str]:
        """Inputs, groups and outputs, as far as there are some."""
        return [space for space in (INPUT, *self.graph.groups, OUTPUT) if space in self.sizes]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The widest floating-point type among the tensors."""
        return np.result_type(*self.tensors.values())


def _listed(labels: Sequence[Label]) -> str:
    """The first few labels."""
    few = ", ".join(map(str, labels[:MOST_LISTED]))
    return few + (f", ... ({len(labels)})" if len(labels) > MOST_LISTED else "")
