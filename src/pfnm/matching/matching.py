"""One group of units: the first pass, the sweeps, and when to stop (the paper's Algorithm 1)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import scipy
from numpy.typing import ArrayLike

from pfnm.errors import PFNMError, overflow_named
from pfnm.matching.assign import FOUND, assign
from pfnm.matching.checks import checked_atoms, checked_mean, checked_precisions, checked_start
from pfnm.matching.evidence import prior_by_evidence
from pfnm.matching.kept import KeptScores
from pfnm.matching.posterior import Part, Posterior, PriorPart
from pfnm.matching.prior import Prior
from pfnm.matching.products import blank, bytes_needed, products_pay, with_products
from pfnm.matching.score import found_scores, log_precision_gain, number_terms
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array

MAX_SWEEPS = 25  # a matching of tens of sites settles in fewer; of a thousand, more gain little
ROUNDING = 1e-9  # relative: objectives nearer than this are equal
MEMORY = 2**29  # bytes that may be kept between steps
PATIENCE = 3  # sweeps without a better objective after which a matching counts as settled


@dataclass(frozen=True)
class Sweep:
    """What one pass over the sites did; the first pass is a sweep too."""

    objective: float
    width: int
    new_units: int
    reassigned: int


@dataclass(frozen=True, eq=False)
class Matching:
    """Which global unit each site's unit is, and what the global units are.

    assignments: an int array for each site; popularity: (L,), the sites of each global unit.
    """

    assignments: tuple[IntArray, ...]
    popularity: IntArray
    objective: float
    """The log posterior of these assignments, without normalising constants."""
    evidence: float | None
    """The same with all constants, by which priors compare: where atoms are integrated out."""
    prior: Prior
    trace: tuple[Sweep, ...]
    settled: bool
    _mean: Callable[[], Array] = field(repr=False)

    @cached_property
    def mean(self) -> Array:
        """The global atoms, (L, D); worked out when it is asked for."""
        return self._mean()

    @property
    def width(self) -> int:
        """The number of global units."""
        return self.popularity.size


@overflow_named()
def match(
    atoms: Sequence[ArrayLike],
    prior: Prior | None = None,
    *,
    precisions: Sequence[ArrayLike] | None = None,
    prior_mean: ArrayLike | None = None,
    start: Sequence[ArrayLike] | None = None,
    sweeps: int | None = None,
    width_limit: int | None = None,
    rng: np.random.Generator | None = None,
    on_step: Callable[[], None] | None = None,
    used_up: bool = False,
    memory: int = MEMORY,
    drawn: bool = False,
) -> Matching:
    """Match the atoms of all sites: which of them are one thing, and how many things there are.

    atoms: for each site an array (units, D) of vectors whose order means nothing, such as units of
    a layer, topics or cluster centres. precisions: for each site 1 / variance, one number or (D,)
    (default: 1 / prior.site_variance). prior_mean: a number or (D,) (default: prior.prior_mean).
    Without a prior, the one with the most evidence is found first (`prior_by_evidence`; precisions
    then count up to a common factor, and the prior mean is that of all atoms).
    start: assignments to start from instead of a first pass. sweeps: exactly so many (default:
    until nothing changes, or nothing for the better). width_limit: at most so many global units.
    on_step is called after every site's step. used_up: work in the memory and the precision of the
    atoms, which hold something else afterwards; the mean cannot be asked for then. memory: at most
    so many bytes are kept between steps to save work (0: none), beside the atoms and global units.
    drawn: every step takes not the best assignment but one drawn by chance, likelier the better it
    is (Gumbel noise on its scores).

    >>> rng = np.random.default_rng(0)
    >>> topics = rng.normal(size=(9, 40))
    >>> seen = [rng.permutation(9)[:5] for _ in range(6)]
    >>> found = match([topics[own] + 0.5 * rng.normal(size=(5, 40)) for own in seen])
    >>> found.width, np.unique(np.concatenate(seen)).size
    (9, 9)
    """
    rng = np.random.default_rng(0) if rng is None else rng
    if prior is None:
        prior, precisions, prior_mean = _by_evidence(atoms, precisions, prior_mean, rng)
    vectors = checked_atoms(atoms, np.asarray(atoms[0]).dtype if used_up else float)
    if width_limit is not None and width_limit < max(len(v) for v in vectors):
        raise PFNMError(
            f"a width limit of {width_limit} is below the widest site's "
            f"{max(len(v) for v in vectors)} units; give at least that"
        )
    seen = checked_precisions(precisions, vectors, prior)
    mean = checked_mean(prior.prior_mean if prior_mean is None else prior_mean, vectors[0].shape[1])
    if sweeps is not None and sweeps < 0:
        raise PFNMError(f"sweeps is {sweeps}, expected a whole number from 0")
    columns = _uniform_columns(seen)
    sites = _parts(vectors, seen, columns, in_place=used_up)
    priors = [PriorPart(mean[c], 1 / prior.prior_variance) for c, _ in columns]
    widths = [len(v) for v in vectors]
    matcher = Matcher(sites, widths, priors, prior, width_limit, memory, on_step)
    matcher.noise = rng if drawn else None
    if start is None:
        first = matcher.first_pass()
    else:
        given = checked_start(start, widths)
        found = np.unique(np.concatenate(given)).size
        if width_limit is not None and found > width_limit:
            raise PFNMError(
                f"the assignments to start from have {found} global units, more than the limit of "
                f"{width_limit}; allow as many, or start without them"
            )
        first = matcher.resume(given)
        sweeps = prior.choices.round_sweeps if sweeps is None else sweeps
    orders = (rng.permutation(len(sites)) for _ in itertools.count())
    assignments, objective, trace, settled = _run(matcher, first, orders, sweeps)
    if used_up:
        vectors, seen = [], np.empty((0, mean.size))
    return Matching(
        assignments,
        np.bincount(np.concatenate(assignments)),
        objective,
        objective + matcher.normaliser() if prior.choices.integrated else None,
        prior,
        tuple(trace),
        settled,
        partial(_mean, vectors, seen, assignments, mean, 1 / prior.prior_variance),
    )


def _by_evidence(
    atoms: Sequence[ArrayLike],
    precisions: Sequence[ArrayLike] | None,
    prior_mean: ArrayLike | None,
    rng: np.random.Generator,
) -> tuple[Prior, Sequence[ArrayLike], Array]:
    """The prior with the most evidence, and the precisions and prior mean that go with it."""
    vectors = checked_atoms(atoms)
    weights = checked_precisions(precisions, vectors, Prior())
    middle = np.mean([v.mean(axis=0) for v in vectors], axis=0)
    mean = checked_mean(middle if prior_mean is None else prior_mean, middle.size)

    def solve(some: Sequence[int], prior: Prior) -> Matching:
        seen = weights / prior.site_variances(1)
        return match(
            [vectors[j] for j in some],
            prior,
            precisions=[seen[j] for j in some],
            prior_mean=mean,
            rng=rng,
        )

    prior = prior_by_evidence(solve, vectors, weights, mean)
    return prior, list(weights / prior.site_variances(1)), mean


def _run(
    matcher: Matcher, first: Sweep, orders: Iterator[IntArray], sweeps: int | None
) -> tuple[tuple[IntArray, ...], float, list[Sweep], bool]:
    """Sweep until nothing changes, or exactly so often: assignments, objective, trace, settled.

    A step is best for its own site, and by a logarithm perhaps not for the whole, so sites can undo
    each other's steps for ever. Without a number of sweeps the best state by objective is kept, and
    the sweeps end when it has not been bettered for a while.
    """
    trace = [first]
    if sweeps is not None:
        trace += [matcher.sweep(next(orders)) for _ in range(sweeps)]
        return matcher.numbered(), trace[-1].objective, trace, trace[-1].reassigned == 0
    best, kept = first.objective, matcher.numbered()
    waited = 0
    while len(trace) <= MAX_SWEEPS:
        trace.append(matcher.sweep(next(orders)))
        waited += 1
        if trace[-1].objective > best + ROUNDING * abs(best):
            best, kept, waited = trace[-1].objective, matcher.numbered(), 0
        if trace[-1].reassigned == 0 or waited == PATIENCE:
            return kept, best, trace, True
    return kept, best, trace, False


class Matcher:
    """The state of a matching: the posterior, and the slot of every unit of every site."""

    def __init__(
        self,
        sites: Sequence[list[Part]],
        widths: Sequence[int],
        priors: Sequence[PriorPart],
        prior: Prior,
        width_limit: int | None,
        memory: int,
        on_step: Callable[[], None] | None,
    ) -> None:
        self.sites, self.widths, self.priors = sites, widths, priors
        self.prior, self.width_limit = prior, width_limit
        self.found: list[Array | None] = [None] * len(sites)  # scores of founding, once known
        self.number = number_terms(max(self.widths), prior, len(sites))
        self.posterior = Posterior(priors, sites[0], width_limit)
        self.join = KeptScores(sites, widths, prior, self.posterior, memory)
        self.slots: list[IntArray | None] = [None] * len(sites)
        self.changes = 0  # steps so far that changed an assignment
        self.optimal_at = [-1] * len(sites)  # `changes` when the site was last solved
        self.on_step = on_step
        self.memory = memory
        self.decided = False  # whether it is clear which way of summing is the cheaper
        self.noise: np.random.Generator | None = None  # for assignments that are drawn

    def first_pass(self) -> Sweep:
        """Sites from widest to narrowest; the first founds the global layer."""
        order = np.argsort([-width for width in self.widths], kind="stable")
        first = order[0]
        slots = self.posterior.found(self.widths[first])
        self.posterior.absorb(self.sites[first], slots)
        self.slots[first] = slots
        rest = self.sweep(order[1:])
        return Sweep(
            rest.objective,
            rest.width,
            rest.new_units + self.widths[first],
            rest.reassigned + self.widths[first],
        )

    def resume(self, assignments: Sequence[IntArray]) -> Sweep:
        """Take up given assignments."""
        slots = self.posterior.found(max(int(a.max()) for a in assignments) + 1)
        for j, assignment in enumerate(assignments):
            self.slots[j] = slots[assignment]
            self.posterior.absorb(self.sites[j], slots[assignment])
        self._consider_products()
        return self._report(0, 0)

    def sweep(self, order: IntArray) -> Sweep:
        """Match every site of `order` again, given all the others."""
        new_units = reassigned = 0
        for j in order:
            new, moved = self.step(int(j))
            new_units += new
            reassigned += moved
            if self.on_step is not None:
                self.on_step()
        return self._report(new_units, reassigned)

    def step(self, j: int) -> tuple[int, int]:
        """Give site j its best assignment given the others: units newly founded, units moved."""
        before, posterior = self.slots[j], self.posterior
        if before is not None and self.optimal_at[j] == self.changes and self.noise is None:
            # Nobody else has moved since: the assignment is still optimal. Its own units count as
            # founded anew, as they would had they been taken out and matched again.
            posterior.renew(before[posterior.popularity[before] == 1])
            return 0, 0
        if not self.decided:
            self._consider_products()
        site = self.sites[j]
        if before is not None:
            posterior.release(site, before)
        (join, favourite), found = self.join.of(j), self._found_scores(j)
        if self.noise is not None:  # scores are doubled
            join = join + 2 * self.noise.gumbel(size=join.shape)
            found = found + 2 * self.noise.gumbel(size=found.shape)
            favourite = join.argmax(axis=1)
        after = assign(join, favourite, found, self.number[: self._most_new(j)])
        founders = after == FOUND
        if before is None:
            moved, new = np.ones_like(founders), founders
            after[founders] = posterior.found(int(founders.sum()))
            self.join.changed(after)
        else:
            again = founders & (posterior.popularity[before] == 0)  # what it alone had
            after[again] = before[again]
            moved, new = after != before, founders & ~again
            after[new] = posterior.found(int(new.sum()), beside=before[again])
            posterior.renew(after[founders])
            self.join.changed(np.concatenate([before[moved], after[moved]]))
        posterior.absorb(site, after)
        self.slots[j] = after
        self.changes += bool(moved.any())
        self.optimal_at[j] = self.changes
        return int(new.sum()), int(moved.sum())

    def _found_scores(self, j: int) -> Array:
        found = self.found[j]
        if found is None:
            found = found_scores(self.sites[j], self.priors, self.prior.choices)
            self.found[j] = found
        return found

    def _consider_products(self) -> None:
        """Go over to products of all units with each other, once that is seen to be cheaper."""
        seen = sum(slots.size for slots in self.slots if slots is not None)
        width = int(np.count_nonzero(self.posterior.popularity))
        pay = products_pay(
            self.widths, seen, width, self.width_limit, self.sites[0][0], self.memory
        )
        self.decided = pay is not None
        if not pay:
            return
        for j in range(len(self.sites)):
            self._found_scores(j)  # for which products are not enough
        first = [site[0] for site in self.sites]
        parts, sums = with_products(first, self.posterior.parts[0].prior)
        sums.grow(self.posterior.popularity.size)
        popularity = np.zeros_like(self.posterior.popularity)
        for site, part, slots in zip(self.sites, parts, self.slots, strict=True):
            site[0] = part
            if slots is not None:
                sums.absorb(slots, part, popularity[slots] == 0)
                popularity[slots] += 1
        self.posterior.parts[0] = sums
        self.join.room -= bytes_needed(self.widths, first[0])

    def _most_new(self, j: int) -> int:
        most = self.widths[j]
        width = int(np.count_nonzero(self.posterior.popularity))
        if self.prior.choices.width_cap is not None:
            # A site wider than cap and layer together still needs a place for every unit.
            most = min(most, max(self.prior.choices.width_cap - width, 1, most - width))
        if self.width_limit is not None:
            most = min(most, self.width_limit - width)
        return most

    def _report(self, new_units: int, reassigned: int) -> Sweep:
        slots = self.posterior.occupied()
        return Sweep(self._objective(slots), slots.size, new_units, reassigned)

    def _objective(self, slots: IntArray) -> float:
        """1/2 sum_i (|S_i|^2/P_i - |mu_0 p_0|^2/p_0) and the log prior of the assignments.

        Where atoms are integrated out, less half the sum of log(P_i / p_0).
        """
        posterior, sites = self.posterior, len(self.sites)
        rules = self.prior.choices
        evidence = 0.0
        for sums in posterior.parts:
            p_0 = sums.prior.precision
            nothing = sums.start_square / p_0
            evidence += float((sums.evidence(slots) - nothing).sum()) / 2
            if rules.integrated:
                gained = sums.precisions[slots] - p_0
                evidence -= float(log_precision_gain(gained, p_0, sums.prior.mean.size).sum()) / 2
        m = posterior.popularity[slots]
        buffet = (
            scipy.special.gammaln(m)
            + scipy.special.gammaln(sites - m + 1)
            - scipy.special.gammaln(sites + 1)
            + np.log(self.prior.mass)
        )
        total = evidence + float(buffet.sum())
        if rules.numbered:
            own = [int((posterior.popularity[s] == 1).sum()) for s in self.slots if s is not None]
            total -= float(scipy.special.gammaln(np.array(own) + 1).sum())
        return total

    def normaliser(self) -> float:
        """What the objective lacks of the complete log evidence, whatever the assignments are.

        1/2 sum over units and columns of (log(p / 2 pi) - p v^2), and -gamma_0 (1 + 1/2 + .. + 1/J)
        of the prior. A column of precision zero has not been seen: nothing is said of it.
        """
        total = -self.prior.mass * float((1 / np.arange(1, len(self.sites) + 1)).sum())
        for site in self.sites:
            for part, sums in zip(site, self.posterior.parts, strict=True):
                p, columns, squares = part.precision, sums.prior.mean.size, part.squares.sum()
                if p.size > 1:
                    columns, squares = 1, np.einsum("ld,ld->d", part.weighted, part.weighted)
                seen = p > 0
                logs = columns * float(np.log(p[seen] / (2 * np.pi)).sum())
                total += len(part.weighted) * logs / 2
                total -= float((np.atleast_1d(squares)[seen] / p[seen]).sum()) / 2
        return total

    def numbered(self) -> tuple[IntArray, ...]:
        """Assignments with global units numbered from 0 in the order of their founding."""
        slots = self.posterior.occupied()
        number = np.full(self.posterior.used, FOUND)
        number[slots] = np.arange(slots.size)
        return tuple(number[s] for s in self.slots if s is not None)


def _mean(
    vectors: Sequence[Array],
    seen: Array,
    assignments: Sequence[IntArray],
    prior_mean: Array,
    prior_precision: float,
) -> Array:
    """theta_i = (mu_0 p_0 + sum of members' v p) / (p_0 + sum of members' p): (L, D)."""
    width = max(int(a.max()) for a in assignments) + 1
    total = np.tile(prior_mean * prior_precision, (width, 1))
    weight = np.full_like(total, prior_precision)
    for v, p, assignment in zip(vectors, seen, assignments, strict=True):
        total[assignment] += v * p
        weight[assignment] += p
    return total / weight


def _uniform_columns(seen: Array) -> list[tuple[IntArray | slice, bool]]:
    """The largest set of columns with one precision at every site, and the others.

    seen: (J, D). The first set costs one matrix product a step, the others two.
    """
    if (seen == seen[:, :1]).all():
        return [(slice(None), True)]
    # Columns side by side are mostly alike, and much is done by telling the first of each run.
    starts = np.flatnonzero(np.append(True, (seen[:, 1:] != seen[:, :-1]).any(axis=0)))
    lengths = np.diff(starts, append=seen.shape[1])
    kinds = np.unique(seen[:, starts], axis=1, return_inverse=True)[1]
    uniform = np.repeat(kinds == np.bincount(kinds, weights=lengths).argmax(), lengths)
    if uniform.sum() == 1:
        return [(slice(None), False)]
    return [(_as_slice(np.flatnonzero(some)), some is uniform) for some in (uniform, ~uniform)]


def _as_slice(columns: IntArray) -> IntArray | slice:
    """Columns side by side as a slice, which is much faster than picking them one by one."""
    first, last = int(columns[0]), int(columns[-1])
    return slice(first, last + 1) if last - first + 1 == columns.size else columns


def _parts(
    vectors: Sequence[Array],
    seen: Array,
    columns: Sequence[tuple[IntArray | slice, bool]],
    *,
    in_place: bool,
) -> list[list[Part]]:
    """The parts of every site."""
    if in_place and len(columns) == 1 and columns[0][1]:
        return [
            [Part(np.multiply(v, p[0], out=v), p[:1])] for v, p in zip(vectors, seen, strict=True)
        ]
    seen = seen.astype(vectors[0].dtype, copy=False)
    ends = np.cumsum([len(v) for v in vectors])
    sites: list[list[Part]] = [[] for _ in vectors]
    for c, uniform in columns:
        stacked = blank(ends[-1], seen[0, c].size, seen.dtype)
        for site, v, p, end in zip(sites, vectors, seen, ends, strict=True):
            weighted = np.multiply(v[:, c], p[c], out=stacked[end - len(v) : end])
            site.append(Part(weighted, p[c][:1] if uniform else p[c], stacked=stacked))
    return sites
