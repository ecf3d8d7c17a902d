"""Views: the same numbers under other dimensions."""

from __future__ import annotations

import torch

from pfnm.tracing.axes import ONE, Dim, length, product
from pfnm.tracing.rules import rule
from pfnm.tracing.rules.call import Call, Dims, NoRuleError, Value


@rule("aten.view", "aten.reshape", "aten._unsafe_view", "aten._reshape_copy", "aten.view_copy",
      "aten.reshape_as", "aten.view_as")  # fmt: skip
def view(call: Call) -> Dims:
    """Dimensions merged and split."""
    x: Value = call["self"]
    if "size" in call.arguments or "shape" in call.arguments:
        dims = call.joiner.regroup(x.dims, call.shape)
        call.resize("size" if "size" in call.arguments else "shape", dims)
        return dims
    if "dtype" in call.arguments:
        raise NoRuleError("bits read as another type")
    dims = call.joiner.regroup(x.dims, call.shape)
    return call.broadcast([dims, call["other"].dims])


@rule("aten.flatten")
def flatten(call: Call) -> Dims:
    """Some dimensions become one."""
    x: Value = call["self"]
    if not x.dims:
        return (ONE,)
    start, end = call["start_dim"] % len(x.dims), call["end_dim"] % len(x.dims)
    return (*x.dims[:start], product(x.dims[start : end + 1]), *x.dims[end + 1 :])


@rule("aten.unflatten")
def unflatten(call: Call) -> Dims:
    """One dimension becomes some."""
    x: Value = call["self"]
    axis = call["dim"] % len(x.dims)
    count = len(call["sizes"])
    made = call.joiner.regroup([x.dims[axis]], call.shape[axis : axis + count])
    call.resize("sizes", made)
    return (*x.dims[:axis], *made, *x.dims[axis + 1 :])


@rule("aten.permute", "aten.transpose", "aten.t", "aten.numpy_T", "aten.mT", "aten.movedim",
      "aten.moveaxis", "aten.swapaxes", "aten.swapdims", "aten.adjoint", "aten.mH",
      "aten.permute_copy", "aten.transpose_copy", "aten.t_copy", "aten.matrix_H")  # fmt: skip
def permute(call: Call) -> Dims:
    """Dimensions in another order."""
    x: Value = call["self"]
    return tuple(x.dims[place] for place in axis_order(call, len(x.dims)))


def axis_order(call: Call, rank: int) -> list[int]:
    """Which dimension goes where."""
    order = list(range(rank))
    name = call.name.split(".")[1]
    if name in ("permute", "permute_copy"):
        return [place % rank for place in call["dims"]]
    if name in ("movedim", "moveaxis"):
        source, target = call["source"], call["destination"]
        source = [source] if isinstance(source, int) else source
        target = [target] if isinstance(target, int) else target
        pairs = {t % rank: s % rank for s, t in zip(source, target, strict=True)}
        rest = iter(place for place in order if place not in pairs.values())
        return [pairs[place] if place in pairs else next(rest) for place in order]
    if name == "numpy_T" or rank < 2:
        return order[::-1]
    first = call.get("dim0", "axis0")
    second = call.get("dim1", "axis1")
    first, second = (-2, -1) if first is None else (first, second)
    order[first], order[second] = order[second], order[first]
    return order


@rule("aten.squeeze", "aten.squeeze_copy")
def squeeze(call: Call) -> Dims:
    """Without dimensions of a single position."""
    x: Value = call["self"]
    named = call.get("dim")
    many = range(len(x.dims)) if named is None else named
    places = {place % len(x.dims) for place in ([many] if isinstance(many, int) else many)}
    gone = sorted(place for place in places if x.dims[place].size == 1)
    call.instead = torch.ops.aten.squeeze.dims  # a batch of one keeps its dimension
    call.sizes = lambda _: {"dim": gone}
    return tuple(dim for place, dim in enumerate(x.dims) if place not in gone)


@rule("aten.unsqueeze", "aten.unsqueeze_copy")
def unsqueeze(call: Call) -> Dims:
    """A dimension of a single position more."""
    dims = list(call["self"].dims)
    dims.insert(call["dim"] % (len(dims) + 1), ONE)
    return tuple(dims)


@rule("aten.atleast_1d", "aten.atleast_2d", "aten.atleast_3d")
def atleast(call: Call) -> Dims:
    """Dimensions of a single position, as many as are missing."""
    return call.joiner.regroup(call["self"].dims, call.shape)


@rule("aten.expand", "aten.expand_as", "aten.broadcast_to")
def expand(call: Call) -> Dims:
    """Single positions repeated: their order means nothing."""
    x: Value = call["self"]
    missing = len(call.shape) - len(x.dims)
    own = (*((ONE,) * missing), *x.dims)
    if call.get("other") is not None:
        return call.broadcast([own, call["other"].dims])
    dims = tuple(
        call.free(size) if dim.size == 1 and size != 1 else dim
        for dim, size in zip(own, call.shape, strict=True)
    )
    call.resize("size", dims)
    return dims


@rule("aten.repeat", "aten.tile")
def repeat(call: Call) -> Dims:
    """Blocks repeated: the order of the blocks means nothing."""
    x: Value = call["self"]
    name = "repeats" if "repeats" in call.arguments else "dims"
    times = [1] * (len(call.shape) - len(call[name])) + list(call[name])
    own = (*((ONE,) * (len(times) - len(x.dims))), *x.dims)
    blocks = [call.free(number) for number in times]
    call.resize(name, blocks)
    return tuple(product([block, dim]) for block, dim in zip(blocks, own, strict=True))


@rule("aten.repeat_interleave")
def repeat_interleave(call: Call) -> Dims:
    """Every position repeated."""
    x: Value = call["self"]
    repeats, axis = call.get("repeats"), call.get("dim")
    if not isinstance(repeats, int):
        raise NoRuleError("numbers of repeats that differ")
    dims = list(x.dims) if axis is not None else [product(x.dims)]
    axis = 0 if axis is None else axis % len(dims)
    copies: Dim = call.free(repeats)
    dims[axis] = product([dims[axis], copies])
    call.sizes = lambda size: {"repeats": length(copies, size)}
    if call.get("output_size") is not None:
        whole = dims[axis]
        call.sizes = lambda size: {
            "repeats": length(copies, size),
            "output_size": length(whole, size),
        }
    return tuple(dims)
