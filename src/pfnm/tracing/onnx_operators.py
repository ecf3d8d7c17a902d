"""The operators of ONNX that convolutional networks are made of, each as PyTorch computes it.

A value is a tensor, or a numpy array where it is known without the network's inputs: lengths of
axes, and plain numbers. Whatever an operator may say and we do not do is refused by `refuse`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from pfnm.errors import PFNMError
from pfnm.formats.onnx_shapes import counted

LATEST = 2**31  # opset, where none is told
SOFTMAX_OF_ONE_AXIS = 13  # the first opset in which it runs over one axis, and no more
SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875  # ONNX's defaults

Value = Any
"""A tensor, or a numpy array."""


@dataclass
class Node:
    """An operator of a graph, and what is to be written back of it at other widths."""

    operator: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    where: str = ""
    """The file, for messages."""
    rows: int | None = None
    """How many rows the graph says it takes at a time."""
    opset: int = LATEST
    """The version of ONNX's operators."""
    groups: int | None = field(default=None, compare=False)
    """Of a convolution: in how many it was done last."""
    flattened: int | None = field(default=None, compare=False)
    """Of a Reshape that only flattened: from which axis on."""

    def get(self, attribute: str, default: Any = None) -> Any:
        """An attribute, or what it is where it is not there."""
        found = self.attributes.get(attribute, default)
        return found.decode() if isinstance(found, bytes) else found

    def refuse(self, what: str) -> PFNMError:
        """The error that names the operator."""
        return PFNMError(
            f"{self.where}: node {self.name!r} ({self.operator}) {what}; fuse the PyTorch modules "
            "themselves, or export the network without it"
        )

    def only(self, **attributes: Any) -> None:
        """An error where one of these attributes is there with another value."""
        for name, value in attributes.items():
            if self.get(name, value) != value:
                raise self.refuse(f"has {name}={self.get(name)}, expected {value}")


Operator = Callable[..., Value]
OPERATORS: dict[str, Operator] = {}
"""Each takes its node and the values that enter, and gives what leaves (a tuple if several do)."""


def operator(*names: str) -> Callable[[Operator], Operator]:
    """Puts a function into the table."""

    def put(function: Operator) -> Operator:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return put


def tensor(node: Node, value: Value) -> Tensor:
    """A value that has to be a tensor."""
    if not isinstance(value, Tensor):
        raise node.refuse("takes a value that does not come from the network's inputs")
    return value


def number(value: Value, default: float | None = None) -> float | None:
    """A plain number."""
    return default if value is None else float(np.asarray(value).reshape(()))


def whole(values: Value) -> list[int]:
    """Lengths, axes and the like."""
    return [int(value) for value in np.ravel(values)]


# -- one number at a time ------------------------------------------------------------------------

UNARY: dict[str, Callable[[Node, Tensor], Tensor]] = {
    "Relu": lambda node, x: torch.relu(x),
    "Sigmoid": lambda node, x: torch.sigmoid(x),
    "Tanh": lambda node, x: torch.tanh(x),
    "Softplus": lambda node, x: functional.softplus(x),
    "Softsign": lambda node, x: functional.softsign(x),
    "Mish": lambda node, x: functional.mish(x),
    "HardSwish": lambda node, x: functional.hardswish(x),
    "Selu": lambda node, x: (
        node.get("gamma", SELU_GAMMA) * functional.elu(x, node.get("alpha", SELU_ALPHA))
    ),
    "Elu": lambda node, x: functional.elu(x, node.get("alpha", 1.0)),
    "Celu": lambda node, x: functional.celu(x, node.get("alpha", 1.0)),
    "LeakyRelu": lambda node, x: functional.leaky_relu(x, node.get("alpha", 0.01)),
    "Gelu": lambda node, x: functional.gelu(x, approximate=node.get("approximate", "none")),
    "HardSigmoid": lambda node, x: torch.clamp(
        x * node.get("alpha", 0.2) + node.get("beta", 0.5), 0.0, 1.0
    ),
    "Abs": lambda node, x: x.abs(),
    "Neg": lambda node, x: -x,
    "Exp": lambda node, x: x.exp(),
    "Log": lambda node, x: x.log(),
    "Sqrt": lambda node, x: x.sqrt(),
    "Erf": lambda node, x: torch.erf(x),
    "Reciprocal": lambda node, x: x.reciprocal(),
}


