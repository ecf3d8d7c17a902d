"""The proof: units renamed change nothing, and units doubled change nothing where they may be.

It is run in double precision on the example inputs, with tensors moved at random, so that ones and
zeros at initialisation hide nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pfnm.errors import PFNMError
from pfnm.networks.graph import IntArray, UnitGraph
from pfnm.tracing.layout import pieces
from pfnm.tracing.program import Program

Tensors = Mapping[str, NDArray[Any]]
Reads = Mapping[str, tuple[frozenset[str], ...]]
"""The spaces that operations sum over, for every axis of the module's own tensors."""

Item = TypeVar("Item")

TOLERANCE = 1e-8  # of outputs in double precision, relative to the largest
SINGLE = 1e-4  # of outputs in single precision, where there is no double
DISTURBED = 1e-6  # units renamed in one tensor and not in the others must change more than this
SPREAD = 0.3  # of the factors and summands tensors are moved by
DOUBLED = 8  # one unit in so many is doubled: all of them would not show what a mean does
CANNOT_WIDEN = "widening it changes what the network computes"
UNKNOWN_SIZE = "its size does not follow from the shapes of the tensors"


@dataclass(frozen=True)
class Example:
    """What a network is run on: positional and keyword inputs, and a seed for what is random."""

    inputs: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    seed: int = 0

    @contextmanager
    def seeded(self) -> Iterator[None]:
        """Within, what a network draws at random is the same every time."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            yield


def proved(
    program: Program,
    graph: UnitGraph,
    tensors: Tensors,
    example: Example,
    candidates: Mapping[str, str],
    reads: Reads,
) -> UnitGraph:
    """The graph with inner and rigid groups as they were found to be; an error if it is wrong.

    candidates: groups that may be within others.
    """
    proof = _Proof(program, tensors, example)
    if not graph.groups:
        return graph
    graph = proof.permuted(graph, candidates)
    proof.forceful(graph)
    return proof.widened(graph, reads)


class _Proof:
    def __init__(self, program: Program, tensors: Tensors, example: Example) -> None:
        self.program = program
        self.example = example
        self.random = np.random.default_rng(example.seed)
        # In the module's own precision, which any order of units keeps to the bit; they are made
        # double where they are run, so that one copy in double is held at a time.
        self.tensors: Tensors = disturbed(tensors, self.random)
        self.tolerance = TOLERANCE
        try:
            self.expected = self._outputs(self.tensors)
        except Exception:  # an operation that has no double precision
            self.tolerance = SINGLE
            tensors = {name: own.astype(np.float32) for name, own in tensors.items()}
            self.tensors = disturbed(tensors, self.random)
            self.expected = self._outputs(self.tensors)
        if not all(bool(torch.isfinite(own).all()) for own in self.expected):
            self.tensors = tensors
            self.expected = self._outputs(tensors)
        self.sizes = program.sizes(self.tensors)

    def _outputs(self, tensors: Tensors) -> list[Tensor]:
        example = self.example
        with example.seeded():
            double = self.tolerance == TOLERANCE
            results = self.program.outputs(tensors, example.inputs, example.kwargs, double=double)
        chosen = self.program.output
        return [
            own for n in self.program.fixed_outputs if isinstance(own := results[n], Tensor)
        ] or [results[chosen]]

    def same(self, tensors: Tensors, tolerance: float | None = None) -> bool:
        """Whether these tensors give the same outputs."""
        tolerance = self.tolerance if tolerance is None else tolerance
        found = self._outputs(tensors)
        return all(
            distance(own, other) <= tolerance
            for own, other in zip(found, self.expected, strict=True)
        )

    def permuted(self, graph: UnitGraph, candidates: Mapping[str, str]) -> UnitGraph:
        """The graph with those candidates within others that are; an error if it is wrong."""

        def within(own: Mapping[str, str]) -> UnitGraph:
            sizes = {group: self.sizes[group] for group in own}
            return replace(graph, inner=dict(own), constant={**graph.constant, **sizes})

        whole = within(candidates)
        if self._holds(whole, graph.groups):
            return whole
        good = [group for group in candidates if group not in self._wrong(whole, list(candidates))]
        best = within({group: candidates[group] for group in good})
        if self._holds(best, graph.groups):
            return best
        wrong = self._wrong(best, graph.groups) or list(graph.groups)
        raise PFNMError(
            f"the unit graph is wrong: renaming the units of {_listed(wrong)} changes the outputs; "
            "a rule of an operation on their way is not right (pass rules=... with a right one)"
        )

    def _holds(self, graph: UnitGraph, groups: Sequence[str]) -> bool:
        units = random_units(graph, self.sizes, groups, self.random)
        return self.same(rearranged(graph, self.tensors, units, self.sizes))

    def _wrong(self, graph: UnitGraph, groups: Sequence[str]) -> list[str]:
        """The groups that cannot be permuted."""
        return culprits(list(groups), lambda own: self._holds(graph, own))

    def forceful(self, graph: UnitGraph) -> None:
        """An error if units renamed in one tensor of each group change nothing: no proof at all."""
        units = random_units(graph, self.sizes, graph.groups, self.random)
        alone = dict(self.tensors)
        for group in graph.groups:
            largest = max(graph.tensors_of(group), key=lambda name: self.tensors[name].size)
            own = {largest: alone[largest]}
            alone |= rearranged(graph, own, {group: units[group]}, self.sizes)
        if self.same(alone, max(DISTURBED, self.tolerance)):
            raise PFNMError(
                "the outputs on these example inputs do not depend on the order of units at all, "
                "so nothing can be proved; give example inputs that the network answers to"
            )

    # -- widening ----------------------------------------------------------------------------

    def widened(self, graph: UnitGraph, reads: Reads) -> UnitGraph:
        """The graph with those groups rigid that cannot be widened."""
        rigid = dict(graph.rigid)
        for group in graph.outer_groups:
            if group in graph.constant:
                rigid.setdefault(group, UNKNOWN_SIZE)
        sets = [own for own in _sets(graph) if not any(group in rigid for group in own)]
        for own in _sets(graph):
            stiff = [group for group in own if group in rigid]
            for group in own if stiff else ():
                rigid.setdefault(group, f"it must have as many units as {stiff[0]!r}")

        def together(own: Sequence[tuple[str, ...]]) -> bool:
            return self._widens(graph, [group for groups in own for group in groups], reads)

        stiff_sets = culprits(sets, together)
        if stiff_sets and not together([own for own in sets if own not in stiff_sets]):
            stiff_sets = sets
        for own in stiff_sets:
            rigid |= dict.fromkeys(own, CANNOT_WIDEN)
        order = {group: rigid[group] for group in graph.groups if group in rigid}
        return replace(graph, rigid=order)

    def _widens(self, graph: UnitGraph, groups: Sequence[str], reads: Reads) -> bool:
        """Whether some units may stand twice, with half of what is read from each."""
        if not groups:
            return True
        units, scales = {}, {}
        for group in groups:
            size = self.sizes[group]
            twice = self.random.choice(size, ceil(size / DOUBLED), replace=False)
            units[group] = np.sort(np.concatenate([np.arange(size), twice]))
            scales[group] = np.where(np.isin(units[group], twice), 0.5, 1.0)
        wide = rearranged(graph, self.tensors, units, self.sizes)
        try:
            return self.same(halved(self.program, wide, scales, reads))
        except Exception:  # whatever PyTorch says of sizes that do not fit
            return False


def halved(
    program: Program,
    tensors: dict[str, NDArray[Any]],
    scales: Mapping[str, NDArray[np.float64]],
    reads: Reads,
) -> dict[str, NDArray[Any]]:
    """Tensors with the axes that are summed over scaled, unit by unit; those given are used up."""
    size = program.size_of(program.sizes(tensors))
    result = {}
    for name in list(tensors):
        layout = program.layouts[name]
        own = tensors.pop(name)
        if any(reads[name]):
            own = layout.original(own, size)
            for axis, (dim, read) in enumerate(zip(layout.dims, reads[name], strict=True)):
                if read:
                    factor = np.ones(own.shape[axis])
                    for found, where in pieces(dim, size):
                        values = np.ones(())
                        for leaf in found:
                            space = program.spaces.get(id(leaf), "")
                            scale = scales.get(space) if space in read else None
                            each = np.ones(size(leaf)) if scale is None else scale
                            values = values[..., None] * each
                        factor[where] = values
                    factor = factor.astype(own.dtype)  # powers of two: nothing is rounded
                    own = own * factor.reshape(-1, *[1] * (own.ndim - axis - 1))
            own = layout.canonical(own, size)
        result[name] = own
    return result


def rearranged(
    graph: UnitGraph, tensors: Tensors, units: Mapping[str, IntArray], sizes: Mapping[str, int]
) -> dict[str, NDArray[Any]]:
    """Tensors with these units, axis by axis."""
    result = {}
    for name, tensor in tensors.items():
        own = tensor
        for place, axis in enumerate(graph.axes[name]):
            if any(space in units for space in axis.spaces):
                own = np.take(own, axis.positions(units, sizes, graph.inner), axis=place)
        result[name] = own
    return result


def random_units(
    graph: UnitGraph,
    sizes: Mapping[str, int],
    groups: Sequence[str],
    random: np.random.Generator,
) -> dict[str, IntArray]:
    """Random orders without fixed points; those of inner groups differ from unit to unit."""
    units: dict[str, IntArray] = {}
    for group in groups:
        if group in graph.inner:
            rows = sizes[graph.inner[group]]
            units[group] = np.stack([_cycle(sizes[group], random) for _ in range(rows)])
        else:
            units[group] = _cycle(sizes[group], random)
    return units


def _cycle(size: int, random: np.random.Generator) -> IntArray:
    """A random order in which no unit stays where it is: each takes the place of the next."""
    order = random.permutation(size)
    result = np.empty(size, dtype=np.intp)
    result[order] = np.roll(order, 1)
    return result


def disturbed(tensors: Tensors, random: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Tensors moved at random; what is never negative (variances) stays so."""
    result = {}
    for name, tensor in tensors.items():
        own = tensor * random.uniform(1 - SPREAD, 1 + SPREAD, tensor.shape)
        if tensor.size and (tensor.min() < 0 or not tensor.any()):
            scale = SPREAD * (np.sqrt(np.mean(tensor**2)) or 1.0)
            own += random.uniform(-scale, scale, tensor.shape)
        result[name] = own.astype(tensor.dtype, copy=False)
    return result


