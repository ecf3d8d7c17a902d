"""How good a network is on labelled data."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfnm.core.errors import PFNMError
from pfnm.core.mlp import forward
from pfnm.core.network import OUTPUT, Array, Network


def predict(network: Network, inputs: Array) -> NDArray[Any]:
    """The label of each example; output numbers stand for labels where there are none."""
    labels = network.labels or tuple(range(network.sizes[OUTPUT]))
    chosen: NDArray[Any] = np.asarray(labels)[forward(network, inputs).argmax(axis=1)]
    return chosen


def evaluate(network: Network, inputs: Array, targets: NDArray[Any]) -> dict[str, Any]:
    """Accuracy of a classifier; R2 and mean squared error of a regression.

    Targets of the shape of the outputs, or floating-point ones of a network with one output, make
    it a regression.
    """
    outputs = network.sizes[OUTPUT]
    if targets.ndim == 2 or (outputs == 1 and network.labels is None):
        return _regression(network, inputs, targets)
    labels = network.labels or tuple(range(outputs))
    unknown = set(np.unique(targets).tolist()) - set(labels)
    if len(unknown) == np.unique(targets).size:
        raise PFNMError(
            f"{network.name} knows the labels {', '.join(map(str, labels))}, and the data has none "
            f"of them (it has {', '.join(map(str, sorted(unknown)))})"
        )
    accuracy = float((predict(network, inputs) == targets).mean())
    return {"accuracy": accuracy, "examples": len(targets)}


def _regression(network: Network, inputs: Array, targets: NDArray[Any]) -> dict[str, Any]:
    values = forward(network, inputs)
    wanted = targets.reshape(len(targets), -1).astype(float)
    if wanted.shape != values.shape:
        raise PFNMError(
            f"{network.name} has {values.shape[1]} outputs, the data {wanted.shape[1]} targets"
        )
    squared = ((values - wanted) ** 2).sum(axis=0)
    spread = ((wanted - wanted.mean(axis=0)) ** 2).sum(axis=0)
    return {
        "r2": float(np.mean(1 - squared / spread)),
        "mean_squared_error": float(squared.mean() / len(wanted)),
        "examples": len(wanted),
    }