@operator(*UNARY)
def _unary(node: Node, x: Value) -> Value:
    return UNARY[node.operator](node, tensor(node, x))


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: a / b,
    "Pow": lambda a, b: a**b,
}


@operator(*BINARY)
def _binary(node: Node, a: Value, b: Value) -> Value:
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        integers = np.asarray(a).dtype.kind == "i" and node.operator == "Div"
        return np.asarray(a) // np.asarray(b) if integers else BINARY[node.operator](a, b)
    return BINARY[node.operator](*(_operand(node, own) for own in (a, b)))


def _operand(node: Node, value: Value) -> Any:
    if isinstance(value, Tensor):
        return value
    if np.size(value) != 1:
        raise node.refuse("takes lengths of axes as numbers")
    return number(value)


@operator("Clip")
def _clip(node: Node, x: Value, low: Value = None, high: Value = None) -> Value:
    lowest, highest = number(low, node.get("min")), number(high, node.get("max"))
    return torch.clamp(tensor(node, x), lowest, highest)


@operator("PRelu")
def _prelu(node: Node, x: Value, slope: Value) -> Value:
    x, slope = tensor(node, x), tensor(node, slope)
    each = (x.shape[1], *[1] * (x.dim() - 2))
    if slope.numel() != 1 and tuple(slope.shape) not in (each, (1, *each)):
        raise node.refuse(f"has slopes of shape {tuple(slope.shape)}, expected one a channel")
    return functional.prelu(x, slope.flatten())


@operator("Identity", "Dropout")
def _identity(node: Node, x: Value, *training: Value) -> Value:
    if len(training) > 1 and training[1] is not None and np.any(training[1]):
        raise node.refuse("drops units at random, as in training")
    return x


@operator("Cast")
def _cast(node: Node, x: Value, *_: Value) -> Value:
    from onnx.helper import tensor_dtype_to_np_dtype

    kind = tensor_dtype_to_np_dtype(node.get("to"))
    if isinstance(x, Tensor):
        if x.dtype != torch.from_numpy(np.empty(0, kind)).dtype:
            raise node.refuse(f"changes numbers to {kind}")
        return x
    return np.asarray(x).astype(kind)


# -- convolutions and pools ----------------------------------------------------------------------


