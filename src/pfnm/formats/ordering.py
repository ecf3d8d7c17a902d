"""The order of layers from their shapes: a walk from width to width over all of them.

A walk that never leaves a part it cannot come back to (Euler's bridges) need not be taken back, so
two walks, if there are two, are found without trying all; unless numbered names, which must count
up, stand in the way. The search is given up then after a while.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

MOST_WORK = 1_000_000  # layers looked at in the search, a second or two


class Walk:
    """Walks over layers from width to width, each layer once, those of a row one after another."""

    def __init__(self, ends: Sequence[tuple[int, ...]], rows: Sequence[Sequence[int]]) -> None:
        self.ends, self.rows = ends, rows
        self.placed = [0] * len(rows)
        self.left = Counter(ends)  # the shapes that still have to be walked over
        self.work = 0
        self.from_width: dict[int, list[int]] = {}
        for row, layers in enumerate(rows):
            for width in dict.fromkeys(ends[index][0] for index in layers):
                self.from_width.setdefault(width, []).append(row)

    def starts(self) -> list[int]:
        """The widths in which a walk may begin: where one layer more leads out than in, or all."""
        surplus = Counter(below for below, _ in self.ends)
        surplus.subtract(above for _, above in self.ends)
        odd = {width: count for width, count in surplus.items() if count}
        if not odd:
            return list(self.from_width)
        fits = sorted(odd.values()) == [-1, 1]
        return [width for width, count in odd.items() if fits and count == 1]

    def orders(self) -> Iterator[tuple[int, ...] | None]:
        """All walks, one after another; None at the end if the search was given up."""
        order: list[int] = []
        taken: list[int] = []  # the rows that the layers of the order are from
        choices = [iter([row for width in self.starts() for row in self.heads(width)])]
        while choices:
            row = next(choices[-1], None)
            if row is None:
                choices.pop()
                if taken:
                    self.untake(taken.pop(), order.pop())
                continue
            index = self.take(row)
            width = self.ends[index][1]
            order.append(index)
            taken.append(row)
            if len(order) == len(self.ends):
                yield tuple(order)
            following = self.heads(width) if self.reachable(width) else []
            self.work += 1 + len(following)
            if self.work > MOST_WORK:
                yield None
                return
            choices.append(iter(following))

    def heads(self, width: int) -> list[int]:
        """The rows whose next layer starts in this width."""
        return [
            row
            for row in self.from_width.get(width, ())
            if self.placed[row] < len(self.rows[row])
            and self.ends[self.rows[row][self.placed[row]]][0] == width
        ]

    def take(self, row: int) -> int:
        """The next layer of a row, which stands now."""
        index = self.rows[row][self.placed[row]]
        self.placed[row] += 1
        self.left[self.ends[index]] -= 1
        if not self.left[self.ends[index]]:
            del self.left[self.ends[index]]
        return index

    def untake(self, row: int, index: int) -> None:
        """Take a layer away again."""
        self.placed[row] -= 1
        self.left[self.ends[index]] += 1

    def reachable(self, width: int) -> bool:
        """Whether all layers that are left hang together with this width."""
        if len(self.from_width.get(width, ())) == 1:
            return True  # no choice here: what cannot be reached will show
        beside: dict[int, set[int]] = {}
        for below, above in self.left:
            beside.setdefault(below, set()).add(above)
            beside.setdefault(above, set()).add(below)
        self.work += len(self.left)
        seen, open_widths = {width}, [width]
        while open_widths:
            new = beside.pop(open_widths.pop(), set()) - seen
            seen |= new
            open_widths += new
        return not beside
