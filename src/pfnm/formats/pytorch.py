"""PyTorch checkpoints: a state dict, bare or under one of the usual keys."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np

from pfnm.core.errors import PFNMError
from pfnm.core.network import Network
from pfnm.formats.content import Content, notes_of
from pfnm.formats.naming import arrange

STATE_DICT_KEYS = ("state_dict", "model_state_dict", "model")
PICKLE_START = b"\x80"  # the first byte of a pickle; a checkpoint of today begins as a zip
WAY_OUT = "save model.state_dict() with torch.save"


def read(path: Path, file: str) -> Content:
    """The layers of a checkpoint. Only tensors are read: no code in the file is ever run."""
    import torch

    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except (UnpicklingError, RuntimeError) as error:
        culprit = re.search(r"GLOBAL (\S+)|(TorchScript)", str(error))
        with path.open("rb") as opened:
            pickled = opened.read(len(PICKLE_START)) == PICKLE_START
        if culprit or (pickled and "Unsupported operand" in str(error)):
            what = f" ({culprit[1] or culprit[2]})" if culprit else ""
            raise PFNMError(
                f"{file}: it holds more than tensors{what}, which pfnm does not load because it "
                f"could run code; {WAY_OUT}"
            ) from error
        raise PFNMError(
            f"{file}: it is no PyTorch checkpoint, or it is damaged; {WAY_OUT}"
        ) from error
    state_dict = find_state_dict(file, stored)
    tensors = {name: to_numpy(file, name, value) for name, value in state_dict.items()}
    notes = {} if stored is state_dict else stored.get("pfnm", {})
    return arrange(file, tensors, notes, in_order=True)


def find_state_dict(file: str, stored: object) -> Mapping[str, Any]:
    """The mapping from names to tensors, bare or under one of the usual keys."""
    import torch

    if isinstance(stored, Mapping):
        for key in STATE_DICT_KEYS:
            if isinstance(stored.get(key), Mapping):
                state_dict: Mapping[str, Any] = stored[key]
                return state_dict
        if any(isinstance(value, torch.Tensor) for value in stored.values()):
            return stored
        found = f"a mapping with the keys {list(stored)[:5]}"
    else:
        found = type(stored).__name__
    raise PFNMError(
        f"{file}: found {found}, expected a state dict, bare or under one of "
        f"{', '.join(STATE_DICT_KEYS)}; {WAY_OUT}"
    )


def to_numpy(file: str, name: object, value: object) -> np.ndarray[Any, Any]:
    """A tensor of the state dict as an array."""
    import torch

    if not isinstance(value, torch.Tensor) or not isinstance(name, str):
        raise PFNMError(
            f"{file}: entry {name!r} of the state dict is {type(value).__name__}, expected a "
            f"tensor; {WAY_OUT}"
        )
    value = value.detach()
    if value.layout != torch.strided or value.is_nested or value.is_meta:
        raise PFNMError(
            f"{file}: tensor {name!r} is sparse, nested or without data ({value.layout}, "
            f"{value.device}), expected a dense one; save it after to_dense()"
        )
    try:
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    except (TypeError, RuntimeError) as error:  # float8 and quantised types, which numpy lacks
        raise PFNMError(
            f"{file}: tensor {name!r} holds {value.dtype}, expected floating point of 16 bits or "
            "more; save the trained weights unquantised"
        ) from error


def write(network: Network) -> bytes:
    """The network as {"state_dict": ..., "pfnm": notes}, which weights_only loading accepts."""
    import torch

    state_dict = {name: torch.tensor(tensor) for name, tensor in network.tensors.items()}
    buffer = io.BytesIO()
    torch.save({"state_dict": state_dict, "pfnm": notes_of(network)}, buffer)
    return buffer.getvalue()
