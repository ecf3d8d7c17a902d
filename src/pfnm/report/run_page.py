"""The page of a simulation: accuracy and size by round, who holds what, what it cost."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pfnm.errors import PFNMError
from pfnm.lab.methods import METHODS, chosen_methods
from pfnm.lab.records import Row, Run, read_rows, read_run
from pfnm.lab.setting import PERCEPTRON
from pfnm.pages.charts import (
    Chart,
    Colours,
    Spec,
    axis,
    bars,
    by_series,
    coloured,
    lines,
    log_axis,
    marks_of,
    switched,
    tip,
)
from pfnm.pages.classes import classes_chart
from pfnm.pages.page import Page, Panels, Section, Table
from pfnm.pages.provenance import shown_option
from pfnm.pages.text import Cell, plural

TOGETHER = ("ensemble", "weighted")  # not one network: lines to compare with
LEVELS = ("local", *TOGETHER)  # the same in every round
MEGA = 1e6
PARTS = {
    "seconds_training": "training at the sites",
    "seconds_combining": "combining",
    "seconds_evaluating": "evaluating",
}


@dataclass(frozen=True)
class Told:
    """A run, and its rows method by method."""

    run: Run
    rows: Sequence[Row]

    @property
    def methods(self) -> list[str]:
        """In the order in which they were run."""
        return list(dict.fromkeys(row["method"] for row in self.rows))

    def of(self, method: str) -> list[Row]:
        """The rows of one method, by round."""
        return [row for row in self.rows if row["method"] == method]

    def last(self, method: str) -> float | None:
        """Accuracy in the end."""
        found: float | None = self.of(method)[-1]["accuracy"]
        return found


def run_page(folder: Path) -> Page:
    """A run on one page; of one that is not at its end, what there is so far."""
    told = Told(read_run(folder), read_rows(folder))
    if not told.rows:
        raise PFNMError(f"{folder}: the run has no rows yet; resume it (pfnm simulate --resume)")
    found = {name: told.last(name) for name in told.methods}
    measured = {name: own for name, own in found.items() if own is not None}
    single = {name: own for name, own in measured.items() if name not in LEVELS}
    best = max(single, key=lambda name: single[name]) if single else None
    sections = [
        _by_round(told, best, measured),
        _table(told),
        _classes(told),
        _costs(told),
        _left_out(told),
        _provenance(told),
    ]
    return Page(
        "report of a simulation",
        _title(told, best, measured),
        _lead(told.run),
        _figures(told, best, measured),
        [section for section in sections if section is not None],
        _unfinished(told, folder),
    )


def _unfinished(told: Told, folder: Path) -> list[str]:
    """A warning, where the run is not at its end."""
    missing = []
    for name in chosen_methods(told.run.setting):
        rounds = 1 if METHODS[name].round is None else told.run.setting.rounds
        done = len(told.of(name))
        if done < rounds:
            of_rounds = f" ({done} of {rounds} rounds)" if done else ""
            missing.append(f"{METHODS[name].title}{of_rounds}")
    if not missing:
        return []
    return [
        f"The run is not at its end. Not measured, or not to the end: {', '.join(missing)}. "
        f"It goes on with: pfnm simulate --resume {shlex.quote(str(folder))}"
    ]


def _title(told: Told, best: str | None, measured: dict[str, float]) -> str:
    if best is None:
        return f"{plural(told.run.setting.sites, 'site')}: what they know alone"
    title = f"The best one network has {measured[best]:.1%} ({METHODS[best].title})"
    if "ensemble" in measured:
        title += f", the ensemble of all sites {measured['ensemble']:.1%}"
    return title


def _lead(run: Run) -> str:
    setting = run.setting
    network = f"hidden layers of {', '.join(map(str, setting.hidden))}"
    if setting.model != PERCEPTRON:
        network = f"model {setting.model}"
    return (
        f"{Path(setting.data).stem}, {plural(setting.sites, 'site')}, {setting.split} split, "
        f"{network}, {plural(setting.rounds, 'round')}, seed {setting.seed}. "
        "Accuracy is on test examples."
    )


def _figures(
    told: Told, best: str | None, measured: dict[str, float]
) -> dict[str, tuple[str, str]]:
    setting = told.run.setting
    found = {"Sites": (f"{setting.sites:,}", f"{setting.split} split")}
    if "local" in measured:
        found["One site alone"] = (f"{measured['local']:.1%}", "mean accuracy")
    if "ensemble" in measured:
        size = told.of("ensemble")[-1]["parameters"]
        found["Ensemble of all"] = (f"{measured['ensemble']:.1%}", f"{size:,} parameters")
    if best is not None:
        size = told.of(best)[-1]["parameters"]
        below = f"{METHODS[best].title}, {size:,} parameters"
        found["Best one network"] = (f"{measured[best]:.1%}", below)
    return found


def _series(told: Told, *without: str) -> dict[str, str]:
    """Of each method its title and colour: one on the whole page, the text's for the ensemble."""
    others = coloured(name for name in told.methods if name != "ensemble")
    return {
        METHODS[name].title: others.get(name, "var(--text)")
        for name in told.methods
        if name not in without
    }


