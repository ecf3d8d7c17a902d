"""Residual streams that only norms read: rotated, so that all sites have one frame for them.

A LayerNorm whose scale and shift are folded into the maps after it does the same in any rotated
coordinates that keep the mean; an RMSNorm in any. So the numbers of such a stream are no units that
could be matched: a site's whole stream is rotated to where the others' are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import fx

from pfnm.networks.graph import UnitGraph
from pfnm.networks.network import Array, Tensor
from pfnm.networks.program import Map as WeightAtWork
from pfnm.tracing.axes import find
from pfnm.tracing.rules.call import Map, Value
from pfnm.tracing.walk import Walk

NORMS = {"layer_norm.default": True, "rms_norm.default": False}  # whether they take the mean away
# What may stand between a norm and a map that reads it: the same numbers, or some of them.
BETWEEN = ("alias", "clone", "contiguous", "dropout", "expand", "flatten", "permute", "reshape",
           "select", "slice", "squeeze", "transpose", "unflatten", "unsqueeze", "view")  # fmt: skip
TURNS = 5  # of rotating every site to the mean of all, which then hardly moves
ROWS = 1000  # of what each norm gives
PROVED = 32  # inputs on which a rotated network has to answer as before
SAME = 1e-3  # relative to the largest output, in single precision


@dataclass(frozen=True)
class StreamNorm:
    """A norm over a stream: its own scale and shift, and the linear maps that alone read it."""

    scale: str | None
    shift: str | None
    readers: tuple[Map, ...]


@dataclass(frozen=True)
class Stream:
    """A group that norms run over, and whether the mean over it is taken away."""

    group: str
    norms: tuple[StreamNorm, ...]
    centred: bool

    @property
    def own(self) -> set[str]:
        """The tensors of its norms."""
        return {n for norm in self.norms for n in (norm.scale, norm.shift) if n is not None}


def streams_of(found: Walk, graph: UnitGraph, spaces: Mapping[int, str]) -> tuple[Stream, ...]:
    """The streams that may be free to be rotated: whether they are is seen by doing it."""
    maps = {step.node: step.map for step in found.steps if step.map is not None}
    uses = [own.weight for own in maps.values()]
    norms: dict[str, list[StreamNorm]] = {}
    centred, refused = set(), set()
    for step in found.steps:
        kind = getattr(step.node.target, "__name__", "")
        if kind not in NORMS:
            continue
        given = [found.values.get(own) for own in step.node.all_input_nodes]
        x, *vectors = (own for own in given if isinstance(own, Value))
        group = spaces.get(id(find(x.dims[-1])), "")
        readers = list(_readers(step.node, maps))
        if (
            group not in graph.groups
            or [len(own.dims) for own in vectors] != [1] * len(vectors)
            or any(own is None or own.kind != "linear" for own in readers)
            or any(uses.count(own.weight) > 1 for own in readers if own is not None)
        ):
            refused.add(group)
            continue
        names = [own.tensor for own in vectors] + [None, None]
        linear = tuple(own for own in readers if own is not None)
        norms.setdefault(group, []).append(StreamNorm(names[0], names[1], linear))
        if NORMS[kind]:
            centred.add(group)
    streams = (Stream(group, tuple(own), group in centred) for group, own in norms.items())
    return tuple(own for own in streams if own.group not in refused and _alone(own, graph))


def _readers(node: fx.Node, maps: Mapping[fx.Node, Map]) -> Iterator[Map | None]:
    """The maps that a node's values enter; None for anything else that reads them."""
    for user in node.users:
        if user in maps:
            yield maps[user] if user.args[0] is node else None
        elif getattr(user.target, "__name__", "").split(".")[0].rstrip("_") in BETWEEN:
            yield from _readers(user, maps)
        else:
            yield None


def _alone(stream: Stream, graph: UnitGraph) -> bool:
    """Whether every axis that lists the stream lists nothing else."""
    axes = [axis for name in graph.tensors_of(stream.group) for axis in graph.axes[name]]
    return all(axis.space == stream.group for axis in axes if stream.group in axis.spaces)


