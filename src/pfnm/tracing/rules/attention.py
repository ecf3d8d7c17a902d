"""Attention."""

from __future__ import annotations

from pfnm.tracing.axes import Dim, product
from pfnm.tracing.rules import rule
from pfnm.tracing.rules.call import Call, Dims, Value


@rule("aten.scaled_dot_product_attention")
def attention(call: Call) -> Dims:
    """softmax(q k') v, head by head."""
    query, key, value = call["query"], call["key"], call["value"]
    batch = _heads(call, query, key, value)
    call.join(query.dims[-1], key.dims[-1])
    call.rigid(query.dims[-1], reason="queries and keys are multiplied along it")
    call.join(key.dims[-2], value.dims[-2])
    call.rigid(key.dims[-2], reason="a softmax runs over it")
    if call["dropout_p"]:
        call.pin_all(call.joiner.reason("random", "random numbers are drawn along it"))
    mask: Value | None = call["attn_mask"]
    if call["is_causal"]:
        for dim in (query.dims[-2], key.dims[-2]):
            call.position(dim, "attention is causal")
    if mask is not None:
        call.broadcast([(*batch, query.dims[-2], key.dims[-2]), mask.dims])
    return (*batch, query.dims[-2], value.dims[-1])


def _heads(call: Call, query: Value, key: Value, value: Value) -> Dims:
    """Batch and heads; grouped queries are numbered within the heads of the keys."""
    wide, narrow = query.dims[:-2], key.dims[:-2]
    if call.get("enable_gqa") and wide and wide[-1].size != narrow[-1].size:
        outer, inner = call.joiner.split(wide[-1], narrow[-1].size)
        call.join(outer, narrow[-1])
        call.join(outer, value.dims[-3])
        heads: Dim = product([outer, inner])
        rest = call.broadcast([wide[:-1], narrow[:-1], value.dims[:-3]])
        return (*rest, heads)
    return call.broadcast([wide, narrow, value.dims[:-2]])
