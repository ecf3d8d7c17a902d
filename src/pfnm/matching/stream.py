"""More sites than memory holds: each is read when it is its turn, and forgotten again.

What is kept is the sums of the global units and the assignment of every site, so time grows with
the number of sites and memory hardly does. The state can be saved between any two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import overload

import numpy as np

from pfnm.matching.matching import Matcher
from pfnm.matching.posterior import Part
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array

NOBODY = -1  # where a site is narrower than the widest, and where it has not been matched yet


class Stream(Sequence[list[Part]]):
    """The sites of a matching, each read anew; the last one is remembered."""

    def __init__(self, read: Callable[[int], list[Part]], number: int) -> None:
        self.read, self.number = read, number
        self.last: tuple[int, list[Part]] | None = None

    def __len__(self) -> int:
        """The number of sites."""
        return self.number

    @overload
    def __getitem__(self, j: int) -> list[Part]: ...
    @overload
    def __getitem__(self, j: slice) -> list[list[Part]]: ...
    def __getitem__(self, j: int | slice) -> list[Part] | list[list[Part]]:
        """Site j's atoms."""
        if isinstance(j, slice):
            return [self[k] for k in range(self.number)[j]]
        if self.last is None or self.last[0] != j:
            self.last = j, self.read(j)
        return self.last[1]


def visiting_order(
    widths: Sequence[int], sweeps: int, sample: int | None, rng: np.random.Generator
) -> IntArray:
    """All visits: every site, widest first, then sweeps over all sites or so many of them."""
    first = np.argsort([-width for width in widths], kind="stable")
    later = [rng.permutation(len(widths))[:sample] for _ in range(sweeps)]
    return np.concatenate([first, *later])


def run_visits(
    matcher: Matcher, visits: IntArray, done: int, on_visit: Callable[[int, int], None]
) -> None:
    """The visits from `done` on. on_visit: told how many are done, and units that moved."""
    for number, j in enumerate(visits[done:].tolist(), done + 1):
        on_visit(number, matcher.step(j)[1])


def state_of(matcher: Matcher) -> dict[str, Array | IntArray]:
    """All that a matching of streamed sites has found out so far, as arrays."""
    posterior = matcher.posterior
    slots = np.full((len(matcher.sites), max(matcher.widths)), NOBODY)
    for row, own in zip(slots, matcher.slots, strict=True):
        if own is not None:
            row[: own.size] = own
    state: dict[str, Array | IntArray] = {
        "slots": slots,
        "optimal_at": np.array(matcher.optimal_at),
        "counters": np.array([matcher.changes, posterior.used, posterior.births]),
        "popularity": posterior.popularity,
        "born": posterior.born,
    }
    for number, sums in enumerate(posterior.parts):
        state |= {f"{name}{number}": getattr(sums, name) for name in SUMS}
    return state


SUMS = ("sums", "precisions", "squares")


def restore(matcher: Matcher, state: Mapping[str, Array | IntArray]) -> None:
    """Go on from a state, as if there had been no interruption."""
    posterior = matcher.posterior
    matcher.slots = [
        None if row[0] == NOBODY else row[:width].astype(np.intp)
        for row, width in zip(state["slots"], matcher.widths, strict=True)
    ]
    matcher.optimal_at = [int(number) for number in state["optimal_at"]]
    matcher.changes, posterior.used, posterior.births = (int(n) for n in state["counters"])
    posterior.popularity = state["popularity"].astype(np.intp)
    posterior.born = state["born"].astype(np.intp)
    for number, sums in enumerate(posterior.parts):
        for name in SUMS:
            setattr(sums, name, np.array(state[f"{name}{number}"]))
