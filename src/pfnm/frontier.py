"""Size against accuracy: fusions at several budgets, and the best settings on labelled data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfnm.api import fuse_sites, prior_of
from pfnm.evaluate import accuracy
from pfnm.fusing.probes import CHECK_PROBES, probe, site_agreements
from pfnm.fusing.sites import Sites
from pfnm.lab.baselines import ensemble
from pfnm.matching.prior import Prior
from pfnm.networks.network import Array
from pfnm.networks.targets import classes_of, one_column

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
    sites: Sites,
    *,
    budgets: Sequence[float | int | str | None] = BUDGETS,
    examples: tuple[Array, NDArray[Any]] | None = None,
    polished: bool = False,
    seed: int = 0,
    on_step: Callable[[], None] | None = None,
) -> list[Point]:
    """Fusions at several budgets, and beside them the best single site and the ensemble of all.

    examples: inputs and labels to measure accuracy on; without them only agreement is told.
    polished: whether each fusion is polished too, a point of its own.
    """
    fusions = {
        _named(budget): fuse_sites(
            sites, budget=budget, rng=np.random.default_rng(seed), on_step=on_step
        )
        for budget in budgets
    }
    if polished:
        for name, fusion in list(fusions.items()):
            fusions[name + POLISHED] = fusion.polished(
                np.random.default_rng(seed),
                on_epoch=None if on_step is None else lambda done, share: on_step(),
            )
    points = [_best_site(sites, examples)]
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
        values, _ = ensemble(sites, sites.rows(inputs))
        wanted = classes_of(sites.networks[0], one_column(inputs, targets)).places
        said = values.argmax(axis=1) if values.shape[1] > 1 else values[:, 0] > HALF
        whole = float((said == wanted).mean())
    total = sum(sites.parameters)
    return [*points, Point(f"ensemble of {len(sites.networks)}", "", total, None, whole)]


def _named(budget: float | int | str | None) -> str:
    if budget is None or isinstance(budget, str):
        return "no limit" if budget is None else budget
    return f"{budget} units" if isinstance(budget, int) else f"{budget:g}x"


def _best_site(sites: Sites, examples: tuple[Array, NDArray[Any]] | None) -> Point:
    probing = probe(sites, CHECK_PROBES, np.random.default_rng(0), to_judge=True)
    shares = [max(0.0, share) for share in site_agreements(sites, probing)]
    values = shares
    if examples is not None:
        inputs, targets = examples
        values = [accuracy(n, sites.rows(inputs), targets) for n in sites.networks]
    best = int(np.argmax(values))
    network = sites.networks[best]
    return Point(
        f"best site ({network.name})",
        ", ".join(map(str, network.widths.values())),
        network.parameters,
        shares[best],
        None if examples is None else values[best],
    )


@dataclass(frozen=True)
class Calibration:
    """What was chosen on labelled data, and the accuracy it has there."""

    spread: float
    mass: float
    budget: float | int | None
    accuracy: float


def calibrate(
    sites: Sites,
    inputs: Array,
    targets: NDArray[Any],
    *,
    budgets: Sequence[float | int | None] = BUDGETS,
    method: str = "joint",
    rules: str | None = None,
    seed: int = 0,
    on_step: Callable[[], None] | None = None,
) -> Calibration:
    """The spread, mass and budget that do best on labelled data.

    One after the other: the spread and the mass at the default budget, then the smallest budget
    that does about as well as the best.
    """

    def tried(spread: float, mass: float, budget: Any = "default") -> tuple[float, int]:
        network = fuse_sites(
            sites,
            prior=prior_of(sites, None, spread, mass, rules),
            method=method,
            budget=budget,
            rng=np.random.default_rng(seed),
            on_step=on_step,
        ).network
        return accuracy(network, inputs, targets), network.parameters

    spread = max(SPREADS, key=lambda value: tried(value, Prior.mass)[0])
    mass = max(MASSES, key=lambda value: tried(spread, value)[0])
    results = {budget: tried(spread, mass, budget) for budget in budgets}
    best = max(score for score, _ in results.values())
    error = NEAR * np.sqrt(best * (1 - best) / len(targets))
    near = [budget for budget, (score, _) in results.items() if score >= best - error]
    budget = min(near, key=lambda budget: results[budget][1])
    return Calibration(spread, mass, budget, results[budget][0])
