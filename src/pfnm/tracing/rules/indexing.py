"""Positions looked up by number."""

from __future__ import annotations

from pfnm.tracing.rules import rule
from pfnm.tracing.rules.call import Call, Dims, NoRuleError, Value

BY_NUMBER = "its positions are looked up by number"


@rule("aten.index", "aten._unsafe_index")
def index(call: Call) -> Dims:
    """x[i, :, j]: what is indexed is pinned, the rest stays."""
    x: Value = call["self"]
    indices: list[Value | None] = list(call["indices"])
    indices += [None] * (len(x.dims) - len(indices))
    places = [place for place, own in enumerate(indices) if own is not None]
    if any(own is mask for own in indices if own is not None for mask in call.masks):
        return _masked(call, x, indices)
    for place in places:
        call.position(x.dims[place], BY_NUMBER)
    found = call.broadcast([own.dims for own in indices if own is not None])
    rest = [dim for place, dim in enumerate(x.dims) if place not in places]
    together = places == list(range(places[0], places[-1] + 1))
    where = places[0] if together else 0
    return (*rest[:where], *found, *rest[where:])


def _masked(call: Call, x: Value, indices: list[Value | None]) -> Dims:
    """x[mask]: the dimensions of the mask become one, of which some positions are left."""
    own = [index for index in indices if index is not None]
    if len(own) > 1 or indices[0] is None:
        raise NoRuleError("a mask beside another index")
    rank = len(own[0].dims)
    for dim in x.dims[:rank]:
        call.position(dim, BY_NUMBER)
    return (call.fresh(call.shape[0], "what a mask leaves"), *x.dims[rank:])


@rule("aten.index_put", "aten._unsafe_index_put", "aten.index_put_")
def index_put(call: Call) -> Dims:
    """x[i, :, j] = values."""
    x: Value = call["self"]
    if call.masks:
        raise NoRuleError("written through a mask")
    found = index(call)
    call.broadcast([found, call["values"].dims])
    return tuple(x.dims)


@rule("aten.index_select")
def index_select(call: Call) -> Dims:
    """Some positions along a dimension."""
    x: Value = call["self"]
    axis = call["dim"] % len(x.dims)
    call.position(x.dims[axis], BY_NUMBER)
    return (*x.dims[:axis], *(call["index"].dims or (call.fresh(1),)), *x.dims[axis + 1 :])


def _alike(call: Call, x: Value, other: Value, axis: int) -> None:
    """Along all other dimensions, positions of one are those of the other."""
    for place, (own, their) in enumerate(zip(x.dims, other.dims, strict=True)):
        if place == axis:
            continue
        if own.size == their.size:
            call.join(own, their)
        else:
            call.position(own, BY_NUMBER)
            call.position(their, BY_NUMBER)


@rule("aten.gather")
def gather(call: Call) -> Dims:
    """x[..., index[..., i, ...], ...]."""
    x, numbers = call["self"], call["index"]
    axis = call["dim"] % len(x.dims)
    call.position(x.dims[axis], BY_NUMBER)
    _alike(call, x, numbers, axis)
    return tuple(numbers.dims)


@rule("aten.take_along_dim")
def take_along_dim(call: Call) -> Dims:
    """Gather, with broadcasting."""
    x, numbers = call["self"], call["indices"]
    if call["dim"] is None:
        raise NoRuleError("all dimensions at once")
    axis = call["dim"] % len(x.dims)
    call.position(x.dims[axis], BY_NUMBER)
    cut = [(*v.dims[:axis], *v.dims[axis + 1 :]) for v in (x, numbers)]
    rest = call.broadcast(cut)
    return (*rest[:axis], numbers.dims[axis], *rest[axis:])


@rule("aten.scatter", "aten.scatter_add", "aten.scatter_reduce")
def scatter(call: Call) -> Dims:
    """Values put or added where numbers say."""
    x, numbers = call["self"], call["index"]
    axis = call["dim"] % len(x.dims)
    call.position(x.dims[axis], BY_NUMBER)
    _alike(call, x, numbers, axis)
    source = call.get("src")
    if isinstance(source, Value):
        _alike(call, numbers, source, axis)
        if numbers.dims[axis].size == source.dims[axis].size:
            call.join(numbers.dims[axis], source.dims[axis])
    return tuple(x.dims)


@rule("aten.index_add", "aten.index_copy", "aten.index_fill", "aten.index_reduce")
def index_add(call: Call) -> Dims:
    """Whole slices put or added where numbers say."""
    x: Value = call["self"]
    axis = call["dim"] % len(x.dims)
    call.position(x.dims[axis], BY_NUMBER)
    source = call.get("source")
    if isinstance(source, Value):
        _alike(call, x, source, axis)
        call.joiner.pin(source.dims[axis], call.joiner.reason("position", BY_NUMBER))
    return tuple(x.dims)


@rule("aten.one_hot")
def one_hot(call: Call) -> Dims:
    """A position for each number."""
    return (*call["self"].dims, call.fresh(call.shape[-1], BY_NUMBER))
