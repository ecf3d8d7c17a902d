"""Results as tables for a terminal and as data for machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from pfnm.core.fusion import Fusion
from pfnm.frontier import Point

CLEARLY = 0.02  # of agreement: less is within what another set of probes would give
DOUBTFUL = 0.74  # of agreement: below, three in ten fusions of the study were worse than a site


def layer_rows(fusion: Fusion) -> list[dict[str, Any]]:
    """Per layer: widths of the sites, global width, units shared by all, by some, by one."""
    sites = len(fusion.sites)
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
        "sites": list(fusion.sites),
        "parameters": fusion.network.parameters,
        "layers": layer_rows(fusion),
        "objective": fusion.objective,
        "settled": fusion.settled,
        "agreement": fusion.agreement,
        "site_agreement": fusion.site_agreement,
        "polish": fusion.network.metadata.get("polish"),
        "warning": fusion_verdict(fusion),
        "options": fusion.network.metadata["options"],
        "trace": {group: [asdict(s) for s in sweeps] for group, sweeps in fusion.trace.items()},
        "candidates": [asdict(candidate) for candidate in fusion.candidates],
    }


def fusion_verdict(fusion: Fusion) -> str | None:
    """The verdict on a fusion; none on one that was fine-tuned on labels, which know better."""
    polish = fusion.network.metadata.get("polish")
    if polish is not None and polish["judged_on"] == "labels" and polish["kept"]:
        return None
    return verdict(fusion.agreement, fusion.site_agreement, polished=polish is not None)


def polish_told(fusion: Fusion) -> str:
    """What polishing came to, in a line."""
    record = fusion.network.metadata["polish"]
    before, after = record["agreement_before"], record["agreement_after"]
    if not record["epochs"]:
        return "polish had no time to train in; the network is as it was fused"
    if not record["kept"]:
        return f"polish did not help (judged on {record['judged_on']}); kept as it was fused"
    return f"polished: agreement {before:.0%} before, {after:.0%} after"


def verdict(fused: float | None, site: float | None, *, polished: bool = False) -> str | None:
    """A warning when a fused network lost what its sites know, and what to do.

    From its agreement with the sites' ensemble, and the best single site's.
    """
    if fused is None or site is None:
        return None
    advice = "allow a larger --budget" + ("" if polished else ", or --polish it")
    if fused < site + CLEARLY:
        return (
            "not worth having: on inputs made from the networks it answers like the sites' "
            f"ensemble {fused:.0%} of the time, the best single site {site:.0%}; {advice}"
        )
    if fused < DOUBTFUL:
        return (
            f"doubtful: agreement with the sites' ensemble is only {fused:.0%}, and below "
            f"{DOUBTFUL:.0%} a fusion may be worse than its largest site; measure it where there "
            f"is data, {advice}"
        )
    return None


def frontier_table(points: Sequence[Point]) -> Table:
    """Size against accuracy, a row a budget."""
    measured = any(point.accuracy is not None for point in points)
    heads = ["budget", "widths", "parameters", "agreement", *(["accuracy"] if measured else [])]
    table = Table(*heads)
    for point in points:
        cells = [point.name, point.widths, f"{point.parameters:,}"]
        cells.append("" if point.agreement is None else f"{point.agreement:.1%}")
        if measured:
            cells.append("" if point.accuracy is None else f"{point.accuracy:.1%}")
        table.add_row(*cells)
    return table
