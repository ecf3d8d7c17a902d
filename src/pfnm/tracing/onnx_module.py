"""An ONNX graph as a module of PyTorch, and a module of other widths as an ONNX graph again.

So convolutional networks from ONNX files are traced, proved and fused as any module is. Nothing of
a file is executed but the operators of the table (`onnx_operators.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pfnm.errors import PFNMError
from pfnm.formats.onnx_reader import OUR_DOMAINS, attributes_of, loaded
from pfnm.tracing.onnx_operators import OPERATORS, Node
from pfnm.tracing.proof import distance

STATISTICS = {"BatchNormalization": (3, 4)}  # inputs that are no parameters
PLAIN = {"Clip": (1, 2), "Dropout": (1, 2), "Pad": (1, 2, 3), "Resize": (1, 2, 3), "Upsample": (1,)}
"""Inputs that say what to do, whatever their type."""
EXAMPLE_ROWS, EXAMPLE_SEED = 2, 0
TOLERANCE = 1e-3  # of the largest output, far above rounding and far below another function


class OnnxModule(nn.Module):
    """The operators of a graph, in order; its floating-point tensors are the module's.

    names: of the tensors in order of use, where another graph's are to be used.
    """

    def __init__(self, model: Any, file: str, names: Sequence[str] | None = None) -> None:
        super().__init__()
        graph = model.graph
        self._file = file
        self._constants: dict[str, Any] = {}
        self._tensors: dict[str, str] = {}  # the module's name of each of the graph's
        self._names: list[str] = []
        self._given = None if names is None else iter(names)
        stored = _stored(graph, file)
        inputs = [own for own in graph.input if own.name not in stored]
        rows = next(iter(_lengths(inputs[0])), None) if inputs else None
        del graph.initializer[:]
        uses: dict[str, int] = {}
        for node in graph.node:
            if node.domain not in OUR_DOMAINS or node.op_type not in OPERATORS:
                raise self._unknown(node)
            for place, name in enumerate(node.input):
                array = stored.get(name)
                if array is None:
                    continue
                plain = place in PLAIN.get(node.op_type, ())
                if array.dtype.kind != "f" or array.ndim == 0 or plain:
                    self._constants[name] = array
                    continue
                uses[name] = uses.get(name, 0) + 1
                if array.ndim == 1 and uses[name] > 1:
                    # Exporters share equal vectors, zeros for instance; here each has its own.
                    node.input[place] = f"{name}.{uses[name]}"
                if node.input[place] not in self._tensors:
                    fixed = place in STATISTICS.get(node.op_type, ())
                    self._tensors[node.input[place]] = self._put(node.input[place], array, fixed)
        self._outputs = [own.name for own in graph.output]
        opset = max(
            (own.version for own in model.opset_import if own.domain in OUR_DOMAINS), default=0
        )
        self._nodes = [_node(own, file, rows, opset) for own in graph.node]
        del graph.value_info[:]
        del self._given
        self._inputs = {own.name: own.SerializeToString() for own in inputs}
        self._skeleton: bytes = model.SerializeToString()
        self._kept = {n: a for n, a in stored.items() if n in self._constants}

    def _put(self, name: str, array: Any, fixed: bool) -> str:
        """A tensor of the graph as one of the module, within modules as its name has dots."""
        whole = name if self._given is None else next(self._given, name)
        self._names.append(whole)
        *path, last = whole.split(".")
        owner: Any = self
        try:
            for part in path:
                if part not in owner._modules:
                    owner.add_module(part, nn.Module())
                owner = owner._modules[part]
            _register(owner, last, array, fixed)
        except (KeyError, TypeError):  # a name that no attribute can have
            whole = f"tensor{len(self._tensors)}"
            _register(self, whole, array, fixed)
        return whole

    def _unknown(self, node: Any) -> PFNMError:
        kind = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        return PFNMError(
            f"{self._file}: node {node.name or node.output[0]!r} ({kind}) is no operator pfnm "
            "knows in a convolutional network (docs/modules.md lists them); export the network "
            "without it, or fuse the PyTorch modules themselves"
        )

    def forward(self, *inputs: Tensor) -> Any:
        """What the graph gives: a tensor, or a tuple of them."""
        values: dict[str, Any] = dict(zip(self._inputs, inputs, strict=True))
        values |= self._constants
        for name, place in self._tensors.items():
            values[name] = _reached(self, place)
        for node in self._nodes:
            missing = [name for name in node.inputs if name and name not in values]
            if missing:
                raise node.refuse(f"takes {missing[0]!r}, which nothing gives")
            try:
                result = OPERATORS[node.operator](
                    node, *(values[name] if name else None for name in node.inputs)
                )
            except (PFNMError, RuntimeError):  # what sizes say that do not fit is PyTorch's own
                raise
            except Exception as error:
                raise node.refuse("has inputs or attributes pfnm cannot use") from error
            several = result if isinstance(result, tuple) else (result,)
            values.update(zip(node.outputs, several, strict=False))
        outputs = tuple(values[name] for name in self._outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def example(self) -> tuple[Tensor, ...]:
        """Inputs of the shapes that the graph states, with two rows; an error if it does not."""
        from onnx import TensorProto, ValueInfoProto

        generator = torch.Generator().manual_seed(EXAMPLE_SEED)
        kinds = {TensorProto.FLOAT: torch.float32, TensorProto.DOUBLE: torch.float64}
        result = []
        for own in map(ValueInfoProto.FromString, self._inputs.values()):
            lengths, kind = _lengths(own), kinds.get(own.type.tensor_type.elem_type)
            if kind is None or None in lengths[1:] or len(lengths) < 2:
                raise PFNMError(
                    f"{self._file}: its input {own.name!r} states no shape of floating-point "
                    "numbers beside the rows; give example inputs (example_inputs=(x,), --example "
                    "2,3,32,32)"
                )
            shape = [EXAMPLE_ROWS, *(length or 1 for length in lengths[1:])]
            result.append(torch.randn(shape, generator=generator, dtype=kind))
        return tuple(result)

    def written(self, inputs: tuple[Any, ...], notes: Mapping[str, Any]) -> bytes:
        """The graph with this module's tensors, checked, and run where onnxruntime is there."""
        import onnx
        from onnx import numpy_helper

        with torch.no_grad():
            expected = self.eval()(*inputs)  # and nodes know how many groups, and what flattens
        model = onnx.ModelProto.FromString(self._skeleton)
        graph = model.graph
        arrays = dict(self._kept)
        for name, place in self._tensors.items():
            arrays[name] = _reached(self, place).detach().numpy()
        for own, node in zip(graph.node, self._nodes, strict=True):
            if node.groups is not None:
                _set(own, "group", node.groups)
            if node.flattened is not None and own.input[1] in self._kept:
                own.input[1] = f"pfnm.flatten{node.flattened}"
                arrays[own.input[1]] = np.array([0] * node.flattened + [-1])
                _set(own, "allowzero", 0)
        used = {name for own in graph.node for name in own.input}
        graph.initializer.extend(
            numpy_helper.from_array(np.asarray(array, order="C"), name)
            for name, array in arrays.items()
            if name in used
        )
        onnx.helper.set_model_props(model, {"pfnm": json.dumps(notes)})
        data: bytes = model.SerializeToString()
        onnx.checker.check_model(data, full_check=True)
        first = expected if isinstance(expected, Tensor) else expected[0]
        self._check(data, inputs, first)
        return data

    def _check(self, data: bytes, inputs: tuple[Any, ...], expected: Tensor) -> None:
        """An error unless onnxruntime, where it is installed, computes from it what we do."""
        try:
            import onnxruntime
        except ImportError:
            return
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4  # nothing but what is fatal
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        stated = session.get_inputs()[0].shape[0]
        rows = stated if isinstance(stated, int) else EXAMPLE_ROWS
        count = len(inputs[0])
        chosen = np.arange(rows) % count
        given = {
            own.name: value.numpy()[chosen]
            for own, value in zip(session.get_inputs(), inputs, strict=True)
        }
        found = torch.from_numpy(session.run(None, given)[0])
        wanted = expected[chosen] if len(expected) == count else expected
        if distance(found, wanted) > TOLERANCE:
            raise PFNMError(
                f"{self._file}: onnxruntime computes other values from the fused graph than the "
                "fused network gives; save the tensors (.safetensors, .pt), and please report it"
            )


