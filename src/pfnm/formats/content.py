"""What a file holds, before the caller's own words are added, and the notes pfnm leaves in it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from pfnm.errors import PFNMError
from pfnm.formats.limits import JSON_BYTES, Allowance
from pfnm.networks.network import Label, Network, Scaling, Tensor
from pfnm.networks.perceptron import layers

OWN_NOTES = (
    "version",
    "activation",
    "output",
    "labels",
    "layers",
    "transposed",
    "features",
    "scaling",
)
MOST_NOTED = 2_000_000  # values in our notes; the scaling of 400,000 inputs has 1,600,000
DEEPEST_NOTE = 100  # lists within lists
SCALING = ("centre", "scale", "low", "high")  # what a scaling is in our notes, a list of each
LOOKS_LIKE_DATA = (
    "it looks like data, expected a network; data goes to `pfnm evaluate MODEL --data FILE`"
)


@dataclass(frozen=True)
class Content:
    """The layers of a file, weights as (inputs, outputs), and what the file itself says of them.

    `activation`, `output`, `labels`, `features` and `scaling` are set where the file's kind states
    them (ONNX, scikit-learn); `notes` is what pfnm wrote when it made the file.
    """

    weights: Sequence[Tensor]
    biases: Sequence[Tensor | None]
    names: Sequence[tuple[str, str | None]]
    transposed: bool
    activation: str | None = None
    output: str | None = None
    labels: tuple[Label, ...] | None = None
    features: tuple[str, ...] | None = None
    scaling: Scaling | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def metadata(self) -> dict[str, Any]:
        """The notes that are the network's own metadata."""
        return {key: value for key, value in self.notes.items() if key not in OWN_NOTES}

    @property
    def inputs_told(self) -> dict[str, Any]:
        """The inputs' names and scaling, from the file itself or else from its notes."""
        noted = self.notes.get("scaling")
        columns = None if noted is None else (np.array(noted[key], float) for key in SCALING)
        return {
            "features": self.features or self.notes.get("features"),
            "scaling": self.scaling or (None if columns is None else Scaling(*columns)),
        }


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
        "version": own_version(),
        **({"activation": network.activation} if network.activation_told else {}),
        "output": network.output,
        "labels": None if network.labels is None else list(network.labels),
        "layers": [[layer.weight_name, layer.bias_name] for layer in stack],
        "transposed": stack[0].transposed,
    }
    if network.features is not None:
        notes["features"] = list(network.features)
    if network.scaling is not None:
        notes["scaling"] = {key: getattr(network.scaling, key).tolist() for key in SCALING}
    try:
        json.dumps(notes)
    except (TypeError, ValueError, RecursionError) as error:
        raise PFNMError(
            f"{network.name}: labels or metadata cannot be written as JSON ({error}); use plain "
            "texts, numbers, lists and mappings"
        ) from error
    odd = ill_formed(notes)
    if odd is not None:
        raise PFNMError(
            f"{network.name}: {odd!r} in the metadata must be a list of {{'name': ...}}"
        )
    return notes


class Stored(NamedTuple):
    """What a file of named tensors holds: the tensors, and our notes beside them."""

    tensors: dict[str, Any]
    notes: dict[str, Any]


@cache
def own_version() -> str:
    """The version of pfnm, which is looked up among all packages once."""
    return version("pfnm")


def parsed_notes(file: str, text: str | bytes, allowance: Allowance) -> dict[str, Any]:
    """Our notes from the text that stands for them in a file."""
    allowance.take("its notes under 'pfnm'", JSON_BYTES * len(text))
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ill_formed_notes(file, "pfnm") from error
    return as_notes(file, stored)


def as_notes(file: str, stored: Any) -> dict[str, Any]:
    """What a file holds in the place of our notes, if it is of their form."""
    if not isinstance(stored, dict) or not is_json(stored):  # a checkpoint may hold tensors here
        raise ill_formed_notes(file, "pfnm")
    odd = ill_formed(stored)
    if odd is not None:
        raise ill_formed_notes(file, odd)
    return dict(stored)


def ill_formed_notes(file: str, odd: str) -> PFNMError:
    """The error for notes that pfnm cannot have written."""
    return PFNMError(
        f"{file}: the notes under 'pfnm' are not as pfnm writes them (see {odd!r}); remove them"
    )


def is_json(stored: object) -> bool:
    """Whether this is nothing but texts, numbers, lists and mappings, in reasonable number.

    A list may hold another one many times, which takes no room here but much when written out.
    """
    values, count = [(stored, 0)], 0
    while values:
        value, depth = values.pop()
        count += 1
        if count > MOST_NOTED or depth > DEEPEST_NOTE:
            return False
        if isinstance(value, dict):
            if not all(isinstance(key, str) for key in value):
                return False
            values += [(inner, depth + 1) for inner in value.values()]
        elif isinstance(value, list):
            values += [(inner, depth + 1) for inner in value]
        elif not isinstance(value, str | int | float | None):
            return False
    return True


def ill_formed(notes: Mapping[str, Any]) -> str | None:
    """The first of our notes that is not of its form, if any."""
    right: dict[str, Callable[[Any], bool]] = {
        "activation": lambda value: isinstance(value, str),
        "output": lambda value: isinstance(value, str),
        "transposed": lambda value: isinstance(value, bool),
        "labels": lambda value: value is None or list_of(value, is_label),
        "layers": lambda value: list_of(value, is_layer),
        "sites": lambda value: list_of(value, is_site),
        "features": lambda value: list_of(value, lambda name: isinstance(name, str)),
        "scaling": is_scaling,
    }
    wrong = (key for key, check in right.items() if key in notes and not check(notes[key]))
    return next(wrong, None)


def list_of(value: object, check: Callable[[Any], bool]) -> bool:
    """Whether this is a list of things that pass the check."""
    return isinstance(value, list) and all(map(check, value))


def is_label(value: object) -> bool:
    """Whether this is a label: a text or a finite number."""
    return isinstance(value, str) or is_finite(value)


def is_layer(value: Any) -> bool:
    """Whether this is a layer in our notes: its weight's name, and its bias's name or none."""
    return list_of(value, lambda name: isinstance(name, str | None)) and (
        len(value) == 2 and value[0] is not None
    )


def is_site(value: object) -> bool:
    """Whether this is a site in our notes: a mapping with its name."""
    return isinstance(value, dict) and isinstance(value.get("name"), str)


def is_scaling(value: Any) -> bool:
    """Whether this is a scaling in our notes: finite numbers, as many of each, scales above 0."""
    if not isinstance(value, dict) or set(value) != set(SCALING):
        return False
    if not all(list_of(numbers, is_finite) for numbers in value.values()):
        return False
    return (
        len({len(numbers) for numbers in value.values()}) == 1
        and all(scale > 0 for scale in value["scale"])
        and all(low <= high for low, high in zip(value["low"], value["high"], strict=True))
    )


def is_finite(value: object) -> bool:
    """Whether this is a number that floating point can hold."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


def floats(file: str, name: str, tensor: np.ndarray[Any, Any]) -> Tensor:
    """The tensor if it is floating point (bfloat16, which numpy lacks, as float32)."""
    if issubclass(tensor.dtype.type, np.floating):
        return tensor
    if tensor.dtype.name == "bfloat16":
        return tensor.astype(np.float32)
    raise PFNMError(
        f"{file}: tensor {name!r} holds {tensor.dtype}, expected floating point; save the trained "
        "weights unquantised"
    )
