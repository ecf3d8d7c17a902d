"""Pieces of a tensor, and tensors put together."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pfnm.tracing.axes import Dim, SizeOf, concatenation, is_pinned, length
from pfnm.tracing.rules import rule
from pfnm.tracing.rules.call import Call, Dims, NoRuleError, Value

END = 2**63 - 1  # what PyTorch writes for "to the end"


def piece(
    call: Call, x: Value, axis: int, start: int, stop: int
) -> tuple[Dims, list[Dim], Dim | None]:
    """The dimensions of x[start:stop] along an axis, and the pieces before it."""
    size = x.dims[axis].size
    if stop <= start:
        raise NoRuleError("an empty slice")
    sizes = [start, stop - start, size - stop]
    number = 1 if start else 0
    kept = [own for own in sizes if own]
    dims = call.joiner.take(x.dims, axis, kept, number)
    before = call.joiner.cut(x.dims[axis], kept)[:number]
    return dims, before, dims[axis]


@rule("aten.slice", "aten.slice_copy")
def slices(call: Call) -> Dims:
    """x[start:end:step] along a dimension."""
    x, step = call["self"], call["step"]
    axis = call["dim"] % len(x.dims)
    dim = x.dims[axis]
    start, stop, _ = slice(call["start"], call["end"]).indices(dim.size)
    if (start, stop, step) == (0, dim.size, 1):
        call.sizes = lambda _: {"end": END}
        return tuple(x.dims)
    if step != 1:
        return _strided(call, x, axis, start, stop)
    pinned = is_pinned(dim)
    dims, before, own = piece(call, x, axis, start, stop)
    if pinned:
        if stop == dim.size:
            call.sizes = lambda _: {"end": END}
        return dims
    assert own is not None

    def sizes(size: SizeOf) -> dict[str, int]:
        begin = sum(length(other, size) for other in before)
        return {"start": begin, "end": begin + length(own, size)}

    call.sizes = sizes
    return dims


def _strided(call: Call, x: Value, axis: int, start: int, stop: int) -> Dims:
    """Every step-th position: rows of `step`, of which one column is taken."""
    dim, step = x.dims[axis], call["step"]
    dims = list(x.dims)
    if is_pinned(dim):
        dims[axis] = call.fresh(call.shape[axis])
        if stop == dim.size:
            call.sizes = lambda _: {"end": END}
        return tuple(dims)
    if dim.size % step or start >= step or stop + step <= dim.size:
        raise NoRuleError("a slice with a step that does not divide the length")
    dims[axis : axis + 1] = call.joiner.split(dim, dim.size // step)
    sizes = [own for own in (start, 1, step - start - 1) if own]
    taken = list(call.joiner.take(dims, axis + 1, sizes, 1 if start else 0))
    call.sizes = lambda _: {"end": END}
    return (*taken[: axis + 1], *taken[axis + 2 :])


@rule("aten.narrow", "aten.narrow_copy")
def narrow(call: Call) -> Dims:
    """x[start : start + length] along a dimension."""
    x, start = call["self"], call["start"]
    axis = call["dim"] % len(x.dims)
    if not isinstance(start, int):
        raise NoRuleError("a start that depends on the input")
    pinned = is_pinned(x.dims[axis])
    start %= x.dims[axis].size
    dims, before, own = piece(call, x, axis, start, start + call["length"])
    if not pinned and own is not None:
        call.sizes = lambda size: {
            "start": sum(length(other, size) for other in before),
            "length": length(own, size),
        }
    return dims


@rule("aten.select", "aten.select_copy")
def select(call: Call) -> Dims:
    """One position along a dimension."""
    x, index = call["self"], call["index"]
    axis = call["dim"] % len(x.dims)
    if not isinstance(index, int):
        raise NoRuleError("an index that depends on the input")
    pinned = is_pinned(x.dims[axis])
    index %= x.dims[axis].size
    dims, before, _ = piece(call, x, axis, index, index + 1)
    if not pinned:
        call.sizes = lambda size: {"index": sum(length(other, size) for other in before)}
    return (*dims[:axis], *dims[axis + 1 :])


def pieces(call: Call, x: Value, axis: int, sizes: Sequence[int]) -> list[Dims]:
    """The dimensions of all consecutive pieces along an axis."""
    return [call.joiner.take(x.dims, axis, sizes, number) for number in range(len(sizes))]


@rule("aten.unbind", "aten.unbind_copy")
def unbind(call: Call) -> list[Dims]:
    """All positions along a dimension, one by one."""
    x: Value = call["self"]
    axis = call["dim"] % len(x.dims)
    each = pieces(call, x, axis, [1] * x.dims[axis].size)
    return [(*dims[:axis], *dims[axis + 1 :]) for dims in each]


@rule("aten.split", "aten.split_with_sizes", "aten.chunk", "aten.tensor_split", "aten.unsafe_split",
      "aten.unsafe_chunk", "aten.unsafe_split_with_sizes", "aten.split_copy",
      "aten.split_with_sizes_copy", "aten.hsplit", "aten.vsplit")  # fmt: skip
def split(call: Call) -> list[Dims]:
    """Consecutive pieces along a dimension."""
    x: Value = call["self"]
    axis = (call.get("dim") or 0) % len(x.dims)
    sizes = [shape[axis] for shape in call.shapes]
    if sum(sizes) != x.dims[axis].size or 0 in sizes:
        raise NoRuleError("pieces along another dimension, or empty ones")
    pinned = is_pinned(x.dims[axis])
    each = pieces(call, x, axis, sizes)
    if not pinned:
        own = [dims[axis] for dims in each]
        call.instead = torch.ops.aten.split_with_sizes.default
        call.sizes = lambda size: {
            "split_sizes": [length(dim, size) for dim in own],
            "dim": axis,
        }
    return each


@rule("aten.cat", "aten.concat", "aten.concatenate")
def cat(call: Call) -> Dims:
    """One after the other along a dimension."""
    values = [v for v in call["tensors"] if v.shape != (0,)]  # as old code starts a list
    axis = call.get("dim") % len(call.shape)
    others = [(*value.dims[:axis], *value.dims[axis + 1 :]) for value in values]
    rest = call.broadcast(others, len(call.shape) - 1)
    whole = concatenation([value.dims[axis] for value in values])
    return (*rest[:axis], whole, *rest[axis:])


@rule("aten.stack", "aten.column_stack", "aten.hstack", "aten.vstack")
def stack(call: Call) -> Dims:
    """Side by side along a new dimension."""
    if not call.name.startswith("aten.stack"):
        raise NoRuleError("stacked by rank")
    values: list[Value] = call["tensors"]
    axis = call["dim"] % len(call.shape)
    rest = call.broadcast([value.dims for value in values], len(call.shape) - 1)
    return (*rest[:axis], call.fresh(len(values), "one of several stacked"), *rest[axis:])
