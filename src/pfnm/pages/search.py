"""What was tried on the way to a fusion: candidates, and the objective by sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pfnm.pages.account import Account
from pfnm.pages.charts import (
    SERIES,
    Chart,
    axis,
    base,
    coloured,
    lines,
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
            f"Each was judged without data, by how often it answers as the sites together do where "
            f"these are sure: {best:.0%} for the one that was kept."
        )
    else:
        heading, says = "How the matching settled", ""
    shown = [group for group, own in told.objectives.items() if len(own) > 1]
    series = {own: series_colour(n) for n, own in enumerate(shown)} if len(shown) > 1 else {}
    parts = [Panels([chart], {} if chart.title == "Candidates" else series) for chart in charts]
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
            "x": axis("agreement", "agreement with the sites", axis={"format": "%", "tickCount": 5},
                      scale={"zero": False}),
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
        f"Agreement from {min(values):.1%} to {max(values):.1%}; the best is {labels[0]}.",
        spec,
        {"name": "candidate", "agreement": "agreement", "objective": "objective", "state": "state"},
        rows,
        {"kept": series_colour(1), "tried": series_colour(0)},
    )


def _candidate_name(own: Mapping[str, Any]) -> str:
    if own.get("method") == "topdown":
        return "top-down (the paper's)"
    ridge = "not refitted" if own.get("ridge") is None else f"ridge {own['ridge']}"
    return f"activity x{own.get('emphasis')}, pass {own.get('joint_sweep')}, {ridge}"


def _swept(told: Account) -> dict[str, Sequence[float]]:
    """The objectives of groups that were swept over."""
    return {group: own for group, own in told.objectives.items() if len(own) > 1}


def _objective(told: Account) -> Chart | None:
    shown = _swept(told)
    if not shown or len(shown) > SERIES:
        return None
    rows = [
        [group, sweep, value - own[0], value]
        for group, own in shown.items()
        for sweep, value in enumerate(own)
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
    return Chart(
        OBJECTIVE,
        f"The log posterior of the assignments after each of at most {plural(most, 'sweep')} over "
        "the sites, in the last pass over the layers.",
        spec,
        {"series": "layer", "sweep": "sweep", "gain": "gain", "objective": "objective"},
        rows,
    )
