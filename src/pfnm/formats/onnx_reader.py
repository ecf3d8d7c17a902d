"""ONNX models of multilayer perceptrons, read by following the graph from its input."""

from __future__ import annotations

import os
from collections import ChainMap
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pfnm.errors import PFNMError
from pfnm.formats.arrays import refuse_duplicates
from pfnm.formats.content import Content, floats, parsed_notes
from pfnm.formats.limits import Allowance
from pfnm.formats.onnx_activations import ELEMENTWISE, PROBES, activation_of, apply
from pfnm.formats.onnx_external import external_bytes, external_tensors
from pfnm.formats.onnx_inputs import Columns, input_columns, prepared
from pfnm.formats.onnx_shapes import counted, keeps_rows, rows_of
from pfnm.frameworks.sklearn import two_classes
from pfnm.networks.activations import ACTIVATIONS
from pfnm.networks.network import Array, Label, Tensor

PASSING = {"Flatten", "Reshape", "Cast", "Identity", "Dropout"}
LINEAR = {"Gemm", "MatMul"}
OUTPUT_OF = {"Softmax": "softmax", "LogSoftmax": "softmax", "Sigmoid": "sigmoid"}
RESHAPING = {"Flatten", "Reshape", "Squeeze"}  # none of them changes a number
# The attributes that are understood, of the operators that are known; any other is refused.
ATTRIBUTES: dict[str, set[str]] = {
    **{operator: set() for operator in (*ELEMENTWISE, "MatMul", "Identity")},
    "Gemm": {"alpha", "beta", "transA", "transB"},
    "Flatten": {"axis"},
    "Reshape": {"allowzero"},
    "Cast": {"to", "saturate", "round_mode"},
    "CastLike": {"saturate", "round_mode"},
    "Dropout": {"ratio", "seed"},
    "LeakyRelu": {"alpha"},
    "Elu": {"alpha"},
    "Gelu": {"approximate"},
    "Swish": {"alpha"},
    "Concat": {"axis"},
    "FeatureVectorizer": {"inputdimensions"},
    "Scaler": {"offset", "scale"},
    "BatchNormalization": {"epsilon", "momentum", "training_mode"},
    "Softmax": {"axis"},
    "LogSoftmax": {"axis"},
    "ArgMax": {"axis", "keepdims", "select_last_index"},
    "Normalizer": {"norm"},
    "Squeeze": {"axes"},
    "Binarizer": {"threshold"},
    "ZipMap": {"classlabels_strings", "classlabels_int64s"},
}
OUR_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
HALF = 0.5
BOTH: Array = np.stack([1 - PROBES, PROBES])  # what stands for the probabilities of both classes


