"""What the record of a fusion tells, read through types: a file may hold anything in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pfnm.errors import PFNMError

MOST = 2**53  # what a float, a chart and a page can still tell from the next number


@dataclass(frozen=True)
class SiteTold:
    """A site as the record names it."""

    name: str
    widths: Mapping[str, int]
    parameters: int | None
    sha256: str | None


@dataclass(frozen=True)
class Account:
    """A fusion as its record tells it; what a record does not have is empty or None."""

    sites: Sequence[SiteTold]
    """None where there were so many that the record does not name them."""
    widths: Mapping[str, int]
    objective: float | None
    agreement: float | None
    site_agreement: float | None
    shared: Mapping[str, Sequence[int]]
    """Of each group how many units are in 1, 2, ... sites."""
    objectives: Mapping[str, Sequence[float]]
    """Of each group by sweep."""
    candidates: Sequence[Mapping[str, Any]]
    options: Mapping[str, Any]
    versions: Mapping[str, str]
    assumed: Sequence[tuple[str, str]] | None
    """What, and the option that tells it; None where the record does not say."""
    warnings: Sequence[str]
    polish: Mapping[str, Any] = field(default_factory=dict)

    @property
    def joined(self) -> int:
        """How many networks became one; 0 where the record does not say."""
        told = self.options.get("sites")
        return len(self.sites) or (told if isinstance(told, int) and 0 < told < MOST else 0)

    @property
    def together(self) -> int | None:
        """The parameters of all sites, where they are known."""
        found = [site.parameters for site in self.sites if site.parameters is not None]
        return sum(found) if found and len(found) == len(self.sites) else None

    @property
    def class_counts(self) -> list[list[float]] | None:
        """The examples of each class at each site, where they were told."""
        found = self.options.get("class_counts")
        rows = [numbers(row) for row in found] if isinstance(found, list) else []
        same = len(rows) == len(self.sites) and len({len(row) for row in rows}) == 1
        return rows if rows and same and rows[0] else None


def account(record: Mapping[str, Any], file: str) -> Account:
    """The record of a fusion, or an error that names the file it came from."""
    sites = [_site(own) for own in _dicts(record.get("sites"))]
    widths = _whole(record.get("widths"))
    if record.get("kind") != "fusion" or not widths:
        raise PFNMError(
            f"{file}: it has no record of a fusion, so there is nothing to report of it; give a "
            "file that pfnm fused, or a folder of a run or an experiment (pfnm inspect shows other "
            "files)"
        )
    trace = record.get("trace")
    return Account(
        sites=sites,
        widths=widths,
        objective=_number(record.get("objective")),
        agreement=_number(record.get("agreement")),
        site_agreement=_number(record.get("site_agreement")),
        shared={
            str(group): [max(0, int(own)) for own in numbers(counts)]
            for group, counts in _dict(record.get("shared")).items()
        },
        objectives={
            str(group): numbers([own.get("objective") for own in _dicts(sweeps)])
            for group, sweeps in _dict(trace).items()
        },
        candidates=[
            own for own in _dicts(record.get("candidates"))
            if _number(own.get("sure_agreement")) is not None
        ],
        options=_dict(record.get("options")),
        versions={str(n): str(own) for n, own in _dict(record.get("versions")).items()},
        assumed=None if "assumed" not in record else [
            (str(own.get("what", "")), str(own.get("option", "")))
            for own in _dicts(record["assumed"])
        ],
        warnings=[str(own) for own in _list(record.get("warnings"))],
        polish=_dict(record.get("polish")),
    )  # fmt: skip


def _site(told: Mapping[str, Any]) -> SiteTold:
    parameters, digest = told.get("parameters"), told.get("sha256")
    return SiteTold(
        str(told.get("name", "")),
        _whole(told.get("widths")),
        parameters if isinstance(parameters, int) and 0 <= parameters < MOST else None,
        digest if isinstance(digest, str) else None,
    )


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else []


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [own for own in _list(value) if isinstance(own, Mapping)]


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and abs(value) < MOST else None


def numbers(value: Any) -> list[float]:
    """Those among these that are numbers."""
    found = [_number(own) for own in _list(value)]
    return [own for own in found if own is not None]


def _whole(value: Any) -> dict[str, int]:
    return {
        str(n): own for n, own in _dict(value).items() if isinstance(own, int) and 0 < own < MOST
    }
