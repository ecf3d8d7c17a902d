"""Where a BatchNorm stands, from its name, its width and the file's order.

In one `nn.Sequential` its number tells: right after a linear layer it comes before the activation,
further on after the activation, which is on the inputs of the next layer. Elsewhere
Linear-BatchNorm-activation is assumed, as nearly everybody writes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pfnm.errors import PFNMError
from pfnm.formats.content import Content
from pfnm.networks.network import Array

HOW_TO_PLACE = "number it as its layer (fc1, bn1), or fold it before saving"


class Place(NamedTuple):
    """Where a BatchNorm stands: at which layer, and on its inputs or its outputs."""

    layer: int
    on_inputs: bool


@dataclass(frozen=True)
class BatchNorm:
    """A BatchNorm's tensors are called `stem` + running_mean and so on; it is x * scale + shift."""

    stem: str
    scale: Array
    shift: Array
    rank: int  # of its first tensor among all of the file

    def __str__(self) -> str:
        return f"BatchNorm {self.stem.rstrip('._/') or '(without a name)'!r}"


def placed(
    file: str, content: Content, norms: Sequence[BatchNorm], ranks: Sequence[int] | None
) -> dict[str, Place]:
    """Each BatchNorm's place by its stem: by its number, else by width and order."""
    places = in_sequence(file, content, norms)
    places |= by_number(content, [norm for norm in norms if norm.stem not in places])
    by_width: dict[int, list[BatchNorm]] = {}
    for norm in sorted(norms, key=lambda norm: norm.rank):
        if norm.stem not in places:
            by_width.setdefault(len(norm.scale), []).append(norm)
    for alike in by_width.values():
        free = {
            place: units
            for place, units in open_places(content).items()
            if place not in places.values()
        }
        places |= by_order(content, alike, free, ranks) or by_units(
            file, content, alike, free, in_order=ranks is not None
        )
    return places


def open_places(content: Content) -> dict[Place, int]:
    """Before the first layer and after each one, with the number of units there."""
    after = {Place(i, False): weight.shape[1] for i, weight in enumerate(content.weights)}
    return {Place(0, True): content.weights[0].shape[0], **after}


def in_sequence(file: str, content: Content, norms: Sequence[BatchNorm]) -> dict[str, Place]:
    """Those that are in one nn.Sequential with a layer: their numbers tell all."""
    layers = {seat(weight): i for i, (weight, _) in enumerate(content.names)}
    normalising = {seat(f"{norm.stem}weight") for norm in norms}
    places = {}
    for norm in norms:
        parent, own = seat(f"{norm.stem}weight")
        others = sorted(number for where, number in layers if where == parent and number >= 0)
        if own < 0 or not others:
            continue
        below = max((number for number in others if number < own), default=None)
        if below is None:
            places[norm.stem] = Place(layers[parent, others[0]], True)
            continue
        layer = layers[parent, below]
        if all((parent, between) in normalising for between in range(below + 1, own)):
            places[norm.stem] = Place(layer, False)
        elif layer + 1 < len(content.weights):
            places[norm.stem] = Place(layer + 1, True)
        else:
            raise PFNMError(
                f"{file}: {norm} stands after the activation of the last layer "
                f"({content.names[layer][0]!r}), expected a plain linear layer at the end; no "
                "weights can take it over"
            )
    return places


def seat(name: str) -> tuple[str, int]:
    """The module that holds the module of this tensor, and its number there (-1: it has none)."""
    found = re.fullmatch(r"((?:.*\.)?)(\d+)\.[a-zA-Z_]+", name)
    return (found[1], int(found[2])) if found else (name, -1)


def numbers(norm: BatchNorm) -> list[int]:
    """The numbers in a BatchNorm's name."""
    return [int(digits) for digits in re.findall(r"\d+", norm.stem)]


def by_number(content: Content, norms: Sequence[BatchNorm]) -> dict[str, Place]:
    """Those whose name has the numbers of one layer: fc1 and bn1, blocks.0.linear and its norm.

    All of them stand after their layer, or before it if only that fits and the first layer has one.
    """
    of_layers = [re.findall(r"\d+", weight) for weight, _ in content.names]
    layer_of = {}
    for norm in norms:
        own = re.findall(r"\d+", norm.stem)
        if own and of_layers.count(own) == 1:
            layer_of[norm.stem] = of_layers.index(own)
    if len(set(layer_of.values())) < len(layer_of):
        return {}
    units = {norm.stem: len(norm.scale) for norm in norms}
    for on_inputs in (False, True):
        axis = 0 if on_inputs else 1
        fits = all(units[stem] == content.weights[i].shape[axis] for stem, i in layer_of.items())
        if fits and (not on_inputs or 0 in layer_of.values()):
            return {stem: Place(i, on_inputs) for stem, i in layer_of.items()}
    return {}


def by_order(
    content: Content,
    norms: Sequence[BatchNorm],
    free: Mapping[Place, int],
    ranks: Sequence[int] | None,
) -> dict[str, Place]:
    """Each after the layer that stands before it in the file, if that fits; else nothing.

    After the last layer there is seldom a BatchNorm, but often those that were defined later.
    """
    places: dict[str, Place] = {}
    for norm in norms if ranks is not None else ():
        assert ranks is not None
        before = [layer for layer, rank in enumerate(ranks) if rank < norm.rank]
        place = Place(before[-1], False) if before else Place(0, True)
        if free.get(place) != len(norm.scale) or place.layer == len(content.weights) - 1 > 0:
            return {}
        places[norm.stem] = place
    return places if len(set(places.values())) == len(places) else {}


def by_units(
    file: str,
    content: Content,
    norms: Sequence[BatchNorm],
    free: Mapping[Place, int],
    *,
    in_order: bool,
) -> dict[str, Place]:
    """These, all of one width, where the layers of that width leave no choice."""
    units = len(norms[0].scale)
    start, end = Place(0, True), Place(len(content.weights) - 1, False)
    hidden = [place for place in free if place not in (start, end)]
    rows = [[start, *hidden], [start, *hidden, end]]
    if in_order:  # a file in order would have a BatchNorm of the inputs first
        rows.insert(0, hidden)
    alike = len({re.sub(r"\d+", "#", norm.stem) for norm in norms}) == 1
    if not in_order:
        norms = sorted(norms, key=numbers)
    for row in rows:
        fitting = [place for place in row if free.get(place) == units]
        if len(fitting) > len(norms) or (
            len(fitting) == len(norms) > 1 and not (in_order or alike)
        ):
            found = ", ".join(
                repr(content.names[place.layer][0]) + (" (inputs)" if place.on_inputs else "")
                for place in fitting
            )
            raise PFNMError(
                f"{file}: it cannot be told where {norms[0]} of {units} units stands, it fits "
                f"{found}; {HOW_TO_PLACE}"
            )
        if len(fitting) == len(norms):
            return dict(zip((norm.stem for norm in norms), fitting, strict=True))
    shapes = ", ".join(
        f"{name!r} {weight.shape}"
        for (name, _), weight in zip(content.names, content.weights, strict=True)
    )
    raise PFNMError(
        f"{file}: {norms[0]} has {units} units, which fits no layer that has none yet (weights as "
        f"inputs by outputs: {shapes}); {HOW_TO_PLACE}"
    )
