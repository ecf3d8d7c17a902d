"""Normalisations: over a batch, a layer, groups of channels; of weights."""

from __future__ import annotations

from typing import Any

from pfnm.tracing.axes import Dim, length
from pfnm.tracing.rules import rule
from pfnm.tracing.rules.call import Call, Dims, Map, Value

NORMALISED = "a norm runs over it"


def _channel(call: Call, x: Value, *names: str) -> Dim:
    """The channels of a value, joined with vectors of parameters."""
    channels: Dim = x.dims[1] if len(x.dims) > 1 else x.dims[0]
    for name in names:
        vector = call.get(name)
        if vector is not None:
            call.join(channels, vector.dims[0])
    return channels


@rule("aten.batch_norm", "aten.native_batch_norm", "aten._native_batch_norm_legit_no_training",
      "aten.instance_norm", "aten.cudnn_batch_norm", "aten._batch_norm_impl_index")  # fmt: skip
def batch_norm(call: Call) -> Any:
    """Every channel by itself."""
    x: Value = call["input"]
    names = ("weight", "bias", "running_mean", "running_var")
    channels = _channel(call, x, *names)
    vectors = [call.get(name) for name in names]
    if "batch_norm" in call.name:
        tensors = [None if vector is None else vector.tensor for vector in vectors]
        statistics = (tensors[2], tensors[3]) if tensors[2] and tensors[3] else None
        call.map = Map("batch_norm", tensors[0], tensors[1], statistics=statistics)
        call.features = "input"
    rest = [(channels,) if shape else () for shape in call.shapes[1:]]
    return [tuple(x.dims), *rest] if rest else tuple(x.dims)


@rule("aten.layer_norm", "aten.native_layer_norm", "aten.rms_norm", "aten._fused_rms_norm")
def layer_norm(call: Call) -> Any:
    """The last dimensions together."""
    x: Value = call["input"]
    rank = len(call["normalized_shape"])
    last = x.dims[len(x.dims) - rank :]
    call.rigid(*last, reason=NORMALISED)
    for name in ("weight", "bias"):
        if call.get(name) is not None:
            call.broadcast([last, call[name].dims])
    call.resize("normalized_shape", last)
    rest = [tuple(x.dims[:-rank]) + (call.fresh(1),) * rank for _ in call.shapes[1:]]
    return [tuple(x.dims), *rest] if rest else tuple(x.dims)


@rule("aten.group_norm", "aten.native_group_norm")
def group_norm(call: Call) -> Any:
    """Each group of channels by itself; groups may trade places, and channels within them."""
    x: Value = call["input"]
    channels = _channel(call, x, "weight", "bias")
    groups = call.get("num_groups", "group")
    halves = call.joiner.divide(channels, groups)
    if halves is None:  # a group across two pieces: each group stays where it is
        call.joiner.cut(channels, [channels.size // groups] * groups)
        call.rigid(channels, reason=NORMALISED)
        return tuple(x.dims)
    blocks, inner = halves
    call.rigid(inner, reason=NORMALISED)
    if "num_groups" in call.arguments:
        call.sizes = lambda size: {"num_groups": length(blocks, size)}
    rest = [(x.dims[0], blocks) for _ in call.shapes[1:]]
    return [tuple(x.dims), *rest] if rest else tuple(x.dims)


@rule("aten.local_response_norm")
def local_response_norm(call: Call) -> Dims:
    """Neighbouring channels together."""
    x: Value = call.tensors[0]
    call.position(x.dims[1], "neighbours along it matter")
    return tuple(x.dims)


@rule("aten._weight_norm", "aten._weight_norm_interface")
def weight_norm(call: Call) -> Any:
    """g v / |v|, a norm for each unit along `dim`."""
    v, g, axis = call["v"], call["g"], call["dim"]
    axis = axis % len(v.dims) if axis >= 0 else None
    others = [dim for place, dim in enumerate(v.dims) if place != axis]
    call.rigid(*others, reason=NORMALISED)
    dims = call.broadcast([v.dims, g.dims])
    return [dims, tuple(g.dims)] if len(call.shapes) > 1 else dims


@rule("aten.norm_except_dim")
def norm_except_dim(call: Call) -> Dims:
    """The norm of each unit along `dim`."""
    v, axis = call["v"], call["dim"]
    call.rigid(*v.dims, reason=NORMALISED)
    return tuple(
        dim if place == axis % len(v.dims) and axis >= 0 else call.fresh(1)
        for place, dim in enumerate(v.dims)
    )
