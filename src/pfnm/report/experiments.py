"""The figures of the paper's experiments, and the page that shows them, all from the rows."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pfnm.core.errors import PFNMError
from pfnm.core.network import Array
from pfnm.experiments.claims import (
    AUTHORS_SECONDS,
    UNKNOWN,
    WIDTH_CAP,
    Claim,
    claims,
    data_name,
    layers_name,
    split_name,
    varied_in,
)
from pfnm.experiments.definition import Experiment
from pfnm.experiments.runner import read_rows, seconds_spent
from pfnm.experiments.trials import (
    MASS,
    PRIOR_VARIANCE,
    SITE_VARIANCE,
    TRIED,
    UNITS,
    Row,
    Spread,
    fits,
    means,
    moments,
)
from pfnm.formats.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours that colour-blind people can tell apart (Okabe and Ito), and a mark each.
STYLES: Mapping[str, tuple[str, str, str]] = {
    "local": ("one site alone (mean)", "#999999", "v"),
    "ensemble": ("uniform ensemble", "#000000", "D"),
    "weighted": ("class-weighted ensemble", "#000000", "d"),
    "fedavg": ("FedAvg, shared start", "#E69F00", "s"),
    "kmeans": ("k-means of units", "#CC79A7", "^"),
    "dsgd": ("D-SGD", "#D55E00", "x"),
    "pfnm": ("PFNM, as published", "#0072B2", "o"),
    "pfnm-joint": ("ours in rounds", "#009E73", "P"),
    "joint-same": ("ours, PFNM's number of parameters", "#56B4E9", "*"),
    "joint": ("ours, defaults (twice a site's width)", "#009E73", "P"),
}
SIZED = ("kmeans", "pfnm", "joint-same", "joint", "pfnm-joint")  # the size is part of the result
LINES = {"ensemble": "--", "weighted": ":"}
SEVERAL = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
TRAINED = "train_accuracy"
LEAST_SPAN = 0.1  # points that the colours of heat maps stand for
ROOM = 3  # points below the lowest value after a round; D-SGD's first minibatches lie lower still
MOST_BARS = 12  # in a curve; where there are more, the deviation is a band
PANEL = 3.1  # inches
LEGEND_ENTRY = 2.9  # inches
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
            figure.savefig(paths[-1], dpi=RESOLUTION)
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    return paths


def _grid(rows: int, columns: int) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    size = (max(PANEL * columns, 2 * PANEL), 0.85 * PANEL * rows + 0.6)
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _curve(
    axes: Axes,
    method: str,
    xs: Sequence[float],
    values: Sequence[Spread],
    factor: float = 1.0,
) -> None:
    """Mean and standard deviation over trials; nothing where nothing is measured."""
    if not any(number for *_, number in values):
        return
    label, colour, mark = STYLES[method]
    mean, deviation = (factor * np.array([value[part] for value in values]) for part in (0, 1))
    fine = len(xs) > MOST_BARS
    axes.errorbar(
        xs, mean, None if fine else deviation, color=colour, marker=mark, markersize=5,
        markevery=len(xs) // MOST_BARS + 1, capsize=2, linewidth=1.4, label=label,
        linestyle=LINES.get(method, "-"),
    )  # fmt: skip
    if fine:
        _band(axes, xs, mean, deviation, colour)


def _band(axes: Axes, xs: Sequence[float], mean: Array, deviation: Array, colour: str) -> None:
    axes.fill_between(xs, mean - deviation, mean + deviation, color=colour, alpha=0.15, lw=0)


def _legend(figure: Figure, grid: Any) -> None:
    """Of all the axes of a figure together."""
    known: dict[str, Any] = {}
    for axes in grid.flat:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            known.setdefault(label, handle)
    if known:
        columns = max(2, int(figure.get_figwidth() / LEGEND_ENTRY))
        figure.legend(
            list(known.values()),
            list(known),
            loc="outside lower center",
            ncols=columns,
            frameon=False,
        )


def _trials(rows: Sequence[Row], **where: Any) -> str:
    """How many trials these rows have; from least to most where settings differ."""
    settings: dict[tuple[Any, ...], set[int]] = {}
    for row in rows:
        if fits(row, where):
            settings.setdefault((row["sites"], row["depth"], row["method"]), set()).add(
                row["trial"]
            )
    numbers = sorted({len(found) for found in settings.values()})
    if not numbers:
        return "not measured yet"
    several = f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}"
    return f"{several} trial{'s' if numbers[-1] != 1 else ''}"


def _titled(axes: Axes, *lines: str) -> None:
    axes.set_title("\n".join(lines), fontsize=9)


def _log_scale(axes: Axes) -> None:
    if axes.has_data():
        axes.set_xscale("log")


def _once(experiment: Experiment, rows: Sequence[Row]) -> dict[str, Figure]:
    """Accuracy above, size below, a column for each data set and split."""
    varied, xs = varied_in(experiment)
    figure, grid = _grid(2, len(experiment.panels))
    for column, (data, split) in enumerate(experiment.panels):
        top, bottom = grid[:, column]
        where = {"data": data, "split": split}
        for method in experiment.methods:
            for axes, value, factor in ((top, "accuracy", 100), (bottom, "log_ratio", 1)):
                found = [means(rows, value, method=method, **where, **{varied: x}) for x in xs]
                if axes is top or method in SIZED:
                    _curve(axes, method, xs, found, factor)
        sites = [x if varied == "sites" else experiment.sites[0] for x in xs]
        capped = [math.log(min(1.0, WIDTH_CAP / (UNITS * number))) for number in sites]
        label = f"{WIDTH_CAP} units a layer, the published limit"
        bottom.plot(xs, capped, color="#0072B2", lw=0.8, ls=":", label=label)
        _titled(top, data_name(data), split_name(split), _trials(rows, **where))
        bottom.set_xlabel("sites" if varied == "sites" else "hidden layers")
        for axes in (top, bottom):
            axes.set_xticks(xs)
            axes.grid(alpha=0.3)
    grid[0, 0].set_ylabel("test accuracy (%)")
    grid[1, 0].set_ylabel(r"size, $\log(L / \sum_j L_j)$")
    _legend(figure, grid)
    return {experiment.name: figure}


def _figure_names(experiment: Experiment) -> list[str]:
    """In the paper's order; of rounds there is a figure for each data set."""
    if experiment.kind == "rounds":
        return [f"{experiment.name}-{data}" for data in experiment.data]
    return [experiment.name]


