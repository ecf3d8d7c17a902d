"""The measurements of an experiment: a row each, in one CSV file; means over trials."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pfnm.errors import PFNMError
from pfnm.formats import told
from pfnm.formats.files import write_whole

ROWS = "rows.csv"
# What they mean stands in docs/lab.md.
TEXTS = ("data", "split", "method", "widths")
WHOLE = ("sites", "depth", "trial", "round", "communications", "units", "parameters", "left_out")
VALUES = ("epochs", "prior_variance", "site_variance", "mass", "rate")
RESULTS = ("accuracy", "train_accuracy", "log_ratio", "seconds", "job_seconds")
NUMBERS = (*VALUES, *RESULTS)
MOST = 1e300  # of any number, so that means of them are numbers
COLUMNS = (*TEXTS, *WHOLE, *NUMBERS)
JOB = ("data", "split", "sites", "depth", "trial")  # what tells one job from another
COMPACT = "pfnm-compact"  # PFNM no larger than the sites' networks together: from rows of others
TRIED = "-tried"  # after a method's name: one of the values among which one was chosen

Row = dict[str, Any]
Spread = tuple[float, float, int]
"""Mean, standard deviation and number; what is unknown is not a number."""


def spread(found: Sequence[float]) -> Spread:
    """Of one measurement in several trials."""
    mean = float(np.mean(found)) if found else math.nan
    deviation = float(np.std(found, ddof=1)) if len(found) > 1 else math.nan
    return mean, deviation, len(found)


def fits(row: Row, where: Mapping[str, Any]) -> bool:
    """Whether a row has all of these values."""
    return all(row[name] == wanted for name, wanted in where.items())


def means(rows: Sequence[Row], value: str, **where: Any) -> Spread:
    """Over the trials of the rows that fit."""
    return spread([row[value] for row in rows if row[value] is not None and fits(row, where)])


def paired(
    rows: Sequence[Row], value: str, one: Mapping[str, Any], other: Mapping[str, Any]
) -> Spread:
    """How much more the rows that fit one have than those of the same trial that fit the other."""
    more, less = (
        {row["trial"]: row[value] for row in rows if row[value] is not None and fits(row, where)}
        for where in (one, other)
    )
    return spread([more[trial] - less[trial] for trial in sorted({*more} & {*less})])


def by_job(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each job together."""
    jobs: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        jobs.setdefault(tuple(row[name] for name in JOB), []).append(row)
    return list(jobs.values())


def with_compact(rows: Sequence[Row]) -> list[Row]:
    """And, of every job of one round, PFNM chosen among networks no larger than all the sites'.

    By accuracy on the training data, as PFNM itself is, among all that were tried.
    """
    found = []
    for own in by_job(rows):
        limits = [row["parameters"] for row in own if row["method"] == "ensemble"]
        small = [
            row
            for row in own
            if row["method"].startswith("pfnm")
            and row["method"].endswith(TRIED)
            and limits
            and row["parameters"] <= limits[0]
        ]
        if small:
            best = max(small, key=lambda row: row["train_accuracy"])
            found.append({**best, "method": COMPACT})
    return [*rows, *found]


def moments(rows: Sequence[Row], where: Mapping[str, Any]) -> list[Row]:
    """When accuracy was taken, in order: within D-SGD's first round, and after every round."""
    own = [row for row in rows if fits(row, where)]
    within = sorted({row["communications"] for row in own if row["round"] is None})
    after = sorted({row["round"] for row in own if row["round"] is not None})
    return [{"round": None, "communications": number} for number in within] + [
        {"round": number} for number in after
    ]


def read_rows(folder: Path) -> list[Row]:
    """The measurements so far; empty cells are None."""
    path = folder / ROWS
    if not path.exists():
        return []
    try:
        with path.open(newline="") as file:
            return [_parsed(row) for row in csv.DictReader(file)]
    except KeyError as error:
        raise PFNMError(
            f"{path}: has no column {error}, so it is of another version of pfnm; choose another "
            "folder"
        ) from None
    except (ValueError, TypeError, OSError, csv.Error) as error:
        raise PFNMError(f"{path}: cannot be read ({told(error)}); choose another folder") from None


def write_rows(folder: Path, rows: Sequence[Row]) -> None:
    """All of them, at once or not at all."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _shown(value) for name, value in row.items()})
    write_whole(folder / ROWS, text.getvalue().encode())


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return repr(float(value)) if isinstance(value, float) else str(value)


def _parsed(row: dict[str, str]) -> Row:
    parsed: Row = {name: row[name] or None for name in TEXTS}
    for names, kind in ((WHOLE, int), (NUMBERS, float)):
        for name in names:
            parsed[name] = kind(row[name]) if row[name] else None
            if not abs(parsed[name] or 0) <= MOST:
                raise ValueError(f"{name} is {row[name]:.20}")
    if not all(word.isascii() and word.isdigit() for word in (parsed["widths"] or "").split()):
        raise ValueError(f"widths is {parsed['widths']:.20}")
    for name in (*JOB, "method"):
        if parsed[name] is None:
            raise ValueError(f"a row without its {name}")
    return parsed
