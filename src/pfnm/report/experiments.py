"""The figures of the paper's experiments, and the page that shows them, all from the rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pfnm.core.errors import PFNMError
from pfnm.experiments.claims import AUTHORS_SECONDS, DATA, claims, panel_name
from pfnm.experiments.definition import Experiment
from pfnm.experiments.runner import read_rows, seconds_spent
from pfnm.experiments.trials import Row, means
from pfnm.formats.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours that colour-blind people can tell apart (Okabe and Ito), and a mark each.
STYLES: Mapping[str, tuple[str, str, str]] = {
    "local": ("one site alone (mean)", "#999999", "v"),
    "ensemble": ("uniform ensemble", "#000000", "D"),
    "fedavg": ("FedAvg, shared start", "#E69F00", "s"),
    "kmeans": ("k-means of units", "#CC79A7", "^"),
    "dsgd": ("D-SGD", "#D55E00", "x"),
    "pfnm": ("PFNM, as published", "#0072B2", "o"),
    "joint": ("PFNM, our defaults (joint, no data)", "#009E73", "P"),
}
SIZED = ("kmeans", "pfnm", "joint")  # methods whose network's size is part of the result
SEVERAL = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
TRAINED = "train_accuracy"
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
    values: Sequence[tuple[float, float, int]],
    factor: float = 1.0,
) -> None:
    """Mean and standard deviation over trials."""
    label, colour, mark = STYLES[method]
    mean, deviation = (factor * np.array([value[part] for value in values]) for part in (0, 1))
    fine = len(xs) > 12
    axes.errorbar(
        xs, mean, None if fine else deviation, color=colour, marker="" if fine else mark,
        markersize=5, capsize=2, linewidth=1.4, label=label,
        linestyle="--" if method == "ensemble" else "-",
    )  # fmt: skip
    if fine:
        axes.fill_between(xs, mean - deviation, mean + deviation, color=colour, alpha=0.15, lw=0)


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    columns = max(2, int(figure.get_figwidth() / LEGEND_ENTRY))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)


def _trials(rows: Sequence[Row], data: str) -> str:
    number = len({row["trial"] for row in rows if row["data"] == data})
    return f"{number} trial{'s' if number != 1 else ''}"


def _once(experiment: Experiment, rows: Sequence[Row]) -> dict[str, Figure]:
    """Accuracy above, size below, a column for each data set and split."""
    varied = "sites" if len(experiment.sites) > 1 else "depth"
    xs = experiment.sites if varied == "sites" else experiment.depths
    figure, grid = _grid(2, len(experiment.panels))
    for column, (data, split) in enumerate(experiment.panels):
        top, bottom = grid[:, column]
        for method in experiment.methods:
            where = {"data": data, "split": split, "method": method}
            values = [means(rows, "accuracy", **where, **{varied: x}) for x in xs]
            if any(number for *_, number in values):
                _curve(top, method, xs, values, 100)
            if method in SIZED:
                sizes = [means(rows, "log_ratio", **where, **{varied: x}) for x in xs]
                _curve(bottom, method, xs, sizes)
        top.set_title(f"{panel_name(data, split)}\n{_trials(rows, data)}", fontsize=9)
        bottom.set_xlabel("sites" if varied == "sites" else "hidden layers")
        for axes in (top, bottom):
            axes.set_xticks(xs)
            axes.grid(alpha=0.3)
    grid[0, 0].set_ylabel("test accuracy (%)")
    grid[1, 0].set_ylabel(r"size, $\log(L / \sum_j L_j)$")
    _legend(figure, grid[0, 0])
    return {experiment.name: figure}


def _rounds(experiment: Experiment, rows: Sequence[Row]) -> dict[str, Figure]:
    """A figure for each data set: against communications, against epochs, and the size."""
    figures = {}
    for data in experiment.data:
        columns = [(split, depth) for split in experiment.splits for depth in experiment.depths]
        figure, grid = _grid(3, len(columns))
        for column, (split, depth) in enumerate(columns):
            where = {"data": data, "split": split, "depth": depth}
            numbers = range(1, experiment.rounds[split] + 1)
            above, middle, below = grid[:, column]
            for method in experiment.methods:
                own = {**where, "method": method}
                if method == "ensemble":
                    level = 100 * means(rows, "accuracy", **own)[0]
                    label, colour, _ = STYLES[method]
                    for axes in (above, middle):
                        axes.axhline(level, color=colour, linestyle="--", lw=1.2, label=label)
                    continue
                values = [means(rows, "accuracy", **own, round=n) for n in numbers]
                for axes, against in ((above, "communications"), (middle, "epochs")):
                    xs = [means(rows, against, **own, round=n)[0] for n in numbers]
                    _curve(axes, method, xs, values, 100)
                if method == "pfnm":
                    sizes = [means(rows, "units", **own, round=n) for n in numbers]
                    _curve(below, method, list(numbers), sizes)
            above.set_xscale("log")
            layers = f"{depth} hidden layer{'s' if depth > 1 else ''}"
            title = f"{panel_name(data, split)}\n{layers}, {_trials(rows, data)}"
            above.set_title(title, fontsize=9)
            for axes, label in (
                (above, "communications"), (middle, "epochs at each site"), (below, "rounds"),
            ):  # fmt: skip
                axes.set_xlabel(label)
                axes.grid(alpha=0.3)
            below.xaxis.get_major_locator().set_params(integer=True)
        grid[0, 0].set_ylabel("test accuracy (%)")
        grid[1, 0].set_ylabel("test accuracy (%)")
        grid[2, 0].set_ylabel("PFNM's global units")
        _legend(figure, grid[0, 0])
        figures[f"{experiment.name}-{data}"] = figure
    return figures


def _sensitivity(experiment: Experiment, rows: Sequence[Row]) -> dict[str, Figure]:
    """Heat maps over the prior above, curves over the sites' variance below."""
    figure, grid = _grid(2, len(experiment.panels))
    for column, (data, split) in enumerate(experiment.panels):
        where = {"data": data, "split": split}
        top, bottom = grid[:, column]
        heat = [
            [
                100 * means(rows, TRAINED, method="prior", prior_variance=v, mass=m, **where)[0]
                for m in experiment.masses
            ]
            for v in experiment.prior_variances
        ]
        image = top.imshow(heat, origin="lower", aspect="auto", cmap="viridis")
        for row, line in enumerate(heat):
            for place, value in enumerate(line):
                shade = "white" if value < np.mean(image.get_clim()) else "black"
                top.text(place, row, f"{value:.1f}", ha="center", va="center", color=shade, size=7)
        top.set_xticks(range(len(experiment.masses)), [f"{m:g}" for m in experiment.masses])
        top.set_yticks(
            range(len(experiment.prior_variances)), [f"{v:g}" for v in experiment.prior_variances]
        )
        top.set_xlabel(r"mass $\gamma_0$")
        number = experiment.heat_sites
        title = f"{panel_name(data, split)}\n{_trials(rows, data)}; heat map: {number} sites"
        top.set_title(title, fontsize=9)
        for colour, sites in zip(SEVERAL, experiment.sites, strict=False):
            own = {**where, "method": "site variance", "sites": sites}
            values = [
                means(rows, TRAINED, site_variance=v, **own) for v in experiment.site_variances
            ]
            mean = [100 * value[0] for value in values]
            bottom.plot(
                experiment.site_variances, mean, "o-", color=colour, ms=4, label=f"{sites} sites"
            )
        bottom.set_xscale("log")
        bottom.set_xlabel(r"sites' variance $\sigma^2$")
        ticks = experiment.site_variances
        bottom.set_xticks(ticks, [f"{value:g}" for value in ticks])
        bottom.minorticks_off()
        bottom.grid(alpha=0.3)
    grid[0, 0].set_ylabel(r"prior variance $\sigma_0^2$")
    grid[1, 0].set_ylabel("accuracy on training data (%)")
    _legend(figure, grid[1, 0])
    return {experiment.name: figure}


