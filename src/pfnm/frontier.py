"""Size against accuracy: fusions at several budgets, and the best settings on labelled data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfnm.api import Ends, fuse, input_range_of
from pfnm.core.fusion import Fusion
from pfnm.core.network import Array, Network
from pfnm.core.probes import CHECK_PROBES, InputRange, probe, site_agreements
from pfnm.core.sites import Sites, comparable
from pfnm.core.targets import classes_of, one_column
from pfnm.evaluate import accuracy
from pfnm.federated.baselines import ensemble

BUDGETS: tuple[float | None, ...] = (1.0, 1.3, 2.0, 4.0, None)
SPREADS = (1.0, 3.0, 10.0)
MASSES = (0.1, 1.0, 10.0)
POLISHED = ", polished"  # ends the name of a point
HALF = 0.5  # a probability above it says yes
NEAR = 0.5  # standard errors: a smaller network this near to the best is preferred


@dataclass(frozen=True)
class Point:
    """One network: how large, and how good."""

    name: str
    widths: str
    parameters: int
    agreement: float | None
    accuracy: float | None


def frontier(
    networks: Sequence[Network],
    *,
    budgets: Sequence[float | int | None] = BUDGETS,
    class_counts: Any = None,
    site_weights: Any = None,
    examples: tuple[Array, NDArray[Any]] | None = None,
    input_range: Ends | None = None,
    polished: bool = False,
    on_step: Callable[[], None] | None = None,
    **options: Any,
) -> list[Point]:
    """Fusions at several budgets, and beside them the best single site and the ensemble of all.

    Class counts and site weights count for the ensemble as they do for the fusions.

    examples: inputs and labels to measure accuracy on; without them only agreement is told.
    polished: whether each fusion is polished too, a point of its own.
    """
    known = {"class_counts": class_counts, "site_weights": site_weights}
    ranged = {**known, "input_range": input_range}
    fusions = {
        _named(b): fuse(networks, budget=b, on_step=on_step, **ranged, **options) for b in budgets
    }
    if polished:
        from pfnm.polishing import polish

        rng = options.get("rng")
        for name, fusion in list(fusions.items()):
            fusions[name + POLISHED] = polish(
                fusion,
                networks,
                rng=rng,
                on_epoch=None if on_step is None else lambda done, share: on_step(),
                **ranged,
            )
    within = input_range_of(input_range, networks)
    sites = comparable(networks, **known)
    points = [_best_site(sites, within, examples)]
    for name, fusion in fusions.items():
        network = fusion.network
        points.append(
            Point(
                name,
                ", ".join(map(str, network.widths.values())),
                network.parameters,
                fusion.agreement,
                None if examples is None else accuracy(network, *examples),
            )
        )
    whole = None
    if examples is not None:
        inputs, targets = examples
        values, _ = ensemble(networks, inputs, **known)
        wanted = classes_of(sites.networks[0], one_column(inputs, targets)).places
        said = values.argmax(axis=1) if values.shape[1] > 1 else values[:, 0] > HALF
        whole = float((said == wanted).mean())
    total = sum(network.parameters for network in networks)
    return [*points, Point(f"ensemble of {len(networks)}", "", total, None, whole)]


def _named(budget: float | int | None) -> str:
    if budget is None:
        return "no limit"
    return f"{budget} units" if isinstance(budget, int) else f"{budget:g}x"


def _best_site(
    sites: Sites, within: InputRange, examples: tuple[Array, NDArray[Any]] | None
) -> Point:
    rng = np.random.default_rng(0)
    probing = probe(sites, CHECK_PROBES, rng, with_noise=True, within=within)
    shares = [max(0.0, share) for share in site_agreements(sites, probing)]
    values = shares if examples is None else [accuracy(n, *examples) for n in sites.networks]
    best = int(np.argmax(values))
    network = sites.networks[best]
    return Point(
        f"best site ({network.name})",
        ", ".join(map(str, network.widths.values())),
        network.parameters,
        shares[best],
        None if examples is None else values[best],
    )


def calibrate(
    networks: Sequence[Network],
    inputs: Array,
    targets: NDArray[Any],
    *,
    class_counts: Any = None,
    budgets: Sequence[float | int | None] = BUDGETS,
    on_step: Callable[[], None] | None = None,
    **options: Any,
) -> Fusion:
    """The fusion whose spread, mass and budget do best on labelled data.

    One after the other: the spread and the mass at the default budget, then the smallest budget
    that does about as well as the best.
    """

    def tried(**chosen: Any) -> tuple[float, Fusion]:
        fusion = fuse(networks, class_counts=class_counts, on_step=on_step, **options, **chosen)
        return accuracy(fusion.network, inputs, targets), fusion

    spread = max(SPREADS, key=lambda value: tried(spread=value)[0])
    mass = max(MASSES, key=lambda value: tried(spread=spread, mass=value)[0])
    results = [tried(spread=spread, mass=mass, budget=budget) for budget in budgets]
    best = max(score for score, _ in results)
    error = NEAR * np.sqrt(best * (1 - best) / len(targets))
    near = [fusion for score, fusion in results if score >= best - error]
    return min(near, key=lambda fusion: fusion.network.parameters)
