"""What the paper claims of each experiment, and whether the rows bear it out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pfnm.experiments.definition import Experiment
from pfnm.experiments.trials import Row, means

NEAR = 0.01  # of accuracy: so far below the ensemble is still near it
ROBUST = 0.02  # of accuracy: settings of the prior that lie so close to the best do not matter
SPLITS = {"even": "even split", "authors": "Dirichlet(0.5) split"}
DATA = {"mnist": "MNIST", "cifar10": "CIFAR-10", "digits": "digits"}
AUTHORS_SECONDS = {  # of one matching on two cores of 3 GHz, as they report: data, hidden layers
    **{("mnist", 1): 40, ("cifar10", 1): 500, ("mnist", 6): 60, ("cifar10", 6): 150}
}


@dataclass(frozen=True)
class Claim:
    """A claim, what was measured, and whether it holds."""

    said: str
    measured: str
    holds: bool


def panel_name(data: str, split: str) -> str:
    """As figures and tables call it."""
    return f"{DATA.get(data, data)}, {SPLITS.get(split, split)}"


def claims(experiment: Experiment, rows: Sequence[Row]) -> list[Claim]:
    """All that can be said of these rows."""
    return list(OF[experiment.name](experiment, rows)) if rows else []


Points = dict[tuple[str, str, int], float]
"""Data, split and what is varied, to a difference of mean accuracies."""


def _differences(experiment: Experiment, rows: Sequence[Row], one: str, other: str) -> Points:
    """Mean accuracy of one method minus another's, wherever both were measured."""
    varied = "sites" if len(experiment.sites) > 1 else "depth"
    values = experiment.sites if varied == "sites" else experiment.depths
    found = {}
    for data, split in experiment.panels:
        for value in values:
            where = {"data": data, "split": split, varied: value}
            first, second = (
                means(rows, "accuracy", method=method, **where)[0] for method in (one, other)
            )
            if not math.isnan(first - second):
                found[data, split, value] = first - second
    return found


def _above(what: str, points: Points) -> tuple[str, bool]:
    """In how many settings it is above, and where it is worst."""
    worst = min(points, key=lambda key: points[key])
    name = panel_name(*worst[:2])
    above = sum(value > 0 for value in points.values())
    text = (
        f"above {what} in {above} of {len(points)} settings (least: {_points(points[worst])} at "
        f"{worst[2]}, {name})"
    )
    return text, above == len(points)


def _points(difference: float) -> str:
    return f"{100 * difference:+.1f} points"


def _of_sites(experiment: Experiment, rows: Sequence[Row]) -> Iterator[Claim]:
    yield from _beats(experiment, rows, "at every number of sites")
    for data in experiment.data:
        own = {
            key: value
            for key, value in _differences(experiment, rows, "pfnm", "ensemble").items()
            if key[0] == data
        }
        if own:
            low, high = min(own.values()), max(own.values())
            yield Claim(
                f"On {DATA.get(data, data)}, PFNM is near the uniform ensemble (within a point) or "
                "above it.",
                f"from {_points(low)} to {_points(high)}, at "
                f"{sum(v >= -NEAR for v in own.values())} of {len(own)} settings within a point or "
                "above",
                low >= -NEAR,
            )
    lead = _differences(experiment, rows, "pfnm", "kmeans")
    even = [value for key, value in lead.items() if key[1] == "even"]
    uneven = [value for key, value in lead.items() if key[1] != "even"]
    if even and uneven:
        yield Claim(
            "k-means falls behind PFNM on Dirichlet splits.",
            f"PFNM's lead is {_points(sum(even) / len(even))} on even splits on average, "
            f"{_points(sum(uneven) / len(uneven))} on Dirichlet splits (there "
            f"{_points(min(uneven))} to {_points(max(uneven))})",
            min(uneven) > 0 and sum(uneven) / len(uneven) > sum(even) / len(even),
        )
    shrink = []
    for data, split in experiment.panels:
        ends = [
            means(rows, "log_ratio", data=data, split=split, sites=sites, method="pfnm")[0]
            for sites in (experiment.sites[0], experiment.sites[-1])
        ]
        shrink.append((panel_name(data, split), ends))
    yield Claim(
        "The more sites, the smaller the global network is beside all of theirs.",
        "; ".join(f"{name}: log ratio {one:.2f} to {two:.2f}" for name, (one, two) in shrink),
        all(two < one for _, (one, two) in shrink),
    )


def _beats(experiment: Experiment, rows: Sequence[Row], where: str) -> Iterator[Claim]:
    for other, name in (("local", "the sites' own networks"), ("fedavg", "FedAvg")):
        points = _differences(experiment, rows, "pfnm", other)
        if points:
            text, holds = _above(name, points)
            yield Claim(f"PFNM is above {name} {where}.", text, holds)


def _of_depth(experiment: Experiment, rows: Sequence[Row]) -> Iterator[Claim]:
    yield from _beats(experiment, rows, "at every depth")
    points = _differences(experiment, rows, "joint", "pfnm")
    if points:
        text, holds = _above("top-down matching", points)
        yield Claim(
            "(Ours, not the paper's) The joint method with its defaults, which sees no data, is "
            "above top-down matching with variances chosen on the training data at every depth.",
            text,
            holds,
        )
    points = _differences(experiment, rows, "joint", "ensemble")
    if points:
        text, holds = _above("the uniform ensemble", points)
        yield Claim("(Ours) The joint method reaches the uniform ensemble.", text, holds)


