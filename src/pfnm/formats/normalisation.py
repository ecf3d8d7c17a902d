"""BatchNorm1d in a file of named tensors: folded into the linear layers it stands beside.

A BatchNorm whose statistics are fixed is a scale and a shift of each unit, so the layer beside it
can take it over exactly. Where it stands is told by its name, its width and the file's order (see
`placing`): Linear-BatchNorm-activation is assumed unless the numbers of an `nn.Sequential` say
otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pfnm.errors import PFNMError
from pfnm.formats.content import Content, floats
from pfnm.formats.placing import HOW_TO_PLACE, BatchNorm, numbers, placed

EPSILON = 1e-5  # PyTorch's default, which a state dict does not hold
STATISTICS = ("running_mean", "running_var")
COUNTER = "num_batches_tracked"  # how often the statistics were updated: nothing to us
BIAS_FOR = {"weight": "bias", "kernel": "bias", "coef": "intercept", "w": "b"}


def take_out(
    file: str, tensors: Mapping[str, np.ndarray[Any, Any]]
) -> tuple[list[BatchNorm], dict[str, np.ndarray[Any, Any]]]:
    """The BatchNorms among the tensors, and the tensors that are left."""
    ranks = {name: rank for rank, name in enumerate(tensors)}
    parts = (*STATISTICS, COUNTER)
    stems = dict.fromkeys(
        name.removesuffix(part) for name in tensors for part in parts if name.endswith(part)
    )
    norms, left = [], dict(tensors)
    for stem in stems:
        own = {
            part: left.pop(stem + part)
            for part in (*parts, "weight", "bias")
            if stem + part in tensors
        }
        rank = min(ranks[stem + part] for part in own)
        norms.append(batch_norm(file, stem, own, rank))
    return norms, left


def batch_norm(
    file: str, stem: str, own: Mapping[str, np.ndarray[Any, Any]], rank: int
) -> BatchNorm:
    """y = (x - mean) / sqrt(var + epsilon) * weight + bias, the last two where there are some."""
    missing = [part for part in STATISTICS if part not in own]
    if missing:
        raise PFNMError(
            f"{file}: a normalisation layer has {stem + next(iter(own))!r} but no "
            f"{stem + missing[0]!r}; save the whole state dict"
        )
    units = own["running_mean"].shape
    for part, tensor in own.items():
        if part == COUNTER:
            continue
        if tensor.ndim != 1 or tensor.shape != units:
            raise PFNMError(
                f"{file}: tensor {stem + part!r} of a normalisation layer has shape "
                f"{tensor.shape}, expected one number for each unit, as BatchNorm1d has"
            )
        if not np.isfinite(floats(file, stem + part, tensor)).all():
            raise PFNMError(f"{file}: tensor {stem + part!r} holds NaN or infinite values")
    variance = own["running_var"].astype(float)
    if variance.min(initial=0) < 0:
        raise PFNMError(f"{file}: tensor {stem + 'running_var'!r} holds a variance below zero")
    scale = own.get("weight", np.ones(units)).astype(float) / np.sqrt(variance + EPSILON)
    shift = own.get("bias", np.zeros(units)).astype(float) - own["running_mean"] * scale
    return BatchNorm(stem, scale, shift, rank)


def folded(
    file: str, content: Content, norms: Sequence[BatchNorm], ranks: Sequence[int] | None
) -> Content:
    """The same layers with the BatchNorms in them; `ranks` of the weights where order counts."""
    places = placed(file, content, norms, ranks)
    weights, biases, names = list(content.weights), list(content.biases), list(content.names)
    # The nearest to the layer first: outputs from the layer up, inputs from the layer down.
    by_layer = sorted(norms, key=numbers if ranks is None else lambda norm: norm.rank)
    on_inputs = [norm for norm in reversed(by_layer) if places[norm.stem].on_inputs]
    on_outputs = [norm for norm in by_layer if not places[norm.stem].on_inputs]
    for norm in (*on_inputs, *on_outputs):
        layer, on_input = places[norm.stem]
        units = content.weights[layer].shape[0 if on_input else 1]
        if len(norm.scale) != units:
            side = "inputs" if on_input else "outputs"
            raise PFNMError(
                f"{file}: {norm} has {len(norm.scale)} units, but {names[layer][0]!r} beside it "
                f"has {units} {side}; {HOW_TO_PLACE}"
            )
        weight, bias = weights[layer].astype(float), biases[layer]
        constant = 0.0 if bias is None else bias.astype(float)
        if on_input:
            weight, constant = norm.scale[:, None] * weight, norm.shift @ weight + constant
        else:
            weight, constant = weight * norm.scale, constant * norm.scale + norm.shift
        kept = content.weights[layer].dtype
        weights[layer], biases[layer] = weight.astype(kept), np.asarray(constant, kept)
        if names[layer][1] is None:
            names[layer] = (names[layer][0], bias_name(names[layer][0], content))
    return replace(content, weights=weights, biases=biases, names=names)


def bias_name(weight_name: str, content: Content) -> str:
    """A name for the bias that a layer gets: its weight's, with the other word."""
    taken = {name for pair in content.names for name in pair}
    for word, bias in BIAS_FOR.items():
        name, changes = re.subn(
            rf"(?<![a-zA-Z]){word}(?=s?(?![a-zA-Z]))", bias, weight_name, flags=re.IGNORECASE
        )
        if changes == 1 and name not in taken:
            return name
    return f"{weight_name}.bias"


def looks_like_layer_norm(name: str, tensor: np.ndarray[Any, Any]) -> bool:
    """Whether this is of a normalisation that has no statistics in the file to fold."""
    lower = name.lower().removesuffix(":0")  # as TensorFlow ends names
    return tensor.ndim == 1 and lower.endswith(("weight", "gamma", "beta"))
