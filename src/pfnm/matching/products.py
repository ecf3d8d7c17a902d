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

from pfnm.matching.posterior import Part, PartSums, PriorPart, in_blocks
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array

FEWEST_DIMENSIONS = 128  # with fewer, a product over them costs less than rows of all units
NARROWEST = 1 / 3  # global units by units seen so far: below, sums over members are the cheaper way
NOWHERE = -1  # where a unit was that nobody else had
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


class ProductSums(PartSums):
    """W S_i and P_i of every slot; of a site that is taken out only its own numbers are changed.

    So a unit that goes back to where it was costs nothing over all units.
    """

    def __init__(self, prior: PriorPart, site: ProductPart, start: Array) -> None:
        super().__init__(prior, site)
        self.sums = np.empty((0, start.size), dtype=start.dtype)
        self.start = start
        self.out: tuple[IntArray, Array, Array] | None = None  # slots, their numbers and squares

    def products(self, part: Part, slots: IntArray | slice) -> Array:
        """v_l p . S_i of a site's units: (l, i)."""
        assert isinstance(part, ProductPart)
        result: Array = self.sums[slots, part.place].T.astype(float, order="C")
        return result

    def reset(self, slots: IntArray) -> None:
        """Put the slots back to the prior, exactly."""
        super().reset(slots)
        if self.out is not None and slots.size:
            emptied = np.zeros(len(self.sums), dtype=bool)
            emptied[slots] = True
            self.out[0][emptied[self.out[0]]] = NOWHERE

    def release(self, slots: IntArray, part: Part) -> None:
        """Take out a site's vectors, as far as its own scores see it."""
        assert isinstance(part, ProductPart)
        numbers, squares = self.sums[slots, part.place], self.squares[slots]
        self.out = slots.copy(), numbers, squares
        self.sums[slots, part.place] = numbers - part.weighted[:, part.place]
        self.precisions[slots] -= part.precision
        self.squares[slots] = squares - 2 * self._dots(slots, part) - part.squares

    def absorb(self, slots: IntArray, part: Part) -> None:
        """Add a site's vectors at distinct slots; what stays where it was is as it was."""
        assert isinstance(part, ProductPart)
        squares = self.squares[slots] + 2 * self._dots(slots, part) + part.squares
        joining = np.ones(slots.size, dtype=bool)
        if self.out is not None:
            before, numbers, squares_before = self.out
            there = before != NOWHERE
            self.sums[before[there], part.place] = numbers[there]
            joining = slots != before
            left = there & joining
            self.sums[before[left]] -= part.weighted[left]
            squares[~joining] = squares_before[~joining]
            self.out = None
        self.sums[slots[joining]] += part.weighted[joining]
        self.precisions[slots] += part.precision
        self.squares[slots] = squares

    def _dots(self, slots: IntArray, part: ProductPart) -> Array:
        """v_l p . S_i of each unit with its own slot: (l,)."""
        result: Array = self.sums[slots, np.arange(part.place.start, part.place.stop)]
        return result


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


def with_products(sites: Sequence[Part], prior: PriorPart) -> tuple[list[ProductPart], ProductSums]:
    """The same part of all sites by its products, and empty sums for it."""
    ends = np.cumsum([len(site.weighted) for site in sites])
    # In whole blocks: a product at the edge of a matrix may round otherwise.
    shape = (in_blocks(int(ends[-1])), sites[0].weighted.shape[1])
    vectors = np.zeros(shape, dtype=sites[0].weighted.dtype)
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
    start = vectors @ (prior.mean * prior.precision).astype(vectors.dtype)
    return parts, ProductSums(prior, parts[0], start)
