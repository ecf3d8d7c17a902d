"""How good a network is on labelled data."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from pfnm import measures
from pfnm.errors import PFNMError, PFNMWarning
from pfnm.fusing.probes import is_classifier
from pfnm.measures import Measures
from pfnm.networks.features import in_columns_of
from pfnm.networks.graph import OUTPUT, IntArray
from pfnm.networks.network import Array, Label, Network, Tensor
from pfnm.networks.predicting import outputs_of
from pfnm.networks.targets import (
    are_classes,
    classes_of,
    is_binary,
    is_whole,
    labels_of,
    one_column,
    refuse_unclear,
    values_of,
    zeros_and_ones,
)

OTHERS = f"for more measures than this, {measures.INSTALL}"


def evaluate(
    network: Network,
    inputs: ArrayLike,
    targets: ArrayLike,
    *,
    per_class: bool = False,
    confusion: bool = False,
) -> Measures:
    """Measures of a classifier or of a regression on labelled data.

    Networks with labels, a softmax or sigmoids classify, and so do several outputs where each
    example has one label. Targets are labels (examples,), or zeros and ones (examples, classes).

    A classifier has `accuracy`, `balanced_accuracy` (the mean recall of the classes in the data),
    `auroc` (each class against the rest, their mean), `log_loss`, `brier_score` (of two classes 0
    to 1, of more 0 to 2, as scikit-learn has it) and `calibration_error` (expected, 15 bins).
    Examples whose label it does not know count as wrong; `unknown_labels` says how many, and
    measures of probabilities leave them out. Several sigmoids with a row of zeros and ones for each
    example have `exact_match` (all right), `label_accuracy` and `auroc`. A regression has `r2`
    (None of targets that do not vary), `mean_squared_error` and `mean_absolute_error`.

    `note` says what was taken for granted. per_class: precision, recall, F1, support and AUROC of
    each class. confusion: how many examples of each class were taken for which. Without
    scikit-learn there is accuracy alone.

    >>> from pfnm.networks.perceptron import mlp
    >>> network = mlp([np.eye(2)], labels=["cat", "dog"])
    >>> evaluate(network, [[1, 0], [0, 1], [0, 2]], ["cat", "dog", "dog"])["accuracy"]
    1.0
    """
    given, wanted = np.asarray(in_columns_of(network, inputs)), np.asarray(targets)
    wanted = one_column(given, wanted)
    if network.output == "sigmoid" and not is_binary(network) and wanted.ndim == 2:
        return _labels(network, given, wanted, per_class=per_class, confusion=confusion)
    if are_classes(network, wanted):
        return _classes(network, given, wanted, per_class=per_class, confusion=confusion)
    if per_class or confusion:
        raise PFNMError(
            f"{network.name} is measured as a regression, which has no classes; leave per class "
            "and confusion out"
        )
    return _regression(network, given, wanted)


def accuracy(network: Network, inputs: ArrayLike, targets: ArrayLike) -> float:
    """The accuracy of a classifier alone; an error for a regression."""
    given = np.asarray(in_columns_of(network, inputs))
    wanted = one_column(given, np.asarray(targets))
    rows = network.output == "sigmoid" and not is_binary(network) and wanted.ndim == 2
    if rows or not are_classes(network, wanted):
        raise PFNMError("this needs a classifier and labels; the network or the data is neither")
    said, _ = _answers(network, given)
    return float((said == classes_of(network, wanted).places).mean())


def _classes(
    network: Network, inputs: Array, targets: NDArray[Any], *, per_class: bool, confusion: bool
) -> Measures:
    measured = measures.available(required=per_class or confusion)
    classes = classes_of(network, targets)
    said, shares = _answers(network, inputs)
    result: Measures = {"accuracy": float((said == classes.places).mean())}
    notes = [] if classes.note is None else [classes.note]
    if measured:
        areas = measures.areas_of(classes.one_hot(shares.shape[1]), shares[classes.known])
        result |= measures.of_classes(classes, said, shares, areas)
    else:
        notes.append(OTHERS)
    names: tuple[Label, ...] = (0, 1) if is_binary(network) else labels_of(network)
    if (said == said[0]).all() and (classes.places != classes.places[0]).any():
        notes.append(
            f"every example is taken for {names[said[0]]}: are the inputs scaled, and in the "
            "order, as for its training?"
        )
    result["examples"] = len(targets)
    if classes.unknown:
        result["unknown_labels"] = int((~classes.known).sum())
    if notes:
        result["note"] = "; ".join(notes)
    if per_class:
        result["classes"] = measures.per_class(names, classes.places, said, areas)
    if confusion:
        result["confusion"] = measures.confusion_of(names, classes, said)
    return result


def _answers(network: Network, inputs: Array) -> tuple[IntArray, Array]:
    """The class the network says, (examples,), and its probabilities (examples, classes).

    Sigmoids of classes that exclude each other are scaled to one, as scikit-learn does with
    one against the rest.
    """
    values = outputs_of(network, inputs).astype(float)
    if is_binary(network):
        return (values[:, 0] > 0).astype(np.intp), scipy.special.expit(
            np.column_stack([-values, values])
        )
    said = values.argmax(axis=1)
    shares: Array = scipy.special.softmax(
        scipy.special.log_expit(values) if network.output == "sigmoid" else values, axis=1
    )
    return said, shares


def _labels(
    network: Network, inputs: Array, targets: NDArray[Any], *, per_class: bool, confusion: bool
) -> Measures:
    """Each output says yes where its sigmoid is above one half, that is, its logit above zero."""
    if confusion:
        raise PFNMError(
            f"{network.name} has labels of their own, which are not taken for each other; leave "
            "confusion out"
        )
    measured = measures.available(required=per_class)
    wanted = zeros_and_ones(network, targets)
    values = outputs_of(network, inputs)
    right = (values > 0) == wanted
    result: Measures = {
        "exact_match": float(right.all(axis=1).mean()),
        "label_accuracy": float(right.mean()),
        "examples": len(wanted),
    }
    if not measured:
        return {**result, "note": OTHERS}
    areas = measures.areas_of(wanted, values)
    result["auroc"] = measures.mean_area(areas)
    if per_class:
        result["classes"] = measures.per_class(labels_of(network), wanted, values > 0, areas)
    return result


def _regression(network: Network, inputs: Array, targets: NDArray[Any]) -> Measures:
    wanted = values_of(network, targets)
    values = outputs_of(network, inputs)
    squared = ((values - wanted) ** 2).sum(axis=0)
    spread = ((wanted - wanted.mean(axis=0)) ** 2).sum(axis=0)
    varies = np.ptp(wanted, axis=0) > 0
    return {
        "r2": float(np.mean(1 - squared[varies] / spread[varies])) if varies.any() else None,
        "mean_squared_error": float(squared.mean() / len(wanted)),
        "mean_absolute_error": float(np.abs(values - wanted).mean()),
        "examples": len(wanted),
    }


def wanted_outputs(network: Network, inputs: Tensor, targets: NDArray[Any]) -> Tensor:
    """What the network should answer to the inputs, (examples, outputs), to teach it by.

    Of classes that exclude each other: 1 for the right one. Targets as for `evaluate`.
    """
    targets = one_column(inputs, targets)
    outputs = network.sizes[OUTPUT]
    several = network.output == "sigmoid" and outputs > 1 and targets.ndim == 1
    if is_classifier(network) or several or is_binary(network):
        if targets.ndim == 1 and not is_whole(targets):
            raise PFNMError(
                f"{network.name} is taken for a classifier, and the targets hold {targets.dtype}; "
                'give labels, or set its output to "values" if it is a regression'
            )
        classes = classes_of(network, targets)
        if classes.unknown:
            raise PFNMError(
                f"{network.name} does not know the label {classes.unknown[0]!s}; leave it out"
            )
        if classes.note is not None:
            warnings.warn(f"{network.name}: {classes.note}", PFNMWarning, stacklevel=2)
        wanted = np.eye(2)[:, 1:] if is_binary(network) else np.eye(outputs)
        return wanted.astype(np.float32)[classes.places]
    if network.output == "sigmoid":
        return zeros_and_ones(network, targets).astype(np.float32)
    refuse_unclear(network, targets)
    return values_of(network, targets).astype(np.float32)
