"""From named tensors to layers: which bias belongs to which weight, and their order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from pfnm.errors import PFNMError
from pfnm.formats.content import Content, floats
from pfnm.formats.limits import check_name
from pfnm.formats.normalisation import folded, looks_like_layer_norm, take_out
from pfnm.formats.ordering import Walk
from pfnm.networks.network import Tensor

WEIGHT_WORDS = "weights?|kernels?|coefs?|w"
BIAS_WORDS = "bias|biases|intercepts?|b"
MOST_LISTED = 8  # tensors in a message
MOST_NAMES = 4096  # kept with what is left of them: the sites have the same
HOW_TO_NAME = "name the tensors layer1.weight, layer1.bias, layer2.weight, ... from input to output"


class Pair(NamedTuple):
    """A weight as it is stored, and its bias."""

    weight_name: str
    weight: Tensor
    bias_name: str | None
    bias: Tensor | None


def arrange(
    file: str,
    tensors: Mapping[str, np.ndarray[Any, Any]],
    notes: Mapping[str, Any],
    *,
    in_order: bool = False,
) -> Content:
    """The layers of a file of named tensors, in order; with `in_order` the file's own order counts.

    The notes of a file that pfnm wrote settle it. Otherwise names pair weights and biases, and
    shapes and the numbers in names give the order and the orientation of the weights. BatchNorms
    are folded into the layers beside them.
    """
    for name in tensors:
        check_name(file, name)
    pairs = noted(file, tensors, notes)
    norms, others = take_out(file, tensors) if pairs is None else ([], {})
    if pairs is not None:
        transposed = bool(notes.get("transposed", True))
    elif norms and not others:
        raise PFNMError(
            f"{file}: nothing but normalisation layers in it ({norms[0]}), expected linear layers"
        )
    else:
        pairs, transposed = inferred(file, paired(file, others), in_order)
    content = Content(
        weights=[pair.weight.T if transposed else pair.weight for pair in pairs],
        biases=[pair.bias for pair in pairs],
        names=[(pair.weight_name, pair.bias_name) for pair in pairs],
        transposed=transposed,
        notes=notes,
    )
    if not norms:
        return content
    ranks = {name: rank for rank, name in enumerate(tensors)}
    of_weights = [ranks[pair.weight_name] for pair in pairs]
    return folded(file, content, norms, of_weights if in_order else None)


def noted(
    file: str, tensors: Mapping[str, np.ndarray[Any, Any]], notes: Mapping[str, Any]
) -> list[Pair] | None:
    """The layers as the notes name them, unless these are not the tensors of the file."""
    names = notes.get("layers", [])
    stated = [name for layer in names for name in layer if name is not None]
    if not names or set(stated) != set(tensors):
        return None
    ranks = {name: rank for layer in names for name, rank in zip(layer, (2, 1), strict=True)}
    odd = [name for name in stated if tensors[name].ndim != ranks[name]]
    if odd or len(set(stated)) < len(stated):
        what = (
            f"tensor {odd[0]!r} has shape {tensors[odd[0]].shape}" if odd else "a tensor is twice"
        )
        raise PFNMError(
            f"{file}: the notes under 'pfnm' name layers that are none ({what}, expected each "
            "layer's weight of two axes and bias of one); remove them"
        )
    return [
        Pair(
            weight,
            floats(file, weight, tensors[weight]),
            bias,
            None if bias is None else floats(file, bias, tensors[bias]),
        )
        for weight, bias in names
    ]


def paired(file: str, tensors: Mapping[str, np.ndarray[Any, Any]]) -> list[Pair]:
    """Every weight (two axes) with the bias (one axis) of the same name but for that word."""
    if not tensors:
        raise PFNMError(f"{file}: no tensors in it, expected the weights of a network")
    for name, tensor in tensors.items():
        a_bias = takes_out(BIAS_WORDS, name) and not takes_out(WEIGHT_WORDS, name)
        if looks_like_layer_norm(name, tensor):
            raise PFNMError(
                f"{file}: tensor {name!r} of shape {tensor.shape} looks like a normalisation "
                "layer's without running statistics (LayerNorm or the like), which no weights can "
                "take over; pfnm fuses multilayer perceptrons without it (BatchNorm1d is folded)"
            )
        if tensor.ndim > 2:
            raise PFNMError(
                f"{file}: tensor {name!r} of shape {tensor.shape} looks like a convolution's or "
                "another layer's with more than two axes, expected the weights (two axes) and "
                "biases (one axis) of a multilayer perceptron; for other architectures give the "
                "class (fuse --model, or model=)"
            )
        if tensor.ndim not in (1, 2) or (a_bias and tensor.ndim == 2 and 1 in tensor.shape):
            raise PFNMError(
                f"{file}: tensor {name!r} has shape {tensor.shape}, expected the weights (two "
                "axes) and biases (one axis) of a multilayer perceptron"
            )
    checked = {name: floats(file, name, tensor) for name, tensor in tensors.items()}
    weights_by_rest: dict[str, list[str]] = {}
    for name, tensor in checked.items():
        if tensor.ndim == 2:
            for rest in takes_out(WEIGHT_WORDS, name) or {bare(name)}:
                weights_by_rest.setdefault(rest, []).append(name)
    owners = {
        bias: list(
            dict.fromkeys(
                weight
                for rest in takes_out(BIAS_WORDS, bias)
                for weight in weights_by_rest.get(rest, ())
            )
        )
        for bias in checked
        if checked[bias].ndim == 1
    }
    bias_of: dict[str, str] = {}
    for bias, weights in owners.items():
        if len(weights) != 1 or weights[0] in bias_of:
            found = f"belongs to {listed(weights)}" if weights else "belongs to no weight"
            raise PFNMError(
                f"{file}: tensor {bias!r} of shape {checked[bias].shape} {found}, expected one "
                f"bias for one weight; {HOW_TO_NAME}"
            )
        bias_of[weights[0]] = bias
    return [
        Pair(name, tensor, bias_of.get(name), checked[bias_of[name]] if name in bias_of else None)
        for name, tensor in checked.items()
        if tensor.ndim == 2
    ]


@lru_cache(MOST_NAMES)
def takes_out(words: str, name: str) -> frozenset[str]:
    """What is left of a name when one of the words in it is taken out, for each place it stands."""
    places = re.finditer(rf"(?<![a-zA-Z])({words})(?![a-zA-Z])", name, re.IGNORECASE)
    return frozenset(bare(name[: place.start()] + name[place.end() :]) for place in places)


def bare(name: str) -> str:
    """A name without the signs that only hold its parts together."""
    return re.sub(r"[\W_]+", ".", name).strip(".")


def inferred(file: str, pairs: list[Pair], in_order: bool) -> tuple[list[Pair], bool]:
    """The pairs in order, and whether weights are (outputs, inputs), from shapes and names."""
    fitting = [transposed for transposed in (True, False) if biases_fit(pairs, transposed)]
    if not fitting:
        odd = next(pair for pair in pairs if pair.bias is not None and misfit(pair))
        assert odd.bias is not None
        raise PFNMError(
            f"{file}: tensor {odd.bias_name!r} has shape {odd.bias.shape}, which fits no way of "
            f"reading {odd.weight_name!r} of shape {odd.weight.shape}; expected one entry for each "
            "output, and all weights stored one way"
        )
    found = {transposed: orders(file, pairs, transposed, in_order) for transposed in fitting}
    possible = [transposed for transposed in fitting if found[transposed]]
    if not possible:
        shapes = listed([f"{pair.weight_name!r} {pair.weight.shape}" for pair in pairs])
        raise PFNMError(
            f"{file}: the layers do not follow one another, found {shapes}; expected each layer's "
            f"outputs to be the next one's inputs; {HOW_TO_NAME}"
        )
    as_torch = all(pair.weight_name.endswith("weight") for pair in pairs)
    transposed = possible[0] if len(possible) == 1 else as_torch
    if len(found[transposed]) > 1:
        same = next(i for i, (a, b) in enumerate(zip(*found[transposed], strict=True)) if a != b)
        first, second = (
            listed([pairs[index].weight_name for index in order[same:]], " -> ")
            for order in found[transposed]
        )
        raise PFNMError(
            f"{file}: the order of the layers is ambiguous, it may be {first} or {second}; "
            f"{HOW_TO_NAME}"
        )
    return [pairs[index] for index in found[transposed][0]], transposed


def biases_fit(pairs: Iterable[Pair], transposed: bool) -> bool:
    """Whether every bias has one entry for each output of its weight."""
    axis = 0 if transposed else 1
    return all(pair.bias is None or len(pair.bias) == pair.weight.shape[axis] for pair in pairs)


def misfit(pair: Pair) -> bool:
    """Whether this pair rules out one of the two orientations."""
    return not (biases_fit([pair], True) and biases_fit([pair], False))


def orders(
    file: str, pairs: Sequence[Pair], transposed: bool, in_order: bool
) -> list[tuple[int, ...]]:
    """The orders in which shapes chain and numbered names count up: none, one, or two of many."""
    ends = [pair.weight.shape[::-1] if transposed else pair.weight.shape for pair in pairs]
    if in_order and all(below[1] == above[0] for below, above in pairwise(ends)):
        return [tuple(range(len(pairs)))]
    series: dict[str, list[int]] = {}
    for index in sorted(range(len(pairs)), key=lambda i: numbers(pairs[i].weight_name)):
        series.setdefault(re.sub(r"\d+", "#", pairs[index].weight_name), []).append(index)
    found: list[tuple[int, ...]] = []
    for order in Walk(ends, list(series.values())).orders():
        if order is None:
            raise PFNMError(
                f"{file}: the order of these {len(pairs)} layers cannot be told from their shapes "
                f"in reasonable time; {HOW_TO_NAME}"
            )
        found.append(order)
        if len(found) == 2:
            break
    return found


def listed(texts: Sequence[str], sign: str = ", ") -> str:
    """The first few of these in one line."""
    return sign.join([*texts[:MOST_LISTED], *(["..."] if len(texts) > MOST_LISTED else [])])


def numbers(name: str) -> tuple[int, ...]:
    """The numbers in a name, so that fc2 comes before fc10."""
    return tuple(int(digits) for digits in re.findall(r"\d+", name))
