"""What the figures of experiments share: a style for each method, panels, curves and legends."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pfnm.experiments.rows import Row, Spread, fits
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
    "pfnm-same": ("PFNM, at most twice a site's width", "#D55E00", "X"),
    "joint-each": ("ours, matched in every round", "#009E73", "P"),
    "joint-same": ("ours, PFNM's number of parameters", "#56B4E9", "*"),
    "joint": ("ours, defaults (twice a site's width)", "#009E73", "P"),
}
LINES = {"ensemble": "--", "weighted": ":"}
# Whose size is part of the result.
SIZED = ("kmeans", "pfnm", "pfnm-same", "joint-same", "joint", "joint-each")
ROOM = 3  # points below the lowest value after a round (D-SGD's first minibatches lie lower
# still); a third of it above the highest
DETAIL = 6  # points above and below the ensemble; what is further off is cut
MOST_BARS = 12  # in a curve; where there are more, the deviation is a band
PANEL = 3.1  # inches
LEGEND_ENTRY = 2.9  # inches


def panel_grid(rows: int, columns: int) -> tuple[Figure, Any]:
    """An empty figure, and its axes, (rows, columns)."""
    from matplotlib.figure import Figure

    size = (max(PANEL * columns, 2 * PANEL), 0.85 * PANEL * rows + 0.6)
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def curve(
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
        axes.fill_between(xs, mean - deviation, mean + deviation, color=colour, alpha=0.15, lw=0)


def legend(figure: Figure, grid: Any) -> None:
    """One for all the axes of a figure together, below them."""
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


def trials_shown(rows: Sequence[Row], **where: Any) -> str:
    """How many trials these rows have; from least to most where settings differ."""
    settings: dict[tuple[Any, ...], set[int]] = {}
    for row in rows:
        if fits(row, where):
            setting = tuple(row[name] for name in ("data", "split", "sites", "depth", "method"))
            settings.setdefault(setting, set()).add(row["trial"])
    numbers = sorted({len(found) for found in settings.values()})
    if not numbers:
        return "not measured yet"
    several = f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}"
    return f"{several} trial{'s' if numbers[-1] != 1 else ''}"


def titled(axes: Axes, *lines: str) -> None:
    """A panel's title, of several lines."""
    axes.set_title("\n".join(lines), fontsize=9)


def log_scale(axes: Axes) -> None:
    """From left to right, where there is anything to see."""
    if axes.has_data():
        axes.set_xscale("log")


def write_figure(figure: Figure, path: Path, resolution: int, *, force: bool = True) -> None:
    """Write a figure, whole or not at all; the ending says the format (.png or .svg)."""
    kind = path.suffix.lower().removeprefix(".")
    undated = {"Date": None} if kind == "svg" else None  # the same figure is the same file
    picture = io.BytesIO()
    figure.savefig(picture, format=kind, dpi=resolution, metadata=undated)
    write_whole(path, picture.getvalue(), force=force)
