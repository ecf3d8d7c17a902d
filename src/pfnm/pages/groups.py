"""The unit groups of a traced network, and the weights that lead from one to the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from pfnm.networks.graph import INPUT, OUTPUT
from pfnm.networks.network import Network
from pfnm.pages.charts import QUIET, Chart, Spec, series_colour, shortened
from pfnm.pages.text import plural

SCHEMA = "https://vega.github.io/schema/vega/v6.json"
ROW = 26  # pixels
NAMES = 130  # pixels for names at the left
DOT = 190  # pixels from the left, after the names and the numbers of units
REACH = 190  # pixels that the widest arc bends to; three quarters of it are seen
FORWARD, BACK = series_colour(0), series_colour(1)


def groups_chart(network: Network) -> Chart:
    """Inputs, groups and outputs in the order of computation; an arc for every weight between."""
    graph = network.graph
    spaces = [INPUT, *graph.outer_groups, OUTPUT]
    arcs: dict[tuple[str, str], list[str]] = {}
    for name, origin, end in _led(network, spaces):
        arcs.setdefault((origin, end), []).append(name)
    labels = dict(zip(spaces, shortened(spaces, 20), strict=True))
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
        {"onwards": FORWARD, "back into an earlier group": BACK},
    )  # fmt: skip


def _led(network: Network, spaces: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Each weight, and from which of the spaces to which it leads.

    Maps say so; of other weights (recurrent ones, embeddings) the order of computation does.
    """
    axes = network.graph.axes
    told = {own.weight: own for own in network.program.maps}
    for name in axes:
        if name in told:
            origins, ends = (
                axes[name][own].spaces for own in (told[name].reads, told[name].writes)
            )
            if told[name] is network.program.maps[0]:
                origins = origins or (INPUT,)  # one channel, which is no space
            pairs = [(origin, end) for origin in origins for end in ends]
        else:
            within = {space for axis in axes[name] for space in axis.spaces}
            pairs = list(itertools.pairwise(own for own in spaces if own in within))
        for origin, end in pairs:
            if origin in spaces and end in spaces:
                yield name, origin, end


def _spec(number: int) -> Spec:
    """A column of groups, and arcs at its right: plain Vega, for Vega-Lite draws no arcs."""
    y = {"signal": f"(datum.from + 0.5) * {ROW}"}
    start = f"((datum.from + 0.5) * {ROW})"
    end = f"((datum.to + 0.5) * {ROW})"
    bend = f"({DOT} + datum.reach)"
    arc = (
        f"'M{DOT},' + {start} + 'C' + {bend} + ',' + {start} + ' ' + {bend} + ',' + {end} + "
        f"' {DOT},' + {end}"
    )
    # What leads back bends further, so that it does not lie over what led there.
    reach = f"min({REACH}, 16 + 22 * abs(datum.to - datum.from) + (datum.to < datum.from ? 16 : 0))"
    marks = [
        _mark("path", "arcs", {
            "path": {"field": "arc"}, "strokeWidth": {"value": 2.5},
            "stroke": {"signal": f"datum.to > datum.from ? '{FORWARD}' : '{BACK}'"},
            "strokeOpacity": {"value": 0.7},
            "tooltip": {"signal": "{from: datum.name, to: datum.end, weights: datum.weights}"},
            "description": {
                "signal": "'from ' + datum.name + ' to ' + datum.end + ': ' + datum.weights"},
        }),
        _mark("symbol", "groups", {
            "x": {"value": DOT}, "y": y, "size": {"value": 90}, "fill": {"value": "var(--text)"},
            "tooltip": {"signal": "{group: datum.name, units: datum.size}"},
            "description": {"signal": "datum.name + ': ' + datum.size + ' units'"},
        }),
        _label(DOT - 12, y, QUIET, {"signal": "datum.size == null ? '' : format(datum.size, ',')"}),
        _label(NAMES, y, "var(--text)", {"field": "name"}) ,
    ]  # fmt: skip
    return {
        "$schema": SCHEMA,
        "width": DOT + 0.75 * REACH + 4,
        "height": ROW * number,
        "data": [
            {
                "name": "groups",
                "source": "rows",
                "transform": [{"type": "filter", "expr": "datum.kind == 'group'"}],
            },
            {
                "name": "arcs",
                "source": "rows",
                "transform": [
                    {"type": "filter", "expr": "datum.kind == 'weight'"},
                    {"type": "formula", "as": "reach", "expr": reach},
                    {"type": "formula", "as": "arc", "expr": arc},
                ],
            },
        ],
        "marks": marks,
    }


def _mark(kind: str, data: str, encoding: Spec, **more: Any) -> Spec:
    return {"type": kind, "from": {"data": data}, "encode": {"update": encoding}, **more}


def _label(x: int, y: Spec, colour: str, text: Spec) -> Spec:
    """Text that ends at x; what it says is in the dots' descriptions."""
    ends = {"align": {"value": "right"}, "baseline": {"value": "middle"}, "limit": {"value": NAMES}}
    place = {"x": {"value": x}, "y": y, "fill": {"value": colour}, "text": text}
    return _mark("text", "groups", {**place, **ends}, aria=False)
