"""What was tried on the way to a fusion: candidates, and the objective by sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pfnm.matching.matching import ROUNDING
from pfnm.pages.account import Account
from pfnm.pages.charts import (
    SERIES,
    Chart,
    axis,
    base,
    coloured,
    lines,
    marks_of,
    series_colour,
    shortened,
    tip,
)
from pfnm.pages.page import Panels, Section
from pfnm.pages.text import plural

OBJECTIVE = "Objective by sweep"


def search(told: Account) -> Section | None:
    """The best of what was tried, and how the matching settled."""
    charts = [
        chart for chart in (_candidates(told), _objective(told)) if chart is not None
    ]  # fmt: skip
    if not charts:
        return None
    if len(told.candidates) > 1:
        best = max(own["sure_agreement"] for own in told.candidates)
        heading = f"The best of {len(told.candidates)} fusions that were tried was kept"
        says = (
            "Each was judged without data, by how often it answers as the sites together do: "
            f"{best:.0%} for the one that was kept."
        )
        if told.agreement is not None and f"{best:.0%}" != f"{told.agreement:.0%}":
            says += (
                " (Only inputs count here of which the sites are sure, so that it is not the "
                "likeness above.)"
            )
    else:
        heading, says = "How the matching settled", ""
    parts = []
    for chart in charts:
        series = coloured(_swept(told)) if chart.title == OBJECTIVE else {}
        several = series if len(series) > 1 else {}
        parts.append(Panels([chart], several, marks=marks_of(several)))
    return Section("Search", heading, says, parts)


def _candidates(told: Account) -> Chart | None:
    if len(told.candidates) < 2:
        return None
    ranked = sorted(told.candidates, key=lambda own: -own["sure_agreement"])
    labels = shortened([_candidate_name(own) for own in ranked], 48)
    rows = [
        [label, own["sure_agreement"], own.get("objective"), "kept" if n == 0 else "tried"]
        for n, (label, own) in enumerate(zip(labels, ranked, strict=True))
    ]
    kept = {"field": "state", "type": "nominal", "legend": None,
            "scale": {"domain": ["kept", "tried"],
                      "range": [series_colour(1), series_colour(0)]}}  # fmt: skip
    spec = base(
        18 * len(rows),
        mark={"type": "point", "filled": True, "size": 90, "opacity": 1},
        encoding={
            "x": axis("agreement", "agreement", axis={"format": "%", "tickCount": 5},
                      scale={"zero": False, "padding": 16}),
            "y": axis("name", None, "nominal", sort=None,
                      axis={"labelLimit": 250, "grid": True, "labelOverlap": False}),
            "color": kept,
            "tooltip": tip(("name", "candidate"), ("agreement", "agreement", ".2%"),
                           ("objective", "objective", ",.0f")),
        },
    )  # fmt: skip
    values = [own["sure_agreement"] for own in ranked]
    return Chart(
        "Candidates",
        f"Agreement with the sites from {min(values):.1%} to {max(values):.1%}; the best is "
        f"{labels[0]}. "
        "Activity x0.3: what units do counts 0.3 times as much as their weights. Pass 2: matched "
        "in the second pass over the layers. Ridge: how strongly refitted layers are held to the "
        "averages of what was matched.",
        spec,
        {"name": "candidate", "agreement": "agreement", "objective": "objective", "state": "state"},
        rows,
        {"kept": series_colour(1), "tried": series_colour(0)},
    )


def _candidate_name(own: Mapping[str, Any]) -> str:
    if own.get("method") == "topdown":
        return "top-down (the paper's)"
    ridge = "not refitted" if own.get("ridge") is None else f"ridge {own['ridge']}"
    if own.get("method") == "whole":
        return f"some sites side by side, {ridge}"
    return f"activity x{own.get('emphasis')}, pass {own.get('joint_sweep')}, {ridge}"


def _swept(told: Account) -> dict[str, list[float]]:
    """What the groups that were swept over gained since the first pass; rounding is no gain."""
    found = {}
    for group, own in told.objectives.items():
        gains = [value - own[0] for value in own]
        if len(own) > 1:
            least = ROUNDING * max(map(abs, own))
            found[group] = [gain if abs(gain) > least else 0.0 for gain in gains]
    return found


def _objective(told: Account) -> Chart | None:
    shown = _swept(told)
    if len(shown) > SERIES or not any(map(any, shown.values())):
        return None
    rows = [
        [group, sweep, gain, told.objectives[group][sweep]]
        for group, gains in shown.items()
        for sweep, gain in enumerate(gains)
    ]
    spec = lines(
        coloured(shown),
        axis("sweep", "sweep (0: the first pass)", axis={"tickMinStep": 1, "format": "d"}),
        axis("gain", "gain since the first pass"),
        tip(("series", "layer"), ("sweep", "sweep"), ("objective", "objective", ",.1f"),
            ("gain", "gain", ",.1f")),
        height=240,
    )  # fmt: skip
    most = max(len(own) for own in shown.values()) - 1
    gained = sum(gains[-1] for gains in shown.values())
    return Chart(
        OBJECTIVE,
        f"How much more probable the matching became (its log posterior) by at most "
        f"{plural(most, 'sweep')} over the sites, in the last pass over the layers: {gained:,.1f} "
        "in all.",
        spec,
        {"series": "layer", "sweep": "sweep", "gain": "gain", "objective": "objective"},
        rows,
    )
