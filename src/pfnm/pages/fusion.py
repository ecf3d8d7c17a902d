"""The page of a fusion: what its record tells, and, with its sites at hand, where units went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pfnm.errors import PFNMError
from pfnm.fusing.inputs import Inputs
from pfnm.fusing.kinds import parsed_kind
from pfnm.fusing.sites import Sites
from pfnm.fusing.solution import Solution
from pfnm.networks.network import Array, Network
from pfnm.pages.account import Account, numbers
from pfnm.pages.charts import SERIES, coloured
from pfnm.pages.classes import classes_chart, classes_known
from pfnm.pages.groups import groups_chart
from pfnm.pages.page import Listed, Page, Panels, Section, Table
from pfnm.pages.provenance import provenance
from pfnm.pages.search import search
from pfnm.pages.sizes import sizes
from pfnm.pages.text import between, plural, share
from pfnm.pages.units import confidence_chart, shared_chart, unit_chart
from pfnm.pages.weights import strips

MOST_PICTURES = 12  # of groups, the widest ones; all are in the charts of all layers
CLEARLY = 0.2  # of correlation: below it nobody would see that pictures are alike
ALL_LAYERS = "all layers"


def fusion_page(
    told: Account,
    network: Network | None,
    parameters: int,
    *,
    solution: Solution | None = None,
    sites: Sites | None = None,
    confidence: Mapping[str, Sequence[Array]] | None = None,
    origin: str = "",
) -> Page:
    """A fusion on one page.

    network: the fused one, where it could be made of what there is; solution, sites: where they are
    at hand, as they are while fusing; confidence: as `Fusion.confidence`, if it is wanted. origin:
    the file it was read from.
    """
    sections = [
        _units(told, solution, confidence),
        _weights(told, network, solution, sites),
        sizes(told, parameters),
        search(told),
        _groups(network),
        _sites(told, network, sites),
        _assumed(told),
        provenance(told, origin, whole=solution is not None),
    ]
    return Page(
        "report of a fusion",
        f"{plural(told.joined, 'network')} became one" if told.joined else "Many became one",
        _lead(told, parameters),
        _figures(told, parameters),
        [section for section in sections if section is not None],
        told.warnings,
    )


def _lead(told: Account, parameters: int) -> str:
    units, layers = sum(told.widths.values()), plural(len(told.widths), "layer")
    together = told.together
    size = (
        "" if not together else f", {share(parameters, together)} of what the sites have together"
    )
    return (
        f"The fused network has {plural(units, 'unit')} in {layers} and {parameters:,} "
        f"parameters{size}."
    )


def _figures(told: Account, parameters: int) -> dict[str, tuple[str, str]]:
    together = told.together
    found = {} if not told.joined else {"Sites": (f"{told.joined:,}", "networks trained apart")}
    found |= {
        "Parameters": (
            f"{parameters:,}",
            "" if together is None else f"the sites together {together:,}",
        ),
        "Units": (f"{sum(told.widths.values()):,}", f"in {plural(len(told.widths), 'layer')}"),
    }
    if told.agreement is not None:
        best = told.site_agreement
        below = "" if best is None else f"the best single site {best:.0%}; "
        below += "on made-up inputs, no accuracy"
        found["Likeness to the sites"] = (f"{told.agreement:.0%}", below)
    return found


def _units(
    told: Account, solution: Solution | None, confidence: Mapping[str, Sequence[Array]] | None
) -> Section | None:
    if not told.shared:
        return None
    groups = list(told.shared)
    series = coloured(groups if len(groups) <= SERIES else [ALL_LAYERS])
    counts = told.shared.values()
    total, alone = sum(map(sum, counts)), sum(own[0] for own in counts if own)
    charts = [shared_chart(told.shared, series)]
    if confidence is not None:
        charts.append(confidence_chart(confidence, series))
    parts: list[Any] = []
    says = ""
    if solution is not None:
        widest = sorted(groups, key=lambda group: -told.widths.get(group, 0))[:MOST_PICTURES]
        names = [site.name for site in told.sites]
        pictures = [
            unit_chart(group, solution.assignments[group], names)
            for group in groups
            if group in widest
        ]
        parts.append(Panels(pictures, wide=True))
        says = (
            "A filled cell says that the site of its row gave a unit to the column's global unit."
        )
        if len(groups) > MOST_PICTURES:
            says += f" The {MOST_PICTURES} widest of {len(groups)} layers are shown."
    parts.append(Panels(charts, series if len(series) > 1 else {}))
    parts.append(_layers(told))
    heading = f"{total - alone:,} of {total:,} units are shared, {alone:,} are one site's own"
    return Section("Units", heading, says, parts)


def _layers(told: Account) -> Table:
    rows: list[list[Any]] = []
    for group, counts in told.shared.items():
        widths = [site.widths[group] for site in told.sites if group in site.widths]
        total, alone = sum(counts), counts[0] if counts else 0
        in_all = counts[-1] if len(counts) == told.joined else 0
        low_high = (max(widths), between(widths)) if widths else None
        rows.append([group, low_high, total, in_all, total - alone - in_all, alone])
    columns = ("layer", "sites' widths", "global", "in all", "in some", "in one")
    return Table(columns, rows, "Layers")


def _weights(
    told: Account, network: Network | None, solution: Solution | None, sites: Sites | None
) -> Section | None:
    if network is None:
        return None
    kind: Inputs | None = None
    if sites is not None:
        kind = sites.inputs
    else:
        try:
            kind = parsed_kind(str(told.options.get("inputs", "")))
        except PFNMError:
            kind = None  # what units look for, say
    found = strips(network, kind, solution, sites)
    if found is None:
        return None
    colours = (
        "Orange is positive, blue negative (three channels are shown as colours), each picture "
        "scaled by its own largest weight."
    )
    if found.likeness is None:
        heading = "What the fused units look for"
        says = f"The incoming weights of the strongest units. {colours}"
    else:
        heading = "The weights of what was matched"
        if found.unlikeness is not None and found.likeness > found.unlikeness + CLEARLY:
            heading = "What was matched looks alike"
        beside = (
            "" if found.unlikeness is None else f", of units that were not {found.unlikeness:.2f}"
        )
        says = (
            "The incoming weights of the units that count most (many sites have them, and what "
            "they pass on is large): the fused unit first, beside it each site's. Weights of two "
            f"sites whose units were matched correlate {found.likeness:.2f} on average{beside}. "
            f"{colours}"
        )
    return Section("Weights", heading, says, [found])


def _groups(network: Network | None) -> Section | None:
    if network is None or network.program.examples is None:
        return None
    number = len(network.graph.outer_groups)
    heading = f"The network has {plural(number, 'unit group')}"
    says = (
        "Found by tracing it. A group is a layer's units, or those of several layers that are "
        "added to each other: they keep one order and have one width."
    )
    return Section("Groups", heading, says, [Panels([groups_chart(network)])])


def _sites(told: Account, network: Network | None, sites: Sites | None) -> Section | None:
    if not told.sites:
        return None
    counts = told.class_counts
    examples = None if counts is None else np.array(counts)
    weights = numbers(told.options.get("site_weights"))
    classes = []
    if sites is not None and network is not None and network.labels is not None:
        classes = classes_known(sites.known, [str(label) for label in network.labels])
    rows: list[list[Any]] = []
    for place, site in enumerate(told.sites):
        row: list[Any] = [site.name, ", ".join(map(str, site.widths.values())), site.parameters]
        row += [classes[place]] if classes else []
        if examples is not None:
            row.append(int(examples[place].sum()))
        if len(weights) == len(told.sites) and len({*weights}) > 1:
            row.append(weights[place])
        rows.append(row)
    columns = ["site", "widths", "parameters", *(["classes it knows"] if classes else [])]
    columns += [] if examples is None else ["examples"]
    columns += ["weight"] if rows and len(rows[0]) > len(columns) else []
    parts: list[Any] = []
    heading = f"{plural(len(told.sites), 'site')} took part"
    if examples is not None:
        labels = None if network is None else network.labels
        parts.append(Panels([classes_chart([s.name for s in told.sites], examples, labels)]))
        held = (examples > 0).sum(axis=1)
        heading += f"; a site has seen {between(held.tolist())} of {examples.shape[1]} classes"
    parts.append(Table(columns, rows, "Sites"))
    return Section("Sites", heading, "", parts)


def _assumed(told: Account) -> Section | None:
    if told.assumed is None:
        return None
    if not told.assumed:
        return Section("Assumed", "Nothing was assumed", "All that matters was told.", [])
    told_by = [f"{what} ({option} tells otherwise)" for what, option in told.assumed]
    things = "1 thing that nobody told was"
    if len(told_by) > 1:
        things = f"{len(told_by)} things that nobody told were"
    says = "Each with the option that tells it."
    return Section("Assumed", f"{things} assumed", says, [Listed(told_by)])
