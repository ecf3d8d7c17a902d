"""Made-up inputs: where there is no data, inputs of the kind that the networks know.

A kind makes inputs for every purpose: to see what units do, to fit the fused layers, to judge a
network, to teach it. `Units` are what the networks themselves look for; `kinds.py` has pictures,
signals and tables, `choosing.py` how a kind is chosen where none is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pfnm.errors import PFNMError
from pfnm.networks.network import Network, Scaling, Tensor
from pfnm.networks.perceptron import layers

MOST_ATOMS = 4  # weight vectors in one sum of them
UNIT_SHARE = 3  # of another kind, one input in so many is what units look for
FEW_INPUTS = 16  # with fewer, ends of the range alone would leave out what is between them


@dataclass(frozen=True, eq=False)
class InputRange:
    """Between which values inputs lie: one pair for all of them, or a pair for each."""

    low: Any = 0.0
    high: Any = 1.0

    def __post_init__(self) -> None:
        low, high = np.broadcast_arrays(*(np.asarray(e, float) for e in (self.low, self.high)))
        bad = np.flatnonzero(~(np.isfinite(low) & np.isfinite(high) & (low <= high)))
        if bad.size:
            where = "" if low.ndim == 0 else f" of input {bad[0]}"
            ends = f"{low.flat[bad[0]]:g} to {high.flat[bad[0]]:g}"
            raise PFNMError(
                f"the range{where} is {ends}, which is none; give two finite numbers, the smaller "
                "first"
            )
        if not (low < high).any():
            raise PFNMError("the inputs' range is empty: none of them varies; give another")

    @property
    def rest(self) -> Tensor:
        """What the range has nearest to zero."""
        return np.asarray(np.clip(np.float32(0), *self.ends))

    @property
    def width(self) -> Tensor:
        """The unit in which inputs are thought of; 1 for an input that does not vary."""
        low, high = self.ends
        return np.where(high > low, high - low, np.float32(1))

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        """The low and the high end, as arrays."""
        return np.asarray(self.low, np.float32), np.asarray(self.high, np.float32)

    def __call__(self, directions: Tensor) -> Tensor:
        """Directions (probes, inputs) as inputs: the largest entry of each at an end of the range.

        An entry of zero becomes what the range has nearest to zero, and entries for which there is
        no room on their side of it are cut: negative ones where the range begins at zero. An input
        with a wide range has small weights, so entries are compared in units of the range.
        """
        low, high = self.ends
        room = np.where(directions > 0, high - self.rest, self.rest - low)
        kept = np.where(room > 0, directions, 0) * self.width
        largest = np.abs(kept).max(axis=1, keepdims=True)
        return self.rest + room * (kept / np.where(largest > 0, largest, 1))

    def __str__(self) -> str:
        low, high = np.asarray(self.low), np.asarray(self.high)
        if low.ndim or high.ndim:
            return f"between {low.min():g} and {high.max():g}, each within its own range"
        return f"between {low:g} and {high:g}"


UNIT_RANGE = InputRange()  # of most pictures; other inputs are the better probed for their own


class Inputs(Protocol):
    """A kind of inputs: where their values lie, and how to make some."""

    @property
    def within(self) -> InputRange:
        """Between which values they lie."""

    def make(self, networks: Sequence[Network], count: int, rng: np.random.Generator) -> Tensor:
        """Inputs (count, inputs) for these networks."""


@dataclass(frozen=True, eq=False)
class Units:
    """Sums of a few first-layer weight vectors with random signs: what the units look for."""

    within: InputRange = UNIT_RANGE

    def make(self, networks: Sequence[Network], count: int, rng: np.random.Generator) -> Tensor:
        """Inputs (count, inputs), the largest entry of each at an end of the range."""
        atoms = np.concatenate([layers(network)[0].weight.T for network in networks])
        number = rng.integers(1, MOST_ATOMS + 1, size=count)
        sums = np.zeros((count, atoms.shape[1]), dtype=np.float32)
        for k in range(MOST_ATOMS):
            (more,) = np.nonzero(number > k)
            signs = rng.choice([-1, 1], size=(more.size, 1)).astype(np.float32)
            sums[more] += signs * atoms[rng.integers(len(atoms), size=more.size)]
        made = self.within(sums)
        if atoms.shape[1] < FEW_INPUTS:
            length = rng.uniform(size=(count, 1)).astype(np.float32)
            made = self.within.rest + length * (made - self.within.rest)
        return made

    def __str__(self) -> str:
        return "like what first-layer units look for"


@dataclass(frozen=True, eq=False)
class WithUnits:
    """A kind, and in place of every third input one that units look for: diversity helps."""

    kind: Inputs

    @property
    def within(self) -> InputRange:
        """Between which values they lie."""
        return self.kind.within

    def make(self, networks: Sequence[Network], count: int, rng: np.random.Generator) -> Tensor:
        """Inputs (count, inputs)."""
        made = self.kind.make(networks, count, rng)
        made[::UNIT_SHARE] = Units(self.within).make(networks, len(made[::UNIT_SHARE]), rng)
        return made

    def __str__(self) -> str:
        return str(self.kind)


@dataclass(frozen=True, eq=False)
class Scaled:
    """A kind of real inputs, in the units of a scaling."""

    kind: Inputs
    scaling: Scaling

    @property
    def within(self) -> InputRange:
        """Between which values they lie, in these units."""
        low, high = self.kind.within.ends
        return InputRange(self._in_units(low), self._in_units(high))

    def make(self, networks: Sequence[Network], count: int, rng: np.random.Generator) -> Tensor:
        """Inputs (count, inputs) in these units."""
        return self._in_units(self.kind.make(networks, count, rng))

    def _in_units(self, values: Tensor) -> Tensor:
        return ((values - self.scaling.centre) / self.scaling.scale).astype(np.float32)

    def __str__(self) -> str:
        return str(self.kind)


@dataclass(frozen=True, eq=False)
class Like:
    """A kind, and a few real inputs to imitate: every second one is mixed with one of them.

    Or they stand beside those of the kind, at most half of all: a network of pictures knows no two
    that shine through each other.
    """

    kind: Inputs
    rows: Tensor
    mixed: bool = True

    @property
    def within(self) -> InputRange:
        """Between which values they lie."""
        return self.kind.within

    def make(self, networks: Sequence[Network], count: int, rng: np.random.Generator) -> Tensor:
        """Inputs (count, inputs)."""
        made = self.kind.make(networks, count, rng)
        if (
            not self.mixed
        ):  # each real one at most once: what stands there often is learned by heart
            number = min(len(self.rows), -(-len(made) // 2))
            places = np.linspace(0, len(made) - 1, number).round().astype(int)
            made[places] = Given(self.rows).make(networks, number, rng)
            return made
        mixed = made[::2]
        share = rng.uniform(size=(len(mixed), 1)).astype(np.float32)
        mixed *= share
        mixed += (1 - share) * self.rows[rng.integers(len(self.rows), size=len(mixed))]
        return made

    def __str__(self) -> str:
        return f"like the {len(self.rows)} given"


@dataclass(frozen=True, eq=False)
class Given:
    """Real inputs in place of made-up ones: as many of them as there are, none of them twice."""

    rows: Tensor

    @property
    def within(self) -> InputRange:
        """Between which values they lie."""
        return InputRange(self.rows.min(), max(self.rows.max(), self.rows.min() + 1))

    def make(self, networks: Sequence[Network], count: int, rng: np.random.Generator) -> Tensor:
        """Inputs (count, inputs), or all there are."""
        return self.rows[rng.permutation(len(self.rows))[:count]]

    def __str__(self) -> str:
        return f"the {len(self.rows)} given"
