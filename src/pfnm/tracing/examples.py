"""Inputs of modules as rows of numbers, and made-up ones like an example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from pfnm.errors import PFNMError
from pfnm.fusing.inputs import InputRange
from pfnm.fusing.noise import channels_of_noise
from pfnm.networks.network import Network, Tensor

DEVIATIONS = 3  # from the mean, within which made-up values lie
SLOPES = (0.5, 1.5)  # amplitude of pictures and signals falls with frequency to these powers
LIKENESS = (0.3, 0.95)  # of the channels of one of them
MOST_CHANNELS = 16  # more are hardly channels of pictures or signals
LEAST_LENGTH = 8  # along each axis of a picture or signal


@dataclass(frozen=True, eq=False)
class Slot:
    """One input of a module: the shape of one example, and what its values are like."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    rows: Tensor
    """The example's, (examples, numbers)."""

    @property
    def numbers(self) -> int:
        """How many numbers one example has here."""
        return prod(self.shape)

    def made(self, count: int, rng: np.random.Generator) -> Tensor:
        """Made-up ones, (count, numbers): like the given example in kind, range and shape."""
        if self.dtype == torch.bool or self.numbers == 0:
            return self.rows[rng.integers(len(self.rows), size=count)]
        if not self.dtype.is_floating_point:
            low, high = (end.astype(int) for end in (self.rows.min(axis=0), self.rows.max(axis=0)))
            return rng.integers(low, high + 1, size=(count, self.numbers)).astype(float)
        deviation = float(self.rows.std()) or 1.0
        noise = self._noise(count, rng).reshape(count, -1)
        bound = DEVIATIONS * deviation
        return np.asarray(self.rows.mean() + np.clip(deviation * noise, -bound, bound))

    def _noise(self, count: int, rng: np.random.Generator) -> Tensor:
        """Of mean 0 and deviation 1: smooth where the shape is that of pictures or signals."""
        channels, *lengths = self.shape or (1,)
        if lengths and channels <= MOST_CHANNELS and min(lengths) >= LEAST_LENGTH:
            return channels_of_noise(count, channels, lengths, rng, SLOPES, LIKENESS)
        return rng.standard_normal((count, self.numbers), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs like a given example: the kind of inputs of a module where nothing else is told."""

    slots: tuple[Slot, ...]
    spec: Any
    """How the slots are nested in positional and keyword inputs."""
    fixed: Mapping[int, Any]
    """What is no batch of examples, by its place."""
    together: int | None = None
    """How many rows always go together, where a module takes no other number of them."""
    drawn: bool = False
    """Whether nothing but the example's own rows can be given to the module."""

    @property
    def numbers(self) -> int:
        """How many numbers one input has, all slots together."""
        return sum(slot.numbers for slot in self.slots)

    @property
    def whole(self) -> bool:
        """Whether all of them are whole numbers: tokens."""
        return not any(slot.dtype.is_floating_point for slot in self.slots)

    @property
    def within(self) -> InputRange:
        """Between which values they lie."""
        values = np.concatenate([slot.rows.ravel() for slot in self.slots])
        return InputRange(float(values.min()), float(max(values.max(), values.min() + 1)))

    def make(self, networks: Sequence[Network], count: int, rng: np.random.Generator) -> Tensor:
        """Inputs (count, numbers)."""
        if self.together is not None:
            count = max(1, count // self.together) * self.together
        if self.drawn:
            return np.resize(self.rows, (count, self.numbers))
        made = [slot.made(count, rng) for slot in self.slots]
        return np.concatenate(made, axis=1).astype(np.float32)

    def tensors(self, rows: Any) -> tuple[torch.Tensor, ...]:
        """Rows (examples, numbers) as the module takes them."""
        given = torch.as_tensor(rows)
        start, result = 0, []
        for slot in self.slots:
            part = given[:, start : start + slot.numbers].reshape(-1, *slot.shape)
            whole = not slot.dtype.is_floating_point
            result.append(part.round().to(slot.dtype) if whole else part.to(slot.dtype))
            start += slot.numbers
        return tuple(result)

    def placed(self, tensors: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Tensors as positional and keyword inputs, with what is no batch beside them."""
        given = iter(tensors)
        count = len(self.slots) + len(self.fixed)
        flat = [self.fixed[n] if n in self.fixed else next(given) for n in range(count)]
        args, kwargs = pytree.tree_unflatten(flat, self.spec)
        return args, kwargs

    @property
    def rows(self) -> Tensor:
        """The example itself, (examples, numbers)."""
        return np.concatenate([slot.rows for slot in self.slots], axis=1).astype(np.float32)

    def __str__(self) -> str:
        return "like the example"


def examples_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Examples:
    """What the example inputs of a module tell of its inputs."""
    flat, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    batches = [own for own in flat if isinstance(own, torch.Tensor) and own.dim()]
    if not batches:
        raise PFNMError("no example input is a tensor with one row an example; give one that is")
    rows = len(batches[0])
    slots, fixed = [], {}
    for place, given in enumerate(flat):
        if isinstance(given, torch.Tensor) and given.dim() and len(given) == rows:
            own = given.detach().to("cpu", torch.float32).reshape(rows, -1).numpy()
            slots.append(Slot(tuple(given.shape[1:]), given.dtype, own))
        else:
            fixed[place] = given
    return Examples(tuple(slots), spec, fixed)