def _by_round(told: Told, best: str | None, measured: dict[str, float]) -> Section:
    series = _series(told)
    accuracy = [
        [METHODS[row["method"]].title, row["round"], row["accuracy"], row["method"] in LEVELS]
        for row in told.rows
        if row["accuracy"] is not None
    ]
    x = axis("round", "round", axis={"tickMinStep": 1, "format": "d"}, scale={"nice": False})
    charts = []
    if accuracy:
        spec = lines(
            series,
            x,
            axis("accuracy", "test accuracy", axis={"format": ".0%"}, scale={"zero": False}),
            tip(("series", "method"), ("round", "round"), ("accuracy", "accuracy", ".2%")),
            height=340,
            level="level",
        )
        charts.append(
            Chart(
                "Accuracy by round",
                "Dashed lines are the same in every round: one site alone, and the ensembles. "
                "Methods without rounds stand at round 1.",
                spec,
                {"series": "method", "round": "round", "accuracy": "accuracy", "level": "level"},
                accuracy,
            )
        )
    charts.append(_size(told, series, x))
    heading = "Accuracy and size by round"
    if best is not None and "ensemble" in measured:
        lead = 100 * (measured[best] - measured["ensemble"])
        where = "above" if lead >= 0 else "below"
        heading = f"The best network ends {abs(lead):.1f} points {where} the ensemble"
    dashed = frozenset(METHODS[name].title for name in LEVELS)
    return Section(
        "Rounds",
        heading,
        "Press a name to hide or show it.",
        [Panels(charts, series, dashed, marks=marks_of(series))],
    )


def _size(told: Told, series: Colours, x: Spec) -> Chart:
    rows = [
        [METHODS[row["method"]].title, row["round"], row["parameters"], row["method"] in LEVELS,
         ", ".join(map(str, row["widths"]))]
        for row in told.rows
        if row["parameters"]
    ]  # fmt: skip
    spec = lines(
        series,
        x,
        log_axis("parameters", "parameters", (row[2] for row in rows)),
        tip(("series", "method"), ("round", "round"), ("parameters", "parameters", ","),
            ("widths", "widths")),
        height=340,
        level="level",
    )  # fmt: skip
    return Chart(
        "Size by round",
        "Parameters of the global network, on a logarithmic scale; of an ensemble, of all sites.",
        spec,
        {"series": "method", "round": "round", "parameters": "parameters", "level": "level",
         "widths": "widths"},
        rows,
    )  # fmt: skip


def _table(told: Told) -> Section:
    rows: list[list[Any]] = []
    sites = told.run.setting.sites
    for name in told.methods:
        own = told.of(name)
        last, accuracies = own[-1], [row["accuracy"] for row in own if row["accuracy"] is not None]
        best = max(accuracies) if accuracies else None
        sent = [sum(_sent(row, way) for row in own) / sites for way in ("bytes_up", "bytes_down")]
        seconds = sum(row[part] for row in own for part in PARTS)
        rows.append(
            [
                METHODS[name].title,
                last["round"],
                _percent(last["accuracy"]),
                _percent(best),
                last["parameters"],
                ", ".join(map(str, last["widths"])),
                *((own / MEGA, f"{own / MEGA:,.2f}") for own in sent),
                (seconds, f"{seconds:,.1f}"),
            ]
        )
    columns = (
        "method", "rounds", "accuracy", "best", "parameters", "widths", "MB up", "MB down",
        "seconds",
    )  # fmt: skip
    says = "Press a heading to sort by it. MB is what a site sends and receives in all rounds."
    number = plural(len(rows), "method")
    return Section("Methods", f"{number} on the same sites", says, [Table(columns, rows)])


