"""What a network says to inputs: labels, yes or no, or values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pfnm.errors import PFNMError
from pfnm.networks.features import in_columns_of
from pfnm.networks.graph import OUTPUT
from pfnm.networks.network import Network, Tensor
from pfnm.networks.targets import is_binary, labels_of


def predict(network: Network, inputs: ArrayLike) -> NDArray[Any]:
    """The label of each input; output numbers stand for labels where there are none.

    One sigmoid says 0 or 1, several say so of each output. Values, and one output of which nobody
    has told that it is a probability, are given as they are.
    """
    values = outputs_of(network, inputs)
    one = network.sizes[OUTPUT] == 1
    if network.output == "values" or (network.output == "identity" and one):
        return values[:, 0] if one else values
    if network.output == "sigmoid":
        yes = (values > 0).astype(int)
        return yes[:, 0] if is_binary(network) else yes
    labels = labels_of(network)
    mixed = len({type(label) for label in labels}) > 1  # which numpy would turn into texts
    chosen: NDArray[Any] = np.array(labels, dtype=object if mixed else None)[values.argmax(axis=1)]
    return chosen


def outputs_of(network: Network, inputs: ArrayLike) -> Tensor:
    """The outputs (examples, outputs) before the output function, or an error."""
    inputs = in_columns_of(network, inputs)
    try:
        rows = np.asarray(inputs, dtype=float)
    except (TypeError, ValueError):
        raise PFNMError("the inputs are no table of numbers, one row an example") from None
    if rows.ndim > 2 and network.program.examples is not None:  # as a module takes them
        rows = rows.reshape(len(rows), -1)
    if not np.isfinite(rows).all():
        raise PFNMError("the inputs hold NaN or infinite values; fill them or leave such rows out")
    with np.errstate(all="ignore"):
        values: Tensor = network.run(rows)
    if not np.isfinite(values).all():
        raise PFNMError(
            f"{network.name} makes infinite outputs of these inputs; scale them as for its training"
        )
    return values
