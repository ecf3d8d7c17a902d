"""The panels of the paper's experiments as charts that answer the mouse."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pfnm.experiments.claim import data_name, layers_name, split_name
from pfnm.experiments.claims import AUTHORS_SECONDS
from pfnm.experiments.claims_once import differences, varied_in
from pfnm.experiments.definition import Experiment
from pfnm.experiments.rows import Row, Spread, fits, means, moments
from pfnm.pages.charts import (
    Chart,
    Colours,
    Spec,
    axis,
    base,
    coloured,
    heat,
    lines,
    log_axis,
    marks_of,
    spread_steps,
    stepped,
    tip,
)
from pfnm.pages.page import Panels, Section
from pfnm.report.drawing import DETAIL, LINES, ROOM, SIZED, STYLES, trials_shown

Points = list[list[Any]]
"""Rows of a panel, as COLUMNS has them."""

TRAINED = "train_accuracy"
HEIGHT = 250  # pixels of a panel
LOST = (0.1, 0.3, 1.0, 3.0, 10.0)  # points below the best, where colours change
COLUMNS = {"series": "method", "x": "x", "value": "mean", "deviation": "deviation",
           "trials": "trials", "low": "low", "high": "high", "level": "level"}  # fmt: skip


def _styled(methods: Sequence[str]) -> dict[str, str]:
    """The methods' titles and colours; the ensemble's is the text's."""
    others = coloured(STYLES[own][0] for own in methods if own != "ensemble")
    titles = [STYLES[own][0] for own in methods]
    return {title: others.get(title, "var(--text)") for title in titles}


def _point(
    name: str, x: float, value: Spread, factor: float = 1.0, *, level: bool = False
) -> list[Any]:
    mean, deviation, number = value
    mean, deviation = factor * mean, factor * deviation
    bar = 0.0 if math.isnan(deviation) else deviation
    return [name, x, mean, deviation, number, mean - bar, mean + bar, level]


def _panel(
    title: str,
    says: str,
    series: Colours,
    rows: Points,
    x: Spec,
    y: str,
    *,
    dashed: Sequence[str] = (),
    domain: tuple[float, float] | None = None,
) -> Chart:
    scale: Spec = {"zero": False} if domain is None else {"domain": list(domain)}
    spec = lines(
        series,
        x,
        axis("value", y, scale=scale, axis={"tickCount": 6}),
        tip(("series", "method"), ("x", str(x["title"])), ("value", y, ",.2f"),
            ("deviation", "deviation", ",.2f"), ("trials", "trials")),
        height=HEIGHT,
        level="level" if any(row[-1] for row in rows) else None,
        whiskers=("low", "high"),
        dashed=dashed,
        clip=domain is not None,
    )  # fmt: skip
    return Chart(title, f"{says} {_ends(rows)}", spec, {**COLUMNS, "x": str(x["title"])}, rows)


def _ends(rows: Points) -> str:
    """In words, who is highest and who is lowest where the curves end."""
    last = {row[0]: row[2] for row in rows if row[4]}
    if len(last) < 2:
        return ""
    high, low = max(last, key=lambda name: last[name]), min(last, key=lambda name: last[name])
    return f"At the right end {high} is highest ({last[high]:.1f}), {low} lowest ({last[low]:.1f})."


def _leader(panels: Sequence[Sequence[Sequence[Any]]], xs: Sequence[float] | None = None) -> str:
    """Who is highest most often: at every x, or where the curves end; ensembles are no networks."""
    together = {STYLES[own][0] for own in LINES}
    won: Counter[str] = Counter()
    for rows in panels:
        for x in (None,) if xs is None else xs:
            found = {
                row[0]: row[2]
                for row in rows
                if row[4] and row[0] not in together and (x is None or row[1] == x)
            }
            if found:
                won[max(found, key=lambda name: found[name])] += 1
    if not won:
        return "Nothing was measured yet"
    ((name, number),) = won.most_common(1)
    return f"The best one network: {name}, in {number} of {won.total()} settings"


