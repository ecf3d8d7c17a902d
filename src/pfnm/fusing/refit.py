"""What averaging breaks, mended without data.

Averaging imperfectly matched units shrinks them, and the layers above no longer get what they
expect; with depth this compounds. Two repairs: norms (weights alone), and least squares on probes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy

from pfnm.fusing.activity import FIT_ROWS
from pfnm.fusing.atoms import Assignments, width_of, widths_of
from pfnm.fusing.probes import IMPOSSIBLE, Probing, is_classifier
from pfnm.fusing.sites import Sites
from pfnm.networks.graph import OUTPUT, IntArray
from pfnm.networks.network import Array, Network, Tensor
from pfnm.networks.program import Map

NORMED = 2**19  # numbers of a weight whose norms are taken at a time
MOST_SCALED = 10.0  # times, up or down: a unit that hardly does anything is not blown up
TINY = 1e-12  # instead of a zero trust, or of a gram matrix that is zero


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


def refit(
    network: Network,
    targets: Mapping[str, Tensor],
    probing: Probing,
    ridge: float,
    first: Any,
    rows: int = FIT_ROWS,
) -> dict[str, Array]:
    """Tensors with which every fused unit does on probes what its members do on average.

    In order of computation, each linear map by least squares: from what now enters it to its target
    (`refit_targets`). `ridge` pulls towards the given network. What has no target stays. first:
    what leaves the first map, where it is known. rows: as for the targets.
    """
    tensors: dict[str, Any] = {name: np.asarray(t) for name, t in network.tensors.items()}

    def visit(at: Map, features: Any, values: Any) -> Mapping[str, Tensor] | None:
        if at.weight not in targets:
            return None
        weight, bias = tensors[at.weight], None if at.bias is None else tensors[at.bias]
        if at.kind == "scaled":
            changed, new_bias = _rescaled(values, targets[at.weight], weight, bias, at)
        else:
            missing = targets[at.weight] - np.asarray(values.T, np.float32)
            entering = np.ascontiguousarray(features.T, np.float32)
            found, new_bias = _least_squares(entering, missing, matrix(weight, at), bias, ridge)
            changed = unmatrix(found, weight, at)
        tensors[at.weight] = changed.astype(weight.dtype)
        fitted = {at.weight: tensors[at.weight].astype(np.float32, copy=False)}
        if at.bias is not None and bias is not None and new_bias is not None:
            tensors[at.bias] = new_bias.astype(bias.dtype)
            fitted[at.bias] = tensors[at.bias].astype(np.float32, copy=False)
        return fitted

    network.run(probing.inputs, visit, first, rows)
    return tensors


def _rescaled(
    values: Tensor, moments: Tensor, weight: Array, bias: Array | None, at: Map
) -> tuple[Array, Array | None]:
    """The weights (and bias) with which what leaves has these means and deviations, (outputs, 2).

    Without a bias the deviations alone.
    """
    mean, deviation = values.mean(axis=0, dtype=float), values.std(axis=0, dtype=float)
    scale = np.where(deviation > 0, moments[:, 1] / np.maximum(deviation, TINY), 1.0)
    scale = np.clip(scale, 1 / MOST_SCALED, MOST_SCALED)
    shape = [-1 if axis == at.writes else 1 for axis in range(weight.ndim)]
    shifted = None if bias is None else moments[:, 0] + scale * (bias - mean)
    return weight * scale.reshape(shape), shifted


def matrix(weight: Array, at: Map) -> Array:
    """A linear map's weight as (features, outputs): of a convolution, its kernels' places too."""
    return np.moveaxis(weight, (at.reads, at.writes), (0, -1)).reshape(-1, weight.shape[at.writes])


def unmatrix(found: Array, like: Array, at: Map) -> Array:
    """The weight of which this is the matrix."""
    moved = np.moveaxis(like, (at.reads, at.writes), (0, -1))
    return np.moveaxis(found.reshape(moved.shape), (0, -1), (at.reads, at.writes))


def refit_targets(
    sites: Sites,
    assignments: Assignments,
    probing: Probing,
    leaving: Sequence[Mapping[str, Tensor]],
) -> dict[str, Tensor]:
    """What should leave each map on probes, (outputs, rows), by its weight.

    Of maps that can only be scaled, the mean and the deviation of that, (outputs, 2). Maps of the
    inputs themselves, which all sites share, have none. leaving: what leaves the sites' own maps
    (`activity.responses`).
    """
    first = sites.networks[0]
    graph, outward = first.graph, first.graph.tensors_of(OUTPUT)
    sizes = {**first.sizes, **widths_of(graph, assignments)}
    targets = {}
    for at in first.program.maps:
        reads, writes = graph.axes[at.weight][at.reads], graph.axes[at.weight][at.writes]
        if at.weight not in leaving[0] or not any(map(graph.is_group, reads.spaces)):
            continue
        found = [values[at.weight] for values in leaving]
        if writes.space == OUTPUT:
            alone = sum(own.weight in outward for own in first.program.maps) == 1
            targets[at.weight] = wanted_outputs(sites, found, alone and is_classifier(first))
        elif writes.spaces and all(map(graph.is_group, writes.spaces)):
            places = [
                writes.positions({g: own[j] for g, own in assignments.items()}, sizes, graph.inner)
                for j in range(len(sites.networks))
            ]
            if at.kind == "scaled":
                found = [np.stack([own.mean(axis=1), own.std(axis=1)], axis=1) for own in found]
                targets[at.weight] = _mean_of_members(found, places, writes.length(sizes))
            else:
                targets[at.weight] = wanted_values(probing, found, places, writes.length(sizes))
    return targets


def _mean_of_members(values: Sequence[Tensor], places: Sequence[IntArray], width: int) -> Tensor:
    """The plain mean over the sites of what stands at each place, (width, columns)."""
    total, members = np.zeros((width, values[0].shape[1])), np.zeros((width, 1))
    for own, place in zip(values, places, strict=True):
        total[place] += own
        members[place] += 1
    return np.asarray(total / np.maximum(members, 1))


def wanted_outputs(sites: Sites, outputs: Sequence[Tensor], classes: bool) -> Tensor:
    """What should leave the map to the outputs, each site counting by its share of the class.

    Of classifiers the sites' log probabilities; else their plain outputs.
    """
    if classes:
        outputs = [
            scipy.special.log_softmax(np.where(known[:, None], values, IMPOSSIBLE), axis=0)
            for values, known in zip(outputs, sites.known, strict=True)
        ]
    shares = sites.class_shares.astype(np.float32)[:, :, None]
    wanted = np.asarray(sum(w * values for w, values in zip(shares, outputs, strict=True)))
    # Probabilities do not see a constant added to all outputs; it is made zero.
    return wanted - wanted.mean(axis=0) if classes else wanted


def wanted_values(
    probing: Probing, values: Sequence[Tensor], places: Sequence[IntArray], width: int
) -> Tensor:
    """What should leave a map, (width, rows): the mean of its members' values on each row.

    places: of each site where its values stand among the fused ones. A site counts by how much it
    has seen of what a probe looks like.
    """
    rows, examples = values[0].shape[1], len(probing.inputs)
    trust = probing.trust
    if trust.shape[1] != examples:  # several outputs of each example
        trust = trust.reshape(len(trust), examples, -1).mean(axis=2)
    trust = np.maximum(np.repeat(trust, rows // examples, axis=1), TINY).astype(np.float32)
    total = np.zeros((width, rows), dtype=np.float32)
    weight = np.zeros_like(total)
    for t, own, place in zip(trust, values, places, strict=True):
        total[place] += t * own
        weight[place] += t
    return total / np.where(weight > 0, weight, 1)


def _least_squares(
    values: Tensor, missing: Tensor, weight: Array, bias: Array | None, ridge: float
) -> tuple[Array, Array | None]:
    """The weights (and bias) nearest the given ones that add `missing` to what leaves them.

    With X the values, (features, rows), M what is missing and c the pull, the change is
    (X X' + c)^-1 X M', or, with fewer rows than features, the same as X (X' X + c)^-1 M'.
    """
    start = weight.T
    if bias is not None:
        values = np.concatenate([values, np.ones((1, values.shape[1]), dtype=values.dtype)])
        start = np.concatenate([start, bias[:, None]], axis=1)
    features, rows = values.shape
    gram = (values @ values.T if features <= rows else values.T @ values).astype(float)
    pull = ridge * max(float(np.trace(gram)) / features, TINY)
    gram[np.diag_indices_from(gram)] += pull
    if features <= rows:
        change = np.linalg.solve(gram, (values @ missing.T).astype(float))
    else:
        change = values @ np.linalg.solve(gram, missing.T.astype(float)).astype(values.dtype)
    result = start.T + change
    return (result, None) if bias is None else (result[:-1], result[-1])
