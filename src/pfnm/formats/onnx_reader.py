"""ONNX models of multilayer perceptrons, read by following the graph from its input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pfnm.core.errors import PFNMError
from pfnm.core.mlp import ACTIVATIONS
from pfnm.core.network import Array, Label, Tensor
from pfnm.formats.arrays import refuse_duplicates
from pfnm.formats.content import Content, as_notes, floats
from pfnm.formats.onnx_activations import ELEMENTWISE, PROBES, activation_of, apply
from pfnm.formats.onnx_inputs import Columns, input_columns, prepared
from pfnm.frameworks.sklearn import two_classes

PASSING = {"Flatten", "Reshape", "Cast", "Identity", "Dropout"}
LINEAR = {"Gemm", "MatMul"}
OUTPUT_OF = {"Softmax": "softmax", "LogSoftmax": "softmax", "Sigmoid": "sigmoid"}
# What may follow the last layer: the choice of a class, and putting the answer into a shape.
TRAILING = PASSING | {"ArgMax", "ArrayFeatureExtractor", "Normalizer", "Squeeze", "ZipMap"}
# skl2onnx writes both classes' probabilities as (1 - p, p), and a multilabel choice as p > 1/2.
TRAILING_AFTER_SIGMOID = TRAILING | {"Binarizer", "Concat", "Sub"}


class Value(NamedTuple):
    """A tensor of the graph: how many layers lie below it, what became of the probes since then.

    Below the first layer, what became of the columns instead.
    """

    depth: int
    probes: Array
    node: str
    columns: Columns | None = None


def read(path: Path, file: str) -> Content:
    """The layers of an ONNX model.

    A LogSoftmax at the end is read as softmax: its probabilities and its choice are the same.
    """
    import onnx

    model = onnx.load(path)
    content = Walk(file, model.graph).content()
    for prop in model.metadata_props:
        if prop.key == "pfnm":
            return replace(content, notes=as_notes(file, json.loads(prop.value)))
    return content


class Walk:
    """One pass over the nodes of a graph, which ONNX keeps in the order of computation."""

    def __init__(self, file: str, graph: Any) -> None:
        from onnx.numpy_helper import to_array

        self.file = file
        refuse_duplicates(file, [tensor.name for tensor in graph.initializer])
        self.constants = {tensor.name: to_array(tensor) for tensor in graph.initializer}
        self.nodes = list(graph.node)
        inputs = [value for value in graph.input if value.name not in self.constants]
        self.values = {
            value.name: Value(0, PROBES, value.name, input_columns(value)) for value in inputs
        }
        self.inputs = len(inputs)
        self.columns: Columns | None = None
        self.weights: list[Tensor] = []
        self.biases: list[Tensor | None] = []
        self.names: list[tuple[str, str | None]] = []
        self.transposed: list[bool] = []
        self.activation: str | None = None
        self.output: str | None = None
        self.labels: tuple[Label, ...] | None = None

    def content(self) -> Content:
        """Walk to the last layer, then through what follows it."""
        linear = [index for index, node in enumerate(self.nodes) if node.op_type in LINEAR]
        if not linear:
            found = ", ".join(sorted({node.op_type for node in self.nodes})) or "nothing"
            raise PFNMError(
                f"{self.file}: no Gemm or MatMul in the graph (found {found}), expected layers; "
                "export a multilayer perceptron"
            )
        for index, node in enumerate(self.nodes):
            if node.domain not in ("", "ai.onnx", "ai.onnx.ml"):
                raise self.error(node, f"is of the unknown domain {node.domain!r}")
            live = [self.values[name] for name in node.input if name in self.values]
            try:
                if not live:
                    self.fold(node)
                elif index <= linear[-1]:
                    self.step(node)
                else:
                    self.trail(node, live)
            except PFNMError:
                raise
            except Exception as error:
                raise self.error(node, "has inputs or attributes pfnm cannot use") from error
        if self.output == "sigmoid" and self.labels and self.weights[-1].shape[1] == 1:
            self.output, classes = "softmax", len(self.labels)  # two, or the first alone
            self.weights[-1] = two_classes(self.weights[-1])[:, :classes]
            bias = self.biases[-1]
            self.biases[-1] = None if bias is None else two_classes(bias)[:classes]
        columns = self.columns or Columns((), None)
        if len(columns.names) != self.inputs:
            raise PFNMError(
                f"{self.file}: the graph has {self.inputs} inputs and its first layer takes "
                f"{len(columns.names)} of them, expected one, or columns joined before the first "
                "layer; export the bare network"
            )
        if columns.steps:
            self.fold_inputs(columns)
        return Content(
            self.weights,
            self.biases,
            self.names,
            self.transposed[0],
            activation=self.activation,
            output=self.output,
            labels=self.labels,
            features=columns.features,
            scaling=columns.scaling,
        )

    def fold_inputs(self, columns: Columns) -> None:
        """Into the first layer goes what is done to the inputs before it, in the layer's own type.

        Rounding there is no more than that of inputs of this type.
        """
        weight, bias = columns.affine.folded_into(self.weights[0], self.biases[0])
        dtype = self.weights[0].dtype
        self.weights[0] = weight.astype(dtype)
        if bias is not None:
            weight_name, bias_name = self.names[0]
            self.biases[0] = bias.astype(dtype)
            self.names[0] = (weight_name, bias_name or f"{weight_name}.shift")

    def error(self, node: Any, what: str) -> PFNMError:
        """The error that names a node, by its name or else by its output."""
        return PFNMError(
            f"{self.file}: node {node.name or node.output[0]!r} ({node.op_type}) {what}; expected "
            "a multilayer perceptron: Gemm, or MatMul and Add, with one activation between layers"
        )

    def fold(self, node: Any) -> None:
        """A node that does not depend on the input's values: a constant, or an axis length."""
        from onnx.numpy_helper import to_array

        attributes = attributes_of(node)
        if node.op_type == "Constant" and "value" in attributes:
            self.constants[node.output[0]] = to_array(attributes["value"])
        elif node.op_type == "Constant":
            self.constants[node.output[0]] = np.array(next(iter(attributes.values())))
        elif len(node.input) == 1 and node.input[0] in self.constants:
            constant = self.constants[node.input[0]]
            if node.op_type == "Identity":
                self.constants[node.output[0]] = constant
            elif node.op_type == "Transpose":
                self.constants[node.output[0]] = constant.transpose(attributes.get("perm"))

    def step(self, node: Any) -> None:
        """A node up to the last layer."""
        if node.op_type == "Shape":
            return  # the lengths of axes, for a Reshape
        if node.op_type in LINEAR:
            self.layer(node)
        elif any(name in self.values and self.values[name].depth == 0 for name in node.input):
            self.prepare(node)
        elif node.op_type in PASSING and node.input[0] in self.values:
            self.values[node.output[0]] = self.values[node.input[0]]
        elif not self.add_bias(node):
            self.elementwise(node)

    def prepare(self, node: Any) -> None:
        """A node before the first layer: it may multiply and shift each column, or join columns."""
        live = [self.values[name] for name in node.input if name in self.values]
        if any(value.columns is None for value in live):
            raise self.error(node, "joins two branches, as a residual connection does")
        arguments = [
            self.values[name].columns if name in self.values else self.constants.get(name)
            for name in node.input
            if name
        ]
        columns = prepared(node.op_type, attributes_of(node), arguments)
        if columns is None:
            raise PFNMError(
                f"{self.file}: node {node.name or node.output[0]!r} ({node.op_type}) changes the "
                "inputs, expected at most a factor and a shift of each column before the first "
                "layer; apply it to the data beforehand, the same at every site"
            )
        result = node.output[0]
        self.values[result] = Value(0, PROBES, node.name or result, columns)

    def layer(self, node: Any) -> None:
        """A Gemm or a MatMul: what came before it is settled, and a layer begins."""
        attributes = attributes_of(node)
        value, weight_name = self.values.get(node.input[0]), node.input[1]
        weight = self.constants.get(weight_name)
        if value is None or weight is None or weight.ndim != 2 or attributes.get("transA", 0):
            raise self.error(node, "does not multiply by a constant matrix from the right")
        if value.depth != len(self.weights):
            raise self.error(node, "starts a second branch")
        transposed = bool(attributes.get("transB", 0))
        weight = floats(self.file, weight_name, weight)
        self.settle(node, value, weight.shape[1 if transposed else 0])
        weight = (weight.T if transposed else weight) * weight.dtype.type(
            attributes.get("alpha", 1.0)
        )
        if any(weight_name == taken for taken, _ in self.names):
            raise self.error(node, f"uses the weight {weight_name!r} of another layer")
        if self.weights and weight.shape[0] != self.weights[-1].shape[1]:
            raise self.error(
                node, f"takes {weight.shape[0]} inputs from {self.weights[-1].shape[1]} outputs"
            )
        self.weights.append(weight)
        self.biases.append(None)
        self.names.append((weight_name, None))
        self.transposed.append(transposed)
        self.values[node.output[0]] = Value(len(self.weights), PROBES, node.name or node.output[0])
        if len(node.input) > 2 and node.input[2]:
            self.set_bias(node, node.input[2], attributes.get("beta", 1.0))

    def settle(self, node: Any, value: Value, rows: int) -> None:
        """Which activation was applied to a value on its way to a layer: one for all layers."""
        name = activation_of(value.probes)
        if value.columns is not None:
            self.columns = value.columns.of_width(rows)
            if self.columns is None:
                raise self.error(node, f"takes {rows} inputs, which {value.node!r} does not give")
            return
        if name is None:
            raise PFNMError(
                f"{self.file}: node {value.node!r} computes an activation that pfnm does not know; "
                f"expected one of {', '.join(ACTIVATIONS)}"
            )
        if self.activation not in (None, name):
            raise self.error(node, f"follows {name}, but a layer before it {self.activation}")
        self.activation = name

    def add_bias(self, node: Any) -> bool:
        """Whether the node adds a bias to a layer that has none and is as yet untouched."""
        if node.op_type != "Add" or not self.biases or self.biases[-1] is not None:
            return False
        value, constant = sorted(node.input, key=lambda name: name in self.constants)
        if constant not in self.constants or self.values.get(value) is None:
            return False
        untouched = self.values[value].depth == len(self.weights) and np.array_equal(
            self.values[value].probes, PROBES
        )
        if not untouched or not self.is_bias(constant):
            return False
        self.set_bias(node, constant, 1.0)
        self.values[node.output[0]] = self.values[value]
        return True

    def is_bias(self, name: str) -> bool:
        """Whether a constant adds one number to each output of the last layer."""
        outputs = self.weights[-1].shape[1]
        return self.constants[name].shape in ((outputs,), (1, outputs))

    def set_bias(self, node: Any, name: str, beta: float) -> None:
        """Give the last layer the constant of this name as its bias."""
        if name not in self.constants:
            raise self.error(node, "adds something that is no constant bias")
        bias = floats(self.file, name, self.constants[name]).reshape(-1)
        if not self.is_bias(name):
            raise PFNMError(
                f"{self.file}: tensor {name!r} has shape {self.constants[name].shape}, expected "
                f"{self.weights[-1].shape[1]} entries, one for each output of the layer"
            )
        # Exporters share equal tensors, zeros for instance; here every layer has its own.
        taken = {bias_name for _, bias_name in self.names}
        self.biases[-1] = bias * bias.dtype.type(beta)
        own_name = f"{name}.{len(self.names)}" if name in taken else name
        self.names[-1] = (self.names[-1][0], own_name)

    def elementwise(self, node: Any) -> None:
        """A part of an activation: the same operation on every number."""
        if node.op_type not in ELEMENTWISE:
            raise self.error(node, "is no operator pfnm knows in a multilayer perceptron")
        arguments: list[Any] = []
        depths: set[int] = set()
        for name in node.input:
            if name in self.values:
                arguments.append(self.values[name].probes)
                depths.add(self.values[name].depth)
            elif name in self.constants and self.constants[name].size == 1:
                arguments.append(self.constants[name].item())
            else:
                raise self.error(node, f"takes {name!r}, which is neither a number nor a layer")
        if len(depths) > 1:
            raise self.error(node, "joins two branches, as a residual connection does")
        probes = apply(node.op_type, attributes_of(node), arguments)
        self.values[node.output[0]] = Value(depths.pop(), probes, node.name or node.output[0])

    def trail(self, node: Any, live: list[Value]) -> None:
        """A node after the last layer: its bias, the output function, the choice of a class.

        What the output function or the choice has made counts as one layer deeper.
        """
        last = len(self.weights)
        if min(value.depth for value in live) < last:
            raise self.error(node, "uses a value from below the last layer")
        if self.output is None and self.add_bias(node):
            return
        allowed = TRAILING_AFTER_SIGMOID if self.output == "sigmoid" else TRAILING
        depth = live[0].depth if node.op_type in PASSING else last + 1
        if node.op_type in OUTPUT_OF and self.output is None and live[0].depth == last:
            if attributes_of(node).get("axis", -1) not in (-1, 1):
                raise self.error(node, "is not over the last axis")
            self.output = OUTPUT_OF[node.op_type]
        elif node.op_type not in allowed or not self.one_minus(node):
            raise self.error(node, "is no operator pfnm knows after the last layer")
        if node.op_type == "ZipMap":
            attributes = attributes_of(node)
            texts = attributes.get("classlabels_strings", ())
            self.labels = tuple(text.decode() for text in texts) or tuple(
                attributes.get("classlabels_int64s", ())
            )
        elif node.op_type == "ArrayFeatureExtractor":
            self.choose(node)
        for name in node.output:
            self.values[name] = Value(depth, PROBES, node.name or name)

    def one_minus(self, node: Any) -> bool:
        """Whether a subtraction is 1 - p; true for every other node."""
        one = self.constants.get(node.input[0])
        return node.op_type != "Sub" or (one is not None and bool(np.all(one == 1)))

    def choose(self, node: Any) -> None:
        """skl2onnx picks the label of the best class from the constant list of classes."""
        classes = self.constants.get(node.input[0])
        if classes is not None and self.labels is None:
            self.labels = tuple(classes.ravel().tolist())


def attributes_of(node: Any) -> dict[str, Any]:
    """A node's attributes by name."""
    from onnx.helper import get_attribute_value

    return {attribute.name: get_attribute_value(attribute) for attribute in node.attribute}