def _lengths(node: Node, rank: int, x: Tensor, kernel: Sequence[int]) -> tuple[Any, ...]:
    """Strides, dilations and padding at both ends of every axis, as the node says."""
    strides = node.get("strides") or [1] * rank
    dilations = node.get("dilations") or [1] * rank
    pads = node.get("pads") or [0] * (2 * rank)
    kind = node.get("auto_pad", "NOTSET")
    before, after = list(pads[:rank]), list(pads[rank:])
    if kind in ("SAME_UPPER", "SAME_LOWER"):
        for axis in range(rank):
            length, step = x.shape[2 + axis], strides[axis]
            reach = dilations[axis] * (kernel[axis] - 1) + 1
            total = max((-(-length // step) - 1) * step + reach - length, 0)
            half = total // 2
            before[axis], after[axis] = half, total - half
            if kind == "SAME_LOWER":
                before[axis], after[axis] = after[axis], before[axis]
    elif kind not in ("NOTSET", "VALID"):
        raise node.refuse(f"has auto_pad={kind}")
    return list(strides), list(dilations), before, after


def _padded(
    x: Tensor, before: list[int], after: list[int], value: float
) -> tuple[Tensor, list[int]]:
    """The padding that an operation can do itself; what it cannot is done before it."""
    if before == after:
        return x, before
    ends = [end for pair in zip(before[::-1], after[::-1], strict=True) for end in pair]
    return functional.pad(x, ends, value=value), [0] * len(before)


CONVOLUTIONS = (functional.conv1d, functional.conv2d, functional.conv3d)
TRANSPOSED = (
    functional.conv_transpose1d,
    functional.conv_transpose2d,
    functional.conv_transpose3d,
)


@operator("Conv")
def _convolution(node: Node, x: Value, weight: Value, bias: Value = None) -> Value:
    x, weight = tensor(node, x), tensor(node, weight)
    rank = weight.dim() - 2
    strides, dilations, before, after = _lengths(node, rank, x, weight.shape[2:])
    x, padding = _padded(x, before, after, 0.0)
    node.groups = x.shape[1] // weight.shape[1]
    does: Any = CONVOLUTIONS[rank - 1]
    result: Tensor = does(x, weight, bias, strides, padding, dilations, node.groups)
    return result


@operator("ConvTranspose")
def _transposed(node: Node, x: Value, weight: Value, bias: Value = None) -> Value:
    node.only(auto_pad="NOTSET", output_shape=None)
    x, weight = tensor(node, x), tensor(node, weight)
    rank, groups = weight.dim() - 2, node.get("group", 1)
    strides, dilations, before, after = _lengths(node, rank, x, weight.shape[2:])
    if before != after:
        raise node.refuse("cuts off more at one end than at the other")
    if groups > 1:
        groups = x.shape[1] if weight.shape[1] == 1 else groups
    node.groups = groups
    more = node.get("output_padding") or [0] * rank
    does: Any = TRANSPOSED[rank - 1]
    result: Tensor = does(x, weight, bias, strides, before, more, groups, dilations)
    return result


@operator("MaxPool")
def _max_pool(node: Node, x: Value) -> Value:
    node.only(storage_order=0)
    x, kernel = tensor(node, x), list(node.get("kernel_shape"))
    strides, dilations, before, after = _lengths(node, len(kernel), x, kernel)
    x, padding = _padded(x, before, after, float("-inf"))
    does: Any = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)
    ceil = bool(node.get("ceil_mode", 0))
    result: Tensor = does[len(kernel) - 1](x, kernel, strides, padding, dilations, ceil_mode=ceil)
    return result


@operator("AveragePool")
def _average_pool(node: Node, x: Value) -> Value:
    x, kernel = tensor(node, x), list(node.get("kernel_shape"))
    strides, dilations, before, after = _lengths(node, len(kernel), x, kernel)
    counted_too = bool(node.get("count_include_pad", 0))
    if set(dilations) != {1} or (before != after and not counted_too):
        raise node.refuse("pools with holes, or pads one end more than the other")
    x, padding = _padded(x, before, after, 0.0)
    does: Any = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)
    ceil = bool(node.get("ceil_mode", 0))
    result: Tensor = does[len(kernel) - 1](x, kernel, strides, padding, ceil, counted_too)
    return result


@operator("GlobalAveragePool")
def _global_average(node: Node, x: Value) -> Value:
    x = tensor(node, x)
    return x.mean(dim=list(range(2, x.dim())), keepdim=True)


@operator("GlobalMaxPool")
def _global_maximum(node: Node, x: Value) -> Value:
    x = tensor(node, x)
    return x.amax(dim=list(range(2, x.dim())), keepdim=True)


@operator("Resize", "Upsample")
def _resize(node: Node, x: Value, *others: Value) -> Value:
    """Nearest, by whole factors: anything else has too many conventions."""
    x, scales = tensor(node, x), others[-1] if len(others) < 3 else others[1]
    node.only(mode="nearest", antialias=0)
    if len(others) == 3 and others[2] is not None and np.size(others[2]):
        scales = np.asarray(others[2]) / np.asarray(x.shape)
    factors = [float(value) for value in np.ravel(scales)]
    resize = node.operator == "Resize" and len(others) > 1  # Upsample and the first Resize: floor
    where = node.get("coordinate_transformation_mode", "half_pixel" if resize else "asymmetric")
    nearest = node.get("nearest_mode", "round_prefer_floor" if resize else "floor")
    plain = (where, nearest) == ("asymmetric", "floor") or (
        where == "half_pixel" and nearest.startswith("round_prefer")
    )
    if not plain or factors[:2] != [1, 1] or any(f != int(f) or f < 1 for f in factors):
        raise node.refuse("resizes otherwise than each point to a whole number of points")
    return functional.interpolate(x, scale_factor=factors[2:], mode="nearest")


@operator("Pad")
def _pad(
    node: Node, x: Value, pads: Value = None, value: Value = None, axes: Value = None
) -> Value:
    x, ends = tensor(node, x), whole(node.get("pads") if pads is None else pads)
    node.only(mode="constant")
    if axes is not None:
        raise node.refuse("names axes")
    both = [end for axis in range(x.dim()) for end in (ends[axis], ends[axis + x.dim()])]
    pairs = [both[2 * axis : 2 * axis + 2] for axis in reversed(range(x.dim()))]
    while pairs and pairs[-1] == [0, 0]:
        pairs.pop()
    filled = number(value, node.get("value", 0.0)) or 0.0
    return functional.pad(x, [end for pair in pairs for end in pair], value=filled) if pairs else x


# -- norms ---------------------------------------------------------------------------------------


@operator("BatchNormalization")
def _batch_norm(node: Node, x: Value, scale: Value, bias: Value, mean: Value, var: Value) -> Value:
    node.only(training_mode=0, spatial=1)
    epsilon = node.get("epsilon", 1e-5)
    return functional.batch_norm(tensor(node, x), mean, var, scale, bias, False, 0.0, epsilon)


@operator("InstanceNormalization")
def _instance_norm(node: Node, x: Value, scale: Value, bias: Value) -> Value:
    epsilon = node.get("epsilon", 1e-5)
    if not isinstance(scale, Tensor) or not isinstance(bias, Tensor):
        raise node.refuse("has no scale or bias of its own")
    return functional.instance_norm(tensor(node, x), weight=scale, bias=bias, eps=epsilon)


@operator("LayerNormalization")
def _layer_norm(node: Node, x: Value, scale: Value, bias: Value = None) -> Value:
    x = tensor(node, x)
    axis = node.get("axis", -1)
    return functional.layer_norm(x, x.shape[axis:], scale, bias, node.get("epsilon", 1e-5))


@operator("GroupNormalization")
def _group_norm(node: Node, x: Value, scale: Value, bias: Value) -> Value:
    groups = node.get("num_groups")
    return functional.group_norm(tensor(node, x), groups, scale, bias, node.get("epsilon", 1e-5))


# -- products and reductions ---------------------------------------------------------------------


@operator("Gemm")
def _gemm(node: Node, x: Value, weight: Value, bias: Value = None) -> Value:
    node.only(transA=0)
    x, weight = tensor(node, x), tensor(node, weight)
    if (alpha := node.get("alpha", 1.0)) != 1:
        weight = weight * alpha
    if bias is not None and (beta := node.get("beta", 1.0)) != 1:
        bias = bias * beta
    if node.get("transB", 0) and (bias is None or (isinstance(bias, Tensor) and bias.dim() == 1)):
        return functional.linear(x, weight, bias)
    result = x @ (weight.T if node.get("transB", 0) else weight)
    return result if bias is None else result + _operand(node, bias)


@operator("MatMul")
def _product(node: Node, a: Value, b: Value) -> Value:
    return torch.matmul(tensor(node, a), tensor(node, b))


@operator("ReduceMean", "ReduceMax", "ReduceSum")
def _reduction(node: Node, x: Value, axes: Value = None) -> Value:
    if not isinstance(x, Tensor):
        raise node.refuse("reduces lengths of axes")
    told = node.get("axes") if axes is None else axes
    if told is None or not np.size(told):
        raise node.refuse("reduces all axes, rows included")
    does: Any = {"ReduceMean": torch.mean, "ReduceMax": torch.amax, "ReduceSum": torch.sum}
    return does[node.operator](x, dim=whole(told), keepdim=bool(node.get("keepdims", 1)))


@operator("Softmax", "LogSoftmax")
def _softmax(node: Node, x: Value) -> Value:
    if node.opset < SOFTMAX_OF_ONE_AXIS and tensor(node, x).dim() > 2:
        raise node.refuse("is of an opset below 13, which flattens axes first")
    does = functional.softmax if node.operator == "Softmax" else functional.log_softmax
    return does(tensor(node, x), dim=node.get("axis", -1))


# -- shapes --------------------------------------------------------------------------------------


@operator("Flatten")
def _flatten(node: Node, x: Value) -> Value:
    x, axis = tensor(node, x), node.get("axis", 1)
    if axis % x.dim() != 1:
        raise node.refuse(f"flattens from axis {axis} on, expected 1")
    return x.flatten(1)


@operator("Reshape")
def _reshape(node: Node, x: Value, target: Value) -> Value:
    if not isinstance(x, Tensor):
        return np.reshape(x, whole(target))
    shape, lengths = tuple(x.shape), whole(target)
    if not node.get("allowzero", 0):
        lengths = [shape[axis] if n == 0 else n for axis, n in enumerate(lengths)]
    if lengths and node.rows is not None and lengths[0] == node.rows:
        lengths[0] = shape[0]  # however many rows there are
    known = prod(n for n in lengths if n != -1)
    for axis in range(1, x.dim()):
        # What only flattens does so at any width, whatever number stands in the graph.
        if tuple(lengths[:-1]) in (shape[:axis], (-1, *shape[1:axis])) and (
            lengths[-1] in (-1, prod(shape[axis:])) or node.flattened == axis
        ):
            node.flattened = axis
            return x.flatten(axis)
    if known == 0:
        raise node.refuse("makes an empty tensor")
    return x.reshape(lengths)


@operator("Squeeze", "Unsqueeze")
def _squeeze(node: Node, x: Value, axes: Value = None) -> Value:
    if not isinstance(x, Tensor):
        return counted(node.operator, node.attributes, [x])
    told = node.get("axes") if axes is None else axes
    if told is None:
        raise node.refuse("names no axes")
    if node.operator == "Squeeze":
        return x.squeeze(tuple(whole(told)))
    rank = x.dim() + np.size(told)
    for axis in sorted(axis % rank for axis in whole(told)):
        x = x.unsqueeze(axis)
    return x


@operator("Transpose")
def _transpose(node: Node, x: Value) -> Value:
    x = tensor(node, x)
    return x.permute(node.get("perm") or list(reversed(range(x.dim()))))


@operator("Concat")
def _concatenation(node: Node, *parts: Value) -> Value:
    if not any(isinstance(part, Tensor) for part in parts):
        return counted(node.operator, node.attributes, parts)
    return torch.cat([tensor(node, part) for part in parts], dim=node.get("axis"))


@operator("Split")
def _split(node: Node, x: Value, sizes: Value = None) -> tuple[Tensor, ...]:
    x, axis = tensor(node, x), node.get("axis", 0)
    told = node.get("split") if sizes is None else sizes
    count = len(node.outputs)
    equal = told is None or len(set(whole(told))) == 1
    return tuple(x.chunk(count, axis) if equal else x.split(whole(told), axis))


@operator("Shape")
def _shape_of(node: Node, x: Value) -> Value:
    return np.array(tensor(node, x).shape)[node.get("start", 0) : node.get("end")]


@operator("Gather", "Slice", "ReduceProd")
def _picked(node: Node, x: Value, *others: Value) -> Value:
    """Of lengths of axes only, with which graphs compute what a Reshape asks for."""
    result = None
    if not isinstance(x, Tensor):
        result = counted(node.operator, node.attributes, [x, *others])
    if result is None:
        raise node.refuse("picks among numbers of the network")
    return result
