"""Which axes of which tensors are permuted together: spaces, axes made of them, unit groups.

An axis is a concatenation of parts, a part a product of factors: spaces, and plain numbers where
positions mean the same everywhere. The last factor runs fastest, as in memory.

    a layer's units                    Axis.of("hidden")
    flattened maps of 7 x 7            Axis.of("filters", after=49)
    four stacked gates                 Axis.of("state", before=4)
    two maps concatenated              Axis((Part(("encoder",)), Part(("decoder",))))
    heads of 64 coordinates            Axis((Part(("heads", "coordinates")),))
    fused queries, keys and values     Axis((Part(("heads", "qk")), Part(("heads", "qk")), ...))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pfnm.errors import PFNMError

IntArray = NDArray[np.intp]
Role = Literal["weight", "bias", "scale", "statistic"]
Units = Mapping[str, IntArray]
"""Some units of some spaces, in an order: (units,); of an inner space (units of its outer, n)."""

INPUT = "input"  # the space of a network's inputs: all sites share its coordinates
OUTPUT = "output"  # the space of its outputs: shared too, and what class counts and labels speak of


@dataclass(frozen=True)
class Part:
    """A product of factors: names of spaces, and numbers."""

    factors: tuple[str | int, ...]

    @cached_property
    def spaces(self) -> tuple[str, ...]:
        """The spaces among the factors."""
        return tuple(factor for factor in self.factors if isinstance(factor, str))

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The length of every factor."""
        return tuple(f if isinstance(f, int) else sizes[f] for f in self.factors)

    def grid(self, units: Units, sizes: Mapping[str, int], inner: Mapping[str, str]) -> IntArray:
        """The positions of some units, one dimension a factor, in a part of these sizes.

        A space that `units` does not name is taken whole. inner: the outer space of each inner one.
        """
        shape = self.shape(sizes)
        total = np.zeros((1,) * len(shape), dtype=np.intp)
        for place, (factor, length) in enumerate(zip(self.factors, shape, strict=True)):
            found = units.get(factor) if isinstance(factor, str) else None
            own = np.arange(length) if found is None else found
            dimensions = [place]
            if own.ndim == 2:
                assert isinstance(factor, str)
                dimensions.insert(0, self.factors.index(inner[factor]))
            where = [1] * len(shape)
            for dimension, number in zip(dimensions, own.shape, strict=True):
                where[dimension] = number
            total = total + own.reshape(where) * prod(shape[place + 1 :])
        return total


@dataclass(frozen=True)
class Axis:
    """One axis of a tensor: parts, one after the other."""

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, space: str, *, before: int = 1, after: int = 1) -> Axis:
        """`before` blocks of a space's units, `after` entries for each unit."""
        factors: list[str | int] = [space]
        if before > 1:
            factors.insert(0, before)
        if after > 1:
            factors.append(after)
        return cls((Part(tuple(factors)),))

    @classmethod
    def fixed(cls, length: int) -> Axis:
        """An axis whose positions mean the same everywhere."""
        return cls((Part((length,)),))

    @cached_property
    def spaces(self) -> tuple[str, ...]:
        """The spaces it is made of, each once."""
        return tuple(dict.fromkeys(space for part in self.parts for space in part.spaces))

    @cached_property
    def space(self) -> str | None:
        """The one space whose units it lists; None where it is made of more than that."""
        if len(self.parts) == 1 and len(self.parts[0].factors) == 1:
            (factor,) = self.parts[0].factors
            return factor if isinstance(factor, str) else None
        return None

    def length(self, sizes: Mapping[str, int]) -> int:
        """How many entries it has."""
        if self.space is not None:
            return sizes[self.space]
        return sum(prod(part.shape(sizes)) for part in self.parts)

    def positions(
        self, units: Units, sizes: Mapping[str, int], inner: Mapping[str, str]
    ) -> IntArray:
        """The positions of some units along an axis of these sizes, in their order."""
        if self.space is not None:
            found = units.get(self.space)
            return np.arange(sizes[self.space]) if found is None else found
        start, result = 0, []
        for part in self.parts:
            result.append(start + part.grid(units, sizes, inner).ravel())
            start += prod(part.shape(sizes))
        return np.concatenate(result)

    def coordinates(self, space: str, sizes: Mapping[str, int]) -> IntArray:
        """The unit of a space that each entry belongs to; -1 where it belongs to none."""
        result = []
        for part in self.parts:
            shape = part.shape(sizes)
            own = np.full((1,) * len(shape), -1)
            if space in part.factors:
                place = part.factors.index(space)
                own = np.arange(shape[place]).reshape(
                    [-1 if d == place else 1 for d in range(len(shape))]
                )
            result.append(np.broadcast_to(own, shape).ravel())
        return np.concatenate(result)

    def by_unit(self, space: str, sizes: Mapping[str, int]) -> IntArray:
        """The positions that belong to each unit of a space: (units, entries of each)."""
        if self.space == space:
            return np.arange(sizes[space])[:, None]
        start, result = 0, []
        for part in self.parts:
            if space in part.factors:
                grid = start + part.grid({}, sizes, {})
                place = part.factors.index(space)
                result.append(np.moveaxis(grid, place, 0).reshape(sizes[space], -1))
            start += prod(part.shape(sizes))
        return np.concatenate(result, axis=1)


