"""Networks as ONNX models: Gemm and activations, as onnxruntime runs them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pfnm.errors import PFNMError
from pfnm.formats.content import notes_of
from pfnm.networks.network import Network
from pfnm.networks.outputs import OUTPUTS
from pfnm.networks.perceptron import Layer, layers, perceptron

OPSET = 17  # old enough for the runtimes in use; Gelu came later and is written out
IR_VERSION = 8  # the file version of that opset
FLOAT32_ONLY = {"Elu", "Erf"}  # onnxruntime has no 64-bit version of these
CHECKED_ROWS = 4  # run in onnxruntime before a file is written
TOLERANCE = 1e-3  # of the largest value, far above rounding and far below another function
MARGIN = 10  # times what 32 bits change in numpy
ONLY_FATAL = 4  # what onnxruntime logs
ONE, HALF, ROOT = "pfnm.one", "pfnm.half", "pfnm.sqrt2"

# Each activation as (operator, its inputs): "x" is the layer's value, "" the value just computed.
STEPS: dict[str, list[tuple[str, tuple[str, ...]]]] = {
    "relu": [("Relu", ("",))],
    "tanh": [("Tanh", ("",))],
    "sigmoid": [("Sigmoid", ("",))],
    "identity": [],
    "leaky_relu": [("LeakyRelu", ("",))],
    "elu": [("Elu", ("",))],
    "silu": [("Sigmoid", ("",)), ("Mul", ("x", ""))],
    "gelu": [
        ("Div", ("", ROOT)),
        ("Erf", ("",)),
        ("Add", ("", ONE)),
        ("Mul", ("x", "")),
        ("Mul", ("", HALF)),
    ],
}
OUTPUT_OPERATORS = {
    "identity": "Identity",
    "values": "Identity",
    "softmax": "Softmax",
    "sigmoid": "Sigmoid",
}


def write(network: Network) -> bytes:
    """The network as an ONNX model from "input" to "output", for any number of rows.

    Where a tensor is called so, or like anything else in the graph, the graph's own name gives way.
    """
    import onnx
    from onnx import helper, numpy_helper

    stack = layers(network)
    dtype = np.dtype(np.float64 if network.dtype.itemsize > 4 else np.float32)
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    names = Names(network.tensors)
    first, last = names.fresh("input"), names.fresh("output")
    constants = {ONE: 1.0, HALF: 0.5, ROOT: math.sqrt(2)} if network.activation == "gelu" else {}
    constant_names = {constant: names.fresh(constant) for constant in constants}
    nodes, value = [], first
    for depth, layer in enumerate(stack):
        if depth > 0:
            added, value = activation_nodes(
                perceptron(network).activation, value, kind, names, constant_names
            )
            nodes += added
        result = names.fresh(f"pfnm.layer{depth + 1}")
        nodes.append(gemm(layer, value, result))
        value = result
    nodes.append(helper.make_node(OUTPUT_OPERATORS[network.output], [value], [last]))
    arrays = {**network.tensors, **{constant_names[c]: np.array(constants[c]) for c in constants}}
    graph = helper.make_graph(
        nodes,
        "pfnm",
        [helper.make_tensor_value_info(first, kind, ["batch", stack[0].weight.shape[0]])],
        [helper.make_tensor_value_info(last, kind, ["batch", stack[-1].weight.shape[1]])],
        [
            numpy_helper.from_array(np.ascontiguousarray(array, dtype), name)
            for name, array in arrays.items()
        ],
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="pfnm",
    )
    helper.set_model_props(model, {"pfnm": json.dumps(notes_of(network))})
    data: bytes = model.SerializeToString()
    onnx.checker.check_model(data, full_check=True)
    check_values(network, data, dtype)
    return data


class Names:
    """The names in a graph: those of the tensors, and fresh ones for all else."""

    def __init__(self, tensors: Iterable[str]) -> None:
        self.taken = {"", *tensors}  # to ONNX a value without a name is none
        if "" in tensors:
            raise PFNMError("a tensor without a name cannot be written as ONNX; name it")

    def fresh(self, name: str) -> str:
        """This name, or the first like it that is free."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


def check_values(network: Network, data: bytes, dtype: np.dtype[Any]) -> None:
    """An error unless onnxruntime, where it is installed, computes from it what the network does.

    The file is run as it stands, operator by operator: to optimise it takes longer than to run it.
    Rounding is allowed for by what it changes in numpy.
    """
    try:
        import onnxruntime
    except ImportError:
        return
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = ONLY_FATAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    scaling = network.scaling
    rows = np.random.default_rng(0).normal(size=(CHECKED_ROWS, network.numbers))
    rows = rows if scaling is None else scaling.centre + rows * scaling.scale
    with np.errstate(all="ignore"):
        exact, rounded = (
            OUTPUTS[network.output](values_of.run(rows.astype(kind)))
            for values_of, kind in ((network, np.float64), (narrowed(network), np.float32))
        )
        (found,) = session.run(None, {session.get_inputs()[0].name: rows.astype(dtype)})
        finite = np.isfinite(rounded) & np.isfinite(exact)
        size, rounding = np.abs(exact[finite]), np.abs(exact - rounded)[finite]
        allowed = TOLERANCE * (1 + size.max(initial=0)) + MARGIN * rounding.max(initial=0)
        agrees = found.shape == exact.shape and (np.abs(found - exact)[finite] <= allowed).all()
    if not agrees:
        raise PFNMError(
            f"{network.name}: onnxruntime computes other values from the ONNX model than the "
            "network gives; save in another format, and please report it"
        )


def narrowed(network: Network) -> Network:
    """The network with no tensor of more than 32 bits."""
    if network.dtype.itemsize <= np.dtype(np.float32).itemsize:
        return network
    tensors = {name: tensor.astype(np.float32) for name, tensor in network.tensors.items()}
    return replace(network, tensors=tensors)


def gemm(layer: Layer, value: str, result: str) -> Any:
    """The node of one layer."""
    from onnx import helper

    inputs = [value, layer.weight_name] + ([layer.bias_name] if layer.bias_name else [])
    return helper.make_node("Gemm", inputs, [result], transB=int(layer.transposed))


def activation_nodes(
    activation: str, value: str, kind: int, names: Names, constants: Mapping[str, str]
) -> tuple[list[Any], str]:
    """The nodes of the activation after a value, and the name of its result."""
    from onnx import TensorProto, helper

    nodes, current = [], value
    for number, (operator, inputs) in enumerate(STEPS[activation], start=1):
        arguments = [{"x": value, "": current, **constants}[name] for name in inputs]
        current = names.fresh(f"{value}.{activation}{number}")
        if operator in FLOAT32_ONLY and kind != TensorProto.FLOAT:
            narrow, result = names.fresh(f"{current}.narrow"), names.fresh(f"{current}.result")
            nodes += [
                helper.make_node("Cast", arguments, [narrow], to=TensorProto.FLOAT),
                helper.make_node(operator, [narrow], [result]),
                helper.make_node("Cast", [result], [current], to=kind),
            ]
        else:
            nodes.append(helper.make_node(operator, arguments, [current]))
    return nodes, current
