"""Canonical tensors: axes as concatenations of products, as a unit graph has them.

Heads of queries, keys and values side by side, h x (q + k + v), become h x q + h x k + h x v: the
same numbers in another order along the axis. The weight of a grouped convolution, (groups x
filters, channels, ...), becomes (groups x filters x channels, ...), for each group may order its
channels as it likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfnm.tracing.axes import Dim, SizeOf, factors, leaves, product, within
from pfnm.tracing.joining import Joiner

Piece = tuple[tuple[Dim, ...], NDArray[np.intp]]
"""A product of leaves, and where its positions are: an array with a dimension for each leaf."""


def pieces(dim: Dim, size: SizeOf) -> list[Piece]:
    """A dimension as a concatenation of products, with their positions."""
    return _pieces(factors(dim), size)


def _pieces(atoms: Sequence[Dim], size: SizeOf) -> list[Piece]:
    if not atoms:
        return [((), np.zeros((), dtype=np.intp))]
    head, *rest = atoms
    if head.form == "sum":
        result, offset = [], 0
        for _, inside in within(head, rest):
            found = _pieces(inside, size)
            result += [(own, offset + where) for own, where in found]
            offset += sum(where.size for _, where in found)
        return result
    tails = _pieces(rest, size)
    inner = sum(where.size for _, where in tails)
    steps = np.arange(size(head)) * inner
    return [
        ((head, *own), steps.reshape(-1, *[1] * where.ndim) + where[None]) for own, where in tails
    ]


def settle(joiner: Joiner, dims: Sequence[Dim]) -> None:
    """Families that stand before their index become one, until all axes can be written down."""
    changed = True
    while changed:
        changed = any(_settle(joiner, factors(dim)) for dim in dims)


def _settle(joiner: Joiner, atoms: Sequence[Dim]) -> bool:
    for place, atom in enumerate(atoms):
        if atom.form == "family":
            joiner.collapse(atom)
            return True
        if atom.form == "sum":
            return any(_settle(joiner, inside) for _, inside in within(atom, atoms[place + 1 :]))
    return False


@dataclass(frozen=True, eq=False)
class Layout:
    """How a tensor of the module becomes canonical, and back."""

    dims: tuple[Dim, ...]
    merged: bool
    """Whether the first two axes are one."""

    @property
    def axes(self) -> tuple[Dim, ...]:
        """The dimensions of the canonical tensor."""
        if self.merged:
            return (product(self.dims[:2]), *self.dims[2:])
        return self.dims

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the canonical tensor."""
        return (prod(shape[:2]), *shape[2:]) if self.merged else tuple(shape)

    def orders(self, size: SizeOf) -> list[tuple[int, NDArray[np.intp]]]:
        """The axes that are in another order, and where their positions are in the module."""
        result = []
        for axis, dim in enumerate(self.axes):
            if any(atom.form == "sum" for atom in factors(dim)):
                order = np.concatenate([where.ravel() for _, where in pieces(dim, size)])
                if not np.array_equal(order, np.arange(order.size)):
                    result.append((axis, order))
        return result

    def canonical(self, tensor: Any, size: SizeOf) -> Any:
        """From the module's own to canonical (numpy or torch)."""
        tensor = tensor.reshape(self.shape(tensor.shape))
        for axis, order in self.orders(size):
            tensor = tensor[(slice(None),) * axis + (order,)]
        return tensor

    def original(self, tensor: Any, size: SizeOf) -> Any:
        """From canonical to the module's own."""
        for axis, order in self.orders(size):
            tensor = tensor[(slice(None),) * axis + (np.argsort(order),)]
        if self.merged:
            rows = sum(where.size for _, where in pieces(self.dims[0], size))
            tensor = tensor.reshape(rows, -1, *tensor.shape[1:])
        return tensor


def sizes_in_example(leaf: Dim) -> int:
    """The length of a leaf in the traced module."""
    return leaf.size


def all_leaves(dims: Sequence[Dim]) -> list[Dim]:
    """The leaves of some dimensions, each once."""
    return list({id(leaf): leaf for dim in dims for leaf in leaves(dim)}.values())
