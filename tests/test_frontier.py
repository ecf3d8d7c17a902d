"""The picture of size against accuracy: no label lies over another."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from pfnm.frontier import Point
from pfnm.report.frontier import draw_frontier, label_marks

NAMES = ("1x", "1.3x", "2x", "4x", "300 units", "no limit")


@pytest.mark.parametrize("spread", [0.0, 0.01, 0.1, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_labels_lie_apart(spread: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    figure = Figure(figsize=(7, 4.8), layout="constrained")
    axes = figure.add_subplot()
    places = [
        (float(x), float(y)) for x, y in 10 + spread * rng.normal(size=(len(NAMES), 2)).cumsum(0)
    ]
    axes.plot(*zip(*places, strict=True), "o-")
    axes.plot([5, 15], [5, 15], "s")
    label_marks(axes, dict(zip(places, NAMES, strict=True)), places)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    boxes = [Text.get_window_extent(own) for own in axes.texts]
    assert len(boxes) == len({*places})
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_points_in_one_place_have_one_label(tmp_path: Path) -> None:
    points = [
        Point("best site (a)", "5", 100, 0.5, 0.6),
        Point("1x", "5", 120, 0.5, 0.6),
        Point("4x", "9", 200, 0.6, 0.7),
        Point("no limit", "9", 200, 0.6, 0.7),
        Point("ensemble of 3", "", 300, None, 0.8),
    ]
    draw_frontier(points, tmp_path / "frontier.svg", force=False)
    assert "4x, no limit" in (tmp_path / "frontier.svg").read_text()