def _once(experiment: Experiment, rows: Sequence[Row]) -> list[Section]:
    """Accuracy, the same against the ensemble, and size; a panel for each data set and split."""
    varied, xs = varied_in(experiment)
    series, titles = _styled(experiment.methods), {m: STYLES[m][0] for m in experiment.methods}
    x = axis(
        "x",
        "sites" if varied == "sites" else "hidden layers",
        axis={"values": list(xs), "format": "d"},
        scale={"nice": False, "zero": False},
    )
    accuracy, lead, size = [], [], []
    measured: list[Points] = []
    for data, split in experiment.panels:
        own = [row for row in rows if row["data"] == data]
        points: dict[str, Points] = {"accuracy": [], "lead": [], "size": []}
        for method, title in titles.items():
            ahead = differences(experiment, own, method, "ensemble")
            for value in xs:
                at = {"split": split, "method": method, varied: value}
                found = {
                    "accuracy": (means(own, "accuracy", **at), 100),
                    "lead": (ahead.get((split, value), (math.nan, math.nan, 0)), 100),
                    "size": (means(own, "log_ratio", **at), 1),
                }
                for name, (spread, factor) in found.items():
                    if spread[2] and (name != "size" or method in SIZED):
                        points[name].append(_point(title, value, spread, factor))
        measured.append(points["accuracy"])
        name = f"{data_name(data)}, {split_name(split)}"
        says = f"{trials_shown(rows, data=data, split=split)}."
        dashed = [titles[own] for own in LINES if own in titles]
        accuracy.append(_panel(name, says, series, points["accuracy"], x, "test accuracy (%)",
                               dashed=dashed))  # fmt: skip
        lead.append(_panel(name, says, series, points["lead"], x, "points above the ensemble",
                           dashed=dashed, domain=(-DETAIL, DETAIL)))  # fmt: skip
        sized = {titles[own]: series[titles[own]] for own in experiment.methods if own in SIZED}
        size.append(_panel(name, says, series, points["size"], x, "log(L / sum of L_j)"))
    marks, dash = marks_of(series), frozenset(STYLES[own][0] for own in LINES)
    return [
        Section("Accuracy", _leader(measured, xs), "",
                [Panels(accuracy, series, dash, marks=marks)]),
        Section("Ensemble", "Points above the uniform ensemble",
                f"From {DETAIL} below to {DETAIL} above; what is further off is cut.",
                [Panels(lead, series, dash, marks=marks)]),
        Section("Size", "Size of the global network",
                "Global units as a share of all the sites' units, as a logarithm.",
                [Panels(size, sized, marks=marks)]),
    ]  # fmt: skip


def _rounds(experiment: Experiment, rows: Sequence[Row]) -> list[Section]:
    """Accuracy against communications and epochs, and size; a panel for each split and depth."""
    titles = {own: STYLES[own][0] for own in experiment.methods}
    series, dash = _styled(experiment.methods), frozenset(STYLES[own][0] for own in LINES)
    sections = []
    for data in experiment.data:
        panels: dict[str, list[Chart]] = {"communications": [], "epochs": [], "units": []}
        for split in experiment.splits:
            for depth in experiment.depths:
                where = {"data": data, "split": split, "depth": depth}
                own = [row for row in rows if fits(row, where)]
                name = f"{split_name(split)}, {layers_name(depth)}"
                for kind, chart in _of_rounds(titles, series, own, name).items():
                    panels[kind].append(chart)
        marks = marks_of(series)
        parts = [
            Panels(charts, _drawn(series, charts), dash, marks=marks) for charts in panels.values()
        ]
        name = data_name(data)
        says = f"{_leader([chart.rows for chart in panels['epochs']])}, after the last round."
        sections += [
            Section(f"{name}: communications", f"{name}, accuracy by communications", says,
                    [parts[0]]),
            Section(f"{name}: epochs", f"{name}, accuracy by epochs", "", [parts[1]]),
            Section(f"{name}: size", f"{name}, units of the global network by round", "",
                    [parts[2]]),
        ]  # fmt: skip
    return sections


def _drawn(series: Colours, charts: Sequence[Chart]) -> dict[str, str]:
    """Those of the series that the charts have rows of."""
    found = {row[0] for chart in charts for row in chart.rows}
    return {name: colour for name, colour in series.items() if name in found}


def _of_rounds(
    titles: Mapping[str, str], series: Colours, rows: Sequence[Row], name: str
) -> dict[str, Chart]:
    points: dict[str, Points] = {"communications": [], "epochs": [], "units": []}
    for method, title in titles.items():
        own = [row for row in rows if row["method"] == method]
        if method in LINES:
            level = means(own, "accuracy")
            for against in ("communications", "epochs") if level[2] else ():
                points[against].append(_point(title, 1, level, 100, level=True))
            continue
        for moment in moments(own, {}):
            value = means(own, "accuracy", **moment)
            for against in ("communications", "epochs"):
                points[against].append(_point(title, means(own, against, **moment)[0], value, 100))
            if method in SIZED and moment["round"] is not None:
                sizes = means(own, "units", **moment)
                points["units"].append(_point(title, moment["round"], sizes))
    after = [100 * row["accuracy"] for row in rows if row["round"] and row["accuracy"] is not None]
    domain = (min(after) - ROOM, max(after) + ROOM / 3) if after else None
    says = f"{trials_shown(rows)}."
    sent = [point[1] for point in points["communications"]]
    return {
        "communications": _panel(name, says, series, points["communications"],
                                 log_axis("x", "communications", sent), "test accuracy (%)",
                                 domain=domain),
        "epochs": _panel(name, says, series, points["epochs"],
                         axis("x", "epochs (mean over sites)"), "test accuracy (%)",
                         domain=domain),
        "units": _panel(name, says, series, points["units"],
                        axis("x", "round", axis={"format": "d", "tickMinStep": 1}), "global units"),
    }  # fmt: skip


