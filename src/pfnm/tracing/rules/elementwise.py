"""Operations that treat every element alike, with broadcasting."""

from __future__ import annotations

from typing import Any

import torch

from pfnm.tracing.rules import rule
from pfnm.tracing.rules.call import Call, Dims

# Without the tag in PyTorch, though they are.
POINTWISE = {
    "aten.real", "aten.imag", "aten.complex", "aten.polar", "aten.angle", "aten.where",
    "aten.masked_fill", "aten.lerp", "aten.addcmul", "aten.addcdiv", "aten.to",
    "aten._to_copy", "aten.type_as", "aten.clone", "aten.contiguous", "aten.detach", "aten.alias",
    "aten.lift_fresh", "aten.lift_fresh_copy", "aten.lift", "aten.selu", "aten.celu", "aten.mish",
    "aten.relu6", "aten.hardtanh", "aten.hardswish", "aten.hardsigmoid", "aten.rrelu",
    "aten.softplus", "aten.softshrink", "aten.hardshrink", "aten.threshold", "aten.logsigmoid",
    "aten.log_sigmoid", "aten.square", "aten.float_power", "aten.rsub", "aten.true_divide",
    "aten.floor_divide", "aten.clip", "aten.clamp", "aten.clamp_min", "aten.clamp_max",
    "aten.nan_to_num", "aten.__and__", "aten.__or__", "aten.__xor__", "aten.__iand__",
    "aten.__ior__", "aten.isnan", "aten.isinf", "aten.isfinite", "aten.logical_and",
    "aten.logical_or", "aten.logical_not", "aten.multiply", "aten.divide", "aten.subtract",
    "aten.negative", "aten.absolute", "aten.greater", "aten.less", "aten.not_equal",
    "aten._assert_tensor_metadata", "aten.conj", "aten.resolve_conj", "aten.resolve_neg",
    "aten.positive", "aten.expand_copy", "aten.maximum", "aten.minimum", "aten.fmod",
    "aten.remainder", "aten.xlogy", "aten.special_xlogy", "aten.special_expit", "aten.type",
    "aten.float", "aten.double", "aten.half", "aten.bool", "aten.data", "aten.pin_memory",
}  # fmt: skip


def is_pointwise(operation: object) -> bool:
    """Whether an operation treats every element alike."""
    if not isinstance(operation, torch._ops.OpOverload):
        return False
    name = str(operation).rsplit(".", 1)[0]
    tagged = torch.Tag.pointwise in operation.tags
    return tagged or name in POINTWISE or name.removesuffix("_") in POINTWISE


def pointwise(call: Call) -> Dims:
    """Everything that is broadcast together has the same positions."""
    values = [value for value in call.tensors if value is not call.get("out")]
    return call.broadcast([value.dims for value in values], len(call.shape))


@rule("aten.copy_", "aten.fill_", "aten.zero_", "aten.masked_fill_", "aten.set_")
def written(call: Call) -> Dims:
    """In place: what is written has the positions of what it is written to."""
    pointwise(call)
    return tuple(call.tensors[0].dims)


@rule("aten.broadcast_tensors")
def broadcast_tensors(call: Call) -> list[Dims]:
    """Each in the shape of all together."""
    values = call["tensors"]
    whole = call.broadcast([value.dims for value in values])
    return [whole] * len(values)


@rule("aten.prelu")
def prelu(call: Call) -> Dims:
    """A slope for every channel, or one for all."""
    x, weight = call["self"], call["weight"]
    if weight.dims and weight.dims[0].size > 1:
        call.join(x.dims[1] if len(x.dims) > 1 else x.dims[0], weight.dims[0])
    return tuple(x.dims)


@rule("aten.glu")
def glu(call: Call) -> Dims:
    """Half of the units gate the other half."""
    x, axis = call["self"], call["dim"]
    half = call.shape[axis]
    first = call.joiner.take(x.dims, axis % len(x.dims), [half, half], 0)
    second = call.joiner.take(x.dims, axis % len(x.dims), [half, half], 1)
    for own, other in zip(first, second, strict=True):
        call.join(own, other)
    return first


@rule("aten.dropout", "aten.native_dropout", "aten.alpha_dropout", "aten.feature_dropout",
      "aten.feature_alpha_dropout")  # fmt: skip
def dropout(call: Call) -> Any:
    """Nothing in eval mode; where it is left on, units are left out in an order of their own."""
    if call["train"] and call["p"]:
        call.pin_all(call.joiner.reason("random", "random numbers are drawn along it"))
    dims = tuple(call.tensors[0].dims)
    return [dims] * len(call.shapes) if len(call.shapes) > 1 else dims


@rule("aten.view_as_complex")
def view_as_complex(call: Call) -> Dims:
    """Pairs become complex numbers."""
    x = call["self"]
    call.position(x.dims[-1], "a part of a complex number")
    return tuple(x.dims[:-1])


@rule("aten.view_as_real")
def view_as_real(call: Call) -> Dims:
    """Complex numbers become pairs."""
    return (*call["self"].dims, call.fresh(2, "a part of a complex number"))