def distance(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest finite value expected."""
    found, expected = found.detach(), expected.detach()
    if found.shape != expected.shape:
        return float("inf")
    if not expected.numel():
        return 0.0
    if expected.dtype == torch.bool or not expected.dtype.is_floating_point:
        return 0.0 if torch.equal(found, expected) else float("inf")
    same = (found == expected) | (found.isnan() & expected.isnan())
    finite = expected[torch.isfinite(expected)]
    scale = float(finite.abs().max()) if finite.numel() else 1.0
    gap = torch.where(same, torch.zeros_like(expected), (found - expected).abs())
    worst = float(gap.nan_to_num(nan=float("inf")).max())
    return worst / scale if scale else worst


def _sets(graph: UnitGraph) -> list[tuple[str, ...]]:
    """Groups that are widened together, in their order; those within others are not."""
    result: list[tuple[str, ...]] = []
    for group in graph.outer_groups:
        own = next((alike for alike in graph.alike if group in alike), (group,))
        own = tuple(other for other in own if other in graph.outer_groups)
        if own not in result:
            result.append(own)
    return result


def culprits(suspects: list[Item], good: Callable[[list[Item]], bool]) -> list[Item]:
    """Those that are not good, found by halves; none if all together are."""
    if not suspects or good(suspects):
        return []
    if len(suspects) == 1:
        return suspects
    half = len(suspects) // 2
    return culprits(suspects[:half], good) + culprits(suspects[half:], good)


def _listed(groups: Sequence[str]) -> str:
    return ", ".join(repr(group) for group in groups)