@dataclass(frozen=True)
class UnitGraph:
    """The axes of every tensor, and what its spaces are.

    A space listed in `groups` (in the order of computation) is a unit group: its axes are permuted
    together and the order of its units means nothing. Every other space is fixed: its coordinates
    mean the same at every site.
    """

    axes: Mapping[str, tuple[Axis, ...]]
    groups: tuple[str, ...]
    inner: Mapping[str, str] = field(default_factory=dict)
    """Groups whose units are numbered within each unit of another (coordinates within heads,
    filters within a convolution's groups), and that other: each of its units has its own order."""
    constant: Mapping[str, int] = field(default_factory=dict)
    """Sizes of spaces that are the same in every network: those of inner groups, and others."""
    rigid: Mapping[str, str] = field(default_factory=dict)
    """Groups that can be permuted but not widened, and why."""
    alike: tuple[tuple[str, ...], ...] = ()
    """Sets of groups that must have the same number of units (layers of one LSTM), in any order."""
    roles: Mapping[str, Role] = field(default_factory=dict)
    """What each tensor is; one that is not listed is a bias if it has one axis, else a weight."""

    def __post_init__(self) -> None:
        spaces = {space for axes in self.axes.values() for axis in axes for space in axis.spaces}
        for group in self.groups:
            if group not in spaces:
                raise PFNMError(f"unit group {group!r} has no tensor axis; leave it out")
        for own, outer in self.inner.items():
            if own not in self.groups or outer not in self.groups or own not in self.constant:
                raise PFNMError(
                    f"{own!r} within {outer!r}: both must be unit groups, and the size of the "
                    "first known"
                )

    @property
    def outer_groups(self) -> tuple[str, ...]:
        """The groups that are not within another."""
        return tuple(group for group in self.groups if group not in self.inner)

    def inner_of(self, group: str) -> tuple[str, ...]:
        """The groups within a group."""
        return tuple(own for own, outer in self.inner.items() if outer == group)

    def is_group(self, space: str) -> bool:
        """Whether the space is a unit group (and not fixed)."""
        return space in self.groups

    def groups_of(self, name: str) -> tuple[str, ...]:
        """The groups along a tensor's axes, in the order of `groups`."""
        found = {space for axis in self.axes[name] for space in axis.spaces}
        return tuple(group for group in self.groups if group in found)

    def tensors_of(self, space: str) -> tuple[str, ...]:
        """The names of the tensors with an axis in `space`."""
        return tuple(n for n, axes in self.axes.items() if any(space in a.spaces for a in axes))

    def role(self, name: str) -> Role:
        """What a tensor is."""
        return self.roles.get(name, "bias" if len(self.axes[name]) == 1 else "weight")

    def shape(self, name: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of a tensor where spaces have these sizes."""
        return tuple(axis.length(sizes) for axis in self.axes[name])

    def index(self, name: str, units: Units, sizes: Mapping[str, int]) -> tuple[IntArray, ...]:
        """The index of some units in a tensor of these sizes; what is not named is taken whole."""
        return np.ix_(*(axis.positions(units, sizes, self.inner) for axis in self.axes[name]))

    def sizes(self, shapes: Mapping[str, Iterable[int]]) -> dict[str, int]:
        """The number of units of every space, from the shapes of the tensors.

        A space whose size does not follow from any axis is left out.
        """
        found = dict(self.constant)
        open_axes = [
            (axis, length)
            for name, axes in self.axes.items()
            for axis, length in zip(axes, shapes[name], strict=True)
        ]
        while open_axes:
            left = []
            for axis, length in open_axes:
                if axis.space is not None:
                    found.setdefault(axis.space, length)
                    continue
                missing = [s for s in axis.spaces if s not in found]
                if len(missing) == 1:
                    known = {**found, missing[0]: 0}
                    rest = length - axis.length(known)
                    each = axis.length({**found, missing[0]: 1}) - axis.length(known)
                    found[missing[0]] = rest // each
                elif missing:
                    left.append((axis, length))
            if len(left) == len(open_axes):
                break
            open_axes = left
        return found
