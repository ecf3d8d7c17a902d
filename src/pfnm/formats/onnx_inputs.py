"""What an ONNX graph does to its inputs before the first layer: factors and shifts of columns.

skl2onnx writes a StandardScaler, MaxAbsScaler or RobustScaler as a Scaler (or Sub and Div) and a
MinMaxScaler as Mul and Add; a PyTorch module may hold (x - mean) / deviation. None of them tells
the range of the inputs. It is taken to be what is usual: values within 3 deviations
where the graph subtracts first; 0 to 1 where it multiplies first, as a MinMaxScaler and x / 255 do
(-1 to 1 where one number then shifts all columns, as in 2 x - 1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pfnm.networks.network import Array, Scaling
from pfnm.networks.scaling import Affine, about, between

PASSING = {"Cast", "CastLike", "Identity", "Dropout"}
FLATTENING = {"Flatten", "Reshape"}
JOINING = {"Concat", "FeatureVectorizer"}
EPSILON = 1e-5  # ONNX's default, added to the variance by a BatchNormalization
SHIFT, FACTOR = "shift", "factor"
ONE, ZERO = np.array(1.0), np.array(0.0)
NOTHING = Affine(ONE, ZERO)

# What an operator with a constant does, the columns standing first (or second).
STEPS: Mapping[tuple[str, bool], Callable[[Array], tuple[str, Affine]]] = {
    ("Add", True): lambda c: (SHIFT, Affine(ONE, c)),
    ("Add", False): lambda c: (SHIFT, Affine(ONE, c)),
    ("Sub", True): lambda c: (SHIFT, Affine(ONE, -c)),
    ("Sub", False): lambda c: (SHIFT, Affine(-ONE, c)),
    ("Mul", True): lambda c: (FACTOR, Affine(c, ZERO)),
    ("Mul", False): lambda c: (FACTOR, Affine(c, ZERO)),
    ("Div", True): lambda c: (FACTOR, Affine(1 / c, ZERO)),
}


@dataclass(frozen=True, eq=False)
class Columns:
    """Inputs on their way to the first layer.

    names: the graph inputs that they are. shape: of one row, if it is known. affine: what was done
    to them, (*shape) or one number for all. steps: the kinds of steps in which it was done.
    scaling: what the first of these tell.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...] | None
    affine: Affine = NOTHING
    steps: tuple[str, ...] = ()
    scaling: Scaling | None = None

    @property
    def features(self) -> tuple[str, ...] | None:
        """The columns' names, where each column is an input by itself."""
        return self.names if self.shape == (len(self.names),) and len(self.names) > 1 else None

    @property
    def told(self) -> Scaling:
        """What the steps tell of the columns."""
        if self.scaling is not None:
            return self.scaling
        if self.steps[0] == SHIFT:
            return self.affine.scaling
        low = -1.0 if self.affine.shift.ndim == 0 and self.affine.shift != 0 else 0.0
        ends = (self.affine.undone(low), self.affine.undone(1.0))
        return between(np.minimum(*ends), np.maximum(*ends))

    def after(self, kind: str, affine: Affine) -> Columns:
        """After one more step; two steps make a scaler, and the first scaler tells."""
        done = replace(self, affine=self.affine.then(affine), steps=(*self.steps, kind))
        return replace(done, scaling=done.told) if len(done.steps) == 2 else done

    def of_width(self, width: int) -> Columns | None:
        """With everything as (width,), if it can be."""
        affine = self.affine
        if self.shape is not None and self.shape != (width,):
            return None
        try:
            spread = [np.broadcast_to(a.ravel(), width) for a in (affine.factor, affine.shift)]
            columns = replace(self, affine=Affine(*spread))
            if self.steps:
                told = self.told
                parts = (told.centre, told.scale, told.low, told.high)
                scaling = Scaling(*(np.broadcast_to(part.ravel(), width) for part in parts))
                columns = replace(columns, scaling=scaling)
        except ValueError:
            return None
        return columns


def input_columns(value: Any) -> Columns:
    """An input of the graph: its shape without the rows, where it is stated."""
    dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim][1:]
    return Columns((value.name,), tuple(dims) if dims and all(dims) else None)