def _rounds(experiment: Experiment, rows: Sequence[Row]) -> dict[str, Figure]:
    """A figure for each data set: against communications, against epochs, and the size."""
    figures = {}
    for name, data in zip(_figure_names(experiment), experiment.data, strict=True):
        columns = [(split, depth) for split in experiment.splits for depth in experiment.depths]
        figure, grid = _grid(3, len(columns))
        for column, (split, depth) in enumerate(columns):
            where = {"data": data, "split": split, "depth": depth}
            above, middle, below = grid[:, column]
            for method in experiment.methods:
                own = {**where, "method": method}
                if method in LINES:  # an ensemble: the same in every round
                    level, deviation, number = means(rows, "accuracy", **own)
                    label, colour, _ = STYLES[method]
                    for axes in (above, middle) if number else ():
                        line = {"color": colour, "linestyle": LINES[method], "lw": 1.2}
                        axes.axhline(100 * level, label=label, **line)
                        if method == "ensemble" and number > 1:
                            ends = 100 * (level - deviation), 100 * (level + deviation)
                            axes.axhspan(*ends, color=colour, alpha=0.08, lw=0)
                    continue
                when = moments(rows, own)
                values = [means(rows, "accuracy", **own, **moment) for moment in when]
                for axes, against in ((above, "communications"), (middle, "epochs")):
                    xs = [means(rows, against, **{**own, **moment})[0] for moment in when]
                    _curve(axes, method, xs, values, 100)
                if method in SIZED:
                    sizes = [means(rows, "units", **own, **moment) for moment in when]
                    _curve(below, method, [moment["round"] for moment in when], sizes)
            _log_scale(above)
            after = [r["accuracy"] for r in rows if fits(r, where) and r["round"] is not None]
            known = [value for value in after if value is not None]
            for axes in (above, middle) if known else ():
                axes.set_ylim(bottom=100 * min(known) - ROOM)
            _titled(
                above,
                data_name(data),
                split_name(split),
                f"{layers_name(depth)}, {_trials(rows, **where)}",
            )
            for axes, label in (
                (above, "communications"), (middle, "epochs (mean over sites)"), (below, "rounds"),
            ):  # fmt: skip
                axes.set_xlabel(label)
                axes.grid(alpha=0.3)
            below.xaxis.get_major_locator().set_params(integer=True)
        grid[0, 0].set_ylabel("test accuracy (%)")
        grid[1, 0].set_ylabel("test accuracy (%)")
        grid[2, 0].set_ylabel("global units, all layers")
        _legend(figure, grid)
        figures[name] = figure
    return figures


