"""Results as tables for a terminal and as data for machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from pfnm.frontier import Point
from pfnm.fusing.assumptions import Assumption, assumed_told
from pfnm.fusion import Fusion


def layer_rows(fusion: Fusion) -> list[dict[str, Any]]:
    """Per layer: widths of the sites, global width, units shared by all, by some, by one."""
    sites = len(fusion.sites.names)
    rows = []
    for group, popularity in fusion.popularity.items():
        in_all, in_one = int((popularity == sites).sum()), int((popularity == 1).sum())
        rows.append(
            {
                "layer": group,
                "site_widths": [assignment.size for assignment in fusion.assignments[group]],
                "width": popularity.size,
                "in_all": in_all,
                "in_some": popularity.size - in_all - in_one,
                "in_one": in_one,
            }
        )
    return rows


def fusion_table(fusion: Fusion) -> Table:
    """The same as a table."""
    table = Table("layer", "sites' widths", "global", "in all", "in some", "in one")
    for row in layer_rows(fusion):
        low, high = min(row["site_widths"]), max(row["site_widths"])
        widths = str(low) if low == high else f"{low} to {high}"
        cells = (row["width"], row["in_all"], row["in_some"], row["in_one"])
        table.add_row(row["layer"], widths, *map(str, cells))
    return table


def fusion_summary(fusion: Fusion, output: str) -> dict[str, Any]:
    """What `pfnm fuse --json` prints."""
    return {
        "output": output,
        "sites": list(fusion.sites.names),
        "parameters": fusion.network.parameters,
        "layers": layer_rows(fusion),
        "objective": fusion.objective,
        "settled": fusion.settled,
        "agreement": fusion.agreement,
        "site_agreement": fusion.site_agreement,
        "polish": None if fusion.polish_record is None else fusion.polish_record.told(),
        "assumed": assumed_told(fusion.assumed),
        "warnings": list(fusion.warnings),
        "options": dict(fusion.options),
        "trace": {group: [asdict(s) for s in sweeps] for group, sweeps in fusion.trace.items()},
        "candidates": [asdict(candidate) for candidate in fusion.candidates],
    }


def polish_told(fusion: Fusion) -> str:
    """What polishing came to, in a line."""
    record = fusion.polish_record
    assert record is not None
    if not record.epochs:
        return "polish had no time to train in; the network is as it was fused"
    if not record.kept:
        return f"polish did not help (judged on {record.judged_on}); kept as it was fused"
    before, after = record.agreement_before, record.agreement_after
    return f"polished: that likeness was {before:.0%} before, it is {after:.0%} now"


def likeness_told(agreement: float, site: float | None) -> str:
    """Agreement, called what it is."""
    beside = "" if site is None else f" (the best single site: {site:.0%})"
    return f"likeness to the sites together on made-up inputs, not quality: {agreement:.0%}{beside}"


def assumed_lines(assumed: Sequence[Assumption]) -> list[str]:
    """What was assumed and not told, a line each, with the option that tells it."""
    if not assumed:
        return []
    lines = [f"  {one.what} ({one.command_option})" for one in assumed]
    return ["assumed, because nothing tells it (the option that does):", *lines]


def frontier_table(points: Sequence[Point]) -> Table:
    """Size against accuracy, a row a budget."""
    measured = any(point.accuracy is not None for point in points)
    heads = ["budget", "widths", "parameters", "likeness", *(["accuracy"] if measured else [])]
    table = Table(*heads)
    for point in points:
        cells = [point.name, point.widths, f"{point.parameters:,}"]
        cells.append("" if point.agreement is None else f"{point.agreement:.1%}")
        if measured:
            cells.append("" if point.accuracy is None else f"{point.accuracy:.1%}")
        table.add_row(*cells)
    return table