def _of_rounds(experiment: Experiment, rows: Sequence[Row]) -> Iterator[Claim]:
    found, shrinks = [], []
    for data, split in experiment.panels:
        for depth in experiment.depths:
            where = {"data": data, "split": split, "depth": depth}
            name = f"{panel_name(data, split)}, {depth} layer{'s' if depth > 1 else ''}"
            goal = means(rows, "accuracy", method="ensemble", **where)[0]
            if math.isnan(goal):
                continue
            needed = {
                method: _communications(rows, goal, {**where, "method": method})
                for method in ("pfnm", "fedavg", "dsgd")
            }
            if not all(any(_fits(r, {**where, "method": m}) for r in rows) for m in needed):
                continue  # not all of them have been run yet
            found.append((name, needed))
            last = experiment.rounds[split]
            units = [
                means(rows, "units", method="pfnm", round=number, **where)[0]
                for number in (1, last)
            ]
            shrinks.append((name, units))
    if not found:
        return
    fewest = [
        needed["pfnm"] is not None
        and all(
            other is None or needed["pfnm"] < other for other in (needed["fedavg"], needed["dsgd"])
        )
        for _, needed in found
    ]
    yield Claim(
        "PFNM reaches the ensemble's accuracy with fewer communications than FedAvg and D-SGD.",
        "; ".join(
            f"{name}: PFNM {_said(needed['pfnm'])}, FedAvg {_said(needed['fedavg'])}, D-SGD "
            f"{_said(needed['dsgd'])}"
            for name, needed in found
        ),
        all(fewest),
    )
    yield Claim(
        "The global network shrinks with the rounds.",
        "; ".join(f"{name}: {one:.0f} to {two:.0f} units" for name, (one, two) in shrinks),
        all(two < one for _, (one, two) in shrinks),
    )


def _communications(rows: Sequence[Row], goal: float, where: Mapping[str, object]) -> int | None:
    """After how many communications the mean over trials first reaches the goal."""
    numbers = sorted({r["round"] for r in rows if _fits(r, where)})
    for number in numbers:
        if means(rows, "accuracy", **where, round=number)[0] >= goal:
            return round(means(rows, "communications", **where, round=number)[0])
    return None


def _fits(row: Row, where: Mapping[str, object]) -> bool:
    return all(row[key] == value for key, value in where.items())


def _said(communications: int | None) -> str:
    return "never" if communications is None else f"after {communications}"


def _of_sensitivity(experiment: Experiment, rows: Sequence[Row]) -> Iterator[Claim]:
    near, spreads = [], []
    for data, split in experiment.panels:
        where = {"data": data, "split": split}
        heat = [
            means(rows, "train_accuracy", method="prior", prior_variance=v, mass=m, **where)[0]
            for v in experiment.prior_variances
            for m in experiment.masses
        ]
        near.append((panel_name(data, split), heat))
        sweep = [
            means(
                rows, "train_accuracy", method="site variance", site_variance=v,
                sites=experiment.heat_sites, **where,
            )[0]
            for v in experiment.site_variances
        ]  # fmt: skip
        spreads.append((panel_name(data, split), sweep))
    texts = [
        f"{name}: {sum(value >= max(heat) - ROBUST for value in heat)} of {len(heat)} within 2 "
        f"points of the best, all within {_points(max(heat) - min(heat))[1:]}"
        for name, heat in near
    ]
    yield Claim(
        "PFNM is robust to the prior's variance and mass (nine in ten settings within two points "
        "of the best).",
        "; ".join(texts),
        all(
            sum(value >= max(heat) - ROBUST for value in heat) >= 0.9 * len(heat)
            for _, heat in near
        ),
    )
    yield Claim(
        "The sites' variance matters more than those two, which is why it is the one chosen.",
        "; ".join(
            f"{name}: {_points(max(sweep) - min(sweep))[1:]} between the best and the worst"
            for name, sweep in spreads
        ),
        all(
            max(sweep) - min(sweep) > max(heat) - min(heat)
            for (_, sweep), (_, heat) in zip(spreads, near, strict=True)
        ),
    )


def _of_timing(experiment: Experiment, rows: Sequence[Row]) -> Iterator[Claim]:
    texts, fast = [], []
    for data in experiment.data:
        for sites, depth in experiment.settings:
            mean, _, trials = means(rows, "seconds", data=data, depth=depth)
            reported = AUTHORS_SECONDS.get((data, depth))
            if trials:
                shown = "" if reported is None else f" (the authors: {reported} s)"
                layers = f"{depth} layer{'s' if depth > 1 else ''}"
                texts.append(
                    f"{DATA.get(data, data)}, {sites} sites, {layers}: {mean:.2f} s{shown}"
                )
                fast.append(reported is None or mean < reported)
    if not texts:
        return
    yield Claim(
        "A matching takes seconds to minutes on two cores; ours, in one thread, is faster than the "
        "authors report.",
        "; ".join(texts),
        all(fast),
    )


OF: Mapping[str, Callable[[Experiment, Sequence[Row]], Iterator[Claim]]] = {
    "sites": _of_sites,
    "depth": _of_depth,
    "rounds": _of_rounds,
    "sensitivity": _of_sensitivity,
    "timing": _of_timing,
}
