"""Convolutions of every kind, and what looks at neighbours: pooling, padding, resampling."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from pfnm.tracing.axes import ONE, Dim, SizeOf, concatenation, find, is_pinned, length, product
from pfnm.tracing.rules import rule
from pfnm.tracing.rules.call import Call, Dims, NoRuleError, Value


def _spatial(call: Call, value: Value, rank: int) -> Dims:
    """New positions for the last dimensions of the output; those of the input are places."""
    for dim in value.dims[len(value.dims) - rank :]:
        call.position(dim, "neighbours along it matter")
    shape = call.shape[len(call.shape) - rank :]
    return tuple(call.fresh(size, "a place in a map") for size in shape)


def _groups(call: Call, x: Dim, weight: Value, groups: int, transposed: bool) -> Dim:
    """Joins channels with a weight's axes; the channels of the output."""
    if groups == 1:
        ins, outs = (0, 1) if transposed else (1, 0)
        call.join(x, weight.dims[ins])
        weight.dims[ins].read = weight.dims[ins]
        return weight.dims[outs]
    blocks, channels = call.joiner.split(x, groups)
    rows, inner = call.joiner.split(weight.dims[0], groups)
    call.join(blocks, rows)
    call.join(channels, inner if transposed else weight.dims[1])
    weight.dims[0 if transposed else 1].read = inner if transposed else weight.dims[1]
    call.sizes = lambda size: {"groups": length(blocks, size)}
    if weight.tensor is not None and weight.order[:2] == (0, 1):
        call.merged.append(weight.tensor)
    return product([rows, weight.dims[1] if transposed else inner])


@rule("aten.conv1d", "aten.conv2d", "aten.conv3d", "aten.convolution", "aten._convolution",
      "aten.conv_transpose1d", "aten.conv_transpose2d", "aten.conv_transpose3d")  # fmt: skip
def convolution(call: Call) -> Dims:
    """Channels are contracted group by group; kernels and places stay."""
    x, weight, bias = call["input"], call["weight"], call["bias"]
    transposed = "transpose" in call.name or bool(call.get("transposed"))
    rank = len(weight.dims) - 2
    for dim in weight.dims[2:]:
        call.joiner.pin(dim, call.joiner.reason("kernel", "a place in a kernel"))
    channels = x.dims[-rank - 1]
    outs = _groups(call, channels, weight, call["groups"], transposed)
    if bias is not None:
        call.join(bias.dims[0], outs)
    call.maps("conv_transpose" if transposed else "conv", "input", weight, bias)
    return (*x.dims[: -rank - 1], outs, *_spatial(call, x, rank))


POOLING = ("max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool", "lp_pool")


@rule(*(f"aten.{kind}{rank}d" for kind in POOLING for rank in (1, 2, 3)),
      *(f"aten.{kind}{rank}d_with_indices" for kind in POOLING for rank in (1, 2, 3)),
      "aten.fractional_max_pool2d", "aten.fractional_max_pool3d",
      *(f"aten._adaptive_avg_pool{rank}d" for rank in (2, 3)))  # fmt: skip
def pooling(call: Call) -> Any:
    """Neighbours are summarised; channels stay."""
    x: Value = call["self"]
    rank = int(next(letter for letter in call.name if letter.isdigit()))
    dims = (*x.dims[:-rank], *_spatial(call, x, rank))
    return [dims] * len(call.shapes) if len(call.shapes) > 1 else dims


@rule("aten.max_unpool2d", "aten.max_unpool3d")
def unpooling(call: Call) -> Dims:
    """Values go back to where they came from."""
    x: Value = call["self"]
    rank = int(call.name.split("unpool")[1][0])
    for own, other in zip(x.dims, call["indices"].dims, strict=True):
        call.join(own, other)
    return (*x.dims[:-rank], *_spatial(call, x, rank))


