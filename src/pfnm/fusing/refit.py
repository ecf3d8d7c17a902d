"""What averaging breaks, mended without data.

Averaging imperfectly matched units shrinks them, and the layers above no longer get what they
expect; with depth this compounds. Two repairs: norms (weights alone), and least squares on probes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy

from pfnm.fusing.atoms import Assignments, width_of
from pfnm.fusing.probes import IMPOSSIBLE, Probing, is_classifier
from pfnm.fusing.sites import Sites
from pfnm.networks.graph import OUTPUT, IntArray
from pfnm.networks.network import Array, Network, Tensor
from pfnm.networks.program import Map

NORMED = 2**19  # numbers of a weight whose norms are taken at a time
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
    network: Network, targets: Mapping[str, Tensor], probing: Probing, ridge: float, first: Any
) -> dict[str, Array]:
    """Tensors with which every fused unit does on probes what its members do on average.

    In order of computation, each linear map by least squares: from what now enters it to its target
    (`refit_targets`). `ridge` pulls towards the given network. What has no target stays. first:
    what leaves the first map, where it is known.
    """
    tensors = {name: np.asarray(t, dtype=float) for name, t in network.tensors.items()}

    def visit(at: Map, features: Any, values: Any) -> Mapping[str, Tensor] | None:
        if at.weight not in targets:
            return None
        weight, bias = tensors[at.weight], None if at.bias is None else tensors[at.bias]
        inward = weight if at.writes == 1 else weight.T
        missing = targets[at.weight] - np.asarray(values.T, np.float32)
        changed, new_bias = _least_squares(
            np.ascontiguousarray(features.T, np.float32), missing, inward, bias, ridge
        )
        tensors[at.weight] = changed if at.writes == 1 else changed.T
        fitted = {at.weight: tensors[at.weight].astype(np.float32)}
        if at.bias is not None and new_bias is not None:
            tensors[at.bias] = new_bias
            fitted[at.bias] = new_bias.astype(np.float32)
        return fitted

    network.run(probing.inputs, visit, first)
    return tensors


def refit_targets(
    sites: Sites,
    assignments: Assignments,
    probing: Probing,
    leaving: Sequence[Mapping[str, Tensor]],
) -> dict[str, Tensor]:
    """What should leave each linear map on probes, (units, probes), by its weight.

    The first map, whose inputs all sites share, has none. leaving: what leaves the sites' own
    maps (`activity.responses`).
    """
    graph = sites.networks[0].graph
    targets = {}
    for at in sites.networks[0].program.maps[1:]:
        space = graph.axes[at.weight][at.writes].space
        if at.kind == "linear" and (space == OUTPUT or space in assignments):
            own = None if space == OUTPUT else assignments[str(space)]
            found = [values[at.weight] for values in leaving]
            targets[at.weight] = wanted_values(sites, probing, found, own)
    return targets


def wanted_values(
    sites: Sites, probing: Probing, outputs: Sequence[Tensor], own: Sequence[IntArray] | None
) -> Tensor:
    """What should leave a map: the mean of its members' values on each probe.

    At the top: the sites' log probabilities (or plain outputs), each by its share of the class.
    """
    if own is None:
        classes = is_classifier(sites.networks[0])
        if classes:
            outputs = [
                scipy.special.log_softmax(np.where(known[:, None], values, IMPOSSIBLE), axis=0)
                for values, known in zip(outputs, sites.known, strict=True)
            ]
        shares = sites.class_shares.astype(np.float32)[:, :, None]
        wanted = np.asarray(sum(w * values for w, values in zip(shares, outputs, strict=True)))
        # Probabilities do not see a constant added to all outputs; it is made zero.
        return wanted - wanted.mean(axis=0) if classes else wanted
    trust = np.maximum(probing.trust, TINY).astype(np.float32)
    total = np.zeros((width_of(own), trust.shape[1]), dtype=np.float32)
    weight = np.zeros_like(total)
    for t, values, assignment in zip(trust, outputs, own, strict=True):
        total[assignment] += t * values
        weight[assignment] += t
    return total / weight


def _least_squares(
    values: Tensor, missing: Tensor, weight: Array, bias: Array | None, ridge: float
) -> tuple[Array, Array | None]:
    """The weights (and bias) nearest the given ones that add `missing` to what leaves them."""
    start = weight.T
    if bias is not None:
        values = np.concatenate([values, np.ones((1, values.shape[1]), dtype=values.dtype)])
        start = np.concatenate([start, bias[:, None]], axis=1)
    gram = (values @ values.T).astype(float)
    pull = ridge * max(float(np.trace(gram)) / len(gram), TINY)
    gram[np.diag_indices_from(gram)] += pull
    change = np.linalg.solve(gram, (values @ missing.T).astype(float))
    result = start.T + change
    return (result, None) if bias is None else (result[:-1], result[-1])
