"""The figures of the paper's experiments, all from the rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pfnm.errors import PFNMError
from pfnm.experiments.claim import WIDTH_CAP, data_name, layers_name, split_name
from pfnm.experiments.claims import AUTHORS_SECONDS, slowest
from pfnm.experiments.claims_once import differences, varied_in
from pfnm.experiments.definition import Experiment
from pfnm.experiments.rows import Row, Spread, fits, means, moments
from pfnm.experiments.trials import MASS, PRIOR_VARIANCE, SITE_VARIANCE, UNITS
from pfnm.networks.network import Array
from pfnm.report.drawing import (
    DETAIL,
    LINES,
    ROOM,
    SIZED,
    STYLES,
    curve,
    legend,
    log_scale,
    panel_grid,
    titled,
    trials_shown,
    write_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BESIDE = ("ensemble", "local", "fedavg", "pfnm", "pfnm-same", "joint-same", "joint")
SIZE_COLUMNS = 2  # of panels: a page shows them large enough to be read
SHARES = (0.1, 0.2, 0.5, 1, 2)  # of the parameters of all sites' networks: from one site's on
SEVERAL = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
TRAINED = "train_accuracy"
LEAST_SPAN = 0.1  # points that the colours of heat maps stand for
RESOLUTION = 130


def draw(experiment: Experiment, rows: Sequence[Row], folder: Path) -> list[Path]:
    """All figures of an experiment, PNG and SVG; the PNGs' paths."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise PFNMError("a figure needs matplotlib; pip install 'pfnm[plot]'") from None
    paths = []
    with mpl.rc_context({"svg.hashsalt": "pfnm", "font.size": 9}):
        for name, figure in FIGURES[experiment.kind](experiment, rows).items():
            paths.append(folder / f"{name}.png")
            write_figure(figure, paths[-1], RESOLUTION)
            write_figure(figure, folder / f"{name}.svg", RESOLUTION)
    return paths


def _once(experiment: Experiment, rows: Sequence[Row]) -> dict[str, Figure]:
    """Accuracy, the same against the ensemble, and size; a column for each data set and split."""
    varied, xs = varied_in(experiment)
    figure, grid = panel_grid(3, len(experiment.panels))
    for column, (data, split) in enumerate(experiment.panels):
        top, middle, bottom = grid[:, column]
        where = {"data": data, "split": split}
        own = [row for row in rows if row["data"] == data]
        for method in experiment.methods:
            values = [means(own, "accuracy", split=split, method=method, **{varied: x}) for x in xs]
            curve(top, method, xs, values, 100)
            lead = differences(experiment, own, method, "ensemble")
            values = [lead.get((split, x), (math.nan, math.nan, 0)) for x in xs]
            curve(middle, method, xs, values, 100)
            if method in SIZED:
                values = [
                    means(own, "log_ratio", split=split, method=method, **{varied: x}) for x in xs
                ]
                curve(bottom, method, xs, values)
        middle.set_ylim(-DETAIL, DETAIL)
        sites = [x if varied == "sites" else experiment.sites[0] for x in xs]
        capped = [math.log(min(1.0, WIDTH_CAP / (UNITS * number))) for number in sites]
        label = f"{WIDTH_CAP} units a layer, the published limit"
        bottom.plot(xs, capped, color="#0072B2", lw=0.8, ls=":", label=label)
        titled(top, data_name(data), split_name(split), trials_shown(rows, **where))
        bottom.set_xlabel("sites" if varied == "sites" else "hidden layers")
        for axes in (top, middle, bottom):
            axes.set_xticks(xs)
            axes.grid(alpha=0.3)
    grid[0, 0].set_ylabel("test accuracy (%)")
    grid[1, 0].set_ylabel("points above the\nuniform ensemble")
    grid[2, 0].set_ylabel(r"size, $\log(L / \sum_j L_j)$")
    legend(figure, grid)
    figures = {experiment.name: figure}
    if varied == "depth":
        figures[size_figure_name(experiment)] = _sizes(experiment, rows)
    return figures


def size_figure_name(experiment: Experiment) -> str:
    """Of the figure of accuracy against size."""
    return f"{experiment.name}-size"


def beside_all(rows: Sequence[Row], method: str, **where: Any) -> float:
    """A method's parameters beside those of all sites' networks together, which an ensemble has."""
    own, together = (means(rows, "parameters", method=m, **where)[0] for m in (method, "ensemble"))
    return own / together


