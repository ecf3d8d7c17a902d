"""The picture of who holds what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pfnm.report.drawing import write_figure

RESOLUTION = 120
LARGEST_DOT = 400.0  # square points, of the largest count: it just fits between the rows


def draw_split(counts: Mapping[str, Sequence[int]], path: Path) -> bool:
    """A dot for each site and class, its area the number of examples; False without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    table = np.array(list(counts.values()))
    sites, classes = table.shape
    figure = Figure(figsize=(2.5 + 0.45 * classes, 1.6 + 0.33 * sites), layout="constrained")
    axes, totals = figure.subplots(1, 2, sharey=True, width_ratios=[3, 1])
    rows, columns = np.nonzero(table)
    area = LARGEST_DOT * table[rows, columns] / table.max()
    axes.scatter(columns, rows, s=area, color="#0072B2", linewidth=0)
    axes.set_xticks(range(classes))
    axes.set_yticks(range(sites), list(counts))
    axes.set_xlim(-0.7, classes - 0.3)
    axes.set_ylim(sites - 0.3, -0.7)  # the first site on top
    axes.set_axisbelow(True)
    axes.set_xlabel("class")
    axes.grid(alpha=0.3)
    axes.set_title("examples by class (area)", fontsize=10)
    totals.barh(range(sites), table.sum(axis=1), color="#E69F00")
    totals.set_title("in all", fontsize=10)
    totals.spines[["top", "right"]].set_visible(False)
    write_figure(figure, path, RESOLUTION)
    return True
