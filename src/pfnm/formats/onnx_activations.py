"""Activations in ONNX graphs, told by what they compute.

What an activation is called or how an exporter wrote it (SiLU as Sigmoid and Mul) does not matter:
the graph's operators are applied to a few probe numbers, and the activation is the one that makes
the same of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy

from pfnm.networks.activations import ACTIVATIONS
from pfnm.networks.network import Array, Tensor

PROBES: Array = np.linspace(-4, 4, 33)  # where every activation we know differs from the others
PROBE_TOLERANCE = 1e-6  # float32 constants (a slope of 0.01); the two kinds of GELU differ by more

GELU_CUBIC = 0.044715  # of the usual approximation

ELEMENTWISE: Mapping[str, Callable[..., Any]] = {
    "Relu": lambda _, x: np.maximum(x, 0),
    "Tanh": lambda _, x: np.tanh(x),
    "Sigmoid": lambda _, x: scipy.special.expit(x),
    "LeakyRelu": lambda a, x: np.where(x > 0, x, a.get("alpha", 0.01) * x),
    "Elu": lambda a, x: np.where(x > 0, x, a.get("alpha", 1.0) * np.expm1(np.minimum(x, 0))),
    "Gelu": lambda a, x: gelu(x, a.get("approximate", b"none")),
    "Swish": lambda a, x: x * scipy.special.expit(a.get("alpha", 1.0) * x),
    "Erf": lambda _, x: scipy.special.erf(x),
    "Exp": lambda _, x: np.exp(x),
    "Neg": lambda _, x: -x,
    "Pow": lambda _, x, y: np.power(x, y),
    "Add": lambda _, x, y: x + y,
    "Sub": lambda _, x, y: x - y,
    "Mul": lambda _, x, y: x * y,
    "Div": lambda _, x, y: x / y,
    "Max": lambda _, x, y: np.maximum(x, y),
    "Min": lambda _, x, y: np.minimum(x, y),
}


def gelu(x: Array, approximate: bytes) -> Tensor:
    """GELU, or its approximation by tanh, which is another function and will match none of ours."""
    if approximate == b"tanh":
        inner = np.sqrt(2 / np.pi) * (x + GELU_CUBIC * x**3)
        return np.asarray(x * (1 + np.tanh(inner)) / 2)
    return np.asarray(ACTIVATIONS["gelu"](x))


def apply(operator: str, attributes: Mapping[str, Any], arguments: list[Any]) -> Array:
    """The probes after one more operator."""
    with np.errstate(all="ignore"):
        return np.asarray(ELEMENTWISE[operator](attributes, *arguments), dtype=np.float64)


def activation_of(probes: Array) -> str | None:
    """The activation that computes these numbers from the probes, if we know it."""
    for name, activation in ACTIVATIONS.items():
        if (
            np.abs(probes - activation(PROBES)) <= PROBE_TOLERANCE
        ).all():  # never of NaN or infinity
            return name
    return None
