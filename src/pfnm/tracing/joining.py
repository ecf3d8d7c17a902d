"""What operations do to symbolic dimensions: join, split, cut, pin."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from pfnm.tracing.axes import (
    ONE,
    Dim,
    Kind,
    Pin,
    concatenation,
    factors,
    family,
    find,
    is_pinned,
    leaves,
    members,
    product,
    restrict,
    segments,
)


class Joiner:
    """Joins dimensions, and remembers where it was when something had to be pinned."""

    def __init__(self) -> None:
        self.operation = ""
        self.module = ""
        self.alike: list[tuple[Dim, ...]] = []
        """Dimensions that must keep the same length, in whatever orders."""
        self._leaves: list[Dim] = []

    def leaf(self, size: int, pin: Pin | None = None, over: tuple[Dim, ...] = ()) -> Dim:
        """A new set of positions."""
        made = Dim(size, pin=pin, over=over)
        self._leaves.append(made)
        return made

    def reason(self, kind: Kind, reason: str) -> Pin:
        """A reason that names the operation at hand."""
        return Pin(kind, reason, self.operation, self.module)

    def pinned(self, size: int, kind: Kind, reason: str) -> Dim:
        """New positions whose order means something."""
        return self.leaf(size, self.reason(kind, reason))

    def pin(self, dim: Dim, pin: Pin) -> None:
        """Nothing of it is free any more."""
        for own in leaves(dim):
            own.pin = own.pin or pin

    def stiffen(self, dim: Dim, reason: str) -> None:
        """It can be permuted but not widened."""
        for own in leaves(dim):
            own.rigid = own.rigid or reason

    # -- the same positions ------------------------------------------------------------------

    def join(self, left: Dim, right: Dim) -> None:
        """Two dimensions have the same positions."""
        left, right = find(left), find(right)
        if left is right or left.size == 1:
            return
        assert left.size == right.size, (left.size, right.size)
        if "family" in (left.form, right.form):
            self._join_family(left, right)
        elif left.form == right.form == "leaf":
            self._join_leaves(left, right)
        elif left.form == "leaf":
            self._substitute(left, right)
        elif right.form == "leaf":
            self._substitute(right, left)
        elif not (is_pinned(left) and is_pinned(right)):
            if "sum" in (left.form, right.form):
                self._join_sums(left, right)
            else:
                self._join_products(factors(left), factors(right))
            left, right = find(left), find(right)
            if left is not right and not is_pinned(left):
                right.link = left

    def _join_leaves(self, left: Dim, right: Dim) -> None:
        if right.pin is not None and (left.pin is None or right.pin.kind == "input"):
            left, right = right, left
        right.link = left
        left.rigid = left.rigid or right.rigid
        both = {id(o) for dim in right.over for o in leaves(dim)}
        left.over = tuple(o for dim in left.over for o in leaves(dim) if id(o) in both)

    def _substitute(self, leaf: Dim, made: Dim) -> None:
        """A leaf is made of others."""
        if leaf.rigid:
            self.stiffen(made, leaf.rigid)
        for own in leaves(made):  # numbered within others only as far as the leaf is
            both = {id(o) for dim in leaf.over for o in leaves(dim)}
            inside = {id(o) for o in leaves(made)}
            own.over = tuple(
                o for dim in own.over for o in leaves(dim) if id(o) in both or id(o) in inside
            )
        if leaf.pin is not None:
            self.pin(made, leaf.pin)
        else:
            leaf.link = made

    def _join_family(self, left: Dim, right: Dim) -> None:
        if left.form == right.form and left.index and right.index:
            ours, theirs = members(left), members(right)
            if find(left.index) is find(right.index) and len(ours) == len(theirs):
                for (_, own), (_, other) in zip(ours, theirs, strict=True):
                    self.join(own, other)
                return
        for dim in (left, right):
            if dim.form == "family":
                self.collapse(dim)
        self.join(left, right)

    def collapse(self, dim: Dim) -> None:
        """A family whose parts are all the same."""
        first, *rest = dim.parts
        for part in rest:
            self.join(first, part)
        dim.link = find(first)

    def _join_sums(self, left: Dim, right: Dim) -> None:
        ends = sorted({*_ends(left), *_ends(right)})
        sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        ours, theirs = self.cut(left, sizes), self.cut(right, sizes)
        for own, other in zip(ours, theirs, strict=True):
            self.join(own, other)

    def _join_products(self, left: list[Dim], right: list[Dim]) -> None:
        whole = [*left, *right]
        while left and right:
            if left[0].size < right[0].size:
                left, right = right, left
            (first, *left_rest), (second, *right_rest) = left, right
            if first.size == second.size:
                self.join(first, second)
                left, right = left_rest, right_rest
                continue
            taken = _prefix(right, first.size)
            if first.form == "sum" and taken:
                self.join(first, product(right[:taken]))
                left, right = left_rest, right[taken:]
                continue
            halves = self.divide(first, second.size)
            if halves is None:
                self._refuse(whole)
                return
            left = [atom for half in halves for atom in factors(half)] + left_rest

    def _refuse(self, dims: Sequence[Dim]) -> Pin:
        """Pinned for want of a common structure; the reason."""
        pins = [leaf.pin for dim in dims for leaf in leaves(dim)]
        pin = self.reason("refinement", "its positions meet others of another structure")
        for dim in dims:
            self.pin(dim, pin)
        return pin if None in pins or not pins else pins[0] or pin

    # -- views -------------------------------------------------------------------------------

    def regroup(self, dims: Sequence[Dim], sizes: Sequence[int]) -> tuple[Dim, ...]:
        """The dimensions of a reshaped value."""
        if 0 in sizes:
            return tuple(self.pinned(size, "position", "an empty tensor") for size in sizes)
        atoms = [atom for dim in dims for atom in factors(dim)]
        result: list[Dim] = []
        sizes = list(sizes)
        while len(result) < len(sizes):
            targets = _block(atoms, sizes[len(result) :])
            taken = _prefix(atoms, prod(targets))
            result.extend(self._regroup_block(atoms[:taken], targets))
            atoms = atoms[taken:]
        return tuple(result)

    def _regroup_block(self, atoms: list[Dim], sizes: list[int]) -> list[Dim]:
        """The same, where no smaller number of dimensions and sizes match."""
        whole, result = list(atoms), []
        for size in sizes:
            chosen, missing = [], size
            while missing > 1:
                head, *rest = atoms
                if missing % head.size == 0:
                    chosen.append(head)
                    missing //= head.size
                    atoms = rest
                    continue
                halves = self.divide(head, missing) if head.size % missing == 0 else None
                if halves is None:
                    pin = self._refuse(whole)
                    return [self.leaf(size, pin) for size in sizes]
                chosen.append(halves[0])
                atoms = [*factors(halves[1]), *rest]
                missing = 1
            result.append(product(chosen))
        return result

    def split(self, dim: Dim, outer: int) -> tuple[Dim, Dim]:
        """A dimension as `outer` blocks."""
        left, right = self.regroup([dim], [outer, dim.size // outer])
        return left, right

    def divide(self, dim: Dim, outer: int) -> tuple[Dim, Dim] | None:
        """A dimension as `outer` blocks; None if its structure is another."""
        dim = find(dim)
        if dim.size % outer:
            return None
        inner = dim.size // outer
        if 1 in (outer, inner):
            return (dim, ONE) if inner == 1 else (ONE, dim)
        if dim.form == "family":
            self.collapse(dim)
            return self.divide(dim, outer)
        if dim.form == "leaf":
            return self._divide_leaf(dim, outer, inner)
        if dim.form == "product":
            return self._divide_product(factors(dim), outer)
        return self._divide_sum(dim, inner)

    def _divide_sum(self, dim: Dim, inner: int) -> tuple[Dim, Dim] | None:
        halves = [
            self.divide(piece, piece.size // inner) if piece.size % inner == 0 else None
            for piece in segments(dim)
        ]
        found = [pair for pair in halves if pair is not None]
        if len(found) < len(halves):
            return None
        index = concatenation([left if left is not ONE else Dim(1) for left, _ in found])
        return index, family(index, [right for _, right in found])

    def _divide_product(self, atoms: list[Dim], outer: int) -> tuple[Dim, Dim] | None:
        chosen: list[Dim] = []
        while outer > 1:
            head, *atoms = atoms
            if outer % head.size == 0:
                chosen.append(head)
                outer //= head.size
                continue
            halves = self.divide(head, outer)
            if halves is None:
                return None
            chosen.append(halves[0])
            atoms, outer = [halves[1], *atoms], 1
        return product(chosen), product(atoms)

    def _divide_leaf(self, dim: Dim, outer: int, inner: int) -> tuple[Dim, Dim]:
        rows = self.leaf(outer, dim.pin, dim.over)
        columns = self.leaf(inner, dim.pin, (*dim.over, rows))
        rows.rigid = columns.rigid = dim.rigid
        if dim.pin is None:
            dim.link = product([rows, columns])
        return rows, columns

    # -- slices ------------------------------------------------------------------------------

    def cut(self, dim: Dim, sizes: Sequence[int]) -> list[Dim]:
        """The consecutive pieces of a dimension."""
        dim = find(dim)
        if len(sizes) == 1:
            return [dim]
        if dim.form == "leaf":
            return self._cut_leaf(dim, sizes)
        if dim.form == "sum":
            return self._cut_sum(dim, sizes)
        if dim.form == "family":
            self.collapse(dim)
            return self.cut(dim, sizes)
        return self._cut_product(dim, sizes)

    def _cut_product(self, dim: Dim, sizes: Sequence[int]) -> list[Dim]:
        """Rows; a row that an end falls into is taken by itself, and cut."""
        if is_pinned(dim):
            pin = next((leaf.pin for leaf in leaves(dim)), None)
            return [self.leaf(size, pin) for size in sizes]
        head, *rest = factors(dim)
        inner = dim.size // head.size
        ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
        rows = sorted({row for end in ends for row in (end // inner, -(-end // inner))} - {0})
        counts = [row - before for before, row in zip([0, *rows], rows, strict=False)]
        start, result = 0, []
        for piece in self.cut(head, counts):
            narrowed = [restrict(other, head, start, piece) for other in rest]
            result.append(product([piece, *narrowed]))
            start += piece.size
        if len(rows) == len(ends) and all(end % inner == 0 for end in ends):
            return result
        return self._cut_sum(Dim(dim.size, "sum", tuple(result)), sizes)

    def _cut_leaf(self, dim: Dim, sizes: Sequence[int]) -> list[Dim]:
        """Pieces of a leaf, and copies for each piece of all that is numbered within it."""
        dependent = [
            own
            for own in self._leaves
            if own.link is None and any(find(o) is dim for o in own.over) and own is not dim
        ]
        pieces = [self.leaf(size, dim.pin, dim.over) for size in sizes]
        for piece in pieces:
            piece.rigid = dim.rigid
        if dim.pin is not None and not dependent:
            return pieces
        self._copy(dim, dependent, pieces)
        dim.link = Dim(dim.size, "sum", tuple(pieces))
        return pieces

    def _copy(self, dim: Dim, dependent: list[Dim], pieces: list[Dim]) -> None:
        copies: dict[tuple[int, int], Dim] = {}
        for own in dependent:
            for number, piece in enumerate(pieces):
                over = tuple(
                    piece if find(o) is dim else copies.get((id(find(o)), number), o)
                    for o in own.over
                )
                copy = self.leaf(own.size, own.pin, over)
                copy.rigid = own.rigid
                copies[id(own), number] = copy
        for own in dependent:
            parts = [copies[id(own), number] for number in range(len(pieces))]
            own.link = Dim(own.size, "family", tuple(parts), over=tuple(pieces), index=dim)

    def _cut_sum(self, dim: Dim, sizes: Sequence[int]) -> list[Dim]:
        result = []
        left = segments(dim)
        for size in sizes:
            chosen, missing = [], size
            while missing:
                piece = left.pop(0)
                if piece.size > missing:
                    own, rest = self.cut(piece, [missing, piece.size - missing])
                    left.insert(0, rest)
                    piece = own
                chosen.extend(segments(piece))
                missing -= piece.size
            result.append(concatenation(chosen))
        return result

    def take(
        self, dims: Sequence[Dim], axis: int, sizes: Sequence[int], number: int
    ) -> tuple[Dim, ...]:
        """The dimensions of a value of which one piece along an axis is taken."""
        index = find(dims[axis])
        if index.form == "family":
            self.collapse(index)
        pieces = self.cut(dims[axis], sizes)
        start = sum(sizes[:number])
        narrowed = [restrict(dim, index, start, pieces[number]) for dim in dims]
        narrowed[axis] = pieces[number]
        return tuple(narrowed)


def _ends(dim: Dim) -> list[int]:
    """Where the pieces of a dimension end."""
    total, result = 0, []
    for piece in segments(dim):
        total += piece.size
        result.append(total)
    return result


def _prefix(atoms: Sequence[Dim], size: int) -> int:
    """How many of the first factors make up a size; 0 if none do."""
    total = 1
    for number, atom in enumerate(atoms):
        if total == size:
            return number
        total *= atom.size
    return len(atoms) if total == size else 0


def _block(atoms: Sequence[Dim], sizes: Sequence[int]) -> list[int]:
    """The fewest first sizes whose product some first factors make up."""
    ends, total = {1}, 1
    for atom in atoms:
        total *= atom.size
        ends.add(total)
    total = 1
    for number, size in enumerate(sizes, start=1):
        total *= size
        if total in ends:
            return list(sizes[:number])
    return list(sizes)
