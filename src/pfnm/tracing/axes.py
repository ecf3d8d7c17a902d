"""Symbolic dimensions: expressions over leaves, joined, split and cut as operations demand.

A leaf is a set of positions that are permuted together. A dimension is a leaf or made of others:

    product   rows x columns, the last runs fastest      a view that merges, or splits a leaf
    sum       one after the other                        a concatenation, or a leaf that was sliced
    family    one dimension for each piece of an index   [3, E] of which [0] is taken: E has
              copies of its own for queries, keys and values

A leaf that turns out to be made of others is linked to what it is made of; `find` follows links.
What cannot be expressed is pinned: its positions mean what they are, and it is never permuted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

Kind = Literal[
    "input", "output", "kernel", "position", "constant", "random", "unused", "rule", "refinement"
]
Form = Literal["leaf", "product", "sum", "family"]
SizeOf = Callable[["Dim"], int]


@dataclass(frozen=True)
class Pin:
    """Why the order of some positions means something."""

    kind: Kind
    reason: str
    operation: str = ""
    module: str = ""

    @property
    def in_the_way(self) -> bool:
        """Whether it is for want of a rule, so that another rule might free it."""
        return self.kind in ("rule", "refinement")


class Dim:
    """One dimension of a value; see the module's first lines."""

    __slots__ = ("form", "index", "link", "over", "parts", "pin", "read", "rigid", "size")

    def __init__(
        self,
        size: int,
        form: Form = "leaf",
        parts: tuple[Dim, ...] = (),
        *,
        pin: Pin | None = None,
        over: tuple[Dim, ...] = (),
        index: Dim | None = None,
    ) -> None:
        self.size = size
        self.form = form
        self.parts = parts
        self.pin = pin
        self.over = over  # the leaves within whose units a leaf is numbered; a family: its pieces
        self.index = index  # of a family: the dimension that tells which part is meant
        self.link: Dim | None = None
        self.rigid: str | None = None
        self.read: Dim | None = None  # of a parameter: what a contraction sums over


ONE = Dim(1, "product")


def find(dim: Dim) -> Dim:
    """What a dimension has turned out to be."""
    while dim.link is not None:
        if dim.link.link is not None:
            dim.link = dim.link.link
        dim = dim.link
    return dim


def factors(dim: Dim) -> list[Dim]:
    """The leaves, sums and families a dimension is the product of; none of a single position."""
    dim = find(dim)
    if dim.size == 1:
        return []
    if dim.form == "product":
        return [atom for part in dim.parts for atom in factors(part)]
    return [dim]


def segments(dim: Dim) -> list[Dim]:
    """The pieces a dimension is the concatenation of."""
    dim = find(dim)
    if dim.form == "sum":
        return [piece for part in dim.parts for piece in segments(part)]
    return [dim]


def product(dims: Iterable[Dim]) -> Dim:
    """Rows x columns."""
    atoms = [atom for dim in dims for atom in factors(dim)]
    if len(atoms) == 1:
        return atoms[0]
    return Dim(prod(a.size for a in atoms), "product", tuple(atoms)) if atoms else ONE


def concatenation(dims: Sequence[Dim]) -> Dim:
    """One after the other."""
    pieces = [piece for dim in dims for piece in segments(dim) if piece.size]
    if len(pieces) == 1:
        return pieces[0]
    return Dim(sum(p.size for p in pieces), "sum", tuple(pieces))


def leaves(dim: Dim) -> list[Dim]:
    """The leaves of more than one position that a dimension is made of."""
    dim = find(dim)
    if dim.form == "leaf":
        return [dim] if dim.size != 1 else []
    return [leaf for part in dim.parts for leaf in leaves(part)]


def is_pinned(dim: Dim) -> bool:
    """Whether nothing of it is free."""
    return all(leaf.pin is not None for leaf in leaves(dim))


def members(family: Dim) -> list[tuple[Dim, Dim]]:
    """The pieces of a family's index, and what the family is in each."""
    result = []
    for piece, part in zip(family.over, family.parts, strict=True):
        pieces, inside = segments(piece), find(part)
        if len(pieces) == 1:
            result.append((pieces[0], part))
        elif inside.index is not None and find(inside.index) is find(piece):
            result.extend(members(inside))
        else:  # the piece was cut, what it holds was not: the same in every part of it
            result.extend((own, part) for own in pieces)
    return result


def restrict(dim: Dim, index: Dim, start: int, piece: Dim) -> Dim:
    """A dimension where an index is narrowed to `piece`, which begins at `start`."""
    dim = find(dim)
    if dim.form == "leaf":
        return dim
    if dim.form == "family" and dim.index is not None and find(dim.index) is find(index):
        position, chosen = 0, []
        for own, part in members(dim):
            if start <= position < start + piece.size:
                chosen.append((own, part))
            position += own.size
        if len(chosen) == 1:
            return find(chosen[0][1])
        return family(piece, [part for _, part in chosen])
    parts = tuple(restrict(part, index, start, piece) for part in dim.parts)
    if all(new is find(old) for new, old in zip(parts, dim.parts, strict=True)):
        return dim
    if dim.form == "family":
        return Dim(dim.size, "family", parts, over=dim.over, index=dim.index)
    return product(parts) if dim.form == "product" else concatenation(parts)


def family(index: Dim, parts: Sequence[Dim]) -> Dim:
    """One dimension for each piece of an index."""
    return Dim(parts[0].size, "family", tuple(parts), over=tuple(segments(index)), index=index)


def length(dim: Dim, size: SizeOf) -> int:
    """How many positions it has where leaves have these sizes."""
    return _length(factors(dim), size)


def _length(atoms: Sequence[Dim], size: SizeOf) -> int:
    if not atoms:
        return 1
    head, *rest = atoms
    if head.form == "leaf":
        return size(head) * _length(rest, size)
    if head.form == "family":
        return length(head.parts[0], size) * _length(rest, size)
    return sum(_length(inside, size) for _, inside in within(head, rest))


def within(head: Dim, rest: Sequence[Dim]) -> list[tuple[Dim, list[Dim]]]:
    """For each piece of a sum: the piece, and its factors with those that stand to its right."""
    result, start = [], 0
    for piece in segments(head):
        narrowed = [restrict(dim, head, start, piece) for dim in rest]
        result.append((piece, [atom for dim in (piece, *narrowed) for atom in factors(dim)]))
        start += piece.size
    return result