def _sensitivity(experiment: Experiment, rows: Sequence[Row]) -> dict[str, Figure]:
    """Heat maps over the prior above, curves over the sites' variance below."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    figure, grid = _grid(2, len(experiment.panels))
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
        _titled(
            top,
            data_name(data),
            split_name(split),
            f"{experiment.heat_sites} sites, $\\sigma^2$ = {SITE_VARIANCE:g}, "
            f"{_trials(rows, **where, method='prior')}",
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
        _titled(
            bottom,
            rf"$\sigma_0^2$ = {PRIOR_VARIANCE:g}, $\gamma_0$ = {MASS:g}, "
            f"{_trials(rows, **where, method='site variance')}",
        )
        _log_scale(bottom)
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
    _legend(figure, grid)
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
    from matplotlib.figure import Figure

    cases = [(data, *setting) for data in experiment.data for setting in experiment.settings]
    figure = Figure(figsize=(7.5, 0.7 * len(cases) + 1.2), layout="constrained")
    axes = figure.add_subplot()
    places = np.arange(len(cases))
    found = np.array([means(rows, "seconds", data=data, depth=depth) for data, _, depth in cases])
    reported = [AUTHORS_SECONDS.get((data, depth), float("nan")) for data, _, depth in cases]
    bars = axes.barh(
        places - 0.2, found[:, 0], 0.38, xerr=found[:, 1], capsize=2, color="#0072B2",
        label="here, one thread",
    )  # fmt: skip
    axes.bar_label(bars, [f"{value:.2f} s" for value in found[:, 0]], padding=3)
    bars = axes.barh(
        places + 0.2, reported, 0.38, color="#999999", label="reported by the authors, two cores"
    )
    axes.bar_label(bars, ["" if np.isnan(v) else f"{v:.0f} s" for v in reported], padding=3)
    names = [
        f"{data_name(data)}, {sites} sites,\n{layers_name(depth)}\n"
        f"{_trials(rows, data=data, depth=depth)}"
        for data, sites, depth in cases
    ]
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    _log_scale(axes)
    axes.margins(x=0.15)
    axes.set_xlabel("seconds of one matching")
    _legend(figure, np.array([axes]))
    return {experiment.name: figure}


FIGURES: Mapping[str, Callable[[Experiment, Sequence[Row]], dict[str, Figure]]] = {
    "once": _once,
    "rounds": _rounds,
    "sensitivity": _sensitivity,
    "timing": _timing,
}


def write_page(experiments: Sequence[Experiment], results: Path, page: Path) -> None:
    """A page in Markdown: verdicts; of each experiment its figures, claims and time."""
    lines, found, clock = [], [], 0.0
    for experiment in experiments:
        folder = results / experiment.name
        rows = read_rows(folder)
        if not rows:
            continue
        lines += [f"## {experiment.name}: {experiment.title}", ""]
        for path in [folder / f"{name}.png" for name in _figure_names(experiment)]:
            if not path.exists():  # not drawn yet
                continue
            place = os.path.relpath(path, page.parent)
            lines += [f"![{experiment.title}]({Path(place).as_posix()})", ""]
        own = claims(experiment, rows)
        lines += ["| claim | measured | holds |", "|---|---|---|"]
        for claim in own:
            lines.append(f"| {claim.named} | {claim.measured} | {claim.verdict} |")
        work = sum(row["job_seconds"] or 0.0 for row in rows)
        lines += [
            "",
            f"{len(rows)} rows in `{experiment.name}/rows.csv`; "
            f"{_duration(seconds_spent(folder))} on the clock, {_duration(work)} of work in one "
            "thread." + _at_the_edge(experiment, rows),
            "",
        ]
        found += own
        clock += seconds_spent(folder)
    lines.append(f"All experiments together: {_duration(clock)} on the clock.")
    summary = [*_tally("the paper's", [claim for claim in found if not claim.ours])]
    summary += _tally("the other", [claim for claim in found if claim.ours])
    write_whole(page, "\n".join([INTRODUCTION, *summary, *lines, ""]).encode())


def _tally(whose: str, own: Sequence[Claim]) -> list[str]:
    """How many claims hold, and which do not."""
    verdicts = [claim.verdict for claim in own]
    yes, unknown = verdicts.count("yes"), verdicts.count(UNKNOWN)
    more = f" ({unknown} not measured yet)" if unknown else ""
    failing = [f"- {claim.said}" for claim in own if claim.holds is False]
    ending = "; these do not:" if failing else "."
    return [f"Of {whose} {len(own)} claims {yes} hold{more}{ending}", "", *failing, ""]


def _at_the_edge(experiment: Experiment, rows: Sequence[Row]) -> str:
    """How often the best variance is the least or the largest that was tried."""
    chosen = [row["site_variance"] for row in rows if row["method"] == "pfnm"]
    grid = experiment.site_variances
    if experiment.kind != "once" or not chosen:
        return ""
    ends = sum(value in (min(grid), max(grid)) for value in chosen)
    return (
        f" PFNM's sigma^2 was chosen from {', '.join(f'{v:g}' for v in grid)} (each in a row "
        f"`pfnm{TRIED}`); in {ends} of {len(chosen)} choices it lies at an end of that grid."
    )


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    return f"{minutes / 60:.1f} hours" if minutes > 90 else f"{minutes:.1f} minutes"


INTRODUCTION = """# The paper's experiments