def _percent(value: float | None) -> tuple[float | None, str]:
    return value, "-" if value is None else f"{value:.2%}"


def _sent(row: Row, way: str) -> int:
    return sum(row[way].values())


def _classes(told: Told) -> Section:
    names, table = (
        list(told.run.class_counts),
        np.array(list(told.run.class_counts.values()), float),
    )
    shares = table.max(axis=1) / table.sum(axis=1)
    heading = f"At a site, {shares.mean():.0%} of the examples are of one class on average"
    return Section("Classes", heading, "", [Panels([classes_chart(names, table)], wide=True)])


def _costs(told: Told) -> Section:
    sites = told.run.setting.sites
    traffic: list[list[Any]] = []
    for name in told.methods:
        if name in LEVELS:
            continue
        total = 0.0
        for row in told.of(name):
            total += (_sent(row, "bytes_up") + _sent(row, "bytes_down")) / sites / MEGA
            traffic.append([METHODS[name].title, row["round"], total, row["accuracy"]])
    charts = [_traffic(told, traffic)] if traffic else []
    parts: list[Any] = []
    if charts:
        every = _series(told)
        parts.append(Panels(charts, _series(told, *LEVELS), marks=marks_of(every)))
    parts.append(_seconds(told))
    trained = sum(row["seconds_training"] for row in told.rows)
    whole = sum(row[part] for row in told.rows for part in PARTS)
    share = trained / whole if whole else 0.0
    heading = f"{share:.0%} of the time went into training at the sites"
    return Section("Costs", heading, "", parts)


def _traffic(told: Told, rows: list[list[Any]]) -> Chart:
    spec = lines(
        _series(told),
        log_axis("mega", "MB sent and received by a site so far", (row[2] for row in rows),
                 format="~g"),
        axis("accuracy", "test accuracy", axis={"format": ".0%"}, scale={"zero": False}),
        tip(("series", "method"), ("round", "round"), ("mega", "MB", ",.3f"),
            ("accuracy", "accuracy", ".2%")),
        height=320,
    )  # fmt: skip
    return Chart(
        "Accuracy for what is sent",
        "Megabytes that a site on average has sent and received, against accuracy; a mark a round.",
        spec,
        {"series": "method", "round": "round", "mega": "MB a site so far", "accuracy": "accuracy"},
        rows,
    )


def _seconds(told: Told) -> Panels:
    kinds = coloured(PARTS.values())
    rows = [
        [METHODS[name].title, kind, sum(row[part] for row in told.of(name))]
        for name in told.methods
        for part, kind in PARTS.items()
    ]
    titles = [METHODS[name].title for name in told.methods]
    spec = bars(
        axis("seconds", "seconds in all rounds", axis={"tickCount": 5}),
        axis("method", None, "nominal", sort=titles, axis={"labelLimit": 170}),
        tip(("method", "method"), ("series", "part"), ("seconds", "seconds", ",.2f")),
        len(titles),
        colour=by_series(kinds),
    )
    chart = Chart(
        "Seconds by part",
        "On the machine it ran on, all rounds and sites together.",
        switched(spec),
        {"method": "method", "series": "part", "seconds": "seconds"},
        rows,
    )
    return Panels([chart], kinds)


def _left_out(told: Told) -> Section | None:
    methods: dict[tuple[int, str, str], list[str]] = {}
    for row in told.rows:
        for site, reason in row["left_out"].items():
            title = METHODS[row["method"]].title
            methods.setdefault((row["round"], site, reason), []).append(title)
    if not methods:
        return None
    found: list[list[Cell]] = [
        [site, number, reason, "; ".join(titles)]
        for (number, site, reason), titles in sorted(methods.items())
    ]
    return Section("Left out", f"{plural(len(found), 'time')} a site was left out", "",
                   [Table(("site", "round", "why", "methods"), found, "Left out")])  # fmt: skip


def _provenance(told: Told) -> Section:
    setting = [[name, shown_option(own)] for name, own in asdict(told.run.setting).items()]
    more = [
        ["sha256 of the data", told.run.data_sha256],
        ["training", told.run.training],
        ["threads", str(told.run.threads)],
        ["processor", told.run.processor],
    ]
    versions = [list(pair) for pair in told.run.versions.items()]
    return Section(
        "Provenance",
        "With this it can be run again",
        "",
        [Table(("setting", "value"), [*setting, *more], "Setting"),
         Table(("package", "version"), versions, "Versions")],
    )  # fmt: skip