class Value(NamedTuple):
    """A tensor of the graph: how many layers lie below it, what became of the probes since then.

    Below the first layer, what became of the columns instead.
    """

    depth: int
    probes: Array
    node: str
    columns: Columns | None = None
    width: int | None = None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Of one row, where it is known."""
        if self.columns is not None:
            return self.columns.shape
        return None if self.width is None else (self.width,)


def read(path: Path, file: str) -> Content:
    """The layers of an ONNX model.

    A LogSoftmax at the end is read as softmax: its probabilities and its choice are the same.
    """
    model, allowance = loaded(path, file)
    content = Walk(file, model.graph).content()
    for prop in model.metadata_props:
        if prop.key == "pfnm":
            return replace(content, notes=parsed_notes(file, prop.value, allowance))
    return content


def loaded(path: Path, file: str) -> tuple[Any, Allowance]:
    """An ONNX model with all its tensors, and how much may still be read of its file."""
    import onnx

    allowance = Allowance(file)
    allowance.take("its content", path.stat().st_size)
    model = onnx.load(path, load_external_data=False)
    for part in (model.graph, *model.functions):
        for tensor in external_tensors(part):
            allowance.take(f"tensor {tensor.name!r}", external_bytes(path, file, tensor))
    onnx.load_external_data_for_model(model, os.fspath(path.parent))
    if any(function.domain in OUR_DOMAINS for function in model.functions):
        raise PFNMError(f"{file}: it defines operators of its own; export the bare network")
    return model, allowance


class Walk:
    """One pass over the nodes of a graph, which ONNX keeps in the order of computation."""

    def __init__(self, file: str, graph: Any) -> None:
        from onnx import TensorProto
        from onnx.numpy_helper import to_array

        self.file = file
        self.nodes = list(graph.node)
        refuse_duplicates(
            file,
            [name for node in self.nodes for name in node.output if name]
            + [tensor.name for tensor in graph.initializer],
        )
        self.constants = {tensor.name: to_array(tensor) for tensor in graph.initializer}
        self.lengths: dict[str, Any] = {}  # of axes, where the graph computes with them
        self.float_types = {TensorProto.FLOAT, TensorProto.DOUBLE} | {
            tensor.data_type
            for tensor in graph.initializer
            if tensor.data_type in (TensorProto.FLOAT16, TensorProto.BFLOAT16)
        }
        self.outputs = [value.name for value in graph.output]
        inputs = [value for value in graph.input if value.name not in self.constants]
        self.values = {
            value.name: Value(0, PROBES, value.name, input_columns(value)) for value in inputs
        }
        self.inputs = len(inputs)
        self.rows = rows_of(inputs)
        self.columns: Columns | None = None
        self.weights: list[Tensor] = []
        self.biases: list[Tensor | None] = []
        self.names: list[tuple[str, str | None]] = []
        self.taken: set[str] = set()  # of these names
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
            self.check(node)
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
        self.check_outputs()
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

    def check(self, node: Any) -> None:
        """An error if a node is of another domain, or an operator that we know with more to it."""
        if node.domain not in OUR_DOMAINS:
            raise self.error(node, f"is of the unknown domain {node.domain!r}")
        if node.op_type in ATTRIBUTES:
            for attribute in node.attribute:
                if attribute.name not in ATTRIBUTES[node.op_type]:
                    raise self.error(
                        node, f"has the attribute {attribute.name!r}, which pfnm does not know"
                    )

    def check_outputs(self) -> None:
        """An error unless the graph gives what its last layer, and what follows it, computes."""
        depths = [self.values[name].depth for name in self.outputs if name in self.values]
        deepest = len(self.weights) + (self.output is not None)
        if not depths or max(depths) < deepest:
            raise PFNMError(
                f"{self.file}: none of the graph's outputs ({', '.join(self.outputs)}) is what its "
                "last layer computes; export the bare network"
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
        if any(name in self.lengths for name in node.input):
            known = ChainMap(self.lengths, self.constants)
            if all(name in known for name in node.input):
                lengths = counted(node.op_type, attributes, [known[name] for name in node.input])
                if lengths is not None:
                    self.lengths[node.output[0]] = lengths
        elif node.op_type == "Constant" and "value" in attributes:
            self.constants[node.output[0]] = to_array(attributes["value"])
        elif node.op_type == "Constant":
            self.constants[node.output[0]] = np.array(next(iter(attributes.values())))
        elif len(node.input) == 1 and node.input[0] in self.constants:
            constant = self.constants[node.input[0]]
            if node.op_type == "Identity":
                self.constants[node.output[0]] = constant
            elif node.op_type == "Transpose":
                self.constants[node.output[0]] = constant.transpose(attributes.get("perm"))

    def passes(self, node: Any, value: Value) -> bool:
        """Whether a node leaves rows of numbers as they are; an error if it changes numbers."""
        attributes, shape = attributes_of(node), value.shape
        if node.op_type == "Cast" and attributes.get("to") not in self.float_types:
            raise self.error(node, "changes numbers to a type that cannot hold them")
        if node.op_type == "CastLike":
            like = self.constants.get(node.input[1])
            if like is None or like.dtype.kind != "f" or like.dtype.itemsize < 4:
                raise self.error(node, "changes numbers to a type that may not hold them")
        if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
            training = self.constants.get(node.input[2])
            if training is None or training.any():
                raise self.error(node, "drops units at random, as in training")
        if node.op_type == "Flatten":
            axis = attributes.get("axis", 1)
            return axis == 1 or (shape is not None and axis == -len(shape))
        if node.op_type == "Reshape":
            target = self.lengths.get(node.input[1], self.constants.get(node.input[1]))
            zeros_kept = bool(attributes.get("allowzero", 0))
            return target is not None and keeps_rows(self.rows, shape, np.ravel(target), zeros_kept)
        return bool(node.op_type != "Squeeze")

    def step(self, node: Any) -> None:
        """A node up to the last layer."""
        if node.op_type == "Shape":
            self.measure(node)
        elif node.op_type in LINEAR:
            self.layer(node)
        elif any(name in self.values and self.values[name].depth == 0 for name in node.input):
            self.prepare(node)
        elif node.op_type in PASSING and node.input[0] in self.values:
            value = self.values[node.input[0]]
            if not self.passes(node, value):
                raise self.error(node, "changes the shape between layers")
            self.values[node.output[0]] = value
        elif not self.add_bias(node):
            self.elementwise(node)

    def measure(self, node: Any) -> None:
        """The lengths of axes, for a Reshape, where they are known."""
        shape, attributes = self.values[node.input[0]].shape, attributes_of(node)
        if shape is not None:
            full = np.array([self.rows, *shape])
            self.lengths[node.output[0]] = full[attributes.get("start", 0) : attributes.get("end")]

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
        passing = node.op_type in PASSING and node.input[0] in self.values
        if passing and not self.passes(node, self.values[node.input[0]]):
            raise self.error(node, "changes the shape of the inputs")
        if attributes_of(node).get("training_mode", 0):
            raise self.error(node, "takes its statistics from the data, as in training")
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
        if weight_name in self.taken:
            raise self.error(node, f"uses the weight {weight_name!r} of another layer")
        if self.weights and weight.shape[0] != self.weights[-1].shape[1]:
            raise self.error(
                node, f"takes {weight.shape[0]} inputs from {self.weights[-1].shape[1]} outputs"
            )
        self.weights.append(weight)
        self.biases.append(None)
        self.names.append((weight_name, None))
        self.taken.add(weight_name)
        self.transposed.append(transposed)
        result = node.output[0]
        self.values[result] = Value(
            len(self.weights), PROBES, node.name or result, width=weight.shape[1]
        )
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
        biased, depth = self.values[value], len(self.weights)
        # From here on the layer has its bias: what was made of it without may not be used.
        self.values = {name: v for name, v in self.values.items() if v.depth != depth}
        self.values[node.output[0]] = biased
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
        self.biases[-1] = bias * bias.dtype.type(beta)
        own_name = f"{name}.{len(self.names)}" if name in self.taken else name
        self.taken.add(own_name)
        self.names[-1] = (self.names[-1][0], own_name)

    def elementwise(self, node: Any) -> None:
        """A part of an activation: the same operation on every number."""
        if node.op_type not in ELEMENTWISE:
            raise self.error(node, "is no operator pfnm knows in a multilayer perceptron")
        arguments: list[Any] = []
        depths: set[int] = set()
        widths: set[int | None] = set()
        for name in node.input:
            if name in self.values:
                arguments.append(self.values[name].probes)
                depths.add(self.values[name].depth)
                widths.add(self.values[name].width)
            elif name in self.constants and self.constants[name].size == 1:
                arguments.append(self.constants[name].item())
            else:
                raise self.error(node, f"takes {name!r}, which is neither a number nor a layer")
        if len(depths) > 1:
            raise self.error(node, "joins two branches, as a residual connection does")
        probes = apply(node.op_type, attributes_of(node), arguments)
        result = node.output[0]
        self.values[result] = Value(depths.pop(), probes, node.name or result, width=widths.pop())

    def trail(self, node: Any, live: list[Value]) -> None:
        """A node after the last layer: its bias, the output function, the choice of a class.

        What the output function has made counts as one layer deeper, a choice as two; what becomes
        of a choice (its type, its shape) changes no number of ours.
        """
        last, value = len(self.weights), live[0]
        if min(value.depth for value in live) < last:
            raise self.error(node, "uses a value from below the last layer")
        if self.output is None and self.add_bias(node):
            return
        attributes, result = attributes_of(node), None
        computed, chosen = value._replace(depth=last + 1), value._replace(depth=last + 2)
        if node.op_type in OUTPUT_OF and self.output is None and value.depth == last:
            if attributes.get("axis", -1) not in (-1, 1):
                raise self.error(node, "is not over the last axis")
            self.output = OUTPUT_OF[node.op_type]
            result = computed
        elif node.op_type in PASSING | RESHAPING:
            unchanged = value.depth > last + 1 or self.passes(node, value)
            alone = node.op_type in RESHAPING and value.width == 1  # in whatever shape
            result = value if unchanged or alone else computed
        elif node.op_type == "ArgMax":
            result = chosen if attributes.get("axis", 0) in (1, -1) else None
        elif node.op_type == "ArrayFeatureExtractor" and value.depth > last + 1:
            self.choose(node)
            result = chosen
        elif node.op_type == "ZipMap":
            texts = attributes.get("classlabels_strings", ())
            numbers = attributes.get("classlabels_int64s", ())
            self.labels = tuple(text.decode() for text in texts) or tuple(numbers)
            result = chosen
        elif node.op_type == "Normalizer" and attributes.get("norm", b"MAX") == b"L1":
            # Probabilities that sum to 1 already.
            sums_to_one = self.output == "softmax" or np.array_equal(value.probes, BOTH)
            result = value if sums_to_one and value.depth == last + 1 else None
        elif self.output == "sigmoid":
            result = self.after_sigmoid(node, live)
        if result is None:
            raise self.error(node, "is no operator pfnm knows after the last layer")
        for name in node.output:
            self.values[name] = result

    def after_sigmoid(self, node: Any, live: list[Value]) -> Value | None:
        """skl2onnx writes both classes' probabilities as (1 - p, p), several choices as p > 1/2."""
        value, attributes = live[0], attributes_of(node)
        if node.op_type == "Binarizer" and attributes.get("threshold", 0.0) == HALF:
            return value._replace(depth=len(self.weights) + 2)
        if node.op_type == "Sub" and np.array_equal(value.probes, PROBES):
            one = self.constants.get(node.input[0])
            if one is not None and bool(np.all(one == 1)):
                return value._replace(probes=1 - PROBES)
        if node.op_type == "Concat" and attributes.get("axis") in (1, -1) and len(live) == 2:
            both = np.stack([part.probes for part in live])
            if len(node.input) == 2 and np.array_equal(both, BOTH):
                return value._replace(probes=BOTH)
        return None

    def choose(self, node: Any) -> None:
        """skl2onnx picks the label of the best class from the constant list of classes."""
        classes = self.constants.get(node.input[0])
        if classes is not None and self.labels is None:
            self.labels = tuple(
                label.decode() if isinstance(label, bytes) else label
                for label in classes.ravel().tolist()
            )


def attributes_of(node: Any) -> dict[str, Any]:
    """A node's attributes by name."""
    from onnx.helper import get_attribute_value

    return {attribute.name: get_attribute_value(attribute) for attribute in node.attribute}