Every experiment is a file (`src/pfnm/experiments/definitions/`), every number below stands in a row
of `results/NAME/rows.csv` or is a mean of such rows, and figures and this page are made from them:

    pfnm reproduce NAME      run it, or what is left of it; then draw its figures
    pfnm reproduce NAME --trials 3      fewer trials first; more can be added later
    pfnm reproduce all --draw --page docs/results.md      figures and this page alone, from the rows

Local training is the paper's (10 epochs, AMSGrad, batches of 32, hidden layers of 100 units). The
Dirichlet(0.5) split is that of the authors' code, in which a site that holds its even share gets no
more.

- *PFNM, as published* is top-down matching by the rules of the authors' code, one of which is that
  a layer has about 700 units at most: with ten sites and more it often stands at that limit. In one
  round it has sigma_0^2 = 10, gamma_0 = 1 and sigma^2 chosen from a grid by accuracy on the
  training data, in every trial. In several rounds both variances and the mass are 1; 10 epochs come
  before the first matching and 5 before each later one.
- *Ours* is joint matching as `pfnm fuse` does it, which sees the networks, the class counts and the
  range of the inputs, and no data: at twice a site's width, which is the default, and with at most
  as many parameters as PFNM as published took in that trial.
- Both know how many examples of each class a site has. So does the class-weighted ensemble; the
  uniform ensemble and k-means (k = min(500, 50 J), one start) do not.
- FedAvg begins from one shared start and trains with SGD. Its rate is chosen like PFNM's variance,
  by accuracy on the training data after one round, in every trial (MNIST: 0.1 or 0.3; on CIFAR-10
  0.03 was the best of five rates in every setting of `results/rates.csv`).
- D-SGD exchanges gradients and weights after every minibatch, so a round of it is hundreds of
  communications. In its first round it is measured after 1, 2, 4, ... of them: where it reaches the
  ensemble "after 64" it may have done so after 33. Its first few lie below the panels.

Curves are means over trials, bars and bands the standard deviation; another trial is another split
and another start. A claim holds if it does so for the means of all the settings it speaks of.
Methods are compared on the trials that they have in common. Claims marked (ours) are not the
paper's.
"""
