"""Parameters and widths, before and after."""

from __future__ import annotations

from pfnm.pages.account import Account
from pfnm.pages.charts import ROW, Chart, axis, bars, base, series_colour, shortened, tip
from pfnm.pages.page import Panels, Section
from pfnm.pages.text import plural

ROUND = "datum.value ? format(datum.value, '~s') : '0'"  # 10k; of nothing no thousands
LABEL_ROOM = 1.5  # times the longest bar: on a phone, too, its number stands beside it


def sizes(told: Account, parameters: int) -> Section:
    """The fused network beside its sites."""
    charts = []
    together = told.together
    own = [site.parameters for site in told.sites if site.parameters is not None]
    if together:
        rows = [
            ["fused", parameters],
            ["largest site", max(own)],
            ["all sites (an ensemble)", together],
        ]
        spec = bars(
            axis(
                "parameters",
                "parameters",
                axis={"tickCount": 4, "labelExpr": ROUND, "labelBound": True},
            ),
            axis("name", None, "nominal", sort=None, axis={"labelLimit": 170}),
            tip(("name", "what"), ("parameters", "parameters", ",")),
            len(rows) + 1,
            label={"field": "parameters", "type": "quantitative", "format": ","},
        )
        spec["layer"][0]["encoding"]["x"]["scale"] = {
            "domainMax": LABEL_ROOM * max(parameters, together)
        }
        says = f"All sites together hold {together:,}; the fused network has {parameters:,}."
        charts.append(
            Chart("Parameters", says, spec, {"name": "network", "parameters": "parameters"}, rows)
        )
    if any(site.widths for site in told.sites):
        charts.append(_widths(told))
    heading = (
        f"{parameters:,} parameters in place of {together:,}"
        if together
        else f"{parameters:,} parameters"
    )
    return Section("Sizes", heading, "", [Panels(charts)] if charts else [])


def _widths(told: Account) -> Chart:
    labels = shortened(told.widths)
    rows = []
    for label, (group, width) in zip(labels, told.widths.items(), strict=True):
        widths = [site.widths[group] for site in told.sites if group in site.widths] or [width]
        rows.append([label, min(widths), max(widths), sum(widths), width])
    y = axis("layer", None, "nominal", sort=None)
    low = axis("least", "units", scale={"zero": True}, axis={"tickCount": 5})
    told_of = tip(
        ("layer", "layer"), ("width", "fused", ","), ("least", "narrowest site", ","),
        ("most", "widest site", ","), ("total", "sites together", ","),
    )  # fmt: skip
    spec = base(
        max(ROW * len(rows), 2 * ROW),
        encoding={"y": y, "tooltip": told_of},
        layer=[
            {"mark": {"type": "rule", "strokeWidth": 9, "strokeCap": "round", "opacity": 0.7,
                      "stroke": series_colour(1)},
             "encoding": {"x": low, "x2": {"field": "most"}}},
            {"mark": {"type": "point", "filled": True, "size": 110, "opacity": 1,
                      "fill": series_colour(0)},
             "encoding": {"x": axis("width", "units")}},
        ],
    )  # fmt: skip
    columns = {"layer": "layer", "least": "narrowest site", "most": "widest site",
               "total": "sites together", "width": "fused"}  # fmt: skip
    steps = {"fused": series_colour(0), "sites, narrowest to widest": series_colour(1)}
    says = f"{plural(len(rows), 'layer')}: the fused width beside the sites' own."
    return Chart("Widths", says, spec, columns, rows, steps)
