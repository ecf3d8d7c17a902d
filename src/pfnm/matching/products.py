"""All inner products between units, computed once: then no step needs a product over dimensions.

A score needs v_l p . S_i, and S_i is the prior's part and a sum of members' v p. With W, all units'
v p one below the other, and G = W W', the sums are held as W S_i: a member adds its row of G, and
the product with unit l is their l-th number. It pays where the global layer is not much narrower
than all sites together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from pfnm.matching.posterior import BoolArray, Part, PartSums, PriorPart, in_blocks
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array

FEWEST_DIMENSIONS = 128  # with fewer, a product over them costs less than rows of all units
NOBODY = -1  # the unit of a site in a slot where it has none
NARROWEST = 1 / 2  # global units by units seen so far: below, the global layer will be narrow
SEEN_ENOUGH = 1 / 4  # share of all units after which a first pass tells how wide it will be


@dataclass(frozen=True)
class ProductPart(Part):
    """Some columns of one site's atoms, known by their products with all units.

    `weighted` is the site's rows of G, (units, N); its units are `place` among the N.
    """

    place: slice
    own_squares: Array

    @property
    def squares(self) -> Array:
        """|v p|^2 of every unit: (units,)."""
        return self.own_squares

    def numbers(self) -> IntArray:
        """Which of the N its units are: (units,)."""
        return np.arange(self.place.start, self.place.stop)


@dataclass(frozen=True)
class Out:
    """A site that is taken out: its slots, their squares before, and its unit in every slot."""

    part: ProductPart
    slots: IntArray
    unit: IntArray
    squares: Array


class ProductSums(PartSums):
    """W S_i and P_i of every slot; the rows of W S_i still have a site that is taken out.

    So a unit that goes back to where it was costs nothing over all units.
    """

    def __init__(self, prior: PriorPart, site: ProductPart, start: Array) -> None:
        super().__init__(prior, site)
        self.sums = np.empty((0, start.size), dtype=start.dtype)
        self.start = start
        self.out: Out | None = None

    def products(self, part: Part, slots: IntArray | slice) -> Array:
        """v_l p . S_i of a site's units: (l, i)."""
        assert isinstance(part, ProductPart)
        result = self.sums[slots, part.place]
        if self.out is not None:
            unit = self.out.unit[slots]
            theirs = np.flatnonzero(unit != NOBODY)
            result = result.copy() if result.base is self.sums else result
            result[theirs] -= self.out.part.weighted[unit[theirs], part.place]
        return np.array(result, dtype=float, copy=result.base is self.sums or None).T

    def release(self, slots: IntArray, part: Part) -> None:
        """Take out a site's vectors, as far as scores see it."""
        assert isinstance(part, ProductPart)
        unit = np.full(len(self.sums), NOBODY)
        unit[slots] = np.arange(slots.size)
        squares, own = self.squares[slots], part.numbers()
        self.out = Out(part, slots, unit, squares)
        self.precisions[slots] -= part.precision
        dots = self.sums[slots, own] - part.weighted[np.arange(own.size), own]
        self.squares[slots] = squares - 2 * dots - part.squares

    def absorb(self, slots: IntArray, part: Part, fresh: BoolArray) -> None:
        """Add a site's vectors at distinct slots; what stays where it was is as it was."""
        assert isinstance(part, ProductPart)
        self.precisions[slots] += part.precision
        moving = np.arange(slots.size)
        if self.out is not None:
            before, stays = self.out.slots, slots == self.out.slots
            self.squares[slots[stays]] = self.out.squares[stays]
            moving = np.flatnonzero(~stays)
            for unit, slot in zip(moving.tolist(), before[moving].tolist(), strict=True):
                row = self.sums[slot]  # row by row: rows are long, and a copy of all costs more
                np.subtract(row, part.weighted[unit], out=row)
            self.out = None
        joined, own, new = slots[moving], part.numbers()[moving], fresh[moving]
        dots = np.where(new, self.start[own], self.sums[joined, own])
        squares = np.where(new, self.start_square, self.squares[joined])
        self.squares[joined] = squares + 2 * dots + part.squares[moving]
        each = zip(moving.tolist(), joined.tolist(), new.tolist(), strict=True)
        for unit, slot, founded in each:
            row = self.sums[slot]
            np.add(self.start if founded else row, part.weighted[unit], out=row)


def bytes_needed(widths: Sequence[int], site: Part) -> int:
    """For the products of all units, their sums, and the vectors one below the other."""
    units = in_blocks(sum(widths))
    numbers = units * (2 * units + site.weighted.shape[1])
    return int(numbers * site.weighted.itemsize)


def products_pay(
    widths: Sequence[int],
    seen: int,
    width: int,
    width_limit: int | None,
    site: Part,
    memory: int,
) -> bool | None:
    """Whether all products are worth it, with so many units seen and global units; None: unclear.

    memory: bytes that may be used for them.
    """
    few = site.weighted.shape[1] < FEWEST_DIMENSIONS
    narrow = width_limit is not None and width_limit <= NARROWEST * sum(widths)
    if few or narrow or site.precision.size > 1 or bytes_needed(widths, site) > memory:
        return False
    if seen < SEEN_ENOUGH * sum(widths):
        return None
    return width > NARROWEST * seen


def blank(units: int, dimensions: int, dtype: DTypeLike) -> Array:
    """Room for the vectors of so many units, in whole blocks, with zeros after them.

    A product at the edge of a matrix may round otherwise.
    """
    vectors: Array = np.empty((in_blocks(units), dimensions), dtype=dtype)
    vectors[units:] = 0
    return vectors


def with_products(sites: Sequence[Part], prior: PriorPart) -> tuple[list[ProductPart], ProductSums]:
    """The same part of all sites by its products, and empty sums for it."""
    ends = np.cumsum([len(site.weighted) for site in sites])
    vectors = sites[0].stacked
    if vectors is None:
        vectors = blank(ends[-1], sites[0].weighted.shape[1], sites[0].weighted.dtype)
        np.concatenate([site.weighted for site in sites], out=vectors[: ends[-1]])
    products = vectors @ vectors.T
    parts = [
        ProductPart(
            products[end - len(site.weighted) : end],
            site.precision,
            slice(int(end) - len(site.weighted), int(end)),
            site.squares,
        )
        for site, end in zip(sites, ends, strict=True)
    ]
    known = np.flatnonzero(prior.mean)  # few: most columns have a prior mean of zero
    start = vectors[:, known] @ (prior.mean * prior.precision)[known].astype(vectors.dtype)
    return parts, ProductSums(prior, parts[0], start)
