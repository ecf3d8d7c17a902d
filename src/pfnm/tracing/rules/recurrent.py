"""LSTM, GRU and plain recurrent layers: several layers, both directions, projections."""

from __future__ import annotations

from typing import Any

from pfnm.tracing.axes import Dim, concatenation, family
from pfnm.tracing.rules import rule
from pfnm.tracing.rules.call import Call, Dims, Map, NoRuleError, Value

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


@rule("aten.lstm", "aten.gru", "aten.rnn_tanh", "aten.rnn_relu")
def recurrent(call: Call) -> list[Dims]:
    """Each layer and direction has a state of its own."""
    if "input" not in call.arguments:
        raise NoRuleError("a packed sequence")
    x: Value = call["input"]
    parameters: list[Value] = list(call["params"])
    hidden = call["hx"]
    starts: list[Value] = list(hidden) if isinstance(hidden, list | tuple) else [hidden]
    directions = 2 if call["bidirectional"] else 1
    layers = call["num_layers"]
    each = len(parameters) // (layers * directions)
    features, cells, outs = x.dims[-1], [], []
    for layer in range(layers):
        ends: list[Dim] = []
        for direction in range(directions):
            number = (layer * directions + direction) * each
            cell, out = _layer(call, features, parameters[number : number + each])
            cells.append(cell)
            ends.append(out)
        outs.extend(ends)
        features = concatenation(ends)
    _start(call, starts, outs, cells)
    _sequence(call, x)
    call.joiner.alike.extend([tuple(cells), tuple(outs)])
    _map(call, parameters)
    states = [_stacked(call, outs, x), _stacked(call, cells, x)][: len(call.shapes) - 1]
    return [(*x.dims[:-1], features), *states]


def _layer(call: Call, features: Dim, parameters: list[Value]) -> tuple[Dim, Dim]:
    """One layer in one direction: its cell and what it gives out."""
    biases = 2 if call["has_biases"] else 0
    inputs, recurrent_weight, *rest = parameters
    gates = GATES[call.name.split(".")[1]]
    call.join(inputs.dims[1], features)
    for weight in (inputs, recurrent_weight):
        weight.dims[1].read = weight.dims[1]
    kinds, cell = call.joiner.split(inputs.dims[0], gates)
    call.position(kinds, "a gate")
    for stacked in (recurrent_weight, *rest[:biases]):
        call.join(inputs.dims[0], stacked.dims[0])
    out = cell
    if len(rest) > biases:
        projection = rest[-1]
        call.join(projection.dims[1], cell)
        projection.dims[1].read = projection.dims[1]
        out = projection.dims[0]
    call.join(recurrent_weight.dims[1], out)
    return cell, out


def _start(call: Call, starts: list[Value], outs: list[Dim], cells: list[Dim]) -> None:
    """The first state; where it is not the same number everywhere, all layers share its order."""
    for start, dims in zip(starts, (outs, cells), strict=False):
        if not start.uniform:
            call.position(start.dims[0], "a layer or direction")
        for dim in dims[:1] if start.uniform else dims:
            call.join(start.dims[-1], dim)


@rule("aten.lstm_cell", "aten.gru_cell", "aten.rnn_tanh_cell", "aten.rnn_relu_cell")
def cell(call: Call) -> Any:
    """One step of one layer."""
    hidden = call["hx"]
    starts: list[Value] = list(hidden) if isinstance(hidden, list | tuple) else [hidden]
    inputs, recurrent_weight = call["w_ih"], call["w_hh"]
    gates = GATES[call.name.split(".")[1].removesuffix("_cell")]
    call.contract(call["input"], -1, inputs, 1)
    kinds, state = call.joiner.split(inputs.dims[0], gates)
    call.position(kinds, "a gate")
    for stacked in (recurrent_weight, call.get("b_ih"), call.get("b_hh")):
        if stacked is not None:
            call.join(inputs.dims[0], stacked.dims[0])
    for start in starts:
        call.join(start.dims[-1], state)
    call.contract(starts[0], -1, recurrent_weight, 1)
    dims = (*call.broadcast([own.dims[:-1] for own in (call["input"], *starts)]), state)
    return [dims] * len(call.shapes) if len(call.shapes) > 1 else dims


def _sequence(call: Call, x: Value) -> None:
    if len(x.dims) == 3:
        call.position(x.dims[1 if call["batch_first"] else 0], "a place in a sequence")
        batch = x.dims[0 if call["batch_first"] else 1]
        hidden = call["hx"]
        for start in hidden if isinstance(hidden, list | tuple) else [hidden]:
            call.join(start.dims[1], batch)
    else:
        call.position(x.dims[0], "a place in a sequence")


def _stacked(call: Call, dims: list[Dim], x: Value) -> Dims:
    """The last states of all layers: one dimension for them, and their units as a family."""
    batch = (x.dims[0 if call["batch_first"] else 1],) if len(x.dims) == 3 else ()
    if len(dims) == 1:
        return (call.fresh(1), *batch, dims[0])
    index = Dim(len(dims), "sum", tuple(Dim(1) for _ in dims))
    return (index, *batch, family(index, dims))


def _map(call: Call, parameters: list[Value]) -> None:
    names = [value.tensor for value in parameters]
    if all(name is not None for name in names):
        first, *rest = (name for name in names if name is not None)
        call.map = Map("recurrent", first, others=tuple(rest))
        call.features = "input"
