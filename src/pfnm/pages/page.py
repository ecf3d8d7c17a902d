"""A page: headings that say what was found, charts with their data, tables that sort.

Everything that a part shows may come out of a file, so all text is escaped, data stands in the page
as JSON, and the page's policy lets no script run but its own two.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from os import PathLike
from pathlib import Path
from string import Template
from typing import Protocol

from pfnm.errors import PFNMError
from pfnm.formats.files import check_output, write_whole
from pfnm.pages.charts import Chart, Colours
from pfnm.pages.text import (
    LONG_COLUMN,
    Cell,
    as_json,
    column_class,
    data_value,
    read,
    sentence,
    text,
)

MOST_AT_ONCE = 30  # rows of a table; one with more scrolls
MOST_ON_A_PHONE = 2  # columns, one with long text among them; of more, cells stand below each other
FRAME_HEIGHT = 760  # pixels, of the page within a notebook


class Shown(Protocol):
    """What can stand in a section."""

    def html(self, name: str) -> str:
        """As HTML; name: an identifier that no other part of the page has."""


@dataclass(frozen=True)
class Panels:
    """Charts side by side, and buttons that turn their series on and off."""

    charts: Sequence[Chart]
    series: Colours = field(default_factory=dict)
    dashed: frozenset[str] = frozenset()
    wide: bool = False
    """Whether every chart takes the whole width."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """The marks of series that have some, as text."""

    def html(self, name: str) -> str:
        """Buttons first, where they belong to several charts; those of one stand with it."""
        legend, alone = self._legend(name), len(self.charts) == 1
        found = "".join(
            chart_html(own, f"{name}-{n}", legend if alone else "")
            for n, own in enumerate(self.charts, 1)
        )
        kind = "panels wide" if self.wide else "panels one" if alone else "panels"
        return f"{'' if alone else legend}<div class='{kind}' id='{name}'>{found}</div>"

    def _legend(self, name: str) -> str:
        if not self.series:
            return ""
        buttons = "".join(
            f"<li><button type='button' aria-pressed='true' data-series='{text(own)}'>"
            f"{self._key(own, colour)}{text(own)}</button></li>"
            for own, colour in self.series.items()
        )
        return f"<ul class='legend' data-of='{name}' aria-label='Series, on or off'>{buttons}</ul>"

    def _key(self, own: str, colour: str) -> str:
        """How a series looks: a mark, a dashed line or a filled field."""
        if own in self.marks and own not in self.dashed:
            mark = text(self.marks[own])
            return f"<span class='mark' style='--own:{colour}' aria-hidden='true'>{mark}</span>"
        kind = "swatch dashed" if own in self.dashed else "swatch"
        return f"<span class='{kind}' style='--own:{colour}'></span>"


@dataclass(frozen=True)
class Table:
    """A table that sorts by any of its columns; a cell is a value, or a value and how it reads."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell | tuple[Cell, str]]]
    title: str = ""

    def html(self, name: str) -> str:
        """With a button in every head."""
        pairs = [
            [own if isinstance(own, tuple) else (own, read(own)) for own in r] for r in self.rows
        ]
        kinds = [column_class([row[place] for row in pairs]) for place in range(len(self.columns))]
        heads = "".join(
            f"<th scope='col'{kind}><button type='button'>{text(column)}</button></th>"
            for column, kind in zip(self.columns, kinds, strict=True)
        )
        stacks = LONG_COLUMN in kinds and len(kinds) > MOST_ON_A_PHONE
        told = [f" data-head='{text(column)}'" if stacks else "" for column in self.columns]
        body = "".join(
            "<tr>"
            + "".join(
                f"<td{kind}{data_value(value)}{head}>{text(shown)}</td>"
                for (value, shown), kind, head in zip(row, kinds, told, strict=True)
            )
            + "</tr>"
            for row in pairs
        )
        title = f"<h3 id='{name}'>{text(self.title)}</h3>" if self.title else ""
        size = "scroll whole" if len(pairs) <= MOST_AT_ONCE else "scroll"
        size += " stacks" if stacks else ""
        label = f" aria-labelledby='{name}'" if self.title else ""
        return (
            f"{title}<div class='{size}' tabindex='0' role='region' aria-label="
            f"'{text(self.title or 'Table')}'><table class='sorts'{label}><thead><tr>{heads}</tr>"
            f"</thead><tbody>{body}</tbody></table></div>"
        )


@dataclass(frozen=True)
class Listed:
    """A list of sentences."""

    lines: Sequence[str]

    def html(self, name: str) -> str:
        """As a list."""
        return (
            "<ul class='plain'>"
            + "".join(f"<li>{sentence(own)}</li>" for own in self.lines)
            + "</ul>"
        )


