"""A federation on one page: ten sites, uneven data, one fused network, from files."""

from __future__ import annotations

import io
import json
import shlex
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from pfnm.api import fuse
from pfnm.conversion import as_sites
from pfnm.errors import PFNMError
from pfnm.formats import load, save
from pfnm.formats.files import make_folder, write_whole
from pfnm.fusion import Fusion
from pfnm.lab.baselines import ensemble, naive_average
from pfnm.lab.partition import dirichlet
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array, Network
from pfnm.pages.charts import Chart, axis, bars, series_colour, tip
from pfnm.pages.page import Panels, Section

SITES = 10
ALPHA = 0.5  # of the Dirichlet split: a site has most examples of a few classes
UNITS = 50
TEST_SHARE = 0.25
LEAST_EXAMPLES = 10  # at any site
PERCENT_ROOM = 1.2  # times a whole bar: on a phone, too, its number stands beside it
SHOWN, BESIDE = series_colour(0), series_colour(8)
PIXEL_SCALE = 16  # the digits' pixels are 0 to 16


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    accuracy: float
    parameters: int


@dataclass(frozen=True)
class DemoResult:
    """The table, and the command that does the fusion by hand."""

    rows: tuple[Row, ...]
    command: str
    report: Path | None
    """The page that shows the fusion; None where what it needs is not installed."""


def run(folder: Path, *, seed: int = 0, on_step: Callable[[], None] = lambda: None) -> DemoResult:
    """Split, train, write ten files, fuse them from the files, and compare."""
    try:
        from sklearn.datasets import load_digits
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.neural_network import MLPClassifier
    except ImportError:
        raise PFNMError("the demo needs scikit-learn; pip install 'pfnm[sklearn]'") from None
    from pfnm.frameworks.sklearn import from_estimator

    make_folder(folder)
    rng = np.random.default_rng(seed)
    x, y = load_digits(return_X_y=True)
    x = x / PIXEL_SCALE
    order = rng.permutation(len(y))
    test, train = np.split(order, [round(TEST_SHARE * len(y))])
    files, counts = [], {}
    for number, part in enumerate(dirichlet(y[train], SITES, ALPHA, rng, LEAST_EXAMPLES), start=1):
        mine = train[part]
        classifier = MLPClassifier(hidden_layer_sizes=(UNITS,), random_state=seed + number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            classifier.fit(x[mine], y[mine])
        path = folder / f"site{number:02}.safetensors"
        save(from_estimator(classifier, name=path.stem), path, force=True)
        files.append(path)
        counts[path.stem] = np.unique(y[mine], return_counts=True)[1].tolist()
        on_step()
    write_whole(folder / "counts.json", (json.dumps(counts, indent=1) + "\n").encode())
    examples = io.BytesIO()
    np.savez(examples, x=x[test], y=y[test])
    write_whole(folder / "test.npz", examples.getvalue())
    fusion = fuse(files, class_counts=counts, on_step=on_step)
    fusion.save(folder / "global.safetensors", force=True)

    networks = [load(path) for path in files]
    mean = naive_average(networks)
    probabilities, labels = ensemble(as_sites(networks), x[test])
    voted = np.asarray(labels)[probabilities.argmax(axis=1)]
    local = [_accuracy(network, x[test], y[test]) for network in networks]
    rows = (
        Row(
            "one site alone (mean of ten)",
            float(np.mean(local)),
            round(np.mean([network.parameters for network in networks])),
        ),
        Row("plain average of the weights", _accuracy(mean, x[test], y[test]), mean.parameters),
        Row(
            "ensemble of all ten",
            float((voted == y[test]).mean()),
            sum(network.parameters for network in networks),
        ),
        Row(
            "pfnm: one fused network",
            _accuracy(fusion.network, x[test], y[test]),
            fusion.network.parameters,
        ),
    )
    return DemoResult(rows, _command(folder), _report(fusion, rows, folder / "report.html"))


def _report(fusion: Fusion, rows: tuple[Row, ...], path: Path) -> Path | None:
    """The fusion's page, with what was measured first; None where its libraries are missing."""
    if any(find_spec(library) is None for library in ("vl_convert", "PIL")):
        return None
    page = fusion.report()
    replace(page, sections=[_measured(rows), *page.sections]).save(path, force=True)
    return path


def _measured(rows: tuple[Row, ...]) -> Section:
    """The table as a chart."""
    *_, whole, fused = rows
    x = axis(
        "accuracy",
        "test accuracy",
        axis={"format": ".0%", "values": [0, 0.25, 0.5, 0.75, 1]},
        scale={"domain": [0, PERCENT_ROOM]},
    )
    spec = bars(
        x,
        axis("name", None, "nominal", sort=None, axis={"labelLimit": 190}),
        tip(("name", "what"), ("accuracy", "accuracy", ".1%"), ("parameters", "parameters", ",")),
        len(rows) + 1,
        colour={
            "condition": {"test": f"datum.parameters == {fused.parameters}", "value": SHOWN},
            "value": BESIDE,
        },
        label={"field": "accuracy", "type": "quantitative", "format": ".1%"},
    )
    return Section(
        "Accuracy",
        f"One network has {fused.accuracy:.1%} where all ten together have {whole.accuracy:.1%}",
        f"With {fused.parameters:,} parameters in place of {whole.parameters:,}, and no data.",
        [
            Panels(
                [
                    Chart(
                        "Accuracy on test digits",
                        "; ".join(f"{row.name} {row.accuracy:.1%}" for row in rows) + ".",
                        spec,
                        {"name": "network", "accuracy": "accuracy", "parameters": "parameters"},
                        [[row.name, row.accuracy, row.parameters] for row in rows],
                    )
                ]
            )
        ],
    )


def _accuracy(network: Network, inputs: Array, labels: IntArray) -> float:
    return float((network.predict(inputs) == labels).mean())


def _command(folder: Path) -> str:
    place = shlex.quote(str(folder))
    return (
        f"pfnm fuse {place}/site*.safetensors -o {place}/fused.safetensors "
        f"--class-counts {place}/counts.json"
    )