def read_module(path: Path, first: OnnxModule | None) -> OnnxModule:
    """The graph of a file; its tensors are called as those of the first site, in order of use."""
    model, _ = loaded(path, str(path))
    return OnnxModule(model, str(path), None if first is None else first._names)


def _stored(graph: Any, file: str) -> dict[str, Any]:
    """The tensors that a graph holds, by name; nodes that only state one are taken out."""
    from onnx.numpy_helper import to_array

    stored = {own.name: to_array(own) for own in graph.initializer}
    if len(stored) < len(graph.initializer):
        raise PFNMError(f"{file}: a tensor stands twice in the graph; export it again")
    left = []
    for node in graph.node:
        if node.op_type != "Constant" or node.domain not in OUR_DOMAINS:
            left.append(node)
            continue
        ((kind, value),) = attributes_of(node).items()
        stored[node.output[0]] = to_array(value) if kind == "value" else np.array(value)
    copies = [type(own).FromString(own.SerializeToString()) for own in left]
    del graph.node[:]
    graph.node.extend(copies)
    return stored


def _node(own: Any, file: str, rows: int | None, opset: int) -> Node:
    name, puts = own.name or own.output[0], (tuple(own.input), tuple(own.output))
    return Node(own.op_type, name, *puts, attributes_of(own), file, rows, opset)


def _lengths(own: Any) -> list[int | None]:
    """The lengths of an input's axes, where they are stated."""
    return [int(dim.dim_value) or None for dim in own.type.tensor_type.shape.dim]


def _register(owner: nn.Module, name: str, array: Any, fixed: bool) -> None:
    values = torch.from_numpy(np.array(array))
    if fixed:
        owner.register_buffer(name, values)
    else:
        owner.register_parameter(name, nn.Parameter(values))


def _reached(module: nn.Module, place: str) -> Tensor:
    *path, last = place.split(".")
    owner: Any = module
    for part in path:
        owner = owner._modules[part]
    found: Tensor = getattr(owner, last)
    return found


def _set(node: Any, attribute: str, value: int) -> None:
    """Gives a node of a graph an attribute."""
    from onnx import helper

    kept = [own for own in node.attribute if own.name != attribute]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(attribute, value)])
