"""Networks as ONNX models: Gemm and activations, as onnxruntime runs them."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from pfnm.core.mlp import Layer, layers
from pfnm.core.network import Network
from pfnm.formats.content import notes_of

OPSET = 17  # old enough for the runtimes in use; Gelu came later and is written out
IR_VERSION = 8  # the file version of that opset
FLOAT32_ONLY = {"Elu", "Erf"}  # onnxruntime has no 64-bit version of these
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
    """The network as an ONNX model from "input" to "output", for any number of rows."""
    import onnx
    from onnx import helper, numpy_helper

    stack = layers(network)
    dtype = np.dtype(np.float64 if network.dtype.itemsize > 4 else np.float32)
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    nodes, value = [], "input"
    for depth, layer in enumerate(stack):
        if depth > 0:
            added, value = activation_nodes(network.activation, value, kind)
            nodes += added
        nodes.append(gemm(layer, value, f"pfnm.layer{depth + 1}"))
        value = f"pfnm.layer{depth + 1}"
    nodes.append(helper.make_node(OUTPUT_OPERATORS[network.output], [value], ["output"]))
    constants = {ONE: 1.0, HALF: 0.5, ROOT: math.sqrt(2)} if network.activation == "gelu" else {}
    arrays = {**network.tensors, **{name: np.array(c) for name, c in constants.items()}}
    graph = helper.make_graph(
        nodes,
        "pfnm",
        [helper.make_tensor_value_info("input", kind, ["batch", stack[0].weight.shape[0]])],
        [helper.make_tensor_value_info("output", kind, ["batch", stack[-1].weight.shape[1]])],
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
    onnx.checker.check_model(model, full_check=True)
    data: bytes = model.SerializeToString()
    return data


def gemm(layer: Layer, value: str, result: str) -> Any:
    """The node of one layer."""
    from onnx import helper

    inputs = [value, layer.weight_name] + ([layer.bias_name] if layer.bias_name else [])
    return helper.make_node("Gemm", inputs, [result], transB=int(layer.transposed))


def activation_nodes(activation: str, value: str, kind: int) -> tuple[list[Any], str]:
    """The nodes of the activation after a value, and the name of its result."""
    from onnx import TensorProto, helper

    nodes, current = [], value
    for number, (operator, inputs) in enumerate(STEPS[activation], start=1):
        names = [{"x": value, "": current}.get(name, name) for name in inputs]
        current = f"{value}.{activation}{number}"
        if operator in FLOAT32_ONLY and kind != TensorProto.FLOAT:
            narrow, result = f"{current}.narrow", f"{current}.result"
            nodes += [
                helper.make_node("Cast", names, [narrow], to=TensorProto.FLOAT),
                helper.make_node(operator, [narrow], [result]),
                helper.make_node("Cast", [result], [current], to=kind),
            ]
        else:
            nodes.append(helper.make_node(operator, names, [current]))
    return nodes, current
