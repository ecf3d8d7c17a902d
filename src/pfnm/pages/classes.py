"""Who holds which classes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from pfnm.networks.network import Array, BoolArray
from pfnm.pages.charts import Chart, axis, heat, shortened, spread_steps, stepped, tip
from pfnm.pages.text import between, plural

MOST_ROWS = 40  # sites, or sets of sites, that have a row
MOST_CLASSES = 60  # or sets of classes
COLOURS = 6


def classes_chart(
    names: Sequence[str], counts: Array, labels: Sequence[object] | None = None
) -> Chart:
    """A row a site, a column a class; the colour is the number of examples (sites, classes)."""
    sites, classes = counts.shape
    row_names, column_names = shortened(names), [str(n) for n in range(classes)]
    if labels is not None:
        column_names = shortened(map(str, labels), 12)
    table = counts
    if sites > MOST_ROWS:
        table, row_names = _together(table, MOST_ROWS, "sites", first=1)
    if classes > MOST_CLASSES:
        found, column_names = _together(table.T, MOST_CLASSES, "classes", first=0)
        table = found.T
    rows = [
        [row_names[r], column_names[c], round(float(table[r, c]), 3)]
        for r, c in np.argwhere(table > 0)
    ]
    edges = _edges(table)
    colours = spread_steps(1 + len(edges))
    spec = heat(
        axis("class", "class", "nominal", sort=column_names,
             axis={"labelAngle": 0 if max(map(len, column_names)) < 5 else -40},
             scale={"domain": column_names, "paddingInner": 0.04}),
        axis("site", None, "nominal", sort=row_names,
             scale={"domain": row_names, "paddingInner": 0.06}),
        stepped("examples", edges, colours),
        tip(("site", "site"), ("class", "class"), ("examples", "examples", ",.0f")),
        len(row_names),
        row=20 if len(row_names) <= 25 else 13,
    )  # fmt: skip
    lows = [1.0, *edges]
    words = [f"from {low:,.0f}" if n else f"under {edges[0]:,.0f} examples" if edges else "examples"
             for n, low in enumerate(lows)]  # fmt: skip
    empty, held = int((counts == 0).sum()), counts.sum(axis=1)
    return Chart(
        "Who holds which classes",
        f"{plural(sites, 'site')} and {classes} classes: "
        + (f"{empty:,} of {counts.size:,} pairs have no example; " if empty else "")
        + f"a site holds {between([round(own) for own in held.tolist()])} examples.",
        spec,
        {"site": "site", "class": "class", "examples": "examples"},
        rows,
        dict(zip(words, colours, strict=True)),
    )


def classes_known(known: BoolArray, labels: Sequence[str]) -> list[str]:
    """The classes of each site (sites, classes), or the few it does not; none if all know all."""
    if known.all():
        return []
    names = np.array(labels)
    found = []
    for site in known:
        if 2 * site.sum() <= site.size:
            found.append(", ".join(names[site]))
        else:
            found.append("all" if site.all() else "all but " + ", ".join(names[~site]))
    return found


def _together(table: Array, most: int, what: str, first: int) -> tuple[Array, list[str]]:
    """Means over rows that stand together; first: the number of the first row."""
    ends = np.linspace(0, len(table), most + 1).astype(int)
    means = np.add.reduceat(table, ends[:-1], 0) / np.diff(ends)[:, None]
    return means, [f"{what} {a + first} to {b - 1 + first}" for a, b in itertools.pairwise(ends)]


def _edges(table: Array) -> list[float]:
    """Round numbers between which cells have one colour: about as many cells in each."""
    filled = table[table > 0]
    if not filled.size:
        return []
    cuts = np.quantile(filled, np.linspace(0, 1, COLOURS + 1)[1:-1])
    rounded = {float(f"{cut:.1g}") for cut in cuts}
    return sorted(edge for edge in rounded if filled.min() < edge <= filled.max())
