"""What `evaluate` measured, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from pfnm.measures import Measures

TOLD_APART = ("classes", "confusion", "note")  # not a number each: shown below the table
NAMES = {"auroc": "AUROC", "brier_score": "Brier score", "f1": "F1"}


def one_table(result: Measures) -> Table:
    """The measures of one network, a row each."""
    table = Table("measure", "value")
    for name, value in result.items():
        if name not in TOLD_APART:
            table.add_row(in_words(name), shown(value))
    return table


def wide_table(results: Mapping[str, Measures]) -> Table:
    """The measures of several networks, a row a network."""
    names = dict.fromkeys(name for result in results.values() for name in result)
    columns = [name for name in names if name not in (*TOLD_APART, "examples")]
    table = Table()
    table.add_column("network", overflow="fold")
    for name in columns:
        # A word a line, so that all measures fit into 80 columns.
        head = in_words(name).replace("calibration", "calib.").replace(" ", "\n")
        table.add_column(Text(head), justify="right", no_wrap=True)
    for network, result in results.items():
        table.add_row(network, *(shown(result.get(name)) for name in columns))
    return table


def classes_table(classes: Sequence[Mapping[str, Any]]) -> Table:
    """The measures of each class, a row each."""
    table = Table("class")
    for name in list(classes[0])[1:]:
        table.add_column(in_words(name), justify="right")
    for measured in classes:
        label, *values = measured.values()
        table.add_row(str(label), *map(shown, values))
    return table


def confusion_table(confusion: Mapping[str, Any]) -> Table:
    """How many examples of each class (rows) were taken for which (columns)."""
    table = Table("is \\ taken for")
    for answer in confusion["answers"]:
        table.add_column(str(answer), justify="right")
    for label, counts in zip(confusion["labels"], confusion["counts"], strict=True):
        table.add_row(str(label), *map(str, counts))
    return table


def in_words(name: str) -> str:
    """A measure's name for people."""
    return NAMES.get(name, name.replace("_", " "))


def shown(value: float | int | None) -> str:
    """A number for people; a dash where a measure is not defined."""
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
