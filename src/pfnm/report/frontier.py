"""The picture of size against accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pfnm.errors import PFNMError
from pfnm.formats.files import check_output
from pfnm.frontier import POLISHED, Point
from pfnm.report.drawing import write_figure

FUSED, SITE, ENSEMBLE = "#0072B2", "#E69F00", "#009E73"  # colour-blind people can tell them apart
RESOLUTION = 150
KINDS = (
    ("fused, by budget", FUSED, "o-", False),
    ("the same, polished", "#D55E00", "^-", True),
)


def check_picture(path: Path, *, force: bool) -> None:
    """An error unless a picture can be written there."""
    if path.suffix.lower() not in (".png", ".svg"):
        raise PFNMError(f"{path}: a picture ends in .png or .svg")
    check_output(path, force=force)


def draw_frontier(points: Sequence[Point], path: Path, *, force: bool) -> None:
    """Parameters (logarithmic) against accuracy, or agreement without data: PNG or SVG."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
        from matplotlib.ticker import EngFormatter
    except ImportError:
        raise PFNMError("a picture needs matplotlib; pip install 'pfnm[plot]'") from None
    measured = any(point.accuracy is not None for point in points)
    site, *fused, whole = points

    def height(point: Point) -> float:
        value = point.accuracy if measured else point.agreement
        return float("nan") if value is None else 100 * value

    with mpl.rc_context({"svg.hashsalt": "pfnm"}):
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.add_subplot()
        for kind, colour, mark, more in KINDS:
            own = [point for point in fused if point.name.endswith(POLISHED) == more]
            if own:
                sizes = [point.parameters for point in own]
                axes.plot(sizes, [height(p) for p in own], mark, color=colour, label=kind)
        for point in (point for point in fused if not point.name.endswith(POLISHED)):
            axes.annotate(
                point.name, (point.parameters, height(point)), xytext=(0, -14),
                textcoords="offset points", ha="center", fontsize=9,
            )  # fmt: skip
        axes.plot(site.parameters, height(site), "s", color=SITE, label="best single site")
        if measured:
            axes.plot(whole.parameters, height(whole), "D", color=ENSEMBLE, label=whole.name)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.xaxis.set_minor_formatter(EngFormatter(sep=""))
        axes.set_xlabel("parameters")
        axes.set_ylabel("accuracy (%)" if measured else "agreement with the sites on probes (%)")
        axes.margins(y=0.15)
        axes.grid(alpha=0.3)
        axes.legend(loc="best")
        write_figure(figure, path, RESOLUTION, force=force)
