"""Measures of classifiers: scikit-learn's, imported when they are asked for."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfnm.errors import PFNMError
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array, BoolArray, Label
from pfnm.networks.targets import Classes

BINS = 15  # of the calibration error: as many as in Guo et al. (2017), who made it usual
INSTALL = "pip install 'pfnm[sklearn]'"

Measures = dict[str, Any]
"""Measures by name, ready for JSON; None where one is not defined."""


def available(*, required: bool = False) -> bool:
    """Whether scikit-learn is installed; an error if it is required and is not."""
    installed = find_spec("sklearn") is not None
    if required and not installed:
        raise PFNMError(
            f"measures per class and confusion need scikit-learn, which is not installed; {INSTALL}"
        )
    return installed


def of_classes(classes: Classes, said: IntArray, shares: Array, areas: Array) -> Measures:
    """Measures of the classes said (examples,) and their probabilities (examples, classes).

    Those of probabilities are over the examples whose label the network knows. areas: under each
    class's ROC curve, from `areas_of`.
    """
    from sklearn import metrics

    places, known = classes.places[classes.known], shares[classes.known]
    count = shares.shape[1]
    # The mean recall is the balanced accuracy, and does not warn of classes that are missing.
    recall = metrics.recall_score(
        classes.places, said, labels=np.unique(classes.places), average="macro", zero_division=0
    )
    # Of two classes once, of more both ways, as scikit-learn counts from its version 1.7.
    squares = metrics.mean_squared_error(classes.one_hot(count), known, multioutput="raw_values")
    return {
        "balanced_accuracy": float(recall),
        "auroc": mean_area(areas),
        "log_loss": float(metrics.log_loss(places, known, labels=range(count)))
        if count > 1
        else None,
        "brier_score": float(squares.sum() / (2 if count == 2 else 1)),
        "calibration_error": calibration_error(known, places),
    }


def areas_of(wanted: BoolArray, scores: NDArray[Any]) -> Array:
    """The area under each column's ROC curve, (columns,); NaN where all or no rows are wanted."""
    from sklearn.metrics import roc_auc_score

    areas = np.full(wanted.shape[1], np.nan)
    for k in np.flatnonzero(wanted.any(axis=0) & ~wanted.all(axis=0)):
        areas[k] = roc_auc_score(wanted[:, k], scores[:, k])
    return areas


def mean_area(areas: Array) -> float | None:
    """The mean of the areas that are defined."""
    return None if np.isnan(areas).all() else float(np.nanmean(areas))


def calibration_error(shares: Array, places: IntArray) -> float:
    """The expected calibration error: |how often right - how sure|, averaged over examples.

    shares: probabilities (examples, classes); places: the right class. Examples are put into 15
    bins of equal width by their largest probability, and compared bin by bin. Our own, for
    scikit-learn has none.
    """
    sure = shares.max(axis=1)
    right = shares.argmax(axis=1) == places
    bins = np.minimum((sure * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, weights=right - sure, minlength=BINS)
    return float(np.abs(gaps).sum() / len(sure))


def per_class(
    names: tuple[Label, ...], wanted: NDArray[Any], said: NDArray[Any], areas: Array
) -> list[Measures]:
    """Precision, recall, F1, support and AUROC of each class the network knows."""
    from sklearn.metrics import precision_recall_fscore_support

    scores = precision_recall_fscore_support(
        wanted, said, labels=range(len(names)), average=None, zero_division=0
    )
    return [
        {
            "label": name,
            "precision": float(precision),
            "recall": float(recall),
            "f1": float(f1),
            "support": int(support),
            "auroc": None if np.isnan(area) else float(area),
        }
        for name, precision, recall, f1, support, area in zip(names, *scores, areas, strict=True)
    ]


def confusion_of(names: tuple[Label, ...], classes: Classes, said: IntArray) -> Measures:
    """A row for each label, those the network does not know last; a column for each answer."""
    from sklearn.metrics import confusion_matrix

    codes = [*range(len(names)), *(-1 - number for number in range(len(classes.unknown)))]
    counts = confusion_matrix(classes.places, said, labels=codes)
    return {
        "labels": [*names, *classes.unknown],
        "answers": list(names),
        "counts": counts[:, : len(names)].tolist(),
    }
