"""Tensors that come from nothing."""

from __future__ import annotations

from pfnm.tracing.rules import rule
from pfnm.tracing.rules.call import Call, Dims


@rule("aten.zeros", "aten.ones", "aten.full", "aten.empty", "aten.new_zeros", "aten.new_ones",
      "aten.new_full", "aten.new_empty", "aten.empty_strided", "aten.new_empty_strided",
      "aten.scalar_tensor")  # fmt: skip
def uniform(call: Call) -> Dims:
    """The same number everywhere: its order means nothing until it meets others."""
    dims = tuple(call.free(size) for size in call.shape)
    if "size" in call.arguments:
        call.resize("size", dims)
    call.uniform = True
    return dims


@rule("aten.zeros_like", "aten.ones_like", "aten.full_like", "aten.empty_like")
def like(call: Call) -> Dims:
    """The same number everywhere, in the shape of another tensor."""
    call.uniform = True
    return tuple(call["self"].dims)


@rule("aten.arange", "aten.linspace", "aten.logspace", "aten.range", "aten.tril_indices",
      "aten.triu_indices", "aten.hann_window", "aten.hamming_window")  # fmt: skip
def numbers(call: Call) -> Dims:
    """Numbers in order."""
    dims = tuple(call.joiner.pinned(size, "constant", "numbers in order") for size in call.shape)
    if call.name == "aten.arange.default":
        call.resize_one("end", dims[0])
    return dims


@rule("aten.eye")
def eye(call: Call) -> Dims:
    """The identity: rows and columns in one order."""
    rows, columns = call.shape
    first = call.free(rows)
    if rows == columns:
        return (first, first)
    return (call.fresh(rows), call.fresh(columns))


@rule("aten.rand", "aten.randn", "aten.randint", "aten.rand_like", "aten.randn_like",
      "aten.randint_like", "aten.bernoulli", "aten.normal", "aten.multinomial", "aten.randperm",
      "aten.uniform", "aten.exponential")  # fmt: skip
def random(call: Call) -> Dims:
    """Random numbers come in an order of their own."""
    pin = call.joiner.reason("random", "random numbers are drawn along it")
    call.pin_all(pin)
    return tuple(call.joiner.leaf(size, pin) for size in call.shape)
