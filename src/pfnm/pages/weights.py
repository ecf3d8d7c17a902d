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
from pfnm.networks.network import Array, Network, Tensor
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
    """The mean correlation of weights of two sites whose units were matched."""
    unlikeness: float | None = None
    """The same of two whose units were not."""

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
    """The units that count most, where inputs are pictures or weights small ones: what a unit
    passes on counts once for each site that has it.

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
    counting = popularity * _passed_on(network, group)
    counting[popularity < 2] = 0.0  # of two sites, there is something to compare
    shown = np.argsort(-counting, kind="stable")[:MOST_UNITS]
    own = [_pictures(sites.plain(one), first, grid) for one in sites.networks]
    found: list[Strip] = []
    compared: list[tuple[int, Tensor]] = []
    for unit in shown:
        members = [
            (name, int(place), pictures[place])
            for name, pictures, assignment in zip(
                sites.names, own, solution.assignments[group], strict=True
            )
            if pictures is not None
            for place in np.flatnonzero(assignment == unit)
        ]
        compared += [(int(unit), picture) for _, _, picture in members[:MOST_SITES]]
        pictured = [(name, place, _png(own)) for name, place, own in members[:MOST_SITES]]
        more = max(0, len(members) - MOST_SITES)
        found.append(Strip(f"unit {unit}", _png(fused[unit]), pictured, more))
    return Strips(found, *_likeness(compared))


def _likeness(compared: Sequence[tuple[int, Tensor]]) -> tuple[float | None, float | None]:
    """The mean correlation of pictures of one unit, and of different ones.

    Not with the fused unit: a mean is like what it is the mean of, whatever that is.
    """
    units = np.array([unit for unit, _ in compared])
    rows = np.array([picture.ravel() for _, picture in compared], float)
    rows -= rows.mean(axis=1, keepdims=True)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(float).tiny)
    correlations, same = rows @ rows.T, units[:, None] == units
    pairs = np.triu(np.ones_like(same), 1)
    alike, unlike = correlations[pairs & same], correlations[pairs & ~same]
    return (
        float(alike.mean()) if alike.size else None,
        float(unlike.mean()) if unlike.size else None,
    )


def _passed_on(network: Network, group: str) -> Array:
    """Of each unit of a group, the norm of all weights that read it."""
    found = np.zeros(network.sizes[group])
    for own in network.program.maps:
        if network.graph.axes[own.weight][own.reads].space == group:
            weight = np.moveaxis(network.tensors[own.weight], own.reads, 0)
            found += np.square(weight.reshape(found.size, -1).astype(float)).sum(axis=1)
    return np.sqrt(found) if found.any() else np.ones_like(found)


def _from_input(network: Network, own: Map) -> bool:
    """Whether a map leads from the inputs to units that can be matched; a picture of one channel
    has an axis of length one in their place.
    """
    axes = network.graph.axes[own.weight]
    group, reads = axes[own.writes].space, axes[own.reads]
    return (reads.space == INPUT or not reads.spaces) and group in network.graph.outer_groups


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