@dataclass(frozen=True)
class Section:
    """A heading that says what was found, what it means, and what shows it."""

    name: str
    """In the contents."""
    heading: str
    says: str
    parts: Sequence[Shown]

    def html(self, name: str) -> str:
        """All of it."""
        parts = "".join(part.html(f"{name}-{number}") for number, part in enumerate(self.parts, 1))
        says = f"<p>{text(self.says)}</p>" if self.says else ""
        return f"<section id='{name}'><h2>{text(self.heading)}</h2>{says}{parts}</section>"


@dataclass(frozen=True)
class Page:
    """A result on one page: `html` is the file's text, `save` writes it; a notebook shows it."""

    kind: str
    title: str
    lead: str
    figures: Mapping[str, tuple[str, str]]
    """The key figures: of each its name, the number and what stands below it."""
    sections: Sequence[Section]
    warnings: Sequence[str] = ()

    @property
    def html(self) -> str:
        """The whole page: styles, scripts and data within."""
        library, script = javascript(), asset("page.js")
        names = [f"part{number}" for number in range(1, 1 + len(self.sections))]
        pairs = list(zip(names, self.sections, strict=True))
        return Template(asset("page.html")).substitute(
            policy=policy(library, script),
            version=text(version("pfnm")),
            kind=text(self.kind),
            title=text(self.title),
            style=asset("page.css"),
            head=self._head(),
            contents="\n".join(f"<li><a href='#{n}'>{text(own.name)}</a></li>" for n, own in pairs),
            body="\n".join(own.html(name) for name, own in pairs),
            library=library,
            script=script,
        )

    def _head(self) -> str:
        tiles = "".join(
            f"<div><dt>{text(name)}</dt><dd>{text(number)}<small>{text(below)}</small></dd></div>"
            for name, (number, below) in self.figures.items()
        )
        warned = "".join(f"<li>{sentence(own)}</li>" for own in self.warnings)
        return (
            f"<h1>{text(self.title)}</h1><p class='lead'>{text(self.lead)}</p>"
            f"<dl class='tiles'>{tiles}</dl>"
            + (f"<div class='warning'><h2>Mind this</h2><ul>{warned}</ul></div>" if warned else "")
        )

    def save(self, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write the page, whole or not at all."""
        check_page(Path(path), force=force)
        write_whole(Path(path), self.html.encode(), force=force)

    def _repr_html_(self) -> str:
        return (
            f"<iframe title='{text(self.title)}' srcdoc='{html.escape(self.html)}' "
            f"style='width:100%;height:{FRAME_HEIGHT}px;border:0'></iframe>"
        )


def check_page(path: Path, *, force: bool, inputs: Iterable[Path] = ()) -> None:
    """An error unless a page can be made and written there, where none of the inputs is."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise PFNMError(f"{path}: a report is a page; give it a name that ends in .html")
    check_output(path, force=force, inputs=inputs)
    javascript()


def chart_html(chart: Chart, name: str, legend: str = "") -> str:
    """A figure: title, what is to be seen, the chart, and its data as a table and as CSV."""
    embedded = {
        "columns": dict(chart.columns),
        "rows": chart.rows,
        "spec": {**chart.spec, "description": f"{chart.title}. {chart.says}"},
    }
    steps = "".join(
        f"<li><span class='swatch' style='--own:{colour}'></span>{text(own)}</li>"
        for own, colour in chart.steps.items()
    )
    return (
        f"<figure class='drawn-here' id='{name}'><figcaption><h3>{text(chart.title)}</h3>"
        f"<p>{text(chart.says)}</p></figcaption>{legend}"
        + (f"<ul class='ramp'>{steps}</ul>" if steps else "")
        + "<div class='chart'><div></div></div><details class='data'><summary>Data of this chart"
        "</summary><button type='button'>Download CSV</button><div class='scroll' tabindex='0' "
        f"role='region' aria-label='Data: {text(chart.title)}'></div></details>"
        f"<script type='application/json'>{as_json(embedded)}</script></figure>"
    )


def policy(*scripts: str) -> str:
    """Of the page: nothing is loaded, and no script runs but these."""
    digests = (hashlib.sha256(own.encode()).digest() for own in scripts)
    known = " ".join(f"'sha256-{base64.b64encode(own).decode()}'" for own in digests)
    return (
        f"default-src 'none'; script-src {known}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def javascript() -> str:
    """Vega-Lite's own, as vl-convert bundles it: all that the charts need."""
    try:
        import vl_convert
    except ImportError:
        raise PFNMError("a report needs vl-convert; pip install 'pfnm[report]'") from None
    return vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its snippet may be left out


@cache
def asset(name: str) -> str:
    """The text of a file beside this one."""
    return files("pfnm.pages").joinpath("assets", name).read_text(encoding="utf-8")
