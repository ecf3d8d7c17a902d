"""What runs a network: given tensors and inputs it gives outputs, and shows each weight at work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True)
class Map:
    """A weight at work: features enter it, values leave it.

    `kind` says how: where it is "linear", what leaves is features times the weight plus the bias.
    Of a convolution the features are then patches, as many numbers as the weight has for each
    output. Where it is "scaled", what leaves an output is as much larger as its part of the weight
    and the bias are. What other kinds do is known to the program whose they are.
    """

    weight: str
    bias: str | None
    kind: str
    reads: int
    """The axis of the weight along which features enter."""
    writes: int
    """The axis along which values leave."""


Visitor = Callable[[Map, Any, Any], Mapping[str, Any] | None]
"""Sees each map in order of computation: the map, what enters, what leaves. If it returns tensors,
the map is done again with these, and the run goes on with them."""


@runtime_checkable
class InParts(Protocol):
    """Features that are made when they are asked for: all by `np.asarray`, or part by part."""

    def parts(self) -> Iterator[Any]:
        """All rows, some at a time."""


class Program(Protocol):
    """Runs tensors of one graph, whatever their widths."""

    @property
    def activation(self) -> str | None:
        """What every hidden unit does to its value, where it is one function."""

    @property
    def activation_told(self) -> bool:
        """False where nobody stated it."""

    @property
    def maps(self) -> tuple[Map, ...]:
        """Its weights at work, in order of computation."""

    @property
    def examples(self) -> Any:
        """A kind of inputs like those it was shown, where it was shown some; else None."""

    def probes(self, count: int, times: float = 1) -> int:
        """How many made-up inputs its size allows, of so many that are wanted.

        times: so many times as many as of an ordinary purpose, where more work is worth while.
        """

    def numbers(self, tensors: Mapping[str, Any]) -> int:
        """How many numbers one input has."""

    def run(
        self,
        tensors: Mapping[str, Any],
        inputs: Any,
        visit: Visitor | None = None,
        first: Any = None,
        rows: int | None = None,
    ) -> Any:
        """The outputs (examples, outputs), before the output function, of inputs (examples, ...).

        first: the values that leave the first map, where they are known already. rows: all inputs
        go through each map together, and a visitor sees about so many rows of linear and (values
        alone) of scaled ones: of an example's positions as many as that takes, the same whatever
        the tensors are. A visitor that gives tensors needs it.
        """

    def in_one_frame(self, sites: Sequence[Mapping[str, Any]], inputs: Callable[[], Any]) -> Any:
        """Tensors of several networks, changed in what their outputs do not depend on.

        What could be in any coordinates is brought into those in which the networks are most alike
        on inputs, which are made if there is use for them. Without any change it is `sites` itself.
        """

    def first_values(self, tensors: Mapping[str, Any], inputs: Any) -> Any:
        """The values that leave the first map, for `first`; None where it is not worth keeping."""
