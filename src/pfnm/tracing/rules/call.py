"""One operation of a traced network, as a rule sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pfnm.tracing.axes import ONE, Dim, SizeOf, is_pinned, leaves, length
from pfnm.tracing.joining import Joiner

Dims = tuple[Dim, ...]
Sizes = Callable[[SizeOf], Mapping[str, Any]]
Rule = Callable[["Call"], Any]


class NoRuleError(Exception):
    """A rule does not cover this call: what it touches is pinned."""


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor in the graph: its dimensions, and where it comes from."""

    dims: Dims
    weight: bool = False
    """Computed from parameters alone."""
    uniform: bool = False
    """The same number everywhere: its order means nothing."""
    tensor: str | None = None
    """The parameter it is, with axes in another order perhaps."""
    order: tuple[int, ...] = ()
    """The parameter's axes in the order of this value's."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths in the example."""
        return tuple(dim.size for dim in self.dims)


@dataclass(frozen=True)
class Map:
    """A node where a parameter meets an activation, for those who look on while a network runs.

    kind: linear, conv, matmul, embedding, recurrent, batch_norm. `arguments` are the operation's
    own (stride, padding, ...). `order`: the axes of the weight as the operation sees it.
    """

    kind: str
    weight: str | None
    bias: str | None = None
    order: tuple[int, ...] = ()
    statistics: tuple[str, str] | None = None
    others: tuple[str, ...] = ()
    node: str = ""
    module: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Call:
    """An operation: its arguments by name, the shapes it gives, and what may be done to axes."""

    name: str
    arguments: dict[str, Any]
    shapes: list[tuple[int, ...]]
    joiner: Joiner
    masks: list[Any] = field(default_factory=list)
    """Those of the arguments that hold truth values."""
    sizes: Sizes | None = None
    """New values for arguments that are sizes, where leaves have other sizes."""
    instead: Any = None
    """The operation that does the same at any sizes, where this one does not."""
    uniform: bool = False
    map: Map | None = None
    features: str = ""
    """The argument that a map reads."""
    merged: list[str] = field(default_factory=list)
    """Parameters whose first two axes are one product."""

    def __getitem__(self, argument: str) -> Any:
        return self.arguments[argument]

    def get(self, *arguments: str) -> Any:
        """The first of these arguments that the operation has."""
        for argument in arguments:
            if argument in self.arguments:
                return self.arguments[argument]
        return None

    @property
    def tensors(self) -> list[Value]:
        """All tensors among the arguments."""
        found: list[Value] = []
        for argument in self.arguments.values():
            for own in argument if isinstance(argument, list | tuple) else [argument]:
                if isinstance(own, Value):
                    found.append(own)
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first output."""
        return self.shapes[0]

    # -- shorthand for rules -----------------------------------------------------------------

    def join(self, left: Dim, right: Dim) -> None:
        """Two dimensions have the same positions."""
        self.joiner.join(left, right)

    def rigid(self, *dims: Dim, reason: str) -> None:
        """These can be permuted but not widened."""
        for dim in dims:
            self.joiner.stiffen(dim, reason)

    def position(self, dim: Dim, reason: str) -> None:
        """The order along this dimension means something to the operation."""
        self.joiner.pin(dim, self.joiner.reason("position", reason))

    def fresh(self, size: int, reason: str = "a position") -> Dim:
        """New positions with a meaning of their own."""
        return self.joiner.pinned(size, "position", reason) if size != 1 else ONE

    def free(self, size: int) -> Dim:
        """New positions that are all the same."""
        return self.joiner.leaf(size) if size != 1 else ONE

    def contract(self, left: Value, axis: int, right: Value, other: int) -> None:
        """A sum over the products along an axis of each."""
        self.join(left.dims[axis], right.dims[other])
        if right.weight:
            right.dims[other].read = right.dims[other]
        elif left.weight:
            left.dims[axis].read = left.dims[axis]
        else:
            self.rigid(left.dims[axis], reason="two activations are multiplied along it")

    def broadcast(self, values: Sequence[Dims], size: int | None = None) -> Dims:
        """The dimensions of values that are broadcast together."""
        rank = max((len(dims) for dims in values), default=0) if size is None else size
        result: list[Dim] = []
        for place in range(-rank, 0):
            own = [dims[place] for dims in values if len(dims) >= -place]
            wide = [dim for dim in own if dim.size != 1]
            for dim in wide[1:]:
                self.join(wide[0], dim)
            result.append(wide[0] if wide else ONE)
        return tuple(result)

    def resize(self, argument: str, dims: Sequence[Dim]) -> None:
        """The argument lists the lengths of these dimensions."""
        self.sizes = lambda size: {argument: [length(dim, size) for dim in dims]}

    def resize_one(self, argument: str, dim: Dim) -> None:
        """The argument is the length of this dimension."""
        self.sizes = lambda size: {argument: length(dim, size)}

    def maps(self, kind: str, features: str, weight: Value | None, bias: Value | None) -> None:
        """The operation is a map with these parameters, if they are some."""
        if weight is not None and weight.tensor is not None and (bias is None or bias.tensor):
            own = None if bias is None else bias.tensor
            self.map = Map(kind, weight.tensor, own, weight.order)
            self.features = features

    def pin_all(self, pin: Any) -> None:
        """Nothing that enters the operation is free."""
        for value in self.tensors:
            for dim in value.dims:
                self.joiner.pin(dim, pin)


def free_leaves(value: Value) -> bool:
    """Whether any of its dimensions is free."""
    return any(not is_pinned(dim) and leaves(dim) for dim in value.dims)
