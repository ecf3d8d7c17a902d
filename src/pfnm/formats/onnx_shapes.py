"""Lengths of axes, with which a graph computes the shapes that its Reshapes ask for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pfnm.networks.network import Array

SOME_ROWS = 1009  # stands for the number of rows where shapes are computed: a prime, unlike others


def rows_of(inputs: Sequence[Any]) -> int:
    """How many rows the graph takes at a time, if it says so; else a number that stands for it."""
    for value in inputs:
        for length in value.type.tensor_type.shape.dim[:1]:
            return int(length.dim_value) or SOME_ROWS
    return SOME_ROWS


def counted(operator: str, attributes: Mapping[str, Any], given: Sequence[Any]) -> Any | None:
    """What a node computes of lengths, as far as a Reshape needs it; None of any other."""
    values = [np.asarray(value) for value in given]
    first = values[0]
    result: Any | None = None
    if operator == "Gather" and attributes.get("axis", 0) == 0:
        result = first[np.asarray(values[1], dtype=int)]
    elif operator == "Slice" and len(values) in (3, 4, 5) and first.ndim == 1:
        start, end = (int(np.ravel(value)[0]) for value in values[1:3])
        result = first[start : end : int(np.ravel(values[4])[0]) if len(values) == 5 else 1]
    elif operator == "Concat":
        result = np.concatenate([np.ravel(value) for value in values])
    elif operator in ("Unsqueeze", "Squeeze"):
        result = first.reshape(-1 if operator == "Unsqueeze" else ())
    elif operator in ("Cast", "Identity"):
        result = first
    elif operator == "Mul":
        result = first * values[1]
    elif operator == "ReduceProd" and len(values) == 1 and first.ndim == 1:
        result = np.prod(first, keepdims=bool(attributes.get("keepdims", 1)))
    return result


def keeps_rows(rows: int, shape: tuple[int, ...] | None, target: Array, zeros_kept: bool) -> bool:
    """Whether a Reshape to the target makes one row of numbers of each row of this shape.

    zeros_kept: whether a zero in the target is one, instead of the length that was there.
    """
    if len(target) != 2 or (zeros_kept and not target.all()):
        return False
    if shape is None:
        return int(target[0]) in (-1, 0, rows) and (target[0], target[1]) != (-1, -1)
    full = (rows, *shape)
    wanted = [full[i] if length == 0 else int(length) for i, length in enumerate(target)]
    if wanted.count(-1) == 1:
        known = -math.prod(wanted)
        wanted[wanted.index(-1)] = math.prod(full) // known if known else 0
    return wanted == [rows, math.prod(shape)]
