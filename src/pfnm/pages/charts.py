"""Charts as Vega-Lite specifications: few kinds, one look, colours that follow the page's theme."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # a name: nothing is fetched
SERIES = 10  # colours for series in page.css
STEPS = 7  # of the ramp from little to much
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
QUIET = "var(--quiet)"
ROW = 22  # pixels for a bar or a row with a label
MOST_LABEL = 22  # characters of a label beside a row
TARGET = 300  # square pixels around a point that answer the mouse

Spec = dict[str, Any]


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


def by_series(series: Sequence[str], name: str = "series", **channel: Any) -> Spec:
    """Colours for series, which buttons above the chart explain."""
    return {
        "field": name,
        "type": "nominal",
        "legend": None,
        "scale": {"domain": list(series), "range": [series_colour(n) for n in range(len(series))]},
        **channel,
    }


def shapes(series: Sequence[str], name: str = "series") -> Spec:
    """A mark for each series, so that it is not told by colour alone."""
    marks = [SHAPES[place % len(SHAPES)] for place in range(len(series))]
    scale = {"domain": list(series), "range": marks}
    return {"field": name, "type": "nominal", "legend": None, "scale": scale}


def switched(spec: Spec, name: str = "series") -> Spec:
    """The same with series that can be off, by the signal `off`."""
    only = {"filter": f"indexof(off, datum.{name}) < 0"}
    params = [{"name": "off", "value": []}, *spec.get("params", [])]
    return {**spec, "params": params, "transform": [only, *spec.get("transform", [])]}


def lines(
    series: Sequence[str],
    x: Spec,
    y: Spec,
    tooltip: list[Spec],
    *,
    height: int = 280,
    level: str | None = None,
    whiskers: tuple[str, str] | None = None,
    clip: bool = False,
) -> Spec:
    """A line with marks for each series.

    level: the name of a column that is true in rows of series that are one level throughout; these
    are dashed lines across. whiskers: the columns of a bar about each mark. clip: whether what lies
    beyond the axes is cut off.
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
            "encoding": {"x": x, "y": y, "color": colour},
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


def shortened(texts: Iterable[str], most: int = MOST_LABEL) -> list[str]:
    """Labels that fit beside a row, still different from each other."""
    found: list[str] = []
    for own in texts:
        short = own if len(own) <= most else f"{own[: most - 9]}…{own[-8:]}"
        found.append(short if short not in found else f"{short[: most - 5]}…{len(found)}")
    return found