def _timing(experiment: Experiment, rows: Sequence[Row]) -> dict[str, Figure]:
    from matplotlib.figure import Figure

    cases = [(data, *setting) for data in experiment.data for setting in experiment.settings]
    figure = Figure(figsize=(7, 0.6 * len(cases) + 1.2), layout="constrained")
    axes = figure.add_subplot()
    places = np.arange(len(cases))
    seconds = [means(rows, "seconds", data=data, depth=depth)[0] for data, _, depth in cases]
    reported = [AUTHORS_SECONDS.get((data, depth), float("nan")) for data, _, depth in cases]
    bars = axes.barh(places - 0.2, seconds, 0.38, color="#0072B2", label="here, one thread")
    axes.bar_label(bars, [f"{value:.2f} s" for value in seconds], padding=3)
    bars = axes.barh(
        places + 0.2, reported, 0.38, color="#999999", label="reported by the authors, two cores"
    )
    axes.bar_label(bars, ["" if np.isnan(v) else f"{v:.0f} s" for v in reported], padding=3)
    names = [
        f"{DATA.get(data, data)}, {sites} sites,\n{depth} hidden layer{'s' if depth > 1 else ''}"
        for data, sites, depth in cases
    ]
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_xlabel("seconds of one matching")
    axes.legend(loc="lower right", frameon=False)
    return {experiment.name: figure}


