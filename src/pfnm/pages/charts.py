"""Charts as Vega-Lite specifications: few kinds, one look, colours that follow the page's theme."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # a name: nothing is fetched
SERIES = 12  # colours for series in page.css
STEPS = 7  # of the ramp from little to much
SHAPES = {  # and how they look in text; seven, so that with twelve colours no pair comes twice soon
    "circle": "\N{BLACK CIRCLE}",
    "square": "\N{BLACK SQUARE}",
    "triangle-up": "\N{BLACK UP-POINTING TRIANGLE}",
    "diamond": "\N{BLACK DIAMOND}",
    "cross": "\N{HEAVY GREEK CROSS}",
    "triangle-down": "\N{BLACK DOWN-POINTING TRIANGLE}",
    "triangle-right": "\N{BLACK RIGHT-POINTING TRIANGLE}",
}
QUIET = "var(--quiet)"
LOG_ROOM = 1.25  # beyond the least and the most on a logarithmic axis
MOST_POWERS = 5  # of ten, between which there is a tick more
ROW = 22  # pixels for a bar or a row with a label
MOST_LABEL = 22  # characters of a label beside a row
TARGET = 300  # square pixels around a point that answer the mouse

Spec = dict[str, Any]
Colours = Mapping[str, str]
"""Series by name, and the colour of each."""


@dataclass(frozen=True)
class Chart:
    """A specification without its data, the data, and what is to be seen, in words."""

    title: str
    says: str
    spec: Spec
    columns: Mapping[str, str]
    """The names the specification knows, and how they read in a table."""
    rows: Sequence[Sequence[Any]]
    steps: Mapping[str, str] = field(default_factory=dict)
    """What colours of a ramp mean."""


def series_colour(place: int) -> str:
    """The colour of a series."""
    return f"var(--series-{place % SERIES})"


def coloured(names: Iterable[str]) -> dict[str, str]:
    """A colour for each series, in their order."""
    return {name: series_colour(place) for place, name in enumerate(names)}


def step_colour(place: int) -> str:
    """A colour of the ramp, from little to much."""
    return f"var(--step-{place})"


def spread_steps(number: int) -> list[str]:
    """So many colours of the ramp, as far apart as can be."""
    if number == 1:
        return [step_colour(STEPS // 2)]
    return [step_colour(round(place * (STEPS - 1) / (number - 1))) for place in range(number)]


def base(height: int | Spec, **more: Any) -> Spec:
    """What all charts have: they are as wide as their place."""
    return {
        "$schema": SCHEMA,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        **more,
    }


def axis(name: str, title: str | None, kind: str = "quantitative", **more: Any) -> Spec:
    """A channel along an axis."""
    return {"field": name, "type": kind, "title": title, **more}


def tip(*fields: tuple[str, str] | tuple[str, str, str]) -> list[Spec]:
    """What the mouse is told: name, title and where it is a number its format."""
    found = []
    for name, title, *form in fields:
        own: Spec = {"field": name, "title": title, "type": "quantitative" if form else "nominal"}
        found.append(own | ({"format": form[0]} if form else {}))
    return found


def by_series(series: Colours, name: str = "series") -> Spec:
    """Colours for series, which buttons above the chart explain."""
    return {
        "field": name,
        "type": "nominal",
        "legend": None,
        "scale": {"domain": list(series), "range": list(series.values())},
    }


def marks_of(series: Iterable[str]) -> dict[str, str]:
    """The marks of series in `lines`, as text."""
    return dict(zip(series, itertools.cycle(SHAPES.values()), strict=False))


def shapes(series: Iterable[str], name: str = "series") -> Spec:
    """A mark for each series, so that it is not told by colour alone."""
    series = list(series)
    marks = list(itertools.islice(itertools.cycle(SHAPES), len(series)))
    scale = {"domain": list(series), "range": marks}
    return {"field": name, "type": "nominal", "legend": None, "scale": scale}


def switched(spec: Spec, name: str = "series") -> Spec:
    """The same with series that can be off, by the signal `off`."""
    only = {"filter": f"indexof(off, datum.{name}) < 0"}
    params = [{"name": "off", "value": []}, *spec.get("params", [])]
    return {**spec, "params": params, "transform": [only, *spec.get("transform", [])]}


def lines(
    series: Colours,
    x: Spec,
    y: Spec,
    tooltip: list[Spec],
    *,
    height: int = 280,
    level: str | None = None,
    whiskers: tuple[str, str] | None = None,
    dashed: Iterable[str] = (),
    clip: bool = False,
) -> Spec:
    """A line with marks for each series.

    level: the name of a column that is true in rows of series that are one level throughout; these
    are dashed lines across. whiskers: the columns of a bar about each mark. dashed: series whose
    line is. clip: whether what lies beyond the axes is cut off.
    """
    colour = by_series(series)
    lasting = [{"filter": f"!datum.{level}"}] if level else []
    layer: list[Spec] = []
    if whiskers:
        low, high = whiskers
        layer.append(
            {
                "transform": lasting,
                "mark": {"type": "rule", "strokeWidth": 1.2, "opacity": 0.7, "clip": clip},
                "encoding": {
                    "x": x, "y": {**y, "field": low}, "y2": {"field": high}, "color": colour,
                },
            }
        )  # fmt: skip
    layer += [
        {
            "transform": lasting,
            "mark": {"type": "line", "strokeWidth": 2, "clip": clip},
            "encoding": {"x": x, "y": y, "color": colour, "strokeDash": _dashes(series, dashed)},
        },
        {
            "transform": lasting,
            "mark": {"type": "point", "filled": True, "size": 42, "opacity": 1, "clip": clip},
            "encoding": {"x": x, "y": y, "color": colour, "shape": shapes(series)},
        },
        {
            "transform": lasting,
            "mark": {"type": "point", "filled": True, "size": TARGET, "opacity": 0, "clip": clip},
            "encoding": {"x": x, "y": y, "tooltip": tooltip},
        },
    ]
    if level:
        layer.append(
            {
                "transform": [{"filter": f"datum.{level}"}],
                "mark": {"type": "rule", "strokeWidth": 2.5, "strokeDash": [6, 4]},
                "encoding": {"y": y, "color": colour, "tooltip": tooltip},
            }
        )
    return switched(base(height, layer=layer))


def _dashes(series: Iterable[str], dashed: Iterable[str]) -> Spec:
    of, series = {*dashed}, list(series)
    scale = {"domain": list(series), "range": [[5, 4] if own in of else [1, 0] for own in series]}
    return {"field": "series", "type": "nominal", "legend": None, "scale": scale}


def bars(
    x: Spec,
    y: Spec,
    tooltip: list[Spec],
    rows: int,
    *,
    colour: Spec | None = None,
    label: Spec | None = None,
) -> Spec:
    """Bars from the left, one a row; label: the text after a bar."""
    encoding = {"x": x, "y": y, "tooltip": tooltip}
    mark = {"type": "bar", "cornerRadiusEnd": 2, "height": {"band": 0.72}}
    layer: list[Spec] = [
        {"mark": mark, "encoding": {**encoding, "color": colour or {"value": series_colour(0)}}}
    ]
    if label:
        written = {"type": "text", "align": "left", "dx": 5}
        layer.append({"mark": written, "encoding": {"x": x, "y": y, "text": label}})
    return base(rows * ROW, layer=layer)


def heat(x: Spec, y: Spec, colour: Spec, tooltip: list[Spec], rows: int, *, row: int = 14) -> Spec:
    """Cells; where there is none, the ground shows."""
    return base(
        max(rows * row, 3 * row),
        mark={"type": "rect"},
        encoding={"x": x, "y": y, "color": colour, "tooltip": tooltip},
        view={"fill": "var(--cell-none)", "stroke": None},
    )


def stepped(name: str, edges: Sequence[float], colours: Sequence[str]) -> Spec:
    """Colours of the ramp by thresholds: one colour more than edges."""
    scale = {"type": "threshold", "domain": list(edges), "range": list(colours)}
    return {"field": name, "type": "quantitative", "legend": None, "scale": scale}


def log_axis(name: str, title: str, values: Iterable[float], **more: Any) -> Spec:
    """A logarithmic channel: ticks at 1, 3, 10, 30, ..., and a little room at both ends."""
    known = [value for value in values if value > 0] or [1.0]
    low, high = min(known) / LOG_ROOM, max(known) * LOG_ROOM
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1.0, 3.0) if len(powers) < MOST_POWERS else (1.0,)
    ticks = [step * 10.0**power for power in powers for step in steps]
    shown = {"values": [tick for tick in ticks if low <= tick <= high], "format": "~s", **more}
    scale = {"type": "log", "domain": [low, high], "nice": False}
    return axis(name, title, axis=shown, scale=scale)


def shortened(texts: Iterable[str], most: int = MOST_LABEL) -> list[str]:
    """Labels that fit beside a row, still different from each other."""
    found: list[str] = []
    for own in texts:
        short = own if len(own) <= most else f"{own[: most - 9]}…{own[-8:]}"
        found.append(short if short not in found else f"{short[: most - 5]}…{len(found)}")
    return found
