"""The linear sum assignment of one site, and what is special about ours.

Columns for new units differ only by a constant that falls with their number, so which units found
and how many is one sorted comparison, unless two units want the same global unit. Only what is
left open by that goes to the solver.
"""

from __future__ import annotations

import numpy as np
import scipy

from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array

FOUND = -1  # a choice: found a new global unit


def assign(join: Array, found: Array, number: Array) -> IntArray:
    """The choices with the highest total score: a column of `join` for each row, or FOUND.

    join (units, global units) and found (units,) are scores; number (most new units allowed,) is
    what the k-th new unit adds, falling with k. No column is chosen twice, and none that is minus
    infinity throughout.
    """
    gain = join - found[:, None]
    choice = _unconstrained(gain, number)
    if choice is not None:
        return choice
    return _solve(gain, number)


def _unconstrained(gain: Array, number: Array) -> IntArray | None:
    """Every unit's favourite, if no two units want the same: then nothing can be better."""
    if gain.shape[1] == 0:
        best, value = np.full(len(gain), FOUND), np.full(len(gain), -np.inf)
    else:
        best = gain.argmax(axis=1)
        value = gain[np.arange(len(gain)), best]
    least = np.argsort(value)[: number.size]
    founders = least[value[least] < number[: least.size]]
    choice = best.copy()
    choice[founders] = FOUND
    joined = choice[choice != FOUND]
    return choice if joined.size == 0 or np.bincount(joined).max() == 1 else None


def _solve(gain: Array, number: Array) -> IntArray:
    """By linear sum assignment, without the rows and columns whose part is clear beforehand."""
    units = len(gain)
    if number.size < units:
        rows, columns = np.arange(units), np.flatnonzero(gain.max(axis=0) > -np.inf)
    else:
        # Founding is open to all: no unit joins for less than founding last would give it.
        useful = gain > number[units - 1]
        rows, columns = np.flatnonzero(useful.any(axis=1)), np.flatnonzero(useful.any(axis=0))
    number = number[units - rows.size : units]
    matrix = np.empty((rows.size, columns.size + number.size))
    whole = (rows.size, columns.size) == gain.shape
    matrix[:, : columns.size] = gain if whole else gain[np.ix_(rows, columns)]
    matrix[:, columns.size :] = number
    row, column = scipy.optimize.linear_sum_assignment(matrix, maximize=True)
    choice = np.full(units, FOUND)
    joined = column < columns.size
    choice[rows[row[joined]]] = columns[column[joined]]
    return choice
