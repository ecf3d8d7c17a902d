"""A network: named tensors, the graph of their units, and a program that runs them."""

from __future__ import annotations

import html
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pfnm.errors import PFNMError
from pfnm.networks.graph import INPUT, OUTPUT, UnitGraph
from pfnm.networks.program import Program, Visitor

Array = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Tensor = NDArray[np.floating[Any]]
Label = str | int | float | bool

MOST_LISTED = 8  # labels in a representation


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


@dataclass(frozen=True, eq=False)
class Taken:
    """Arrays that are somebody else's, read where they are, and a checksum of what they held.

    PyTorch's own counters of changes do not see all: numpy may write, or a tensor's `data`.
    """

    arrays: Mapping[str, Tensor]
    checksum: int

    @classmethod
    def of(cls, arrays: Mapping[str, Tensor]) -> Taken:
        """Arrays as they are now."""
        return cls(arrays, _checksum(arrays))

    def check(self, name: str) -> None:
        """An error if they have changed since."""
        if _checksum(self.arrays) != self.checksum:
            raise PFNMError(
                f"{name}: the module's weights have changed since they were taken (it was trained "
                "on?), and they are read where they are; fuse the modules anew, or fuse copies of "
                "those that are trained on (copy.deepcopy)"
            )


def _checksum(arrays: Mapping[str, Tensor]) -> int:
    found = 0
    for array in arrays.values():
        found = zlib.crc32(np.ascontiguousarray(array).data, found)
    return found


@dataclass(frozen=True, eq=False, repr=False)
class Network:
    """Named tensors, their unit graph, a program that runs them, and what is known of them.

    `output` is the function after the last layer: "softmax", "sigmoid", "identity" (logits, or a
    regression), or "values" (a regression, known to be one). `labels` are the names of the outputs
    (classes), `features` those of the inputs, and `scaling` is what a scaler told of the inputs,
    where they are known. `name` is the site's.
    """

    tensors: Mapping[str, Tensor]
    graph: UnitGraph
    program: Program
    output: str = "identity"
    labels: tuple[Label, ...] | None = None
    name: str = "network"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    features: tuple[str, ...] | None = None
    scaling: Scaling | None = None
    memory: Mapping[str, tuple[Array, Array]] | None = None
    """What it remembers of its training: mean and variance of what left each normalisation, by the
    name of its shift."""
    taken: Taken | None = None
    """The arrays of a module that the tensors read, where they are a module's own."""

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
        if tensor.dtype.kind != "f":
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
        if any(space not in self.sizes for axis in axes for space in axis.spaces):
            raise PFNMError(
                f"{self.name}: the sizes along tensor {name!r} do not follow from the tensors; "
                "state them in the graph"
            )
        expected = self.graph.shape(name, self.sizes)
        if tensor.shape != expected:
            raise PFNMError(
                f"{self.name}: tensor {name!r} has shape {tensor.shape}, but by the other tensors "
                f"it should have {expected}"
            )

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The number of units of every space, fixed ones included."""
        return self.graph.sizes({name: self.tensors[name].shape for name in self.graph.axes})

    @property
    def widths(self) -> dict[str, int]:
        """The number of units of every group that is not within another, bottom to top."""
        return {group: self.sizes[group] for group in self.graph.outer_groups}

    @property
    def parameters(self) -> int:
        """The number of weights and biases."""
        return sum(tensor.size for tensor in self.tensors.values())

    @property
    def activation(self) -> str | None:
        """What every hidden unit does to its value, where it is one function."""
        return self.program.activation

    @property
    def activation_told(self) -> bool:
        """False where nobody stated the activation."""
        return self.program.activation_told

    @property
    def numbers(self) -> int:
        """How many numbers one input has."""
        return self.program.numbers(self.tensors)

    def run(
        self,
        inputs: Any,
        visit: Visitor | None = None,
        first: Any = None,
        rows: int | None = None,
    ) -> Any:
        """The outputs (examples, outputs) before the output function; see `Program.run`."""
        if inputs.ndim != 2 or inputs.shape[1] != self.numbers:
            raise PFNMError(
                f"{self.name} takes {self.numbers} inputs, the data has shape {inputs.shape}; "
                "give one row of that many numbers for each example"
            )
        return self.program.run(self.tensors, inputs, visit, first, rows)

    def first_values(self, inputs: Any) -> Any:
        """The values that leave the first map, where they are worth keeping; for `run`."""
        return self.program.first_values(self.tensors, inputs)

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
                *([] if self.activation is None else [f"  activation {self.activation}{told}"]),
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

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The widest floating-point type among the tensors."""
        return np.result_type(*(tensor.dtype for tensor in self.tensors.values()))


def _listed(labels: Sequence[Label]) -> str:
    """The first few labels."""
    few = ", ".join(map(str, labels[:MOST_LISTED]))
    return few + (f", ... ({len(labels)})" if len(labels) > MOST_LISTED else "")
