"""How good a network is on labelled data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfnm.core.errors import PFNMError
from pfnm.core.mlp import forward
from pfnm.core.network import OUTPUT, Array, IntArray, Label, Network, Tensor
from pfnm.core.probes import is_classifier

MOST_LISTED = 10  # labels in an error message

Measures = dict[str, Any]


def predict(network: Network, inputs: Array) -> NDArray[Any]:
    """The label of each example; output numbers stand for labels where there are none.

    One sigmoid output says 0 or 1.
    """
    values = _outputs(network, inputs)
    if _is_binary(network):
        return (values[:, 0] > 0).astype(int)
    labels = _labels(network)
    mixed = len({type(label) for label in labels}) > 1  # which numpy would turn into texts
    chosen: NDArray[Any] = np.array(labels, dtype=object if mixed else None)[values.argmax(axis=1)]
    return chosen


def evaluate(network: Network, inputs: Array, targets: NDArray[Any]) -> Measures:
    """Accuracy of a classifier; R2 and mean squared error of a regression.

    Networks with labels, a softmax or sigmoids classify, and so does one with several outputs
    where the targets are whole numbers, one for each example. Targets are labels (examples,) or
    (examples, 1), or zeros and ones (examples, classes). Several sigmoid outputs with the latter
    are measured by `exact_match`, the share of examples with all labels right, and
    `label_accuracy`, the share of labels. The R2 of targets that do not vary is None.
    """
    targets = _one_column(inputs, targets)
    whole = targets.ndim == 1 and targets.dtype.kind in "biuU"
    if _is_binary(network) or (network.output == "sigmoid" and targets.ndim == 2):
        return _sigmoids(network, inputs, targets)
    several = network.sizes[OUTPUT] > 1
    logits = network.output == "identity" and (network.labels is not None or (several and whole))
    if network.output in ("softmax", "sigmoid") or logits:
        return _classes(network, inputs, targets)
    return _regression(network, inputs, targets)


def _one_column(inputs: Tensor, targets: NDArray[Any]) -> NDArray[Any]:
    """Targets as (examples,) where there is one for each example, or an error."""
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.ndim not in (1, 2) or len(targets) != len(inputs):
        raise PFNMError(
            f"the targets have shape {targets.shape} for {len(inputs)} examples; give one row of "
            "targets for each example"
        )
    return targets


def _sigmoids(network: Network, inputs: Array, targets: NDArray[Any]) -> Measures:
    """Each output says yes where its sigmoid is above one half, that is, its logit above zero."""
    said = _outputs(network, inputs) > 0
    wanted = _zeros_and_ones(network, targets.reshape(len(targets), -1))
    right = said == wanted
    if _is_binary(network):
        return {"accuracy": float(right.mean()), "examples": len(wanted)}
    return {
        "exact_match": float(right.all(axis=1).mean()),
        "label_accuracy": float(right.mean()),
        "examples": len(wanted),
    }


def _classes(network: Network, inputs: Array, targets: NDArray[Any]) -> Measures:
    wanted = _places(network, targets)
    accuracy = float((_outputs(network, inputs).argmax(axis=1) == wanted).mean())
    return {"accuracy": accuracy, "examples": len(targets)}


def _places(network: Network, targets: NDArray[Any]) -> IntArray:
    """The output each target belongs to; -1 where there is none."""
    labels = _labels(network)
    if targets.ndim == 2:
        rows = _zeros_and_ones(network, targets)
        if (rows.sum(axis=1) != 1).any():
            raise PFNMError(
                f"{network.name} knows one class for each example, the data has rows with none or "
                "several; give one-hot rows or one label for each example"
            )
        return np.asarray(rows.argmax(axis=1))
    place = {label: number for number, label in enumerate(labels)}
    wanted: IntArray = np.array([place.get(target, -1) for target in targets.tolist()])
    if (wanted < 0).all():
        raise PFNMError(
            f"{network.name} knows the labels {_listed(labels)}, and the data has none of them (it "
            f"has {_listed(np.unique(targets).tolist())}); give the network's labels as the data "
            "has them"
        )
    return wanted


def wanted_outputs(network: Network, inputs: Tensor, targets: NDArray[Any]) -> Tensor:
    """What the network should answer to the inputs, (examples, outputs), to teach it by.

    Of classes that exclude each other: 1 for the right one. Targets as for `evaluate`.
    """
    targets = _one_column(inputs, targets)
    outputs = network.sizes[OUTPUT]
    several = network.output == "sigmoid" and outputs > 1 and targets.ndim == 1
    if is_classifier(network) or several:
        if targets.dtype.kind == "f":
            raise PFNMError(
                f"{network.name} is taken for a classifier, and the targets hold {targets.dtype}; "
                'give labels, or set its output to "values" if it is a regression'
            )
        places = _places(network, targets)
        if (places < 0).any():
            stray = targets[np.argmin(places)]
            raise PFNMError(f"{network.name} does not know the label {stray!s}; leave it out")
        return np.eye(outputs, dtype=np.float32)[places]
    if network.output == "sigmoid":
        return _zeros_and_ones(network, targets.reshape(len(targets), -1)).astype(np.float32)
    values = _values(network, targets)
    if not np.isfinite(values).all():
        raise PFNMError("the targets hold NaN or infinite values; leave such rows out")
    return values.astype(np.float32)


def _regression(network: Network, inputs: Array, targets: NDArray[Any]) -> Measures:
    wanted = _values(network, targets)
    values = _outputs(network, inputs)
    squared = ((values - wanted) ** 2).sum(axis=0)
    spread = ((wanted - wanted.mean(axis=0)) ** 2).sum(axis=0)
    varies = np.ptp(wanted, axis=0) > 0
    return {
        "r2": float(np.mean(1 - squared[varies] / spread[varies])) if varies.any() else None,
        "mean_squared_error": float(squared.mean() / len(wanted)),
        "examples": len(wanted),
    }


def _values(network: Network, targets: NDArray[Any]) -> Array:
    """A regression's targets, (examples, outputs)."""
    if targets.dtype.kind not in "biuf":
        raise PFNMError(
            f"{network.name} has no labels and the targets hold {targets.dtype}, expected numbers; "
            "give the labels of its outputs if it is a classifier"
        )
    wanted: Array = targets.reshape(len(targets), -1).astype(float)
    if wanted.shape[1] != network.sizes[OUTPUT]:
        raise PFNMError(
            f"{network.name} has {network.sizes[OUTPUT]} outputs, the data {wanted.shape[1]} "
            f"targets of {targets.dtype}; give as many, or the labels of its outputs if it is a "
            "classifier"
        )
    return wanted


def _outputs(network: Network, inputs: Array) -> Tensor:
    with np.errstate(all="ignore"):
        values = forward(network, inputs)
    if not np.isfinite(values).all():
        raise PFNMError(
            f"{network.name} makes infinite outputs of these inputs; scale them as for its training"
        )
    return values


def _zeros_and_ones(network: Network, targets: NDArray[Any]) -> NDArray[np.bool_]:
    outputs = network.sizes[OUTPUT]
    if targets.shape[1] != outputs or not np.isin(targets, (0, 1)).all():
        raise PFNMError(
            f"{network.name} has {outputs} outputs that say yes or no, the data targets of shape "
            f"{targets.shape} and type {targets.dtype}; give zeros and ones, one for each output"
        )
    return targets.astype(bool)


def _is_binary(network: Network) -> bool:
    return network.output == "sigmoid" and network.sizes[OUTPUT] == 1


def _labels(network: Network) -> tuple[Label, ...]:
    return network.labels or tuple(range(network.sizes[OUTPUT]))


def _listed(labels: Iterable[Label]) -> str:
    texts = [str(label) for label in labels]
    return ", ".join(texts[:MOST_LISTED]) + (", ..." if len(texts) > MOST_LISTED else "")
