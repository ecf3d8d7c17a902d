"""What averaging breaks, mended without data.

Averaging imperfectly matched units shrinks them, and the layers above no longer get what they
expect; with depth this compounds. Two repairs: norms (weights alone), and least squares on probes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy

from pfnm.fusing.atoms import Assignments, width_of
from pfnm.fusing.memory import give_back
from pfnm.fusing.probes import Probing
from pfnm.fusing.sites import Sites
from pfnm.fusing.wanted import FIT_ROWS, Targets, fit_rows
from pfnm.networks.network import Array, Network, Tensor
from pfnm.networks.program import InParts, Map

NORMED = 2**19  # numbers of a weight whose norms are taken at a time
MOST_SCALED = 10.0  # times, up or down: a unit that hardly does anything is not blown up
TINY = 1e-12  # instead of a deviation or a gram matrix that is zero


def repair_norms(sites: Sites, assignments: Assignments, network: Network) -> dict[str, Array]:
    """Tensors in which each hidden unit's incoming weights have the mean norm of its members.

    Not for what leads into outputs, whose scale carries the sites' confidence. The network given is
    used up: large ones are not held twice.
    """
    tensors = {name: np.asarray(t, dtype=sites.dtype) for name, t in network.tensors.items()}
    for at in network.program.maps:
        group = network.graph.axes[at.weight][at.writes].space
        if group is None or group not in assignments or group in network.graph.inner:
            continue
        own = assignments[group]
        total, members = np.zeros(width_of(own)), np.zeros(width_of(own))
        for j, site in enumerate(sites.networks):
            total[own[j]] += _norms(site.tensors[at.weight], at)
            members[own[j]] += 1
        norm = _norms(tensors[at.weight], at)
        scale = total / members / np.where(norm > 0, norm, 1)
        shape = [-1 if d == at.writes else 1 for d in range(tensors[at.weight].ndim)]
        tensors[at.weight] *= scale.astype(sites.dtype).reshape(shape)
    return tensors


def _norms(weight: Tensor, at: Map) -> Array:
    """The norm of what leads into each unit."""
    units = np.moveaxis(weight, at.writes, 0)
    count = max(1, NORMED // units[0].size)  # a large weight is not held in double
    blocks = (units[start : start + count] for start in range(0, len(units), count))
    found = [np.linalg.norm(b.astype(float).reshape(len(b), -1).T, axis=0) for b in blocks]
    return np.concatenate(found)


@dataclass(frozen=True, eq=False)
class Making:
    """How the fused networks of one matching are made: averaged, and refitted on probes.

    targets: makes or gives what should leave each map on the probes (`targets_when_asked`); without
    any there is nothing to refit.
    """

    sites: Sites
    average: Callable[[], Network]
    probing: Probing
    targets: Targets

    def networks(self, ridges: Sequence[float | None]) -> Iterator[tuple[float | None, Network]]:
        """One after the other: as averaged (None), and refitted with a ridge.

        Modules are averaged anew for each, for they may be too large to be held twice. The targets
        are held until the last is made.
        """
        targets: Mapping[str, Tensor] | None = None
        kept = None if self.sites.modules else self.average()
        first = None if kept is None else kept.first_values(self.probing.inputs)
        rows = fit_rows(self.sites)
        for ridge in ridges:
            if ridge is None:
                yield None, self.average() if kept is None else kept
                continue
            targets = self.targets() if targets is None else targets
            if targets:
                average = self.average if kept is None else partial(copied, kept)
                yield ridge, refit(average(), targets, self.probing, ridge, first, rows)


def copied(network: Network) -> Network:
    """The network with tensors of its own."""
    return replace(network, tensors={n: np.array(t) for n, t in network.tensors.items()})


def refit(
    network: Network,
    targets: Mapping[str, Tensor],
    probing: Probing,
    ridge: float,
    first: Any,
    rows: int = FIT_ROWS,
) -> Network:
    """The network, every unit of which then does on probes what its members do on average.

    In order of computation, each linear map by least squares: from what now enters it to its target
    (`refit_targets`). `ridge` pulls towards the given network. What has no target stays. first:
    what leaves the first map, where it is known. rows: as for the targets. The network given is
    used up: its tensors are changed where they are, for large ones are not held twice.
    """
    tensors = network.tensors

    def visit(at: Map, features: Any, values: Any) -> Mapping[str, Tensor] | None:
        if at.weight not in targets:
            return None
        give_back(network)
        weight, bias = tensors[at.weight], None if at.bias is None else tensors[at.bias]
        if at.kind == "scaled":
            changed, new_bias = _rescaled(values, targets[at.weight], weight, bias, at)
        else:
            missing = targets[at.weight] - np.asarray(values.T, np.float32)
            # What comes in parts stays so: all of it at once may be much.
            later = isinstance(features, InParts)
            entering = features if later else np.asarray(features, np.float32)
            found, new_bias = _least_squares(entering, missing, matrix(weight, at), bias, ridge)
            changed = unmatrix(found, weight, at)
        weight[...] = changed
        fitted = {at.weight: weight.astype(np.float32, copy=False)}
        if at.bias is not None and bias is not None and new_bias is not None:
            bias[...] = new_bias
            fitted[at.bias] = bias.astype(np.float32, copy=False)
        return fitted

    network.run(probing.inputs, visit, first, rows)
    return replace(network)  # checked


def _rescaled(
    values: Tensor, moments: Tensor, weight: Tensor, bias: Tensor | None, at: Map
) -> tuple[Tensor, Tensor | None]:
    """The weights (and bias) with which what leaves has these means and deviations, (outputs, 2).

    Without a bias the deviations alone.
    """
    mean, deviation = values.mean(axis=0, dtype=float), values.std(axis=0, dtype=float)
    scale = np.where(deviation > 0, moments[:, 1] / np.maximum(deviation, TINY), 1.0)
    scale = np.clip(scale, 1 / MOST_SCALED, MOST_SCALED)
    shape = [-1 if axis == at.writes else 1 for axis in range(weight.ndim)]
    shifted = None if bias is None else moments[:, 0] + scale * (bias - mean)
    return weight * scale.reshape(shape), shifted


def matrix(weight: Tensor, at: Map) -> Tensor:
    """A linear map's weight as (features, outputs): of a convolution, its kernels' places too."""
    return np.moveaxis(weight, (at.reads, at.writes), (0, -1)).reshape(-1, weight.shape[at.writes])


def unmatrix(found: Tensor, like: Tensor, at: Map) -> Tensor:
    """The weight of which this is the matrix."""
    moved = np.moveaxis(like, (at.reads, at.writes), (0, -1))
    return np.moveaxis(found.reshape(moved.shape), (0, -1), (at.reads, at.writes))


def _least_squares(
    entering: Any, missing: Tensor, weight: Tensor, bias: Tensor | None, ridge: float
) -> tuple[Tensor, Tensor | None]:
    """The weights (and bias) nearest the given ones that add `missing` to what leaves them.

    entering: (rows, features), or what gives them part by part. With X the features as rows, one of
    ones among them where there is a bias, M what is missing, (outputs, rows), and c the pull, the
    change is (X X' + c)^-1 X M', or, with fewer rows than features, the same as X (X' X + c)^-1 M'.
    """
    features, rows = len(weight), missing.shape[1]
    constant = bias is not None  # one more feature
    if features + constant <= rows:
        gram, right = _products(_parts(entering), missing, constant)
        change: Tensor = _solved(_pulled(gram, ridge, features + constant), right)
    else:  # there may be many features: no copy of them
        entering = np.asarray(entering, missing.dtype)
        products = entering @ entering.T
        products += constant
        gram = _pulled(products, ridge, features + constant)
        del products
        found = _solved(gram, missing.T.astype(float)).astype(entering.dtype)
        change = entering.T @ found
        if constant:
            change = np.concatenate([change, found.sum(axis=0, keepdims=True)])
    result = weight + change[:features]
    return result, None if bias is None else bias + change[-1]


def _parts(entering: Any) -> Iterable[Tensor]:
    """Rows of features, as many at a time as they are given."""
    return entering.parts() if isinstance(entering, InParts) else [np.asarray(entering)]


def _products(parts: Iterable[Tensor], missing: Tensor, constant: bool) -> tuple[Array, Array]:
    """X X' and X M' of rows that come part by part."""
    gram: Any = 0.0
    right: Any = 0.0
    start = 0
    for part in parts:
        rows, features = part.shape
        values = np.ones((features + constant, rows), dtype=missing.dtype)
        values[:features] = part.T
        gram += (values @ values.T).astype(float)
        right += (values @ missing[:, start : start + rows].T).astype(float)
        start += rows
    return gram, right


def _pulled(gram: Tensor, ridge: float, features: int) -> Array:
    """A gram matrix with the ridge on its diagonal, in units of the features' mean square."""
    result = gram.astype(float)
    pull = ridge * max(float(np.trace(result)) / features, TINY)
    result[np.diag_indices_from(result)] += pull
    return result


def _solved(symmetric: Array, right: Array) -> Array:
    """The solution of a symmetric system, which is used up: it may be large."""
    factors = scipy.linalg.lu_factor(symmetric.T, overwrite_a=True, check_finite=False)
    result: Array = scipy.linalg.lu_solve(factors, right, check_finite=False)
    return result
