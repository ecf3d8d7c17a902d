"""What stands before the MLP in a scikit-learn pipeline: one map of each column, and its scaling.

Every scaler here changes each column by itself, x -> factor * x + shift, and so does a chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy

from pfnm.errors import PFNMError
from pfnm.networks.network import Scaling
from pfnm.networks.scaling import RANGE_IN_DEVIATIONS, Affine, about, between

SCALERS = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler")

Step = tuple[str, Any]
"""The name of a pipeline's step, and the estimator that it is."""


def flattened(estimator: Any, name: str, step: str = "") -> list[Step]:
    """The steps of an estimator, pipelines and searches within it opened, those that do nothing
    left out; an estimator that is neither is its own only step."""
    from sklearn.model_selection._search import BaseSearchCV
    from sklearn.pipeline import Pipeline

    if isinstance(estimator, Pipeline):
        return [
            inner
            for step_name, part in estimator.steps
            if part is not None and part != "passthrough"
            for inner in flattened(part, name, step_name)
        ]
    if isinstance(estimator, BaseSearchCV):
        if not hasattr(estimator, "best_estimator_"):
            raise PFNMError(
                f"{name}: this {type(estimator).__name__} has no best estimator; fit it first, "
                "with refit=True"
            )
        return flattened(estimator.best_estimator_, name, step)
    return [(step, estimator)]


def scaled_by(steps: Sequence[Step], inputs: int, name: str) -> tuple[Affine, Scaling | None]:
    """What the steps before an MLP of so many inputs do to its columns, and what they tell of them.

    The first scaler that knows the range of its columns tells it. Where none does (a StandardScaler
    without deviations, say), the MLP's own inputs are taken to vary about 0 by about 1.
    """
    together, scaling, scalers = Affine(np.ones(inputs), np.zeros(inputs)), None, 0
    for step_name, step in steps:
        if type(step).__name__ == "FunctionTransformer" and step.func is None:
            continue
        check_scaler(step_name, step, inputs, name)
        scalers += 1
        if scaling is None:
            scaling = before(together, told_by(step))
        together = together.then(map_of(step))
    return together, together.scaling if scalers and scaling is None else scaling


def check_scaler(step_name: str, step: Any, inputs: int, name: str) -> None:
    """An error unless the step is a fitted scaler that changes each column by itself."""
    kind = type(step).__name__
    # By the class itself: one derived from a scaler may do anything.
    if kind not in SCALERS or not type(step).__module__.startswith("sklearn.preprocessing."):
        what = "a FunctionTransformer with a function" if kind == "FunctionTransformer" else kind
        raise PFNMError(
            f"{name}: step {step_name!r} is {what}, which cannot be folded into a network (only "
            f"{', '.join(SCALERS)} can); apply it to the data beforehand, the same at every site"
        )
    if not hasattr(step, "scale_"):
        raise PFNMError(
            f"{name}: step {step_name!r} ({kind}) is not fitted; fit the pipeline first"
        )
    if getattr(step, "clip", False):
        raise PFNMError(
            f"{name}: step {step_name!r} is a {kind} that clips, which cannot be folded into a "
            "network; set_params(clip=False) on it if the data stay within its range"
        )
    if step.n_features_in_ != inputs:
        raise PFNMError(
            f"{name}: step {step_name!r} ({kind}) is fitted to {step.n_features_in_} columns, the "
            f"MLP takes {inputs}; fit the pipeline as a whole"
        )


def map_of(scaler: Any) -> Affine:
    """What a fitted scaler does to its columns."""
    kind, inputs = type(scaler).__name__, scaler.n_features_in_
    if kind == "MinMaxScaler":
        return Affine(scaler.scale_, scaler.min_)
    factor = np.ones(inputs) if scaler.scale_ is None else 1 / scaler.scale_
    centre = None
    if kind == "StandardScaler" and scaler.with_mean:
        centre = scaler.mean_
    elif kind == "RobustScaler" and scaler.with_centering:
        centre = scaler.center_
    return Affine(factor, np.zeros(inputs) if centre is None else -centre * factor)


def told_by(scaler: Any) -> Scaling | None:
    """What a fitted scaler knows of its columns, if that is where they lie and how they vary.

    A RobustScaler knows two quantiles, by default the quarters: their distance in deviations of a
    normal column makes it a deviation, and the range is three of them as with a StandardScaler
    (2.2 times scale_ to each side, by default).
    """
    match type(scaler).__name__:
        case "StandardScaler" if scaler.scale_ is not None and scaler.mean_ is not None:
            # A column that hardly varies has scale 1 there, whatever its variance.
            steady = scaler.scale_ != np.sqrt(scaler.var_)
            return about(scaler.mean_, np.where(steady, 0.0, scaler.scale_))
        case "RobustScaler" if scaler.scale_ is not None and scaler.center_ is not None:
            low, high = (scipy.special.ndtri(quantile / 100) for quantile in scaler.quantile_range)
            deviations = high - low if np.isfinite(high - low) else RANGE_IN_DEVIATIONS
            return about(
                scaler.center_, scaler.scale_ / (1 if scaler.unit_variance else deviations)
            )
        case "MinMaxScaler":
            return between(scaler.data_min_, scaler.data_max_)
        case "MaxAbsScaler":
            return between(-scaler.max_abs_, scaler.max_abs_)
    return None


def before(affine: Affine, after: Scaling | None) -> Scaling | None:
    """What is known of the columns after the map, in the units before it (all factors are > 0)."""
    if after is None:
        return None
    centre, low, high = (
        (ends - affine.shift) / affine.factor for ends in (after.centre, after.low, after.high)
    )
    return Scaling(centre, after.scale / affine.factor, low, high)
