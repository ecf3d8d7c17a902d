"""What enters and leaves a map, as rows: a few positions of each example, patches of pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from pfnm.networks.graph import IntArray
from pfnm.networks.network import Tensor

POSITIONS = 4  # of a picture or signal at which it is seen what units do
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


def plain_rows(values: torch.Tensor, rows: int) -> Tensor:
    """Of (examples, ..., entries), rows of entries at some positions of each example."""
    sides = values.shape[1:-1]
    chosen = places(len(values), int(np.prod(sides)), rows)
    where = [torch.from_numpy(own) for own in np.unravel_index(chosen, sides)] if sides else []
    found = values[(torch.arange(len(values))[:, None], *where)]  # of no copy of all of them
    result: Tensor = found.reshape(-1, values.shape[-1]).numpy()
    return result


def convolved_rows(
    features: torch.Tensor,
    values: torch.Tensor,
    kernel: Sequence[int],
    arguments: Mapping[str, Any],
    rows: int,
) -> tuple[Tensor, Tensor]:
    """What enters and leaves a convolution: patches (rows, channels x kernel), and their values."""
    rank = len(kernel)
    stride, dilation = (_each(arguments.get(name, 1), rank) for name in ("stride", "dilation"))
    padding = _padding(arguments.get("padding", 0), kernel, dilation)
    padded = torch.nn.functional.pad(features, [end for both in padding[::-1] for end in both])
    sides = values.shape[2:]
    chosen = places(len(values), int(np.prod(sides)), rows)
    where = np.unravel_index(chosen, sides)  # of each side (examples, each)
    examples = torch.arange(len(values))[:, None]
    last = padded.movedim(1, -1)  # channels
    patches = last.new_empty(*chosen.shape, last.shape[-1], int(np.prod(kernel)))
    for number, offset in enumerate(np.ndindex(*kernel)):
        reached = zip(where, stride, offset, dilation, strict=True)
        index = [torch.from_numpy(place * step + o * apart) for place, step, o, apart in reached]
        patches[..., number] = last[(examples, *index)]
    leaving = values.flatten(2)[examples, :, torch.from_numpy(chosen)]
    return patches.reshape(chosen.size, -1).numpy(), leaving.reshape(chosen.size, -1).numpy()


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
