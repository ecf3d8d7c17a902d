"""Sums of products: layers, matrix products, einsum, embeddings."""

from __future__ import annotations

from pfnm.tracing.axes import ONE, Dim
from pfnm.tracing.rules import rule
from pfnm.tracing.rules.call import Call, Dims, NoRuleError, Value


@rule("aten.linear")
def linear(call: Call) -> Dims:
    """x W' + b."""
    x, weight, bias = call["input"], call["weight"], call["bias"]
    call.contract(x, -1, weight, -1)
    if len(weight.dims) == 1:
        return tuple(x.dims[:-1])
    if bias is not None:
        call.broadcast([bias.dims, weight.dims[:1]])
    if not x.weight:
        call.maps("linear", "input", weight, bias)
    return (*x.dims[:-1], weight.dims[0])


def multiplied(call: Call, left: Value, right: Value) -> Dims:
    """Left times right, as matmul has it."""
    if len(right.dims) == 1:
        call.contract(left, -1, right, 0)
        return tuple(left.dims[:-1])
    call.contract(left, -1, right, -2)
    batch = call.broadcast([left.dims[:-2], right.dims[:-2]])
    rows = left.dims[-2:-1] if len(left.dims) > 1 else ()
    return (*batch, *rows, right.dims[-1])


def _map(call: Call, left: str, right: str, bias: Value | None = None) -> None:
    """A matrix product with a parameter is a map."""
    x, y = call[left], call[right]
    if y.weight and not x.weight:
        call.maps("matmul", left, y, bias)
    elif x.weight and not y.weight:
        call.maps("matmul", right, x, bias)


@rule("aten.matmul", "aten.mm", "aten.bmm", "aten.mv", "aten.dot", "aten.inner", "aten.vdot")
def matmul(call: Call) -> Dims:
    """Matrix products of all ranks."""
    left = "self"
    right = next(name for name in ("other", "mat2", "vec", "tensor") if name in call.arguments)
    x, y = call[left], call[right]
    if call.name.startswith("aten.inner"):
        call.contract(x, -1, y, -1)
        return (*x.dims[:-1], *y.dims[:-1])
    _map(call, left, right)
    return multiplied(call, x, y)


@rule("aten.addmm", "aten.baddbmm", "aten.addmv")
def addmm(call: Call) -> Dims:
    """Bias plus a matrix product."""
    left = next(name for name in ("mat1", "batch1", "mat") if name in call.arguments)
    right = next(name for name in ("mat2", "batch2", "vec") if name in call.arguments)
    bias: Value = call["self"]
    own = bias if bias.weight and len(bias.dims) == 1 else None
    if own is not None and call.get("beta") == 1 and call.get("alpha") == 1:
        _map(call, left, right, own)
    result = multiplied(call, call[left], call[right])
    return call.broadcast([bias.dims, result])


@rule("aten.addbmm")
def addbmm(call: Call) -> Dims:
    """Bias plus a sum of matrix products."""
    left, right = call["batch1"], call["batch2"]
    call.contract(left, 0, right, 0)
    return call.broadcast([call["self"].dims, multiplied(call, left, right)[1:]])


@rule("aten.outer", "aten.ger")
def outer(call: Call) -> Dims:
    """Every element of one vector with every element of the other."""
    return (call["self"].dims[0], call.tensors[1].dims[0])


@rule("aten.bilinear")
def bilinear(call: Call) -> Dims:
    """x1 W x2 + b, W of shape (out, in1, in2)."""
    one, two, weight, bias = (call[n] for n in ("input1", "input2", "weight", "bias"))
    call.contract(one, -1, weight, 1)
    call.contract(two, -1, weight, 2)
    if bias is not None:
        call.join(bias.dims[0], weight.dims[0])
    batch = call.broadcast([one.dims[:-1], two.dims[:-1]])
    return (*batch, weight.dims[0])


@rule("aten.einsum")
def einsum(call: Call) -> Dims:
    """A letter is a dimension; what is summed over is contracted."""
    equation: str = call["equation"].replace(" ", "")
    values: list[Value] = list(call["tensors"])
    left, arrow, right = equation.partition("->")
    terms = [_letters(term, len(v.dims)) for term, v in zip(left.split(","), values, strict=True)]
    if any(len(set(term)) < len(term) for term in terms):
        raise NoRuleError("a letter twice in one term of an einsum")
    if not arrow:
        right = "".join(sorted(x for x in set(left) if x.isalpha() and left.count(x) == 1))
        right = ("..." if "..." in left else "") + right
    rank = max((sum(isinstance(n, int) for n in term) for term in terms), default=0)
    result = _letters(right, rank + len(right.replace("...", "")))
    found: dict[str | int, Dim] = {}
    holders: dict[str | int, list[tuple[Value, int]]] = {}
    for term, value in zip(terms, values, strict=True):
        for place, letter in enumerate(term):
            dim = value.dims[place]
            if dim.size == 1:
                continue
            holders.setdefault(letter, []).append((value, place))
            call.join(found.setdefault(letter, dim), dim)
    for letter, places in holders.items():
        if letter not in result:
            _summed(call, places)
    if len(values) == 2:
        _einsum_map(call, terms, values)
    return tuple(found.get(letter, ONE) for letter in result)


def _letters(term: str, rank: int) -> list[str | int]:
    """The letters of a term; negative numbers for the dimensions of an ellipsis."""
    before, ellipsis, after = term.partition("...")
    hidden = rank - len(before) - len(after) if ellipsis else 0
    return [*before, *range(-hidden, 0), *after]


def _summed(call: Call, places: list[tuple[Value, int]]) -> None:
    weights = [(value, place) for value, place in places if value.weight]
    if len(weights) == len(places) == 1 or not weights:
        dims = [value.dims[place] for value, place in places]
        call.rigid(*dims, reason="it is summed over without a weight")
    else:
        value, place = weights[-1]
        value.dims[place].read = value.dims[place]
        if len(places) > 2:
            call.rigid(value.dims[place], reason="two activations are multiplied along it")


def _einsum_map(call: Call, terms: list[list[str | int]], values: list[Value]) -> None:
    """An einsum of an activation and a parameter is a map."""
    for own, other in ((0, 1), (1, 0)):
        if values[own].weight and not values[other].weight:
            call.maps("einsum", "tensors", values[own], None)


@rule("aten.embedding")
def embedding(call: Call) -> Dims:
    """Rows of a table, by number."""
    weight, indices = call["weight"], call["indices"]
    pin = call.joiner.reason("input", "looked up by number")
    call.joiner.pin(weight.dims[0], pin)
    weight.dims[0].read = weight.dims[0]
    call.maps("embedding", "indices", weight, None)
    return (*indices.dims, weight.dims[1])


@rule("aten.embedding_bag", "aten._embedding_bag")
def embedding_bag(call: Call) -> list[Dims]:
    """Sums or means of rows of a table."""
    weight: Value = call["weight"]
    call.joiner.pin(weight.dims[0], call.joiner.reason("input", "looked up by number"))
    weight.dims[0].read = weight.dims[0]
    rest = [tuple(call.fresh(size) for size in shape) for shape in call.shapes[1:]]
    bags = call["indices"].dims[0] if len(call["indices"].dims) == 2 else None
    return [(bags or call.fresh(call.shape[0]), weight.dims[1]), *rest]