def _sizes(experiment: Experiment, rows: Sequence[Row]) -> Figure:
    """Accuracy against size beside the ensemble, at a middling depth: a panel for each split."""
    depth = experiment.depths[(len(experiment.depths) - 1) // 2]
    across = min(SIZE_COLUMNS, len(experiment.panels))
    figure, grid = panel_grid(-(-len(experiment.panels) // across), across)
    for axes, (data, split) in zip(grid.flat, experiment.panels, strict=False):
        where = {"data": data, "split": split, "depth": depth}
        goal, _, measured = means(rows, "accuracy", method="ensemble", **where)
        axes.axhline(0, color="#000000", lw=0.8, ls="--")
        for method in [method for method in BESIDE if method in experiment.methods]:
            accuracy, _, number = means(rows, "accuracy", method=method, **where)
            if number and measured:
                label, colour, mark = STYLES[method]
                lead, size = 100 * (accuracy - goal), beside_all(rows, method, **where)
                axes.plot(size, lead, mark, color=colour, ms=8, label=label)
        titled(
            axes, data_name(data), split_name(split), f"{layers_name(depth)}, {goal:.1%} is zero"
        )
        log_scale(axes)
        axes.set_xticks(SHARES, [f"{share:g}" for share in SHARES])
        axes.minorticks_off()
        axes.set_xlabel("times the sites' parameters")
        axes.grid(alpha=0.3)
    for axes in grid[:, 0]:
        axes.set_ylabel("points above the\nuniform ensemble")
    for axes in grid.flat[len(experiment.panels) :]:
        axes.remove()
    legend(figure, grid)
    return figure


def figure_names(experiment: Experiment) -> list[str]:
    """In the paper's order; of rounds there is a figure for each data set."""
    if experiment.kind == "rounds":
        return [f"{experiment.name}-{data}" for data in experiment.data]
    return [experiment.name]


def _rounds(experiment: Experiment, rows: Sequence[Row]) -> dict[str, Figure]:
    """A figure for each data set, a column for each split and depth."""
    figures = {}
    for name, data in zip(figure_names(experiment), experiment.data, strict=True):
        columns = [(split, depth) for split in experiment.splits for depth in experiment.depths]
        figure, grid = panel_grid(3, len(columns))
        for column, (split, depth) in enumerate(columns):
            where = {"data": data, "split": split, "depth": depth}
            own = [row for row in rows if fits(row, where)]
            _rounds_column(grid[:, column], experiment.methods, own)
            layers = f"{layers_name(depth)}, {trials_shown(own)}"
            titled(grid[0, column], data_name(data), split_name(split), layers)
        grid[0, 0].set_ylabel("test accuracy (%)")
        grid[1, 0].set_ylabel("test accuracy (%)")
        grid[2, 0].set_ylabel("global units, all layers")
        legend(figure, grid)
        figures[name] = figure
    return figures


def _rounds_column(column: Sequence[Axes], methods: Sequence[str], rows: Sequence[Row]) -> None:
    """Accuracy against communications and against epochs, and the size."""
    above, middle, below = column
    for method in methods:
        own = [row for row in rows if row["method"] == method]
        if method in LINES:  # an ensemble: the same in every round
            for axes in (above, middle):
                _level(axes, method, means(own, "accuracy"))
            continue
        when = moments(own, {})
        values = [means(own, "accuracy", **moment) for moment in when]
        for axes, against in ((above, "communications"), (middle, "epochs")):
            xs = [means(own, against, **moment)[0] for moment in when]
            curve(axes, method, xs, values, 100)
        if method in SIZED:
            sizes = [means(own, "units", **moment) for moment in when]
            curve(below, method, [moment["round"] for moment in when], sizes)
    log_scale(above)
    after = [row["accuracy"] for row in rows if row["round"] is not None]
    known = [value for value in after if value is not None]
    for axes in (above, middle) if known else ():
        axes.set_ylim(100 * min(known) - ROOM, 100 * max(known) + ROOM / 3)
    labels = ("communications", "epochs (mean over sites)", "rounds")
    for axes, label in zip(column, labels, strict=True):
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
    below.locator_params(axis="x", integer=True)


def _level(axes: Axes, method: str, accuracy: Spread) -> None:
    """A line across; of the uniform ensemble with its deviation."""
    level, deviation, number = accuracy
    if not number:
        return
    label, colour, _ = STYLES[method]
    axes.axhline(100 * level, label=label, color=colour, linestyle=LINES[method], lw=1.2)
    if method == "ensemble" and number > 1:
        ends = 100 * (level - deviation), 100 * (level + deviation)
        axes.axhspan(*ends, color=colour, alpha=0.08, lw=0)


def _sensitivity(experiment: Experiment, rows: Sequence[Row]) -> dict[str, Figure]:
    """Heat maps over the prior above, curves over the sites' variance below."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    figure, grid = panel_grid(2, len(experiment.panels))
    heats = [_heat(experiment, rows, data, split) for data, split in experiment.panels]
    measured = [heat for heat in heats if np.isfinite(heat).all()]
    worst = max([np.ptp(heat) for heat in measured], default=0.0)
    shades = Normalize(-max(worst, LEAST_SPAN), 0)
    for column, (data, split) in enumerate(experiment.panels):
        where = {"data": data, "split": split}
        top, bottom = grid[:, column]
        lost = heats[column] - heats[column].max()
        top.imshow(lost, origin="lower", aspect="auto", cmap="viridis", norm=shades)
        for (row, place), value in np.ndenumerate(heats[column]):
            if np.isnan(value):
                continue
            shade = "white" if lost[row, place] < -worst / 2 else "black"
            top.text(place, row, f"{value:.1f}", ha="center", va="center", color=shade, size=7)
        top.set_xticks(range(len(experiment.masses)), [f"{m:g}" for m in experiment.masses])
        top.set_yticks(
            range(len(experiment.prior_variances)), [f"{v:g}" for v in experiment.prior_variances]
        )
        top.set_xlabel(r"mass $\gamma_0$")
        titled(
            top,
            data_name(data),
            split_name(split),
            f"{experiment.heat_sites} sites, $\\sigma^2$ = {SITE_VARIANCE:g}, "
            f"{trials_shown(rows, **where, method='prior')}",
        )
        for colour, sites in zip(SEVERAL, experiment.sites, strict=False):
            own = {**where, "method": "site variance", "sites": sites}
            found = np.array(
                [means(rows, TRAINED, site_variance=v, **own) for v in experiment.site_variances]
            )
            if np.isnan(found[:, 0]).all():
                continue
            bottom.errorbar(
                experiment.site_variances, 100 * found[:, 0], 100 * found[:, 1], fmt="o-",
                color=colour, ms=4, capsize=2, label=f"{sites} sites",
            )  # fmt: skip
        titled(
            bottom,
            rf"$\sigma_0^2$ = {PRIOR_VARIANCE:g}, $\gamma_0$ = {MASS:g}, "
            f"{trials_shown(rows, **where, method='site variance')}",
        )
        log_scale(bottom)
        bottom.set_xlabel(r"sites' variance $\sigma^2$")
        ticks = experiment.site_variances
        bottom.set_xticks(ticks, [f"{value:g}" for value in ticks])
        bottom.minorticks_off()
        bottom.grid(alpha=0.3)
    figure.colorbar(
        ScalarMappable(shades, "viridis"),
        ax=list(grid[0]),
        label="points below the best",
        shrink=0.9,
    )
    grid[0, 0].set_ylabel(r"prior variance $\sigma_0^2$")
    grid[1, 0].set_ylabel("accuracy on training data (%)")
    legend(figure, grid)
    return {experiment.name: figure}


def _heat(experiment: Experiment, rows: Sequence[Row], data: str, split: str) -> Array:
    """Accuracy in per cent, (prior variances, masses)."""
    where = {"data": data, "split": split, "method": "prior"}
    return np.array(
        [
            [
                100 * means(rows, TRAINED, prior_variance=v, mass=m, **where)[0]
                for m in experiment.masses
            ]
            for v in experiment.prior_variances
        ]
    )


def _timing(experiment: Experiment, rows: Sequence[Row]) -> dict[str, Figure]:
    """Points, as bars on a logarithmic scale would mislead: of all variances, and the slowest."""
    from matplotlib.figure import Figure

    cases = [(data, *setting) for data in experiment.data for setting in experiment.settings]
    figure = Figure(figsize=(7.5, 0.7 * len(cases) + 1.2), layout="constrained")
    axes = figure.add_subplot()
    label, longest = "here, one thread: one for each $\\sigma^2$", "the slowest"
    for place, (data, _, depth) in enumerate(cases):
        for variance in experiment.site_variances:
            at = {"data": data, "depth": depth, "site_variance": variance}
            seconds, _, number = means(rows, "seconds", **at)
            if number:
                axes.plot(seconds, place, "o", mfc="none", color="#0072B2", label=label)
        variance, (mean, *_, number) = slowest(experiment, rows, data, depth)
        reported = AUTHORS_SECONDS.get((data, depth))
        if number:
            axes.plot(mean, place, "o", color="#0072B2", label=longest)
            told = f"{mean:.2f} s, $\\sigma^2$ = {variance:g}"
            axes.annotate(told, (mean, place), (0, 7), textcoords="offset points", ha="center")
        if reported is not None:
            axes.plot(reported, place, "D", color="#E69F00", label="the authors, two cores")
            axes.annotate(
                f"{reported} s", (reported, place), (0, 7), textcoords="offset points", ha="center"
            )
    names = [
        f"{data_name(data)}, {sites} sites,\n{layers_name(depth)}\n"
        f"{trials_shown(rows, data=data, depth=depth)}"
        for data, sites, depth in cases
    ]
    axes.set_yticks(range(len(cases)), names)
    axes.set_ylim(len(cases) - 0.5, -0.6)
    log_scale(axes)
    axes.margins(x=0.15)
    axes.grid(alpha=0.3, axis="x")
    axes.set_xlabel("seconds of one matching")
    legend(figure, np.array([axes]))
    return {experiment.name: figure}


FIGURES: Mapping[str, Callable[[Experiment, Sequence[Row]], dict[str, Figure]]] = {
    "once": _once,
    "rounds": _rounds,
    "sensitivity": _sensitivity,
    "timing": _timing,
}
