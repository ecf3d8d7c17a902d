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


def assign(join: Array, favourite: IntArray, found: Array, number: Array) -> IntArray:
    """The choices with the highest total score: a column of `join` for each row, or FOUND.

    join (units, global units) and found (units,) are scores, favourite (units,) the best column of
    each row (of none: anything); number (most new units allowed,) is what the k-th new unit adds,
    falling with k. No column is chosen twice, and none that is minus infinity throughout.
    """
    choice = _unconstrained(join, favourite, found, number)
    if choice is not None:
        return choice
    return _solve(join, found, number)


def _unconstrained(
    join: Array, favourite: IntArray, found: Array, number: Array
) -> IntArray | None:
    """Every unit's favourite, if no two units want the same: then nothing can be better."""
    if join.shape[1] == 0:
        choice, value = np.full(len(join), FOUND), np.full(len(join), -np.inf)
    else:
        choice, value = favourite.copy(), join[np.arange(len(join)), favourite] - found
    least = np.argsort(value)[: number.size]
    founders = least[value[least] < number[: least.size]]
    choice[founders] = FOUND
    joined = choice[choice != FOUND]
    return choice if joined.size == 0 or np.bincount(joined).max() == 1 else None


def _solve(join: Array, found: Array, number: Array) -> IntArray:
    """By linear sum assignment, without the rows and columns whose part is clear beforehand."""
    units = len(join)
    if number.size < units:
        rows, columns = np.arange(units), np.flatnonzero(join.max(axis=0) > -np.inf)
    else:
        # Founding is open to all: no unit joins for less than founding last would give it.
        useful = join > (found + number[units - 1])[:, None]
        rows, columns = np.flatnonzero(useful.any(axis=1)), np.flatnonzero(useful.any(axis=0))
    number = number[units - rows.size : units]
    matrix = np.empty((rows.size, columns.size + number.size))
    some = np.take(join.T, columns, axis=0).T
    some = some if rows.size == units else some[rows]
    np.subtract(some, found[rows, None], out=matrix[:, : columns.size])
    matrix[:, columns.size :] = number
    row, column = scipy.optimize.linear_sum_assignment(matrix, maximize=True)
    choice = np.full(units, FOUND)
    joined = column < columns.size
    choice[rows[row[joined]]] = columns[column[joined]]
    return choice
