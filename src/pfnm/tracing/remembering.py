"""Inputs fitted to what batch normalisation remembers of the data: no data, but very like it.

While it was trained, every batch normalisation noted mean and variance of what entered it. Made-up
inputs are moved, by gradient, until they leave the same there: in every layer, at every site.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from pfnm.fusing.inputs import InputRange, Inputs
from pfnm.fusing.memory import give_back
from pfnm.fusing.probes import is_classifier
from pfnm.networks.network import Array, Network, Tensor
from pfnm.threads import one_of_torch
from pfnm.tracing.examples import Slot
from pfnm.tracing.rules.call import Map as TracedMap
from pfnm.tracing.running import ModuleProgram

POOL = 1600  # inputs that are fitted, and drawn from for every purpose
# What may go into them, which makes them fewer for large networks: a minute or so of one core.
FITTING_WORK = 2.5e12  # multiplications
FITTING_VALUES = 1.2e10  # numbers that leave maps, which small convolutions take most time for
LEAST = 32  # fewer say little of means and variances: they are then left as they are
JUDGES = 3  # one in so many of those that seek no class judges, and does nothing else
BATCH = 200  # of them are fitted together: their mean and variance are what is compared
LIVE_VALUES = 5e7  # numbers that leave all maps of one batch: some 150 MB with their gradients
STEPS, RATE = 40, 0.03  # of Adam; the rate in units of the inputs' range
BACKWARD = 3  # times the work of a run: with gradients
MOST_SITES = 2  # to which one batch is fitted, so that many sites cost no more than two
EVEN = 1.5  # times its even share: a site with more of a class has seen other data than others
CLASSES = 0.05  # how much cross-entropy towards random classes counts beside the statistics
SMOOTHNESS = 0.01  # how much differences of neighbours count
SHIFTED = 16  # a picture is shifted by at most one part in so many of its side
LEAST_SIDE = 8  # along each axis of what is shifted: a picture or a signal
FLOOR = 1e-3  # of a remembered variance: a unit that never does anything says nothing
SEED = 0


@dataclass(frozen=True, eq=False)
class Remembered:
    """Inputs of a kind, fitted to what the sites' batch normalisations remember.

    They are made once, and drawn from for every purpose, shifted a little. Half of them seek random
    classes too: of these all networks are sure, so that they teach well and judge badly. Some of
    the others do nothing but judge: to what it was fitted on, a network answers too well.
    """

    kind: Inputs
    sites: Sequence[Network]
    shares: Array
    """(J, K): how much each site counts for each class."""

    @property
    def within(self) -> InputRange:
        """Between which values they lie."""
        return self.kind.within

    def make(self, networks: Sequence[Network], count: int, rng: np.random.Generator) -> Tensor:
        """Inputs (count, inputs), of those that were fitted."""
        plain, seeking = self.pool
        return self._drawn(np.concatenate([plain[len(plain) // JUDGES :], seeking]), count, rng)

    def make_to_judge(
        self, networks: Sequence[Network], count: int, rng: np.random.Generator
    ) -> Tensor:
        """Of those that do nothing else."""
        plain, _ = self.pool
        return self._drawn(plain[: len(plain) // JUDGES], count, rng)

    def _drawn(self, pool: Tensor, count: int, rng: np.random.Generator) -> Tensor:
        order = np.resize(rng.permutation(len(pool)), count)
        rounds = np.split(order, range(len(pool), count, len(pool)))  # each shifted in its own way
        return np.concatenate([self._moved(pool[places], rng) for places in rounds])

    def _moved(self, made: Tensor, rng: np.random.Generator) -> Tensor:
        moved = [
            shifted(torch.from_numpy(part), slot, rng).numpy()
            for part, slot in zip(_parts(made, self._program), self._slots, strict=True)
        ]
        return np.concatenate(moved, axis=1)

    @cached_property
    def pool(self) -> tuple[Tensor, Tensor]:
        """All inputs that were fitted: to the statistics alone, and to random classes too."""
        rng = np.random.default_rng(SEED)
        cost = self._program.cost
        assert cost is not None
        runs = STEPS * self._together
        most = min(FITTING_WORK / (BACKWARD * cost.work), FITTING_VALUES / cost.values) / runs
        half = int(np.clip(most, LEAST, POOL)) // 2
        size = min(BATCH, LIVE_VALUES / cost.values)
        found = []
        for share in (0.0, CLASSES):
            starts = self.kind.make(self.sites, half, rng)
            batches = np.array_split(starts, max(1, round(half / size)))
            if most >= LEAST:
                with contextlib.suppress(RuntimeError):  # an operation that has no gradient
                    batches = [self._fitted(batch, share, rng) for batch in batches]
            found.append(np.concatenate(batches))
            give_back(self.sites[0])
        return found[0], found[1]

    def __str__(self) -> str:
        return str(self.kind)

    @property
    def _together(self) -> int:
        """To how many sites one batch is fitted: to one where they have seen different data."""
        even = self.shares.max() <= EVEN / len(self.sites)
        return min(MOST_SITES, len(self.sites)) if even else 1

    @property
    def _program(self) -> ModuleProgram:
        program = self.sites[0].program
        assert isinstance(program, ModuleProgram)
        return program

    @property
    def _slots(self) -> Sequence[Slot]:
        return self._program.examples.slots

    @one_of_torch()
    def _fitted(self, start: Tensor, classes: float, rng: np.random.Generator) -> Tensor:
        """One batch, from where it starts; so much counts that it seeks classes."""
        low, high = (torch.from_numpy(np.asarray(end)) for end in self.within.ends)
        width = torch.from_numpy(np.asarray(self.within.width, dtype=np.float32))
        chosen = rng.permutation(len(self.sites))[: self._together]
        memories = [Memory(self.sites[j]) for j in chosen]
        seen = self.shares[chosen].sum(axis=0)
        seen = seen if seen.any() else np.ones_like(seen)  # it counts for no class: all are alike
        labels = torch.from_numpy(rng.choice(len(seen), size=len(start), p=seen / seen.sum()))
        x = torch.from_numpy(start / np.asarray(self.within.width, dtype=np.float32))
        x.requires_grad_()
        optimizer = torch.optim.Adam([x], lr=RATE)
        for _ in range(STEPS):
            moved = torch.cat(
                [
                    shifted(part, slot, rng)
                    for part, slot in zip(
                        _parts(x * width, self._program), self._slots, strict=True
                    )
                ],
                dim=1,
            )
            # Site by site: what one leaves for its gradients is gone before the next begins.
            slopes = [memory.slope(moved, labels, classes) for memory in memories]
            rough = torch.stack(
                [
                    roughness(part, slot)
                    for part, slot in zip(_parts(x, self._program), self._slots, strict=True)
                ]
            )
            slope = torch.stack(slopes).mean(dim=0)
            optimizer.zero_grad()
            torch.autograd.backward([moved, SMOOTHNESS * rough.sum()], [slope, None])
            optimizer.step()
            with torch.no_grad():
                x.clamp_(low / width, high / width)
        result: Tensor = (x.detach() * width).numpy()
        return result


@dataclass(frozen=True, eq=False)
class Norm:
    """What one normalisation does at rest, scale and shift, and remembers of what left it."""

    scale: torch.Tensor
    shift: torch.Tensor
    mean: torch.Tensor
    variance: torch.Tensor

    def distance(self, entering: torch.Tensor, power: torch.Tensor) -> torch.Tensor:
        """How far what leaves it is from that, where means and mean squares of these enter it."""
        scale = self.variance + FLOOR
        apart = (self.scale * entering + self.shift - self.mean).square()
        variance = self.scale.square() * (power - entering.square()).clamp_min(0)
        spread = ((variance + FLOOR).sqrt() - scale.sqrt()).square()
        return ((apart + spread) / scale).mean()


class Memory:
    """One site's network and what it remembers, for gradients."""

    def __init__(self, network: Network) -> None:
        program = network.program
        assert isinstance(program, ModuleProgram)
        assert network.memory is not None
        self.program = program
        self.classifies = is_classifier(network)
        self.tensors = program.trace.program.prepared(
            {
                name: torch.from_numpy(np.ascontiguousarray(tensor, dtype=np.float32))
                for name, tensor in program.folding.unfold(network.tensors).items()
            }
        )
        tensors = network.tensors
        self.remembered: dict[str, Norm] = {}
        for own in program.folding.norms:
            shift = tensors[own.shift]
            scale = np.ones_like(shift) if own.after else tensors[own.scale]
            each = (scale, shift, *network.memory[own.shift])
            norm = Norm(*(torch.from_numpy(x.astype(np.float32)) for x in each))
            self.remembered[own.mean] = norm

    def slope(self, inputs: torch.Tensor, labels: torch.Tensor, classes: float) -> torch.Tensor:
        """The gradient of the distance with respect to the inputs."""
        x = inputs.detach().requires_grad_()
        (found,) = torch.autograd.grad(self.distance(x, labels, classes), x)
        return found

    def distance(self, inputs: torch.Tensor, labels: torch.Tensor, classes: float) -> torch.Tensor:
        """How far what leaves the normalisations is from what they remember, per unit.

        Of classifiers also, `classes` times, how far the answers are from these labels.
        """
        found: list[torch.Tensor] = []

        def look(at: TracedMap, features: Any, *_: Any) -> None:
            norm = None if at.statistics is None else self.remembered.get(at.statistics[0])
            if norm is not None:
                moments = Moments.apply(features)  # type: ignore[no-untyped-call]
                found.append(norm.distance(*moments))

        outputs = self.program.run_torch(self.tensors, inputs, look)
        total = torch.stack(found).mean()
        if classes and self.classifies and len(outputs) == len(inputs):
            total = total + classes * functional.cross_entropy(outputs, labels)
        return total


