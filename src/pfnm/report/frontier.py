"""The picture of size against accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pfnm.errors import PFNMError
from pfnm.formats.files import check_output
from pfnm.frontier import POLISHED, Point
from pfnm.report.drawing import write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FUSED, SITE, ENSEMBLE = "#0072B2", "#E69F00", "#009E73"  # colour-blind people can tell them apart
RESOLUTION = 150
WIDE = 10  # times the least: then fewer sizes are written along the axis
MARK = 9  # points, of a mark's width and height
FAR = 20  # points: text further from its mark has a line to it
# Where text is tried, in points from its mark: below, above, and further off.
PLACES = (
    (0, -14), (0, 14), (0, -30), (0, 30), (28, -30), (-28, -30), (28, 30), (-28, 30), (0, -46),
    (0, 46), (36, -46), (-36, -46), (36, 46), (-36, 46),
)  # fmt: skip
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
        from matplotlib.ticker import EngFormatter, LogLocator, NullLocator
    except ImportError:
        raise PFNMError("a picture needs matplotlib; pip install 'pfnm[plot]'") from None
    measured = any(point.accuracy is not None for point in points)
    site, *fused, whole = points

    def height(point: Point) -> float:
        value = point.accuracy if measured else point.agreement
        return float("nan") if value is None else 100 * value

    with mpl.rc_context({"svg.hashsalt": "pfnm", "font.size": 10}):
        figure = Figure(figsize=(7, 4.8), layout="constrained")
        axes = figure.add_subplot()
        for kind, colour, mark, more in KINDS:
            own = [point for point in fused if point.name.endswith(POLISHED) == more]
            if own:
                sizes = [point.parameters for point in own]
                axes.plot(sizes, [height(p) for p in own], mark, color=colour, label=kind)
        axes.plot(site.parameters, height(site), "s", color=SITE, label="best single site")
        if measured:
            axes.plot(whole.parameters, height(whole), "D", color=ENSEMBLE, label=whole.name)
        axes.set_xscale("log")
        sizes = [point.parameters for point in points]
        wide = max(sizes) > WIDE * min(sizes)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if wide else (1, 1.5, 2, 3, 5, 7)))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("parameters")
        axes.set_ylabel("accuracy (%)" if measured else "agreement with the sites on probes (%)")
        axes.margins(x=0.1, y=0.15)
        axes.grid(alpha=0.3)
        figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
        named: dict[tuple[float, float], list[str]] = {}
        for point in fused:
            if not point.name.endswith(POLISHED):
                named.setdefault((point.parameters, height(point)), []).append(point.name)
        others = [(point.parameters, height(point)) for point in points if height(point) > 0]
        label_marks(axes, {place: ", ".join(names) for place, names in named.items()}, others)
        write_figure(figure, path, RESOLUTION, force=force)


def label_marks(
    axes: Axes, texts: Mapping[tuple[float, float], str], marks: Sequence[tuple[float, float]]
) -> None:
    """Text beside each mark, where it lies over no mark and no other text."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

    figure = axes.get_figure(root=True)
    assert figure is not None
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]  # so that everything has its place
    renderer = canvas.get_renderer()  # type: ignore[no-untyped-call]
    figure.set_layout_engine("none")
    around = MARK * figure.dpi / 72
    taken = [
        Bbox.from_bounds(x - around / 2, y - around / 2, around, around)
        for x, y in axes.transData.transform(marks)
    ]
    for place, text in texts.items():
        for across, up in PLACES:
            label = axes.annotate(
                text, place, xytext=(across, up), textcoords="offset points", ha="center",
                va="center", fontsize=9,
                arrowprops={"arrowstyle": "-", "color": "#777777", "lw": 0.7}
                if abs(up) > FAR else None,
            )  # fmt: skip
            label.update_positions(renderer)
            # The text alone: a line to its mark may cross others.
            box = Text.get_window_extent(label, renderer)
            inside = axes.bbox.y0 < box.y0 and box.y1 < axes.bbox.y1 and box.x1 < axes.bbox.x1
            if inside and not any(box.overlaps(other) for other in taken):
                break
            label.remove()
        else:
            continue  # it is in the table
        taken.append(box)
