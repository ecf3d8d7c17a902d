"""Incoming weights as small pictures: each site's unit beside the fused one."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pfnm.errors import PFNMError
from pfnm.fusing.choosing import guessed_grid
from pfnm.fusing.inputs import Inputs, Scaled, WithUnits
from pfnm.fusing.kinds import Pictures
from pfnm.fusing.sites import Sites
from pfnm.fusing.solution import Solution
from pfnm.networks.graph import INPUT
from pfnm.networks.network import Network, Tensor
from pfnm.networks.program import Map
from pfnm.pages.text import text

MOST_UNITS = 8  # that are shown
MOST_SITES = 12  # of one unit
COLOURED = 3  # channels that are shown as colours
LEAST_SIDE = 3  # pixels: smaller kernels show nothing
# Red, green and blue; which colour-blind people can tell apart.
NEGATIVE, NONE, POSITIVE = (
    np.array(own, float) for own in ((33, 102, 172), (247, 247, 247), (200, 80, 10))
)


@dataclass(frozen=True)
class Strip:
    """One global unit: its picture, and those of the sites' units it was made of."""

    title: str
    fused: str
    """A PNG as a data address."""
    members: Sequence[tuple[str, int, str]]
    """The site, its unit, and the picture."""
    more: int
    """Members that are not shown."""


@dataclass(frozen=True)
class Strips:
    """Several units, one below the other."""

    units: Sequence[Strip]
    likeness: float | None = None
    """The mean correlation of the sites' weights with those of the fused unit they belong to."""
    unlikeness: float | None = None
    """The same with the other units that are shown."""

    def html(self, name: str) -> str:
        """Each in a row that scrolls by itself."""
        return "<div class='strips'>" + "".join(_strip_html(own) for own in self.units) + "</div>"


def _strip_html(strip: Strip) -> str:
    members = "".join(
        f"<figure><img src='{picture}' alt='Weights of {text(site)}, unit {unit}'><figcaption>"
        f"<span title='{text(site)}'>{text(site)}</span>unit {unit}</figcaption></figure>"
        for site, unit, picture in strip.members
    )
    more = f"<p>and {strip.more:,} more</p>" if strip.more else ""
    return (
        f"<div class='strip' tabindex='0' role='group' aria-label='{text(strip.title)}'><figure>"
        f"<img src='{strip.fused}' alt='Weights of fused {text(strip.title)}'>"
        f"<figcaption>{text(strip.title)}</figcaption></figure>{members}{more}</div>"
    )


def strips(network: Network, inputs: Inputs | None, solution: Solution | None, sites: Sites | None
           ) -> Strips | None:  # fmt: skip
    """The units that the most sites share, where inputs are pictures or weights small ones.

    inputs: their kind, where it is known. Of a file alone, which does not hold the sites, the units
    with the largest weights.
    """
    first = next((own for own in network.program.maps if _from_input(network, own)), None)
    if first is None:
        return None
    group = network.graph.axes[first.weight][first.writes].space
    grid = _grid(inputs, [network] if sites is None else sites.networks)
    fused = _pictures(network, first, grid)
    if fused is None or group is None:
        return None
    if solution is None or sites is None:
        strongest = np.argsort(-np.square(fused).sum(axis=(1, 2, 3)), kind="stable")[:MOST_UNITS]
        return Strips([Strip(f"unit {unit}", _png(fused[unit]), (), 0) for unit in strongest])
    sites.check_unchanged()
    popularity = solution.popularity[group]
    shown = np.argsort(-popularity, kind="stable")[:MOST_UNITS]
    own = [_pictures(sites.plain(one), first, grid) for one in sites.networks]
    found: list[Strip] = []
    alike: list[float] = []
    unlike: list[float] = []
    for row, unit in enumerate(shown):
        members = [
            (name, int(place), pictures[place])
            for name, pictures, assignment in zip(
                sites.names, own, solution.assignments[group], strict=True
            )
            if pictures is not None
            for place in np.flatnonzero(assignment == unit)
        ]
        for _, _, picture in members:
            likeness = _correlations(picture, fused[shown])
            alike.append(likeness[row])
            unlike.extend(np.delete(likeness, row))
        pictured = [(name, place, _png(own)) for name, place, own in members[:MOST_SITES]]
        more = max(0, len(members) - MOST_SITES)
        found.append(Strip(f"unit {unit}", _png(fused[unit]), pictured, more))
    return Strips(found, float(np.mean(alike)), float(np.mean(unlike)) if unlike else None)


def _correlations(picture: Tensor, others: Tensor) -> Tensor:
    """Of one picture's weights with those of several."""
    rows = np.concatenate([picture[None], others]).reshape(1 + len(others), -1).astype(float)
    rows -= rows.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(rows, axis=1)
    least = np.finfo(float).tiny
    found: Tensor = rows[1:] @ rows[0] / np.maximum(norms[1:] * norms[0], least)
    return found


def _from_input(network: Network, own: Map) -> bool:
    """Whether a map leads from the inputs to units that can be matched."""
    axes = network.graph.axes[own.weight]
    group = axes[own.writes].space
    return axes[own.reads].space == INPUT and group in network.graph.outer_groups


def _grid(inputs: Inputs | None, networks: Sequence[Network]) -> Pictures | None:
    """How a row of inputs is a picture, told or guessed."""
    while isinstance(inputs, WithUnits | Scaled):
        inputs = inputs.kind
    if isinstance(inputs, Pictures):
        return inputs
    return guessed_grid(networks) if networks[0].program.examples is None else None


def _pictures(network: Network, first: Map, grid: Pictures | None) -> Tensor | None:
    """The weights of each unit as a picture, (units, channels, height, width); None without."""
    weight = np.moveaxis(network.tensors[first.weight], (first.writes, first.reads), (0, 1))
    if weight.ndim == 2 and grid is not None and grid.size == weight.shape[1]:
        across = (grid.height, grid.width)
        if grid.channels_last:
            weight = np.moveaxis(weight.reshape(-1, *across, grid.channels), -1, 1)
        else:
            weight = weight.reshape(-1, grid.channels, *across)
    seen = weight.ndim == 4 and weight.shape[1] in (1, COLOURED)
    return weight if seen and min(weight.shape[2:]) >= LEAST_SIDE else None


def _png(weights: Tensor) -> str:
    """A picture of weights (channels, height, width) between their largest size, as an address."""
    try:
        from PIL import Image
    except ImportError:
        raise PFNMError("a report needs Pillow; pip install 'pfnm[report]'") from None
    values = np.asarray(weights, float)
    scaled = values / max(float(np.abs(values).max()), np.finfo(float).tiny)
    if len(scaled) == COLOURED:
        pixels = 255 * (np.moveaxis(scaled, 0, -1) + 1) / 2
    else:
        size = np.abs(scaled[0])[..., None]
        pixels = (1 - size) * NONE + size * np.where(scaled[0][..., None] < 0, NEGATIVE, POSITIVE)
    file = io.BytesIO()
    Image.fromarray(np.round(pixels).astype(np.uint8)).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