class Moments(torch.autograd.Function):
    """The means of values (examples, units, ...) and of their squares, (2, units).

    For its gradient it keeps the values, as the normalisation that they enter does: not twice.
    """

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        """Products are much the quickest means."""
        ctx.save_for_backward(values)
        rows = values.to(torch.float32, copy=True).movedim(1, -1).flatten(0, -2)
        each = torch.full((1, len(rows)), 1 / len(rows))
        mean = each @ rows
        return torch.cat([mean, each @ rows.square_()])

    @staticmethod
    def backward(ctx: Any, slopes: torch.Tensor) -> torch.Tensor:
        """Of each value: (its unit's slope of the mean + 2 x that of the power) / rows."""
        (values,) = ctx.saved_tensors
        of_mean, of_power = slopes / (values.numel() // values.shape[1])
        rest, one = torch.zeros_like(of_mean), torch.ones_like(of_mean)
        # The quickest operation for that.
        return functional.batch_norm(values, rest, one, 2 * of_power, of_mean, eps=0.0)


def _parts(rows: Any, program: ModuleProgram) -> list[Any]:
    """Rows (examples, numbers) by slot."""
    ends = np.cumsum([0, *(slot.numbers for slot in program.examples.slots)])
    return [rows[:, first:last] for first, last in pairwise(ends)]


def shifted(rows: torch.Tensor, slot: Slot, rng: np.random.Generator) -> torch.Tensor:
    """Pictures or signals (examples, numbers) moved a little, all alike; others as they are."""
    _, *sides = slot.shape or (1,)
    if not sides or min(sides) < LEAST_SIDE:
        return rows
    steps = [int(rng.integers(-(side // SHIFTED), side // SHIFTED + 1)) for side in sides]
    axes = tuple(range(2, 2 + len(sides)))
    moved = torch.roll(rows.reshape(-1, *slot.shape), steps, axes)
    return moved.reshape(rows.shape)


def roughness(rows: torch.Tensor, slot: Slot) -> torch.Tensor:
    """The mean squared difference of neighbours, in units of the range, along all sides."""
    _, *sides = slot.shape or (1,)
    pictures = rows.reshape(-1, *slot.shape)
    if not sides or min(sides) < LEAST_SIDE:
        return rows.new_zeros(())
    found = [pictures.diff(dim=2 + side).square().mean() for side in range(len(sides))]
    return torch.stack(found).sum()
