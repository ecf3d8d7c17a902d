"""How a fusion was made: options, versions, hashes; and what its file does not hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pfnm.pages.account import Account
from pfnm.pages.page import Section, Table

MOST_VALUES = 10  # of an option that are shown one by one
MOST_CHARACTERS = 120


def provenance(told: Account, origin: str, *, whole: bool) -> Section:
    """All that is needed to make it again; whole: whether the sites are at hand."""
    options = [[str(name), shown_option(own)] for name, own in told.options.items()]
    if told.polish:
        options += [[f"polish: {name}", shown_option(own)] for name, own in told.polish.items()]
    if told.objective is not None:
        options.append(["objective", f"{told.objective:,.3f}"])
    parts: list[Any] = [
        Table(("option", "value"), options, "Options"),
    ]
    if told.versions:
        versions = list(map(list, told.versions.items()))
        parts.append(Table(("package", "version"), versions, "Versions"))
    if any(site.sha256 for site in told.sites):
        hashed = [[site.name, site.sha256] for site in told.sites]
        parts.append(Table(("site", "sha256 of its file"), hashed, "Files"))
    says = f"From the record in {origin}." if origin else ""
    if not told.sites:
        says += " Where there are many sites, their names and hashes are not in it."
    elif not whole:
        missing = ["which site gave which unit", "how sure that is", "the sites' weights"]
        missing += [] if told.shared else ["how many sites share a unit"]
        missing += [] if told.candidates else ["what else was tried"]
        missing += [] if told.objectives else ["the objective by sweep"]
        says += (
            f" A fused file does not hold {', '.join(missing)}: pfnm fuse --report shows them when "
            "it fuses."
        )
    return Section("Provenance", "With this it can be made again", says.strip(), parts)


def shown_option(value: Any) -> str:
    """An option's value in a line; long ones by what they are."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {shown_option(own)}" for name, own in value.items()) or "none"
    if isinstance(value, Sequence) and not isinstance(value, str):
        short = ", ".join(map(shown_option, value[: MOST_VALUES + 1]))
        rows = {len(own) if isinstance(own, list | tuple) else -1 for own in value}
        if len(value) > 1 and len(rows) == 1 and max(rows) > 1:
            return f"{len(value):,} rows of {max(rows):,} values"
        few = len(value) <= MOST_VALUES and len(short) <= MOST_CHARACTERS
        return (short if few else f"{len(value):,} values") or "none"
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
