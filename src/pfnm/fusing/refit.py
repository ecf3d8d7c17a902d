"""What averaging breaks, mended without data.

Averaging imperfectly matched units shrinks them, and the layers above no longer get what they
expect; with depth this compounds. Two repairs: norms (weights alone), and least squares on probes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import log_softmax

from pfnm.fusing.atoms import Assignments, width_of
from pfnm.fusing.probes import Probing, is_classifier
from pfnm.fusing.sites import Sites
from pfnm.networks.network import Array, IntArray, Network, Tensor
from pfnm.networks.perceptron import ACTIVATIONS, Layer, layers

TINY = 1e-12  # instead of a zero trust, or of a gram matrix that is zero


def repair_norms(sites: Sites, assignments: Assignments, network: Network) -> dict[str, Array]:
    """Tensors in which each hidden unit's incoming weights have the mean norm of its members.

    Not for the output layer, whose scale carries the sites' confidence.
    """
    tensors = {name: np.asarray(t, dtype=float) for name, t in network.tensors.items()}
    ours = [layers(site) for site in sites.networks]
    for depth, (layer, own) in enumerate(zip(layers(network), assignments.values(), strict=False)):
        total, members = np.zeros(width_of(own)), np.zeros(width_of(own))
        for j, site in enumerate(ours):
            total[own[j]] += np.linalg.norm(site[depth].weight.astype(float), axis=0)
            members[own[j]] += 1
        norm = np.linalg.norm(np.asarray(layer.weight, dtype=float), axis=0)
        scale = total / members / np.where(norm > 0, norm, 1)
        weight = tensors[layer.weight_name]
        tensors[layer.weight_name] = weight * (scale[:, None] if layer.transposed else scale)
    return tensors


def refit(
    network: Network, targets: Sequence[Tensor], first_values: Tensor, ridge: float
) -> dict[str, Array]:
    """Tensors with which every fused unit does on probes what its members do on average.

    Bottom to top, each layer by least squares: from what the fused layer below now puts out to its
    target (`wanted_values`, from the second layer up). `ridge` pulls towards the given network. The
    first layer, whose inputs all sites share, stays; first_values: what it puts out.
    """
    first, *others = layers(network)
    tensors: dict[str, Array] = {}
    _store(tensors, first, *_as_float(first))
    values = first_values
    for layer, wanted in zip(others, targets, strict=True):
        weight, bias = _least_squares(values, wanted, *_as_float(layer), ridge)
        _store(tensors, layer, weight, bias)
        values = _put_out(network, weight, bias, values)
    return tensors


def first_values(network: Network, probing: Probing) -> Tensor:
    """What the first layer puts out on probes, (units, probes)."""
    return _put_out(network, *_as_float(layers(network)[0]), probing.inputs.T)


def _put_out(network: Network, weight: Array, bias: Array | None, values: Tensor) -> Tensor:
    outputs = weight.astype(np.float32).T @ values
    if bias is not None:
        outputs += bias.astype(np.float32)[:, None]
    return np.asarray(ACTIVATIONS[network.activation](outputs), dtype=np.float32)


def _as_float(layer: Layer) -> tuple[Array, Array | None]:
    bias = None if layer.bias is None else np.asarray(layer.bias, dtype=float)
    return np.asarray(layer.weight, dtype=float), bias


def refit_targets(sites: Sites, assignments: Assignments, probing: Probing) -> list[Tensor]:
    """What each layer should give on probes, from the second layer up."""
    return [
        wanted_values(sites, probing, depth, own)
        for depth, own in enumerate([*assignments.values(), None])
        if depth > 0
    ]


def wanted_values(
    sites: Sites, probing: Probing, depth: int, own: Sequence[IntArray] | None
) -> Tensor:
    """What a layer should give before activation: the mean of its members' values on each probe.

    At the top: the sites' log probabilities (or plain outputs), each by its share of the class.
    """
    outputs = [response[depth] for response in probing.responses]
    if own is None:
        classes = is_classifier(sites.networks[0])
        if classes:
            outputs = [log_softmax(values, axis=0) for values in outputs]
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
    values: Tensor, wanted: Tensor, weight: Array, bias: Array | None, ridge: float
) -> tuple[Array, Array | None]:
    """The weights (and bias) nearest the given ones that turn `values` into `wanted`."""
    start = weight.T
    if bias is not None:
        values = np.concatenate([values, np.ones((1, values.shape[1]), dtype=values.dtype)])
        start = np.concatenate([start, bias[:, None]], axis=1)
    missing = wanted - start.astype(np.float32) @ values
    gram = (values @ values.T).astype(float)
    pull = ridge * max(float(np.trace(gram)) / len(gram), TINY)
    gram[np.diag_indices_from(gram)] += pull
    change = np.linalg.solve(gram, (values @ missing.T).astype(float))
    result = start.T + change
    return (result, None) if bias is None else (result[:-1], result[-1])


def _store(tensors: dict[str, Array], layer: Layer, weight: Array, bias: Array | None) -> None:
    tensors[layer.weight_name] = weight.T if layer.transposed else weight
    if layer.bias_name is not None and bias is not None:
        tensors[layer.bias_name] = bias