FIGURES: Mapping[str, Callable[[Experiment, Sequence[Row]], dict[str, Figure]]] = {
    "once": _once,
    "rounds": _rounds,
    "sensitivity": _sensitivity,
    "timing": _timing,
}


def write_page(experiments: Sequence[Experiment], results: Path, page: Path) -> None:
    """A page in Markdown: of each experiment its figures, the claims, and the time it took."""
    lines = [INTRODUCTION]
    for experiment in experiments:
        folder = results / experiment.name
        rows = read_rows(folder)
        if not rows:
            continue
        lines += [f"## {experiment.name}: {experiment.title}", ""]
        for path in sorted(folder.glob("*.png")):
            place = os.path.relpath(path, page.parent)
            lines += [f"![{experiment.title}]({Path(place).as_posix()})", ""]
        lines += ["| claim | measured | holds |", "|---|---|---|"]
        for claim in claims(experiment, rows):
            lines.append(f"| {claim.said} | {claim.measured} | {'yes' if claim.holds else 'no'} |")
        spent = seconds_spent(folder)
        work = sum(row["job_seconds"] or 0.0 for row in rows)
        lines += [
            "",
            f"{len(rows)} rows in `{experiment.name}/rows.csv`; {_duration(spent)} on the clock, "
            f"{_duration(work)} of work in one thread.",
            "",
        ]
    write_whole(page, "\n".join(lines).encode())


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    return f"{minutes / 60:.1f} hours" if minutes > 90 else f"{minutes:.1f} minutes"


INTRODUCTION = """# The paper's experiments

Every experiment is a file (`src/pfnm/experiments/definitions/`), every number below stands in a row
of `results/NAME/rows.csv`, and the figures and this page are made from the rows:

    pfnm reproduce NAME      run it, or what is left of it; then draw its figures
    pfnm reproduce all --draw --page docs/results.md      figures and this page alone, from the rows

Local training is the paper's (10 epochs, AMSGrad, batches of 32, hidden layers of 100 units). The
Dirichlet(0.5) split is that of the authors' code, in which a site that holds its even share gets no
more. *PFNM, as published* is top-down matching by the rules of the authors' code with
sigma_0^2 = 10, gamma_0 = 1 and sigma^2 chosen from a grid by accuracy on the training data;
*our defaults* are those of `pfnm fuse` (joint matching, twice a site's width), which see the
networks and the class counts and no data. Curves are means over trials, bars and bands the
standard deviation. A setting's trial is another split and another start.
"""
