"""Scalers before a network: folded into its first layer, taken out again, pooled over sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pfnm.networks.network import Array, Network, Scaling, Tensor
from pfnm.networks.perceptron import layers

DEVIATIONS = 3  # within which nearly all values of a column lie, where a mean and a deviation tell
RANGE_IN_DEVIATIONS = 4  # the usual rule of thumb, where a column is known by its range alone


@dataclass(frozen=True, eq=False)
class Affine:
    """Each column by itself: x -> factor * x + shift; (inputs,) each, or one number for all."""

    factor: Array
    shift: Array

    def then(self, after: Affine) -> Affine:
        """First this, then the other."""
        return Affine(self.factor * after.factor, self.shift * after.factor + after.shift)

    def folded_into(self, weight: Tensor, bias: Tensor | None) -> tuple[Array, Array | None]:
        """The first layer that does the same to x as the given one does to this of x.

        In 64 bits. A layer without a bias gets one only where something is shifted.
        """
        columns = np.broadcast_to(self.shift, weight.shape[:1])
        inner = weight.astype(np.float64)
        folded = np.reshape(self.factor, (-1, 1)) * inner
        if bias is None and not columns.any():
            return folded, None
        return folded, columns @ inner + (0.0 if bias is None else bias)

    @property
    def scaling(self) -> Scaling:
        """What it tells of the columns if it makes them vary about 0 by about 1, as most do."""
        return about(self.undone(0.0), 1 / np.abs(np.where(self.factor == 0, 1.0, self.factor)))

    def undone(self, value: float) -> Array:
        """Of which x it makes this value; 0 of a column that it does not use."""
        used = self.factor != 0
        return np.where(used, (value - self.shift) / np.where(used, self.factor, 1.0), 0.0)


def about(centre: Array, deviation: Array) -> Scaling:
    """The scaling of columns known by mean and deviation; one that does not vary has scale 1."""
    scale = np.where(deviation > 0, deviation, 1.0)
    reach = DEVIATIONS * deviation
    return Scaling(centre, scale, centre - reach, centre + reach)


def between(low: Array, high: Array) -> Scaling:
    """The scaling of columns known by their range."""
    deviation = (high - low) / RANGE_IN_DEVIATIONS
    return Scaling((low + high) / 2, np.where(deviation > 0, deviation, 1.0), low, high)


def pooled(scalings: Sequence[Scaling]) -> Scaling:
    """One scaling for all sites, each counting alike.

    The range holds all sites' ranges. The variance is the mean of the sites' and that of their
    centres; a column that varies neither within nor between sites has scale 1.
    """
    centres = np.array([scaling.centre for scaling in scalings])
    varies = np.array([scaling.high > scaling.low for scaling in scalings])
    variances = np.where(varies, np.array([scaling.scale for scaling in scalings]) ** 2, 0.0)
    deviation = np.sqrt(variances.mean(axis=0) + centres.var(axis=0))
    return Scaling(
        centre=centres.mean(axis=0),
        scale=np.where(deviation > 0, deviation, 1.0),
        low=np.min([scaling.low for scaling in scalings], axis=0),
        high=np.max([scaling.high for scaling in scalings], axis=0),
    )


def taking_scaled(network: Network, scaling: Scaling) -> Network:
    """The same network, but its inputs are (x - centre) / scale: better to match and to train."""
    centre = _centre(network, scaling)
    return replace(_before(network, Affine(scaling.scale, centre)), scaling=None)


def taking_plain(network: Network, scaling: Scaling) -> Network:
    """The inverse: a network of (x - centre) / scale as one of x, with this scaling."""
    centre = _centre(network, scaling)
    plain = _before(network, Affine(1 / scaling.scale, -centre / scaling.scale))
    return replace(plain, scaling=scaling)


def _centre(network: Network, scaling: Scaling) -> Array:
    """Without a bias nothing can be shifted, and the columns are only scaled."""
    return np.zeros_like(scaling.centre) if layers(network)[0].bias is None else scaling.centre


def _before(network: Network, affine: Affine) -> Network:
    """The network with the affine map before it, folded in; tensors keep their types."""
    first = layers(network)[0]
    weight, bias = affine.folded_into(first.weight, first.bias)
    tensors = dict(network.tensors)
    tensors[first.weight_name] = (weight.T if first.transposed else weight).astype(
        first.weight.dtype
    )
    if first.bias_name is not None and first.bias is not None:
        tensors[first.bias_name] = np.asarray(bias, first.bias.dtype)
    return replace(network, tensors=tensors)
