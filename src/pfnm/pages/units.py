"""Which site gave which unit (sites x global units, shared ones together), and how many share."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array
from pfnm.pages.charts import (
    STEPS,
    Chart,
    Colours,
    axis,
    base,
    by_series,
    heat,
    shortened,
    spread_steps,
    stepped,
    switched,
    tip,
)
from pfnm.pages.text import plural

MOST_CELLS = 3000  # of a picture that shows every unit; a browser draws so many at once
MOST_ROWS = 40  # sites that have a row of their own
MOST_COLUMNS = 120  # of a picture that shows shares
CONFIDENCE_BINS = 10
SURE = 0.5  # of draws in which a unit stays
MOST_COUNTS = 30  # numbers of sites that have a bar of their own
SHORT_COUNT = 4  # characters below a bar; longer ones are turned


def unit_chart(group: str, assignments: Sequence[IntArray], names: Sequence[str]) -> Chart:
    """A row a site, a column a global unit, those of the most sites first.

    Where there are too many for the eye, rows and columns stand for several and colours for shares.
    """
    table = membership(assignments)
    popularity = (table >= 0).sum(axis=0)
    order = np.lexsort((*(table < 0)[::-1], -popularity))
    several = int((popularity > 1).sum())
    all_sites = int((popularity == len(names)).sum())
    shared = (
        f"{several:,} come from both"
        if len(names) == 2
        else f"{several:,} come from two sites or more, {all_sites:,} from all"
    )
    says = (
        f"{plural(len(names), 'site')}, {plural(popularity.size, 'global unit')}: {shared}. Units "
        "of the most sites stand on the left."
    )
    members = int((table >= 0).sum())
    if len(names) <= MOST_ROWS and members <= MOST_CELLS:
        return _exact(group, table, order, popularity, names, says)
    return _shares(group, table[:, order] >= 0, order, names, says)


def membership(assignments: Sequence[IntArray]) -> IntArray:
    """(sites, global units): which of its own units a site has there; -1 where it has none."""
    width = 1 + max(int(own.max(initial=-1)) for own in assignments)
    table = np.full((len(assignments), width), -1)
    for row, own in zip(table, assignments, strict=True):
        row[own] = np.arange(own.size)
    return table


def _exact(
    group: str,
    table: IntArray,
    order: IntArray,
    popularity: IntArray,
    names: Sequence[str],
    says: str,
) -> Chart:
    labels = shortened(names)
    place_of = np.argsort(order)
    rows = [
        [
            labels[site],
            int(place_of[unit]),
            int(unit),
            int(table[site, unit]),
            int(popularity[unit]),
        ]
        for site, unit in np.argwhere(table >= 0)
    ]
    edges = counted_steps(len(names))
    colours = spread_steps(1 + len(edges))
    spec = heat(
        axis("place", "global units", axis={"tickMinStep": 1},
             scale={"domain": [0, order.size], "nice": False}),
        axis("site", None, "nominal", sort=labels, scale={"domain": labels}),
        stepped("sites", edges, colours),
        tip(("site", "site"), ("own", "its unit"), ("unit", "global unit"),
            ("sites", "sites that share it")),
        len(names),
        row=18 if len(names) <= 20 else 13,
    )  # fmt: skip
    spec["transform"] = [{"calculate": "datum.place + 1", "as": "end"}]
    spec["encoding"]["x2"] = {"field": "end"}
    columns = {
        "site": "site", "place": "column", "unit": "global unit", "own": "unit of the site",
        "sites": "sites that share it",
    }  # fmt: skip
    return Chart(
        f"Layer {group}",
        says,
        spec,
        columns,
        rows,
        dict(zip(in_words(edges, len(names)), colours, strict=True)),
    )


def counted_steps(most: int) -> list[int]:
    """Where a colour for a number of sites from 1 to `most` ends and the next begins."""
    if most <= STEPS:
        return list(range(2, most + 1))
    ends = np.geomspace(1, most, STEPS)
    return sorted({max(2, round(float(end))) for end in ends[1:]})


def in_words(edges: Sequence[int], most: int) -> list[str]:
    """What the colours between these edges mean."""
    first, last = [1, *edges], [*(edge - 1 for edge in edges), most]
    return [
        plural(low, "site") if low == high else f"{low} to {high} sites"
        for low, high in zip(first, last, strict=True)
    ]


def _shares(
    group: str, present: np.ndarray[tuple[int, int], np.dtype[np.bool_]], order: IntArray,
    names: Sequence[str], says: str,
) -> Chart:  # fmt: skip
    sites, units = present.shape
    row_ends = np.linspace(0, sites, min(sites, MOST_ROWS) + 1).astype(int)
    column_ends = np.linspace(0, units, min(units, MOST_COLUMNS) + 1).astype(int)
    sums = np.add.reduceat(np.add.reduceat(present.astype(float), row_ends[:-1], 0),
                           column_ends[:-1], 1)  # fmt: skip
    sizes = np.outer(np.diff(row_ends), np.diff(column_ends))
    shares = sums / sizes
    if sites <= MOST_ROWS:
        labels = shortened(names)
    else:
        labels = [f"{a + 1} to {b}" for a, b in itertools.pairwise(row_ends)]
    rows = [
        [labels[r], int(column_ends[c]), int(column_ends[c + 1]), round(float(shares[r, c]), 4)]
        for r, c in np.argwhere(shares > 0)
    ]
    edges = [0.02, 0.05, 0.1, 0.25, 0.5, 0.75]
    colours = spread_steps(1 + len(edges))
    spec = heat(
        axis("place", "global units", axis={"tickMinStep": 1},
             scale={"domain": [0, units], "nice": False}),
        axis("site", None if sites <= MOST_ROWS else "sites", "nominal", sort=labels,
             scale={"domain": labels}),
        stepped("share", edges, colours),
        tip(("site", "sites"), ("place", "units from"), ("end", "to"), ("share", "filled", ".1%")),
        len(labels),
        row=18 if len(labels) <= 20 else 11,
    )  # fmt: skip
    spec["encoding"]["x2"] = {"field": "end"}
    words = ["under 2%", *(f"from {edge:.0%}" for edge in edges)]
    return Chart(
        f"Layer {group}",
        says + " A cell stands for several units or sites; its colour is the share that is filled.",
        spec,
        {"site": "sites", "place": "from column", "end": "to column", "share": "share filled"},
        rows,
        dict(zip(words, colours, strict=True)),
    )


def shared_chart(shared: Mapping[str, Sequence[int]], series: Colours) -> Chart:
    """How many global units are in 1, 2, ... sites; a colour a group."""
    most = max(len(counts) for counts in shared.values())
    if most <= MOST_COUNTS:
        ends = np.arange(most + 1)
    else:  # 1, 2, 3 to 4, 5 to 8, ...
        ends = np.array([0, *(2**power for power in range(int(np.log2(most - 1)) + 1)), most])
    labels = [str(a + 1) if b == a + 1 else f"{a + 1} to {b}" for a, b in itertools.pairwise(ends)]
    totals: dict[tuple[str, str], int] = {}
    for group, counts in shared.items():
        name = group if group in series else next(iter(series))
        padded = np.pad(np.asarray(counts, int), (0, most - len(counts)))
        for label, number in zip(labels, np.add.reduceat(padded, ends[:-1]), strict=True):
            totals[label, name] = totals.get((label, name), 0) + int(number)
    units = sum(totals.values())
    alone = sum(int(counts[0]) for counts in shared.values() if counts)
    turned = any(len(own) > SHORT_COUNT for own in labels)
    spec = base(
        230,
        mark={"type": "bar", "cornerRadiusEnd": 1},
        encoding={
            "x": axis("sites", "sites that share a unit", "ordinal", sort=labels,
                      axis={"labelAngle": -40, "labelOverlap": False} if turned
                      else {"labelAngle": 0}, scale={"domain": labels}),
            "y": axis("units", "global units"),
            "color": by_series(series),
            "tooltip": tip(("series", "layer"), ("sites", "sites"), ("units", "units", ",")),
        },
    )  # fmt: skip
    return Chart(
        "How many sites share a unit",
        f"{alone:,} of {units:,} global units come from one site alone, {units - alone:,} from two "
        "or more.",
        switched(spec),
        {"sites": "sites", "series": "layer", "units": "global units"},
        [[label, name, number] for (label, name), number in totals.items() if number],
    )


def confidence_chart(confidence: Mapping[str, Sequence[Array]], series: Colours) -> Chart:
    """How many of the sites' units are how sure of their match; a colour a group."""
    edges = np.linspace(0, 1, CONFIDENCE_BINS + 1)
    labels = [f"{100 * low:.0f}-{100 * high:.0f}" for low, high in itertools.pairwise(edges)]
    totals: dict[tuple[str, str], int] = {}
    for group, own in confidence.items():
        name = group if group in series else next(iter(series))
        for label, number in zip(labels, np.histogram(np.concatenate(own), edges)[0], strict=True):
            totals[label, name] = totals.get((label, name), 0) + int(number)
    values = np.concatenate([found for own in confidence.values() for found in own])
    spec = base(
        230,
        mark={"type": "bar", "cornerRadiusEnd": 1},
        encoding={
            "x": axis("sure", "how sure a unit's match is (%)", "ordinal", sort=labels,
                      axis={"labelAngle": 0}, scale={"domain": labels}),
            "y": axis("units", "units of the sites"),
            "color": by_series(series),
            "tooltip": tip(("series", "layer"), ("sure", "how sure (%)"), ("units", "units", ",")),
        },
    )  # fmt: skip
    return Chart(
        "How sure the matches are",
        f"{(values >= SURE).mean():.0%} of the sites' units keep their place in at least half of "
        f"the assignments drawn by chance; a match is {values.mean():.0%} sure on average.",
        switched(spec),
        {"sure": "how sure (%)", "series": "layer", "units": "units of the sites"},
        [[label, name, number] for (label, name), number in totals.items() if number],
    )
