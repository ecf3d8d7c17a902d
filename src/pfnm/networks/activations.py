"""What a hidden unit does to its value: one table, for numpy's arrays and PyTorch's tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

LEAKY_SLOPE = 0.01  # PyTorch's and ONNX's default slope of a leaky ReLU


@dataclass(frozen=True)
class Activation:
    """A function of every value: of numpy's arrays, and its name in torch.nn.functional."""

    of_array: Callable[[Any], Any]
    torch_name: str | None

    def __call__(self, values: Any) -> Any:
        """The function of an array or tensor."""
        if isinstance(values, np.ndarray):
            return self.of_array(values)
        if self.torch_name is None:
            return values
        functional = sys.modules["torch"].nn.functional  # loaded, for the tensor is PyTorch's
        return getattr(functional, self.torch_name)(values)


ACTIVATIONS: Mapping[str, Activation] = {
    "relu": Activation(lambda x: np.maximum(x, 0), "relu"),
    "tanh": Activation(np.tanh, "tanh"),
    "sigmoid": Activation(lambda x: scipy.special.expit(x), "sigmoid"),  # noqa: PLW0108  (loaded late)
    "identity": Activation(lambda x: x, None),
    "leaky_relu": Activation(lambda x: np.where(x > 0, x, LEAKY_SLOPE * x), "leaky_relu"),
    "elu": Activation(lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), "elu"),
    "gelu": Activation(lambda x: x * (1 + scipy.special.erf(x / np.sqrt(2))) / 2, "gelu"),
    "silu": Activation(lambda x: x * scipy.special.expit(x), "silu"),
}
