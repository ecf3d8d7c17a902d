"""Gaussian sums: absorb a site, release it again, and the mean that follows.

Global units live in slots that are reused; a slot nobody uses has the prior's precision, and sums
that mean nothing. `born` remembers the order in which units were founded, which is the order they
are numbered in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array

BoolArray = NDArray[np.bool_]

GROWTH = 2  # buffers grow by this factor, so that growing costs constant time a unit
BLOCK = 64  # slots come in whole blocks: a product at the edge of a matrix may round otherwise
ADDED = 2**19  # numbers that are added at a time: large units are not held once more


def in_blocks(count: int) -> int:
    """The number of slots in the blocks that hold so many."""
    return -(-count // BLOCK) * BLOCK


@dataclass(frozen=True)
class Part:
    """Some columns of one site's atoms.

    `weighted` is v p, (units, D); `precision` p is (1,) where one value holds for all the columns,
    which makes their score one matrix product, or (D,), a value for each.
    """

    weighted: Array
    precision: Array
    stacked: Array | None = field(default=None, kw_only=True)
    """All sites' vectors one below the other, in whole blocks, if `weighted` is a part of that."""

    @cached_property
    def squares(self) -> Array:
        """|v p|^2 of every unit: (units,)."""
        result: Array = np.einsum("ld,ld->l", self.weighted, self.weighted)
        return result.astype(float, copy=False)


@dataclass(frozen=True)
class PriorPart:
    """The prior of the same columns: mean (D,), and the precision of all."""

    mean: Array
    precision: float


class PartSums:
    """S_i = mu_0 p_0 + sum of members' v p and P_i = p_0 + sum of members' p, for one part.

    `squares` holds |S_i|^2, brought up to date with the rows that change; where columns differ in
    precision nobody asks for it.
    """

    def __init__(self, prior: PriorPart, site: Part) -> None:
        precision_columns = site.precision.size
        self.prior = prior
        self.start = prior.mean * prior.precision
        self.start_square = float(self.start @ self.start)
        self.sums = np.empty((0, prior.mean.size), dtype=site.weighted.dtype)
        self.precisions = np.empty((0, precision_columns))
        self.squares = np.empty(0)

    @property
    def uniform(self) -> bool:
        """Whether one precision holds for all columns."""
        return self.precisions.shape[1] == 1

    def grow(self, capacity: int) -> None:
        """Make room for `capacity` slots."""
        used = len(self.sums)
        self.sums = _longer(self.sums, capacity)
        self.precisions = _longer(self.precisions, capacity)
        self.precisions[used:] = self.prior.precision
        self.squares = _longer(self.squares, capacity)

    def absorb(self, slots: IntArray, part: Part, fresh: BoolArray) -> None:
        """Add a site's vectors at distinct slots; to the prior where a slot is `fresh`: unused."""
        self.precisions[slots] += part.precision
        for here in self._blocks(slots):
            rows = self.sums[slots[here]]
            rows[fresh[here]] = self.start
            rows += part.weighted[here]
            self._put(slots[here], rows)

    def release(self, slots: IntArray, part: Part) -> None:
        """Take a site's vectors out again."""
        self.precisions[slots] -= part.precision
        for here in self._blocks(slots):
            rows = self.sums[slots[here]]
            rows -= part.weighted[here]
            self._put(slots[here], rows)

    def _blocks(self, slots: IntArray) -> Iterator[slice]:
        """Some of these slots at a time."""
        count = max(1, ADDED // self.sums.shape[1])
        if slots.size <= count:
            return iter((slice(None),))
        return (slice(start, start + count) for start in range(0, slots.size, count))

    def _put(self, slots: IntArray, rows: Array) -> None:
        self.sums[slots] = rows
        if self.uniform:
            self.squares[slots] = np.einsum("ld,ld->l", rows, rows)

    def products(self, part: Part, slots: IntArray | slice) -> Array:
        """v_l p . S_i of a site's units: (l, i)."""
        result: Array = self.sums[slots] @ part.weighted.T
        return result.T

    def evidence(self, slots: IntArray | slice) -> Array:
        """|S_i|^2 / P_i of these slots."""
        if self.uniform:
            return self.squares[slots] / self.precisions[slots, 0]
        result: Array = (self.sums[slots] ** 2 / self.precisions[slots]).sum(axis=1)
        return result


def _longer(values: Array, length: int) -> Array:
    """With room for so many rows."""
    result = np.zeros((length, *values.shape[1:]), dtype=values.dtype)
    result[: len(values)] = values
    return result


class Posterior:
    """The sums of all parts, with the popularity and the age of every global unit."""

    def __init__(
        self, priors: Sequence[PriorPart], site: Sequence[Part], width_limit: int | None = None
    ) -> None:
        self.width_limit = width_limit
        self.parts = [PartSums(prior, part) for prior, part in zip(priors, site, strict=True)]
        self.popularity: IntArray = np.zeros(0, dtype=np.intp)
        self.born: IntArray = np.zeros(0, dtype=np.intp)
        self.used = 0  # slots from here on have never been used
        self.births = 0

    def found(self, count: int, beside: IntArray | None = None) -> IntArray:
        """Slots for `count` new units, the youngest of all, in order; none of those in `beside`."""
        if count == 0:
            return np.empty(0, dtype=np.intp)
        unused = self.popularity[: self.used] == 0
        if beside is not None:
            unused[beside] = False
        free = np.flatnonzero(unused)[:count]
        fresh = np.arange(self.used, self.used + count - free.size)
        slots = np.concatenate([free, fresh])
        self.used += fresh.size
        if self.used > self.popularity.size:
            room = GROWTH * self.popularity.size
            if self.width_limit is not None:
                room = min(room, self.width_limit)
            capacity = in_blocks(max(self.used, room))
            more = capacity - self.popularity.size
            self.popularity = np.pad(self.popularity, (0, more))
            self.born = np.pad(self.born, (0, more))
            for sums in self.parts:
                sums.grow(capacity)
        self.renew(slots)
        return slots

    def renew(self, slots: IntArray) -> None:
        """Count these units as founded just now, in order."""
        self.born[slots] = self.births + np.arange(slots.size)
        self.births += slots.size

    def absorb(self, site: Sequence[Part], slots: IntArray) -> None:
        """Add a site whose unit l is the global unit in slots[l]."""
        fresh = self.popularity[slots] == 0
        for sums, part in zip(self.parts, site, strict=True):
            sums.absorb(slots, part, fresh)
        self.popularity[slots] += 1

    def release(self, site: Sequence[Part], slots: IntArray) -> None:
        """Take a site out again; units left without a member are forgotten."""
        for sums, part in zip(self.parts, site, strict=True):
            sums.release(slots, part)
        self.popularity[slots] -= 1
        empty = slots[self.popularity[slots] == 0]
        for sums in self.parts:  # exactly, for what is left of a large precision may be zero
            sums.precisions[empty] = sums.prior.precision

    def occupied(self) -> IntArray:
        """The slots in use, oldest unit first: global unit i is the i-th of them."""
        slots = np.flatnonzero(self.popularity[: self.used])
        return slots[np.argsort(self.born[slots])]