def _sensitivity(experiment: Experiment, rows: Sequence[Row]) -> list[Section]:
    """Heat maps over the prior, and curves over the sites' variance."""
    heats, curves = [], []
    series = coloured(f"{number} sites" for number in experiment.sites)
    for data, split in experiment.panels:
        where = {"data": data, "split": split}
        name = f"{data_name(data)}, {split_name(split)}"
        heats.append(_heat(experiment, rows, where, name))
        points = []
        for number in experiment.sites:
            at = {**where, "method": "site variance", "sites": number}
            for variance in experiment.site_variances:
                value = means(rows, TRAINED, site_variance=variance, **at)
                if value[2]:
                    points.append(_point(f"{number} sites", variance, value, 100))
        x = log_axis("x", "variance of the sites", experiment.site_variances, format="~g")
        says = f"{trials_shown(rows, **where, method='site variance')}."
        curves.append(_panel(name, says, series, points, x, "accuracy on training data (%)"))
    return [
        Section("Prior", "Accuracy by prior variance and mass",
                f"{experiment.heat_sites} sites, accuracy on training data.", [Panels(heats)]),
        Section("Sites' variance", "Accuracy by the variance of the sites", "",
                [Panels(curves, series, marks=marks_of(series))]),
    ]  # fmt: skip


def _heat(
    experiment: Experiment, rows: Sequence[Row], where: Mapping[str, Any], name: str
) -> Chart:
    found = {
        (variance, mass): 100
        * means(rows, TRAINED, method="prior", prior_variance=variance, mass=mass, **where)[0]
        for variance in experiment.prior_variances
        for mass in experiment.masses
    }
    known = [value for value in found.values() if not math.isnan(value)]
    best = max(known, default=math.nan)
    cells = [
        [f"{variance:g}", f"{mass:g}", value, best - value]
        for (variance, mass), value in found.items()
        if not math.isnan(value)
    ]
    colours = spread_steps(1 + len(LOST))[::-1]
    variances = [f"{own:g}" for own in experiment.prior_variances][::-1]
    masses = [f"{own:g}" for own in experiment.masses]
    spec = heat(
        axis("mass", "mass", "nominal", sort=masses, axis={"labelAngle": 0}),
        axis("variance", "prior variance", "nominal", sort=variances),
        stepped("lost", LOST, colours),
        tip(("variance", "prior variance"), ("mass", "mass"), ("value", "accuracy (%)", ".2f"),
            ("lost", "points below the best", ".2f")),
        len(variances),
        row=30,
    )  # fmt: skip
    words = [f"under {LOST[0]:g}", *(f"from {edge:g}" for edge in LOST)]
    worst = best - min(known, default=math.nan)
    return Chart(
        name,
        f"{trials_shown(rows, **where, method='prior')}. The best has {best:.2f} %, the worst lies "
        f"{worst:.2f} points below. Colours: points below the best.",
        spec,
        {"variance": "prior variance", "mass": "mass", "value": "accuracy (%)",
         "lost": "points below the best"},
        cells,
        dict(zip(words, colours, strict=True)),
    )  # fmt: skip


def _timing(experiment: Experiment, rows: Sequence[Row]) -> list[Section]:
    """Seconds of one matching, here and as the authors report."""
    here, there = "here, one thread, by variance of the sites", "the authors, two cores"
    series = coloured((here, there))
    points: Points = []
    for data in experiment.data:
        for sites, depth in experiment.settings:
            name = f"{data_name(data)}, {sites} sites, {layers_name(depth)}"
            for variance in experiment.site_variances:
                at = {"data": data, "depth": depth, "site_variance": variance}
                seconds, _, number = means(rows, "seconds", **at)
                if number:
                    points.append([name, here, variance, seconds])
            if (data, depth) in AUTHORS_SECONDS:
                points.append([name, there, None, AUTHORS_SECONDS[data, depth]])
    names = list(dict.fromkeys(point[0] for point in points))
    colour = {"field": "series", "type": "nominal", "legend": None,
              "scale": {"domain": list(series), "range": list(series.values())}}  # fmt: skip
    spec = base(
        44 * len(names),
        mark={"type": "point", "filled": True, "size": 110, "opacity": 0.85},
        encoding={
            "x": log_axis("seconds", "seconds", (own[3] for own in points),
                          format="~g"),
            "y": axis("name", None, "nominal", sort=names,
                      axis={"labelLimit": 230, "grid": True}),
            "color": colour,
            "shape": {**colour, "scale": {"domain": list(series), "range": ["circle", "diamond"]}},
            "tooltip": tip(("name", "what"), ("series", "where"), ("variance", "variance"),
                           ("seconds", "seconds", ",.2f")),
        },
    )  # fmt: skip
    chart = Chart(
        "Seconds of one matching",
        "On a logarithmic scale.",
        spec,
        {"name": "what", "series": "where", "variance": "variance of the sites",
         "seconds": "seconds"},
        points,
        dict(series),
    )  # fmt: skip
    return [Section("Seconds", "How long one matching takes", "", [Panels([chart])])]


SECTIONS: Mapping[str, Callable[[Experiment, Sequence[Row]], list[Section]]] = {
    "once": _once,
    "rounds": _rounds,
    "sensitivity": _sensitivity,
    "timing": _timing,
}
