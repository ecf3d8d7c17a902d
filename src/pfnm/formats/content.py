"""What a file holds, before the caller's own words are added, and the notes pfnm leaves in it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np

from pfnm.core.errors import PFNMError
from pfnm.core.mlp import layers
from pfnm.core.network import Label, Network, Tensor

OWN_NOTES = ("version", "activation", "output", "labels", "layers", "transposed")


@dataclass(frozen=True)
class Content:
    """The layers of a file, weights as (inputs, outputs), and what the file itself says of them.

    `activation`, `output` and `labels` are set where the file's kind states them (ONNX,
    scikit-learn); `notes` is what pfnm wrote when it made the file.
    """

    weights: Sequence[Tensor]
    biases: Sequence[Tensor | None]
    names: Sequence[tuple[str, str | None]]
    transposed: bool
    activation: str | None = None
    output: str | None = None
    labels: tuple[Label, ...] | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def metadata(self) -> dict[str, Any]:
        """The notes that are the network's own metadata."""
        return {key: value for key, value in self.notes.items() if key not in OWN_NOTES}


def notes_of(network: Network) -> dict[str, Any]:
    """The notes to write beside a network's tensors: its metadata, and how to read it back.

    The order of the layers is among them, because a file may sort its tensors by name.
    """
    stack = layers(network)
    if len({layer.transposed for layer in stack}) > 1:
        raise PFNMError(
            f"{network.name}: some weights are (outputs, inputs), some (inputs, outputs); store "
            "them all one way"
        )
    taken = [key for key in OWN_NOTES if key in network.metadata]
    if taken:
        raise PFNMError(
            f"{network.name}: metadata key {taken[0]!r} is one pfnm writes itself; rename it"
        )
    notes = {
        **network.metadata,
        "version": version("pfnm"),
        "activation": network.activation,
        "output": network.output,
        "labels": None if network.labels is None else list(network.labels),
        "layers": [[layer.weight_name, layer.bias_name] for layer in stack],
        "transposed": stack[0].transposed,
    }
    try:
        json.dumps(notes)
    except (TypeError, ValueError) as error:
        raise PFNMError(
            f"{network.name}: labels or metadata cannot be written as JSON ({error}); use plain "
            "texts, numbers, lists and mappings"
        ) from error
    return notes


def as_notes(file: str, stored: Any) -> dict[str, Any]:
    """What a file holds in the place of our notes, if it is of their form."""
    forms = {"activation": str, "output": str, "labels": list | None, "layers": list}
    if not isinstance(stored, dict) or any(
        key in stored and not isinstance(stored[key], form) for key, form in forms.items()
    ):
        raise PFNMError(f"{file}: the notes under 'pfnm' are not as pfnm writes them; remove them")
    return stored


def floats(file: str, name: str, tensor: np.ndarray[Any, Any]) -> Tensor:
    """The tensor if it is floating point (bfloat16, which numpy lacks, as float32)."""
    if tensor.dtype.name == "bfloat16":
        return tensor.astype(np.float32)
    if not np.issubdtype(tensor.dtype, np.floating):
        raise PFNMError(
            f"{file}: tensor {name!r} holds {tensor.dtype}, expected floating point; save the "
            "trained weights unquantised"
        )
    return tensor
