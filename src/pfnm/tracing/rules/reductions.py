"""Sums, means, extremes, softmax, and what depends on the order along a dimension."""

from __future__ import annotations

from typing import Any

from pfnm.tracing.axes import ONE
from pfnm.tracing.rules import rule
from pfnm.tracing.rules.call import Call, Dims, NoRuleError, Value


def _axes(call: Call, x: Value) -> list[int]:
    """The dimensions an operation runs over; all if it names none."""
    named = call.get("dim", "axis")
    if named is None or (isinstance(named, list | tuple) and not named):
        return list(range(len(x.dims)))
    many = named if isinstance(named, list | tuple) else [named]
    return [axis % len(x.dims) for axis in many] if x.dims else []


def _kept(call: Call, x: Value, axes: list[int]) -> Dims:
    """The dimensions that are left."""
    if call.get("keepdim"):
        return tuple(ONE if place in axes else dim for place, dim in enumerate(x.dims))
    return tuple(dim for place, dim in enumerate(x.dims) if place not in axes)


def _outputs(call: Call, dims: Dims) -> Any:
    return [dims] * len(call.shapes) if len(call.shapes) > 1 else dims


@rule("aten.sum", "aten.mean", "aten.prod", "aten.amax", "aten.amin", "aten.aminmax", "aten.var",
      "aten.std", "aten.var_mean", "aten.std_mean", "aten.norm", "aten.linalg_vector_norm",
      "aten.logsumexp", "aten.all", "aten.any", "aten.nansum", "aten.nanmean",
      "aten.count_nonzero", "aten.linalg_norm")  # fmt: skip
def reduction(call: Call) -> Any:
    """The order along what is reduced means nothing; how many there are may."""
    x: Value = call.tensors[0]
    axes = _axes(call, x)
    for axis in axes:
        call.rigid(x.dims[axis], reason="it is summed, averaged or searched")
    return _outputs(call, _kept(call, x, axes))


@rule("aten.max", "aten.min")
def extreme(call: Call) -> Any:
    """The whole, two tensors, or along a dimension with its places."""
    if call.get("other") is not None:
        return call.broadcast([value.dims for value in call.tensors])
    return reduction(call) if call.get("dim") is None else placed(call)


@rule("aten.argmax", "aten.argmin", "aten.median", "aten.nanmedian", "aten.mode",
      "aten.kthvalue")  # fmt: skip
def placed(call: Call) -> Any:
    """Gives places along a dimension, so their order means something."""
    x: Value = call.tensors[0]
    axes = _axes(call, x)
    for axis in axes:
        call.position(x.dims[axis], "its places are told")
    return _outputs(call, _kept(call, x, axes))


@rule("aten.cumsum", "aten.cumprod", "aten.logcumsumexp", "aten.cummax", "aten.cummin",
      "aten.flip", "aten.roll", "aten.sort", "aten.argsort", "aten.msort")  # fmt: skip
def ordered(call: Call) -> Any:
    """Depends on the order along a dimension, and keeps its length."""
    x: Value = call.tensors[0]
    named = call.get("dims", "dim")
    if named is None or (isinstance(named, list | tuple) and not named):
        raise NoRuleError("all dimensions at once")
    for axis in named if isinstance(named, list | tuple) else [named]:
        call.position(x.dims[axis], "its order matters")
    return _outputs(call, tuple(x.dims))


@rule("aten.topk")
def topk(call: Call) -> Any:
    """The largest along a dimension, with their places."""
    x: Value = call["self"]
    axis = call["dim"] % len(x.dims)
    call.position(x.dims[axis], "its places are told")
    dims = list(x.dims)
    dims[axis] = call.fresh(call.shape[axis])
    return _outputs(call, tuple(dims))


@rule("aten.softmax", "aten._softmax", "aten.log_softmax", "aten._log_softmax",
      "aten._safe_softmax")  # fmt: skip
def softmax(call: Call) -> Dims:
    """All along a dimension together."""
    x: Value = call.tensors[0]
    call.rigid(x.dims[call["dim"]], reason="a softmax runs over it")
    return tuple(x.dims)


@rule("aten.cosine_similarity", "aten.pairwise_distance")
def similarity(call: Call) -> Dims:
    """Compares two activations along a dimension."""
    dims = call.broadcast([value.dims for value in call.tensors[:2]])
    axis = call.get("dim")
    axis = (-1 if axis is None else axis) % len(dims)
    call.rigid(dims[axis], reason="two activations are compared along it")
    if call.get("keepdim"):
        return (*dims[:axis], ONE, *dims[axis + 1 :])
    return (*dims[:axis], *dims[axis + 1 :])


LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
          "binary_cross_entropy_with_logits", "kl_div", "soft_margin_loss")  # fmt: skip


@rule(*(f"aten.{name}" for name in LOSSES))
def loss(call: Call) -> Dims:
    """Compared element by element, then summed up perhaps."""
    dims = call.broadcast([value.dims for value in call.tensors])
    if call.shape == tuple(dim.size for dim in dims):
        return dims
    call.rigid(*dims, reason="a loss runs over it")
    return ()


@rule("aten.cdist", "aten._cdist_forward")
def distances(call: Call) -> Dims:
    """The distance of every row of one to every row of the other."""
    one, two = call["x1"], call["x2"]
    call.join(one.dims[-1], two.dims[-1])
    call.rigid(one.dims[-1], reason="two activations are compared along it")
    return (*call.broadcast([one.dims[:-2], two.dims[:-2]]), one.dims[-2], two.dims[-2])


@rule("aten.triu", "aten.tril")
def triangle(call: Call) -> Dims:
    """Depends on the places of the last two dimensions."""
    x: Value = call["self"]
    for dim in x.dims[-2:]:
        call.position(dim, "its order matters")
    return tuple(x.dims)
