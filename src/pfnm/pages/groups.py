"""The unit groups of a traced network, and the weights that lead from one to the other."""

from __future__ import annotations

from typing import Any

from pfnm.networks.graph import INPUT, OUTPUT
from pfnm.networks.network import Network
from pfnm.pages.charts import QUIET, Chart, series_colour, shortened
from pfnm.pages.text import plural

SCHEMA = "https://vega.github.io/schema/vega/v6.json"
ROW = 26  # pixels
LABELS = 190  # pixels for names at the left
MOST_ARCS = 150  # pixels that the widest arc takes at the right


def groups_chart(network: Network) -> Chart:
    """Inputs, groups and outputs in the order of computation; an arc for every weight between."""
    graph = network.graph
    spaces = [INPUT, *graph.outer_groups, OUTPUT]
    arcs: dict[tuple[str, str], list[str]] = {}
    for own in network.program.maps:
        axes = graph.axes[own.weight]
        for origin in axes[own.reads].spaces:
            for end in axes[own.writes].spaces:
                if origin in spaces and end in spaces:
                    arcs.setdefault((origin, end), []).append(own.weight)
    labels = dict(zip(spaces, shortened(spaces, 28), strict=True))
    place = {space: number for number, space in enumerate(spaces)}
    sizes = {space: network.sizes.get(space) for space in spaces}
    rows: list[list[Any]] = [
        ["group", place[space], labels[space], sizes[space], None, None, None, ""]
        for space in spaces
    ]
    rows += [
        ["weight", place[a], labels[a], sizes[a], place[b], labels[b], sizes[b], ", ".join(names)]
        for (a, b), names in arcs.items()
    ]
    return Chart(
        "The graph of unit groups",
        f"{plural(len(graph.outer_groups), 'group')} of units that are permuted together, in the "
        f"order of computation, with their fused widths; {plural(len(arcs), 'arc')}, each for the "
        "weights that lead from one to another.",
        _spec(len(spaces)),
        {"kind": "what", "from": "place", "name": "group", "size": "units", "to": "leads to place",
         "end": "leads to", "end_size": "units there", "weights": "weights"},
        rows,
    )  # fmt: skip


def _spec(number: int) -> dict[str, Any]:
    """A column of groups, and arcs at its right: plain Vega, for Vega-Lite draws no arcs."""
    height = ROW * number
    y = {"signal": f"(datum.from + 0.5) * {ROW}"}
    arc = (
        f"'M{LABELS + 8},' + ((datum.from + 0.5) * {ROW}) + "
        f"'C' + ({LABELS + 8} + datum.reach) + ',' + ((datum.from + 0.5) * {ROW}) + ' ' + "
        f"({LABELS + 8} + datum.reach) + ',' + ((datum.to + 0.5) * {ROW}) + ' ' + "
        f"{LABELS + 8} + ',' + ((datum.to + 0.5) * {ROW})"
    )
    return {
        "$schema": SCHEMA,
        "width": LABELS + MOST_ARCS,
        "height": height,
        "data": [
            {"name": "groups", "source": "rows",
             "transform": [{"type": "filter", "expr": "datum.kind == 'group'"}]},
            {"name": "arcs", "source": "rows", "transform": [
                {"type": "filter", "expr": "datum.kind == 'weight'"},
                {"type": "formula", "as": "reach",
                 "expr": f"min({MOST_ARCS / 0.75}, 22 + 20 * abs(datum.to - datum.from))"},
                {"type": "formula", "as": "arc", "expr": arc},
            ]},
        ],
        "marks": [
            {"type": "path", "from": {"data": "arcs"}, "encode": {
                "update": {"path": {"field": "arc"}, "strokeWidth": {"value": 2.5},
                           "stroke": {"value": series_colour(0)}, "strokeOpacity": {"value": 0.55}},
                "enter": {"tooltip": {"signal":
                    "{from: datum.name, to: datum.end, weights: datum.weights}"}},
                "hover": {"strokeOpacity": {"value": 1}},
            }},
            {"type": "symbol", "from": {"data": "groups"}, "encode": {"update": {
                "x": {"value": LABELS + 8}, "y": y, "size": {"value": 90},
                "fill": {"value": series_colour(0)},
                "tooltip": {"signal": "{group: datum.name, units: datum.size}"},
            }}},
            {"type": "text", "from": {"data": "groups"}, "encode": {"update": {
                "x": {"value": LABELS - 6}, "y": y, "align": {"value": "right"},
                "baseline": {"value": "middle"}, "fill": {"value": "var(--text)"},
                "text": {"field": "name"}, "limit": {"value": LABELS - 50},
            }}},
            {"type": "text", "from": {"data": "groups"}, "encode": {"update": {
                "x": {"value": 0}, "y": y, "align": {"value": "left"},
                "baseline": {"value": "middle"}, "fill": {"value": QUIET},
                "text": {"signal": "datum.size == null ? '' : format(datum.size, ',')"},
            }}},
        ],
    }  # fmt: skip
