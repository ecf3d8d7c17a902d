"""What enters and leaves a map, as rows: a few positions of each example, patches of pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pfnm.networks.graph import IntArray
from pfnm.networks.network import Tensor

POSITIONS = 4  # of a picture or signal at which it is seen what units do
PARTS = 16  # of what enters a map, where it is not needed as a whole
STRIDE = 0.6180339887  # of the golden section: where examples begin, no two at the same place


def at_positions(values: torch.Tensor, channel: int) -> Tensor:
    """Rows (examples x positions, channels), at a few positions evenly apart."""
    rows = values.movedim(channel, -1)
    rows = rows.reshape(len(rows), -1, rows.shape[-1])
    places = np.unique(np.linspace(0, rows.shape[1] - 1, POSITIONS + 2).round().astype(int)[1:-1])
    result: Tensor = rows[:, torch.from_numpy(places)].reshape(-1, rows.shape[-1]).numpy()
    return result


def places(examples: int, positions: int, rows: int) -> IntArray:
    """Positions (examples, each) that give so many rows together, evenly apart in each example.

    They depend on nothing else: the same in every network.
    """
    each = min(positions, max(1, -(-rows // examples)))
    steps = np.arange(each) * positions // each
    starts = (np.arange(examples) * STRIDE % 1 * positions).astype(int)
    result: IntArray = (steps + starts[:, None]) % positions
    return result


ALL = slice(None)


def plain_rows(values: torch.Tensor, rows: int, part: slice = ALL) -> Tensor:
    """Of (examples, ..., entries), rows of entries at some positions of each example.

    part: of these examples alone, of as many rows of all.
    """
    sides = values.shape[1:-1]
    chosen = places(len(values), int(np.prod(sides)), rows)[part]
    where = [torch.from_numpy(own) for own in np.unravel_index(chosen, sides)] if sides else []
    found = values[(torch.arange(len(values))[part, None], *where)]  # of no copy of all of them
    result: Tensor = found.reshape(-1, values.shape[-1]).numpy()
    return result


def patches(
    features: torch.Tensor,
    sides: Sequence[int],
    kernel: Sequence[int],
    arguments: Mapping[str, Any],
    rows: int,
    part: slice = ALL,
) -> Tensor:
    """What enters a convolution, rows of channels x kernel, at the places of `plain_rows`.

    sides: how many places it is at, along each side of what leaves it.
    """
    rank = len(kernel)
    stride, dilation = (_each(arguments.get(name, 1), rank) for name in ("stride", "dilation"))
    padding = _padding(arguments.get("padding", 0), kernel, dilation)
    chosen = places(len(features), int(np.prod(sides)), rows)[part]
    where = np.unravel_index(chosen, tuple(sides))  # of each side (examples, each)
    examples = torch.arange(len(features))[part, None]
    last = features.movedim(1, -1)  # channels
    found = last.new_empty(*chosen.shape, last.shape[-1], int(np.prod(kernel)))
    for number, offset in enumerate(np.ndindex(*kernel)):
        index, outside = [], np.zeros(chosen.shape, dtype=bool)
        for side, (place, step, o, apart, (before, _)) in enumerate(
            zip(where, stride, offset, dilation, padding, strict=True)
        ):
            reached = place * step + o * apart - before
            inside = np.clip(reached, 0, features.shape[2 + side] - 1)
            outside |= inside != reached
            index.append(torch.from_numpy(inside))
        taken = last[(examples, *index)]
        taken[torch.from_numpy(outside)] = 0  # the padding: no copy of all features has it
        found[..., number] = taken
    result: Tensor = found.reshape(chosen.size, -1).numpy()
    return result


@dataclass(frozen=True, eq=False)
class Later:
    """Rows of examples that are made when they are asked for: all (`np.asarray`), or in parts.

    make: those of a slice of the examples, each time anew.
    """

    make: Callable[[slice], Tensor]
    examples: int

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Tensor:
        """All rows."""
        return np.asarray(self.make(ALL), dtype=dtype)

    def parts(self) -> Iterator[Tensor]:
        """All rows, a few examples at a time."""
        step = -(-self.examples // PARTS)
        for start in range(0, self.examples, step):
            yield self.make(slice(start, start + step))


def _each(value: Any, rank: int) -> list[int]:
    """One number for each side."""
    found = list(value) if isinstance(value, list | tuple) else [value]
    return [int(n) for n in (found * rank if len(found) == 1 else found)]


def _padding(told: Any, kernel: Sequence[int], dilation: Sequence[int]) -> list[tuple[int, int]]:
    """Zeros before and after each side."""
    if told == "valid":
        told = 0
    if told == "same":
        spans = [apart * (length - 1) for length, apart in zip(kernel, dilation, strict=True)]
        return [(span // 2, span - span // 2) for span in spans]
    return [(n, n) for n in _each(told, len(kernel))]
