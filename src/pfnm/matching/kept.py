"""The scores of joining, kept from one visit of a site to the next.

A score depends on a unit and on the members that other sites gave a global unit. Once a matching
has nearly settled few of these change between two visits: only their columns are worked out anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pfnm.matching.posterior import Part, Posterior, in_blocks
from pfnm.matching.prior import Prior
from pfnm.matching.score import join_scores, popularity_term
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array

# Numbers in a site's atoms from which keeping scores is worth it. With fewer, the product of one
# block may be left to a routine for small matrices, which rounds otherwise than that of all blocks:
# units that tie would tie no more.
KEPT_SIZE = 2**14
NONE = -1  # a unit's favourite where there is no global unit
MOSTLY = 0.75  # of the columns: with so many to work out, all at once is faster than a selection


class KeptScores:
    """The scores of each site's units joining each global unit, as `join_scores` has them."""

    def __init__(
        self,
        sites: Sequence[Sequence[Part]],
        widths: Sequence[int],
        prior: Prior,
        posterior: Posterior,
        room: int,
    ) -> None:
        self.sites, self.posterior = sites, posterior
        self.terms = popularity_term(np.arange(len(sites)), prior, len(sites))
        self.integrated = prior.choices.integrated
        dimensions = sum(sums.prior.mean.size for sums in posterior.parts)
        self.worth = [width * dimensions >= KEPT_SIZE for width in widths]
        self.room = room  # bytes for what is kept of all sites; those that find none start afresh
        # Scores of whole blocks of slots, and every unit's best. A slot's scores lie side by side
        # in memory: they change together.
        self.kept: list[tuple[Array, IntArray] | None] = [None] * len(sites)
        self.visits = 0
        self.visited = [0] * len(sites)  # the visit at which a site's scores were last right
        self.changed_at: IntArray = np.zeros(0, dtype=np.intp)  # likewise, of whole blocks of slots

    def of(self, j: int) -> tuple[Array, IntArray]:
        """Site j's scores, (units, slots in use), and every unit's best, now that it is taken out.

        Not to be modified; the next call for this site works in the same memory.
        """
        used, kept = self.posterior.used, self.kept[j]
        self._make_room(used)
        if kept is None:
            kept = self._all(j)
        else:
            self.room += kept[0].nbytes
            changed = self.changed_at > self.visited[j]
            changed[kept[0].shape[1] :] = True
            columns = np.flatnonzero(changed)
            if in_blocks(columns.size) > MOSTLY * changed.size:
                kept = self._all(j)
            elif columns.size:
                kept = self._with_new(j, *kept, columns)
        self.visits += 1
        self.visited[j] = self.visits
        scores, favourite = kept
        keep = self.worth[j] and scores.nbytes <= self.room
        self.kept[j] = kept if keep else None
        self.room -= scores.nbytes if keep else 0
        return scores[:, :used], favourite

    def changed(self, slots: IntArray) -> None:
        """The site visited last has joined or left these slots, which tells the others."""
        self._make_room(self.posterior.used)
        self.changed_at[slots] = self.visits

    def _make_room(self, used: int) -> None:
        if used > self.changed_at.size:
            self.changed_at = np.pad(self.changed_at, (0, in_blocks(used) - self.changed_at.size))

    def _all(self, j: int) -> tuple[Array, IntArray]:
        scores = self._scores(j, slice(0, self.changed_at.size))
        if scores.size == 0:  # nothing is founded yet
            return scores, np.full(len(scores), NONE)
        return scores, scores.argmax(axis=1)

    def _with_new(
        self, j: int, kept: Array, favourite: IntArray, columns: IntArray
    ) -> tuple[Array, IntArray]:
        scores = kept
        if self.changed_at.size > kept.shape[1]:
            scores = np.empty((len(kept), self.changed_at.size), dtype=kept.dtype, order="F")
            scores[:, : kept.shape[1]] = kept
        missing = in_blocks(columns.size) - columns.size
        slots = np.concatenate([columns, np.repeat(columns[-1:], missing)])
        new = self._scores(j, slots)[:, : columns.size]
        return scores, renew(scores, favourite, columns, new)

    def _scores(self, j: int, slots: IntArray | slice) -> Array:
        return join_scores(
            self.sites[j], self.posterior, self.terms, slots, integrated=self.integrated
        )


def renew(scores: Array, favourite: IntArray, columns: IntArray, new: Array) -> IntArray:
    """Put these columns into the scores: every unit's favourite from now on, (units,).

    favourite: the column of the highest score, of equal ones the first. Where it has not become
    worse, only the new columns can be better; elsewhere all are gone through.
    """
    units = np.arange(len(scores))
    value = scores[units, favourite]
    scores.T[columns] = new.T
    first = new.argmax(axis=1)
    rival, rival_value = columns[first], new[units, first]
    better = (rival_value > value) | ((rival_value == value) & (rival < favourite))
    worse = np.flatnonzero((scores[units, favourite] < value) & (rival_value <= value))
    result = np.where(better, rival, favourite)
    result[worse] = scores[worse].argmax(axis=1)
    return result
