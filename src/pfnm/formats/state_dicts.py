"""State dicts: mappings from names to tensors, bare or inside a checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pfnm.errors import PFNMError
from pfnm.formats.limits import check_name
from pfnm.formats.naming import BIAS_WORDS, WEIGHT_WORDS, takes_out

# Under which keys people save a model's state dict, beside an optimiser's state and an epoch.
STATE_DICT_KEYS = (
    "state_dict",
    "model_state_dict",
    "model_state",
    "model",
    "module",
    "net",
    "network",
    "weights",
    "params",
)
DEEPEST = 3  # mappings within mappings that are searched; a checkpoint has one or two
PLAIN = (bool, int, float, complex, str, bytes, np.generic, type(None))
WAY_OUT = "save model.state_dict() with torch.save"


def find_state_dict(file: str, stored: object) -> dict[str, Any]:
    """The tensors of the one mapping that holds a model's weights; what stands beside is left out.

    A mapping with a tensor of two axes is taken for a state dict, wherever it stands but in an
    optimiser's state. Of several the one under a usual key counts.
    """
    chosen = one_state_dict(file, stored)
    for name in chosen:
        if isinstance(name, str):
            check_name(file, name)
    tensors = {name: value for name, value in chosen.items() if is_tensor(value)}
    for name, value in chosen.items():
        if name in tensors and not isinstance(name, str):
            raise PFNMError(
                f"{file}: entry {name!r} of the state dict has no text as its name; {WAY_OUT}"
            )
        # Left out without a word, a weight of another kind would leave the network half read.
        if name not in tensors and names_a_tensor(name) and not isinstance(value, PLAIN):
            raise PFNMError(
                f"{file}: entry {name!r} of the state dict is {kind_of(value)}, expected a tensor; "
                f"{WAY_OUT}"
            )
    if not tensors:
        held = ", ".join(f"{key!r} ({kind_of(value)})" for key, value in list(chosen.items())[:5])
        raise PFNMError(
            f"{file}: found a mapping with {held or 'nothing in it'}, expected a state dict, bare "
            f"or in a checkpoint; {WAY_OUT}"
        )
    return tensors


def one_state_dict(file: str, stored: object) -> Mapping[Any, Any]:
    """The mapping that holds a model's weights, or the outermost if none does."""
    if not isinstance(stored, Mapping):
        raise PFNMError(
            f"{file}: found {kind_of(stored)}, expected a state dict, bare or in a checkpoint; "
            f"{WAY_OUT}"
        )
    found = dict(state_dicts(stored))
    if len(found) < 2:
        return next(iter(found.values()), stored)
    for usual in (list(found), [path.rpartition(".")[2] for path in found]):
        under = [path for path, key in zip(found, usual, strict=True) if key in STATE_DICT_KEYS]
        if len(under) == 1:
            return found[under[0]]
    raise PFNMError(
        f"{file}: it holds several state dicts, under {', '.join(map(repr, found))}; save the one "
        "to fuse alone"
    )


def state_dicts(
    stored: Mapping[Any, Any], path: str = "", depth: int = 0
) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    """Every mapping that holds weights, with the keys that lead to it."""
    if {"state", "param_groups"} <= set(stored):  # an optimiser's
        return
    if any(is_tensor(value) and value.ndim >= 2 for value in stored.values()):
        yield path, stored
        return
    for key, value in stored.items():
        of_optimiser = isinstance(key, str) and "optim" in key.lower()
        if isinstance(value, Mapping) and not of_optimiser and depth < DEEPEST:
            yield from state_dicts(value, f"{path}.{key}" if path else str(key), depth + 1)


def is_tensor(value: object) -> bool:
    """Whether this is an array of numpy or a tensor of PyTorch, which is not imported for that."""
    torch = sys.modules.get("torch")
    return isinstance(value, np.ndarray) or (torch is not None and isinstance(value, torch.Tensor))


def names_a_tensor(name: object) -> bool:
    """Whether an entry of this name should be a weight or a bias."""
    return isinstance(name, str) and bool(takes_out(f"{WEIGHT_WORDS}|{BIAS_WORDS}", name))


def kind_of(value: object) -> str:
    """The name of an object's kind, of one that was not read too."""
    return str(getattr(type(value), "stands_for", type(value).__name__))


def to_numpy(file: str, name: str, value: Any) -> np.ndarray[Any, Any]:
    """A tensor of a state dict as an array."""
    if isinstance(value, np.ndarray):
        return value
    import torch

    value = value.detach()
    if value.layout != torch.strided or value.is_nested or value.is_meta:
        raise PFNMError(
            f"{file}: tensor {name!r} is sparse, nested or without data ({value.layout}, "
            f"{value.device}), expected a dense one; save it after to_dense()"
        )
    try:
        array: np.ndarray[Any, Any] = (
            value.float() if value.dtype == torch.bfloat16 else value
        ).numpy(force=True)
    except (TypeError, RuntimeError) as error:  # float8 and quantised types, which numpy lacks
        raise PFNMError(
            f"{file}: tensor {name!r} holds {value.dtype}, expected floating point of 16 bits or "
            "more; save the trained weights unquantised"
        ) from error
    return array
