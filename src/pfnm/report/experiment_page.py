"""The page of one of the paper's experiments: its panels, and what was claimed of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pfnm.errors import PFNMError
from pfnm.experiments.claim import PAPER, Claim, data_name
from pfnm.experiments.claims import claims
from pfnm.experiments.definition import NAMES, Experiment
from pfnm.experiments.rows import read_rows
from pfnm.experiments.runner import RECORD
from pfnm.formats import told
from pfnm.pages.page import Page, Section, Table
from pfnm.pages.provenance import shown_option
from pfnm.report.drawing import trials_shown
from pfnm.report.panels import SECTIONS


def experiment_page(folder: Path) -> Page:
    """An experiment on one page, from its rows."""
    experiment, record = read_experiment(folder)
    rows = read_rows(folder)
    if not rows:
        raise PFNMError(f"{folder}: the experiment has no rows yet (pfnm reproduce runs it)")
    found = claims(experiment, rows)
    paper = [claim for claim in found if claim.whose == PAPER]
    others = [claim for claim in found if claim.whose != PAPER]
    held = f"{_held(paper)} claims of the paper hold. " if _held(paper) else ""
    figures = {
        "The paper's claims": (_held(paper), "hold, by data set"),
        "Asked besides": (_held(others), "hold, by data set"),
        "Data": (str(len(experiment.data)), ", ".join(map(data_name, experiment.data))),
        "Measurements": (f"{len(rows):,}", trials_shown(rows)),
    }
    return Page(
        "report of an experiment",
        experiment.title,
        f"{held}Curves are means over trials, bars the standard deviation.",
        {name: own for name, own in figures.items() if own[0]},
        [*SECTIONS[experiment.kind](experiment, rows), _claims(found, paper), _provenance(record)],
    )


def _held(found: Sequence[Claim]) -> str:
    """How many of those that were measured hold."""
    known = [claim for claim in found if claim.holds is not None]
    return f"{sum(bool(claim.holds) for claim in known)} of {len(known)}" if known else ""


def _claims(found: Sequence[Claim], paper: Sequence[Claim]) -> Section:
    heading = f"{_held(paper)} claims of the paper hold" if paper else "What was asked"
    says = "What is marked (ours) or (asked) the paper does not claim."
    rows = [[own.said, own.marked, own.verdict, own.measured] for own in found]
    return Section("Claims", heading, says, [Table(("claim", "data", "holds", "measured"), rows)])


def read_experiment(folder: Path) -> tuple[Experiment, Mapping[str, Any]]:
    """What was to be done, as experiment.json says, and all else it holds."""
    from msgspec import MsgspecError, convert

    path = folder / RECORD
    try:
        record = json.loads(path.read_bytes())
        experiment = convert(record["experiment"], Experiment)
        if experiment.name not in NAMES or experiment.kind not in SECTIONS:
            raise ValueError(f"{experiment.name!r} is none of {', '.join(NAMES)}")
        if not (experiment.sites and experiment.data and experiment.methods):
            raise ValueError("it names no sites, no data or no methods")
    except PFNMError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError, OSError, MsgspecError) as error:
        raise PFNMError(f"{path}: cannot be read ({told(error)}); choose another folder") from None
    return experiment, record


def _provenance(record: Mapping[str, Any]) -> Section:
    conditions, runs = record.get("conditions"), record.get("runs")
    rows = [
        [str(name), shown_option(own)]
        for name, own in (conditions.items() if isinstance(conditions, dict) else ())
    ]
    done: list[list[Any]] = [
        [
            str(own.get("jobs", "")),
            shown_option(own.get("seconds")),
            str(own.get("processor", "")),
            str(own.get("source_sha256", ""))[:12],
            shown_option(own.get("versions")),
        ]
        for own in (runs if isinstance(runs, list) else ())
        if isinstance(own, dict)
    ]
    return Section(
        "Provenance",
        "With this it was measured",
        "",
        [
            Table(("condition", "value"), rows, "Conditions"),
            Table(("jobs", "seconds", "processor", "source", "versions"), done, "Runs"),
        ],
    )