@rule(*(f"aten.upsample_{kind}" for kind in (
    "nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "bicubic2d", "trilinear3d")),
    *(f"aten._upsample_{kind}" for kind in (
        "nearest_exact1d", "nearest_exact2d", "nearest_exact3d",
        "bilinear2d_aa", "bicubic2d_aa")))  # fmt: skip
def upsampling(call: Call) -> Dims:
    """Places are resampled; channels stay."""
    x: Value = call.tensors[0]
    return (*x.dims[:2], *_spatial(call, x, len(x.dims) - 2))


@rule("aten.grid_sampler", "aten.grid_sampler_2d", "aten.grid_sampler_3d")
def grid_sampler(call: Call) -> Dims:
    """Values at given places."""
    x: Value = call["input"]
    rank = len(x.dims) - 2
    for dim in call["grid"].dims[1:]:
        call.position(dim, "a coordinate")
    return (*x.dims[:2], *_spatial(call, x, rank))


@rule("aten.pad", "aten.constant_pad_nd", *(
    f"aten.{kind}_pad{rank}d" for kind in ("reflection", "replication") for rank in (1, 2, 3)),
    "aten._pad_circular", "aten._pad_enum")  # fmt: skip
def padding(call: Call) -> Dims:
    """Places get neighbours; channels padded with one number get units of their own."""
    x: Value = call["self"]
    widths = list(call["pad"] if "pad" in call.arguments else call["padding"])
    constant = call.name.startswith("aten.constant") or call.get("mode") == "constant"
    dims, pads = list(x.dims), [(0, 0)] * len(x.dims)
    for place in range(len(widths) // 2):
        axis = len(dims) - 1 - place
        before, after = widths[2 * place : 2 * place + 2]
        if (before, after) == (0, 0):
            continue
        own = dims[axis]
        if is_pinned(own) or not constant or before < 0 or after < 0:
            call.position(own, "it is padded with its neighbours")
            dims[axis] = call.fresh(call.shape[axis], "a place in a map")
        else:
            ends = [call.joiner.leaf(before), call.joiner.leaf(after)]
            pads[axis] = (1, 1)
            dims[axis] = concatenation([ends[0], own, ends[1]])
            _padded(call, axis, ends, widths)
    return tuple(dims)


def _padded(call: Call, axis: int, ends: list[Dim], widths: list[int]) -> None:
    """The widths of the padding follow the units that were made of it."""
    place, name = len(call.shape) - 1 - axis, "pad" if "pad" in call.arguments else "padding"
    earlier = call.sizes

    def sizes(size: SizeOf) -> Mapping[str, Any]:
        new = list(earlier(size)[name]) if earlier else list(widths)
        for offset, (end, width) in enumerate(
            zip(ends, widths[2 * place : 2 * place + 2], strict=True)
        ):
            new[2 * place + offset] = length(end, size) if width else 0
        return {name: new}

    call.sizes = sizes


@rule("aten.pixel_shuffle", "aten.pixel_unshuffle")
def pixel_shuffle(call: Call) -> Dims:
    """Blocks of channels become places, or the other way round."""
    x: Value = call["self"]
    square = (call.get("upscale_factor") or call.get("downscale_factor")) ** 2
    places = _spatial(call, x, 2)
    if call.name.startswith("aten.pixel_shuffle"):
        channels, block = call.joiner.split(x.dims[-3], x.dims[-3].size // square)
        call.position(block, "a place in a block of pixels")
        return (*x.dims[:-3], channels, *places)
    return (*x.dims[:-3], product([x.dims[-3], call.fresh(square, "a place in a block")]), *places)


@rule("aten.channel_shuffle", "aten.native_channel_shuffle")
def channel_shuffle(call: Call) -> Dims:
    """Groups of channels are interleaved."""
    x: Value = call["self"]
    blocks, channels = call.joiner.split(x.dims[1], call["groups"])
    call.rigid(x.dims[1], reason="its groups are shuffled")
    return (x.dims[0], product([channels, blocks]), *x.dims[2:])


@rule("aten.im2col")
def unfolding(call: Call) -> Dims:
    """Every place with its neighbours: channels x kernel."""
    x: Value = call["self"]
    kernel = call.fresh(prod(call["kernel_size"]), "a place in a kernel")
    for dim in x.dims[-2:]:
        call.position(dim, "neighbours along it matter")
    return (*x.dims[:-3], product([x.dims[-3], kernel]), call.fresh(call.shape[-1], "a place"))


@rule("aten.col2im")
def folding(call: Call) -> Dims:
    """The inverse of unfolding."""
    x: Value = call["self"]
    channels, kernel = call.joiner.split(x.dims[-2], x.dims[-2].size // prod(call["kernel_size"]))
    call.position(kernel, "a place in a kernel")
    call.position(x.dims[-1], "a place")
    return (*x.dims[:-2], channels, *_spatial_last(call))


def _spatial_last(call: Call) -> Dims:
    return tuple(call.fresh(size, "a place in a map") for size in call.shape[-2:])


@rule("aten.unfold")
def windows(call: Call) -> Dims:
    """Windows along a dimension, as a new last one."""
    x: Value = call["self"]
    axis = call["dimension"] % len(x.dims)
    if find(x.dims[axis]).size == 1:
        raise NoRuleError("windows of a single position")
    call.position(x.dims[axis], "neighbours along it matter")
    dims = list(x.dims)
    dims[axis] = call.fresh(call.shape[axis], "a window")
    last = call.shape[-1]
    return (*dims, call.fresh(last, "a place in a window") if last != 1 else ONE)