def prepared(
    operator: str, attributes: Mapping[str, Any], arguments: Sequence[Columns | Any]
) -> Columns | None:
    """The columns after one more node, unless it does more than multiply, shift or join them."""
    live = [argument for argument in arguments if isinstance(argument, Columns)]
    first = arguments[0]
    if operator in JOINING:
        on_columns = operator != "Concat" or attributes.get("axis") in (1, -1)
        return joined(live) if on_columns and len(live) == len(arguments) else None
    if isinstance(first, Columns) and operator in PASSING | FLATTENING:
        return flat(first) if operator in FLATTENING else first
    if len(live) != 1:
        return None
    if operator == "Scaler":
        return scaled(live[0], attributes)
    if operator == "BatchNormalization":
        return normalised(live[0], attributes, [np.asarray(c) for c in arguments[1:]])
    return arithmetic(operator, live[0], arguments)


def arithmetic(
    operator: str, columns: Columns, arguments: Sequence[Columns | Any]
) -> Columns | None:
    """The columns and a constant, in either order; or the columns alone, negated."""
    if operator == "Neg":
        operator, arguments = "Mul", [columns, -1.0]
    step = STEPS.get((operator, arguments[0] is columns))
    others = [argument for argument in arguments if not isinstance(argument, Columns)]
    if step is None or len(others) != 1:
        return None
    constant = fitting(others[0], columns.shape)
    if constant is None or (operator == "Div" and not constant.all()):
        return None
    return columns.after(*step(constant))


def scaled(columns: Columns, attributes: Mapping[str, Any]) -> Columns | None:
    """A Scaler: (x - offset) * scale."""
    offset, scale = (
        fitting(np.array(attributes.get(key, default)), columns.shape)
        for key, default in (("offset", 0.0), ("scale", 1.0))
    )
    if offset is None or scale is None:
        return None
    return columns.after(SHIFT, Affine(ONE, -offset)).after(FACTOR, Affine(scale, ZERO))


def normalised(
    columns: Columns, attributes: Mapping[str, Any], constants: Sequence[Array]
) -> Columns | None:
    """A BatchNormalization, whose mean and variance are those of the inputs themselves."""
    rank = 1 if columns.shape is None else len(columns.shape)
    over_channels = [np.reshape(constant, (-1, *[1] * (rank - 1))) for constant in constants]
    spread = [fitting(constant, columns.shape) for constant in over_channels]
    factor, shift, mean, variance = (np.array(np.nan) if s is None else s for s in spread)
    deviation = np.sqrt(variance + attributes.get("epsilon", EPSILON))
    if not np.isfinite(factor + shift + mean + deviation).all():
        return None
    whole = Affine(factor / deviation, shift - mean * factor / deviation)
    first = not columns.steps
    done = columns.after(SHIFT, whole)
    return replace(done, scaling=about(mean, deviation)) if first else done


def flat(columns: Columns) -> Columns:
    """The columns of a picture, say, in one row."""
    if columns.shape is None or len(columns.shape) == 1:
        return columns
    affine, told = columns.affine, columns.scaling
    if told is not None:
        told = Scaling(*(np.ravel(p) if np.ndim(p) else p for p in vars(told).values()))
    parts = [part.ravel() if part.ndim else part for part in (affine.factor, affine.shift)]
    shape = (int(np.prod(columns.shape)),)
    return replace(columns, shape=shape, affine=Affine(*parts), scaling=told)


def joined(parts: Sequence[Columns]) -> Columns | None:
    """Untouched columns side by side, each of which must be there once."""
    names = tuple(name for part in parts for name in part.names)
    widths = [part.shape[0] for part in parts if part.shape is not None and len(part.shape) == 1]
    if len(widths) < len(parts) or len(set(names)) < len(names) or any(p.steps for p in parts):
        return None
    return Columns(names, (sum(widths),))


def fitting(constant: Any, shape: tuple[int, ...] | None) -> Array | None:
    """A constant as one number, or as one for each column, if it is either."""
    values = np.asarray(constant, dtype=np.float64)
    if values.size == 1:
        return values.reshape(())
    if shape is None:
        return values.ravel() if values.size == values.shape[-1] else None
    try:
        wide: Array = np.broadcast_to(values, (1, *shape))[0]
    except ValueError:
        return None
    return wide