def folded(
    stream: Stream, tensors: Mapping[str, Tensor], graph: UnitGraph
) -> dict[str, Tensor] | None:
    """The tensors, the norms' scales and shifts folded into the maps; None where that cannot be."""
    result = dict(tensors)
    for norm in stream.norms:
        scale = None if norm.scale is None else tensors[norm.scale].astype(float)
        shift = None if norm.shift is None else tensors[norm.shift].astype(float)
        for at in norm.readers:
            assert at.weight is not None
            weight = np.moveaxis(result[at.weight].astype(float), at.order[1], -1)
            if shift is not None and shift.any():
                if at.bias is None:
                    return None
                bias = result[at.bias]
                result[at.bias] = (bias + (weight @ shift).reshape(bias.shape)).astype(bias.dtype)
            if scale is not None:
                changed = np.moveaxis(weight * scale, -1, at.order[1])
                result[at.weight] = changed.astype(tensors[at.weight].dtype)
        for name, rest in ((norm.scale, 1), (norm.shift, 0)):
            if name is not None:
                result[name] = np.full_like(tensors[name], rest)
    if not stream.centred:
        return result
    name = next(own for own in graph.tensors_of(stream.group) if own not in stream.own)
    place = [axis.space for axis in graph.axes[name]].index(stream.group)
    width = tensors[name].shape[place]
    return turned(stream, result, np.eye(width) - 1 / width, graph)


def turned(
    stream: Stream, tensors: Mapping[str, Tensor], rotation: Array, graph: UnitGraph
) -> dict[str, Tensor]:
    """The tensors with the stream in other coordinates: its values times a (width, width) map."""
    result = dict(tensors)
    for name in graph.tensors_of(stream.group):
        if name in stream.own:
            continue
        own = result[name].astype(float)
        for place, axis in enumerate(graph.axes[name]):
            if axis.space == stream.group:
                own = np.moveaxis(np.moveaxis(own, place, -1) @ rotation, -1, place)
        result[name] = np.ascontiguousarray(own, dtype=tensors[name].dtype)
    return result


def rotations(values: Sequence[Array], *, centred: bool) -> list[Array]:
    """Of each site the rotation that brings its values, (rows, width), to the mean of all.

    Each is the best for the mean that the others give (orthogonal Procrustes), in turns. centred:
    the mean over a row is kept.
    """
    width = values[0].shape[1]
    found = [np.eye(width) for _ in values]
    mean = values[0]
    for _ in range(TURNS):
        for j, own in enumerate(values):
            products = own.T @ mean
            if centred:  # rows have a mean of zero: nothing else speaks of this direction
                products = products + np.linalg.norm(products) / width
            left, _, right = np.linalg.svd(products)
            found[j] = left @ right
        mean = np.mean([own @ turn for own, turn in zip(values, found, strict=True)], axis=0)
    return found


def in_one_frame(
    streams: Sequence[Stream],
    graph: UnitGraph,
    run: Callable[..., Any],
    sites: Sequence[Mapping[str, Tensor]],
    make: Callable[[], Tensor],
) -> Sequence[Mapping[str, Tensor]]:
    """The sites' tensors, every stream that is free to be rotated in one frame for all of them.

    run: of a program. make: inputs, which it is seen on. Whether a stream is free is proved: each
    site answers as before.
    """
    if not streams:
        return sites
    inputs = make()
    for stream in streams:
        if not all(set(graph.tensors_of(stream.group)) <= own.keys() for own in sites):
            continue
        free = [folded(stream, own, graph) for own in sites]
        known = [own for own in free if own is not None]
        if len(known) < len(sites):
            continue
        values = [_given(stream, own, run, inputs) for own in known]
        if len({own.shape for own in values}) > 1 or not values[0].size:  # of other widths
            continue
        turns = rotations(values, centred=stream.centred)
        found = [turned(stream, *pair, graph) for pair in zip(known, turns, strict=True)]
        shown = inputs[:PROVED]
        if all(_same(run(a, shown), run(b, shown)) for a, b in zip(sites, found, strict=True)):
            sites = found
    return sites


def _given(
    stream: Stream, tensors: Mapping[str, Tensor], run: Callable[..., Any], inputs: Tensor
) -> Array:
    """What all norms over a stream give, (rows, width)."""
    first = {norm.readers[0].weight for norm in stream.norms if norm.readers}
    found: list[Array] = [np.empty((0, 0))]

    def visit(at: WeightAtWork, features: Any, _: Any) -> None:
        if at.weight in first and features is not None:
            found.append(np.asarray(features, dtype=float))

    run(tensors, inputs, visit, rows=ROWS)
    return np.concatenate(found[1:] or found)


def _same(before: Tensor, after: Tensor) -> bool:
    return bool(np.abs(after - before).max() <= SAME * np.abs(before).max())
