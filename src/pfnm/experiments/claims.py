"""What the paper claims of each experiment, and whether the rows bear it out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pfnm.core.prior import RULES
from pfnm.experiments.definition import Experiment
from pfnm.experiments.trials import SAME_SIZE, Row, Spread, fits, means, moments, spread

NEAR = 0.01  # of accuracy: so far below the ensemble is still near it
ROBUST = 0.02  # of accuracy: settings of the prior that lie so close to the best do not matter
WIDTH_CAP = RULES["published"].width_cap or 0
PAPER_DATA = ("mnist", "cifar10")
UNKNOWN = "not measured yet"
MOST = 0.9  # of those settings: robust means that so many are that close
NEAR_SAID = f"at most {100 * NEAR:g} point below"
SPLITS = {"even": "even split", "authors": "Dirichlet(0.5), authors' split"}
DATA = {"mnist": "MNIST", "cifar10": "CIFAR-10", "digits": "digits"}
AUTHORS_SECONDS = {  # of one matching on two cores of 3 GHz, as they report: data, hidden layers
    **{("mnist", 1): 40, ("cifar10", 1): 500, ("mnist", 6): 60, ("cifar10", 6): 150}
}


@dataclass(frozen=True)
class Claim:
    """A claim, what was measured, and whether it holds; None: not enough is measured yet.

    ours: not the paper's claim, but one of pfnm's own.
    """

    said: str
    measured: str
    holds: bool | None
    ours: bool = False

    @property
    def named(self) -> str:
        """The claim, and whose it is."""
        return f"{self.said} (ours)" if self.ours else self.said

    @property
    def verdict(self) -> str:
        """As tables have it."""
        return UNKNOWN if self.holds is None else "yes" if self.holds else "no"


def claims(experiment: Experiment, rows: Sequence[Row]) -> list[Claim]:
    """All that can be said of these rows, data set by data set."""
    return [
        replace(claim, ours=claim.ours or data not in PAPER_DATA)
        for data in experiment.data
        for claim in OF[experiment.name](experiment, data, [r for r in rows if r["data"] == data])
    ]


def data_name(data: str) -> str:
    """As figures and tables call it."""
    return DATA.get(data, data)


def split_name(split: str) -> str:
    """As figures and tables call it."""
    return SPLITS.get(split, split)


def layers_name(depth: int) -> str:
    """As figures and tables call it."""
    return f"{depth} hidden layer{'s' if depth > 1 else ''}"


def _judged(found: Sequence[bool], wanted: int) -> bool | None:
    """One against is enough; for a yes, all that is wanted must be there."""
    if not all(found):
        return False
    return True if len(found) == wanted else None


def _points(difference: float) -> str:
    return f"{100 * difference:+.1f}"


def _shown(difference: Spread) -> str:
    """In points, with the deviation over trials."""
    mean, deviation, number = difference
    text = _points(mean)
    if number > 1:
        text += f" ± {100 * deviation:.1f}"
    return f"{text} points, {number} trial{'s' if number > 1 else ''}"


def _listed(*texts: str) -> str:
    return "; ".join(filter(None, texts))


def _at_the_cap(rows: Sequence[Row]) -> str:
    """How many networks have as many units in a layer as the published rules allow."""
    at = sum(max(map(int, row["widths"].split())) >= WIDTH_CAP for row in rows if row["widths"])
    if not rows:
        return ""
    return f"{at} of {len(rows)} networks at the published rules' limit of {WIDTH_CAP} units"


Differences = dict[tuple[str, int], Spread]
"""By split and by what is varied: a difference of accuracies, taken trial by trial."""


def varied_in(experiment: Experiment) -> tuple[str, Sequence[int]]:
    """What is varied, and its values."""
    if len(experiment.sites) > 1:
        return "sites", experiment.sites
    return "depth", experiment.depths


def _differences(
    experiment: Experiment, rows: Sequence[Row], one: str, other: str
) -> tuple[Differences, int]:
    """Accuracy of one method minus another's wherever both are measured; how many there may be."""
    varied, values = varied_in(experiment)
    found: Differences = {}
    for split in experiment.splits:
        for value in values:
            each: list[dict[int, float]] = [
                {
                    row["trial"]: row["accuracy"]
                    for row in rows
                    if fits(row, {"method": method, "split": split, varied: value})
                    and row["accuracy"] is not None
                }
                for method in (one, other)
            ]
            both = sorted({*each[0]} & {*each[1]})
            if both:
                found[split, value] = spread([each[0][t] - each[1][t] for t in both])
    return found, len(experiment.splits) * len(values)


def _compared(
    experiment: Experiment, rows: Sequence[Row], one: str, other: str, least: float = 0.0
) -> tuple[str, bool | None]:
    """In how many settings one is above the other (or at least so near), and where it is worst."""
    found, wanted = _differences(experiment, rows, one, other)
    if not found:
        return "", None
    varied, _ = varied_in(experiment)
    worst, best = (f(found, key=lambda key: found[key][0]) for f in (min, max))

    def told(key: tuple[str, int]) -> str:
        place = layers_name(key[1]) if varied == "depth" else f"{key[1]} sites"
        return f"{_shown(found[key])} ({place}, {split_name(key[0])})"

    good = [mean > least for mean, *_ in found.values()]
    text = f"in {sum(good)} of {len(found)} settings; from {told(worst)} to {told(best)}"
    return text, _judged(good, wanted)


def _above(
    experiment: Experiment, data: str, rows: Sequence[Row], where: str, *, ours: bool = False
) -> Iterator[Claim]:
    """The comparisons that sites and depth have in common."""
    for other, name in (("local", "the sites' own networks"), ("fedavg", "FedAvg")):
        text, holds = _compared(experiment, rows, "pfnm", other)
        said = f"{data_name(data)}: PFNM is above {name} at every {where}."
        yield Claim(said, text, holds, ours)


def _ours(experiment: Experiment, data: str, rows: Sequence[Row], where: str) -> Iterator[Claim]:
    """The joint method, which sees no data, against what has a variance chosen on the data."""
    for method, size in (
        (SAME_SIZE, "with at most as many parameters"),
        ("joint", "with its default width"),
    ):
        text, holds = _compared(experiment, rows, method, "pfnm")
        sizes = [means(rows, "parameters", method=own)[0] for own in (method, "pfnm")]
        if text:
            text += f"; parameters on average {sizes[0]:,.0f} against {sizes[1]:,.0f}"
        said = f"the joint method {size} is above top-down matching (PFNM as published)"
        yield Claim(f"{data_name(data)}: {said} at every {where}.", text, holds, ours=True)


def _of_sites(experiment: Experiment, data: str, rows: Sequence[Row]) -> Iterator[Claim]:
    name = data_name(data)
    yield from _above(experiment, data, rows, "number of sites")
    text, holds = _compared(experiment, rows, "pfnm", "ensemble", -NEAR)
    yield Claim(
        f"{name}: PFNM is near the uniform ensemble ({NEAR_SAID}) or above it, at every "
        "number of sites.",
        text,
        holds,
        ours=data != "mnist",
    )
    lead, wanted = _differences(experiment, rows, "pfnm", "kmeans")
    even, uneven = (
        [mean for (split, _), (mean, *_) in lead.items() if (split == "even") is is_even]
        for is_even in (True, False)
    )
    text, holds = "", None
    if even and uneven:
        leads = [sum(found) / len(found) for found in (even, uneven)]
        text = (
            f"PFNM's lead, averaged over the numbers of sites: {_points(leads[0])} points on "
            f"even splits, {_points(leads[1])} on Dirichlet splits (there from "
            f"{_points(min(uneven))} to {_points(max(uneven))})"
        )
        holds = _judged([value > 0 for value in uneven], wanted - len(even))
        if holds and len(lead) == wanted:
            holds = leads[1] > leads[0]
    yield Claim(
        f"{name}: k-means falls behind PFNM on Dirichlet splits (at every number of sites, and "
        "further than on even ones).",
        text,
        holds,
    )
    texts, smaller = [], []
    for split in experiment.splits:
        one, two = (
            means(rows, "log_ratio", split=split, sites=sites, method="pfnm")[0]
            for sites in (experiment.sites[0], experiment.sites[-1])
        )
        if not math.isnan(one + two):
            texts.append(f"{split_name(split)}: log ratio {one:.2f} to {two:.2f}")
            smaller.append(two < one)
    yield Claim(
        f"{name}: the more sites, the smaller the global network beside all of theirs "
        f"({experiment.sites[-1]} sites against {experiment.sites[0]}).",
        _listed(*texts, _at_the_cap([row for row in rows if row["method"] == "pfnm"])),
        _judged(smaller, len(experiment.splits)),
        ours=True,
    )
    yield from _ours(experiment, data, rows, "number of sites")


def _of_depth(experiment: Experiment, data: str, rows: Sequence[Row]) -> Iterator[Claim]:
    name = data_name(data)
    yield from _above(experiment, data, rows, "depth", ours=True)
    yield from _ours(experiment, data, rows, "depth")
    text, holds = _compared(experiment, rows, "joint", "ensemble", -NEAR)
    yield Claim(
        f"{name}: the joint method with its default width is near the uniform ensemble "
        f"({NEAR_SAID}) or above it, at every depth.",
        text,
        holds,
        ours=True,
    )


RIVALS = {"fedavg": "FedAvg", "dsgd": "D-SGD"}
Needed = dict[str, dict[str, float]]
"""By method: communications and epochs until it reaches the ensemble; infinite where never."""


def _of_rounds(experiment: Experiment, data: str, rows: Sequence[Row]) -> Iterator[Claim]:
    yield from _reaches(experiment, data, rows, "pfnm", "PFNM")
    name, shrinks = data_name(data), {}
    for panel, split, own in _panels(experiment, rows):
        one, last = (
            means(own, "units", method="pfnm", round=number)[0]
            for number in (1, experiment.rounds[split])
        )
        if not math.isnan(one + last):
            shrinks[panel] = one, last
    yield Claim(
        f"{name}: the global network shrinks with the rounds.",
        "; ".join(
            f"{panel}: {one:.0f} to {two:.0f} units" for panel, (one, two) in shrinks.items()
        ),
        _judged([two < one for one, two in shrinks.values()], len(_panels(experiment, rows))),
    )
    if "pfnm-joint" in experiment.methods:
        yield from _reaches(experiment, data, rows, "pfnm-joint", "the joint method", ours=True)


def _panels(experiment: Experiment, rows: Sequence[Row]) -> list[tuple[str, str, list[Row]]]:
    """Of each panel its name, its split and its rows."""
    return [
        (
            f"{split_name(split)}, {layers_name(depth)}",
            split,
            [row for row in rows if fits(row, {"split": split, "depth": depth})],
        )
        for split in experiment.splits
        for depth in experiment.depths
    ]


def _reaches(
    experiment: Experiment,
    data: str,
    rows: Sequence[Row],
    method: str,
    title: str,
    *,
    ours: bool = False,
) -> Iterator[Claim]:
    """Whether a method reaches the ensemble sooner than its rivals, counted in two ways."""
    titles = {method: title, **RIVALS}
    found: dict[str, list[Needed]] = {}  # of all trials together, then of each
    for panel, _, own in _panels(experiment, rows):
        there = [{row["trial"] for row in own if row["method"] == m} for m in (*titles, "ensemble")]
        trials = sorted(set.intersection(*there))
        if trials:
            each = [[row for row in own if row["trial"] == trial] for trial in trials]
            whole = [row for rows_of in each for row in rows_of]
            found[panel] = [_needed(some, titles) for some in (whole, *each)]
    for against, words, form in (
        ("communications", "with fewer communications", ",.0f"),
        ("epochs", "after fewer epochs of local training", ".1f"),
    ):
        texts = []
        for panel, (together, *apart) in found.items():
            said = ", ".join(
                f"{name} {_amount(together[m][against], form)}" for m, name in titles.items()
            )
            first = sum(_first(needed, method, against) for needed in apart)
            texts.append(f"{panel}: {said} ({title} first in {first} of {len(apart)} trials)")
        firsts = [_first(needed[0], method, against) for needed in found.values()]
        yield Claim(
            f"{data_name(data)}: {title} reaches the accuracy of the uniform ensemble {words} than "
            "FedAvg and D-SGD (means over trials).",
            "; ".join(texts),
            _judged(firsts, len(_panels(experiment, rows))),
            ours or against == "epochs",
        )


def _needed(rows: Sequence[Row], methods: Iterable[str]) -> Needed:
    """When each method's mean accuracy first reaches the uniform ensemble's."""
    goal = means(rows, "accuracy", method="ensemble")[0]
    found: Needed = {}
    for method in methods:
        found[method] = {"communications": math.inf, "epochs": math.inf}
        for moment in moments(rows, {"method": method}):
            at = {"method": method, **moment}
            if means(rows, "accuracy", **at)[0] >= goal:
                found[method] = {
                    against: spread([r[against] for r in rows if fits(r, at)])[0]
                    for against in found[method]
                }
                break
    return found


def _first(needed: Needed, method: str, against: str) -> bool:
    """Whether a method needs less than its rivals."""
    return needed[method][against] < min(needed[rival][against] for rival in RIVALS)


def _amount(value: float, form: str) -> str:
    return "never" if math.isinf(value) else format(value, form)


def _of_sensitivity(experiment: Experiment, data: str, rows: Sequence[Row]) -> Iterator[Claim]:
    name = data_name(data)
    texts, robust, others, stronger = [], [], [], []
    for split in experiment.splits:
        heat = [
            means(rows, "train_accuracy", method="prior", prior_variance=v, mass=m, split=split)[0]
            for v in experiment.prior_variances
            for m in experiment.masses
        ]
        if math.isnan(sum(heat)):
            continue
        span = max(heat) - min(heat)
        close = sum(value >= max(heat) - ROBUST for value in heat)
        texts.append(
            f"{split_name(split)}: {close} of {len(heat)} within {100 * ROBUST:.0f} points of the "
            f"best, all within {100 * span:.1f}"
        )
        robust.append(close >= MOST * len(heat))
        sweep = [
            means(
                rows, "train_accuracy", method="site variance", site_variance=v,
                sites=experiment.heat_sites, split=split,
            )[0]
            for v in experiment.site_variances
        ]  # fmt: skip
        own = max(sweep) - min(sweep)
        others.append(f"{split_name(split)}: {100 * own:.1f} points against {100 * span:.1f}")
        stronger.append(own > span)
    yield Claim(
        f"{name}: PFNM is robust to the prior's variance and mass ({100 * MOST:.0f} % of the "
        f"settings within {100 * ROBUST:g} points of the best, on the training data).",
        _listed(*texts, _at_the_cap([row for row in rows if row["method"] == "prior"])),
        _judged(robust, len(experiment.splits)),
    )
    yield Claim(
        f"{name}: the sites' variance matters more than those two (between the best and the worst "
        "of each grid).",
        "; ".join(others),
        _judged(stronger, len(experiment.splits)),
        ours=True,
    )


def _of_timing(experiment: Experiment, data: str, rows: Sequence[Row]) -> Iterator[Claim]:
    texts, fast = [], []
    for sites, depth in experiment.settings:
        mean, deviation, trials = means(rows, "seconds", depth=depth)
        reported = AUTHORS_SECONDS.get((data, depth))
        if trials and reported is not None:
            more = f" ± {deviation:.2f}" if trials > 1 else ""
            found = f"{mean:.2f}{more} s (the authors: {reported} s)"
            texts.append(f"{sites} sites, {layers_name(depth)}: {found}")
            fast.append(mean < reported)
    if data not in {known for known, _ in AUTHORS_SECONDS}:
        return
    yield Claim(
        f"{data_name(data)}: one matching, in one thread, is faster than the authors report on two "
        "cores of 3 GHz.",
        "; ".join(texts),
        _judged(fast, len(experiment.settings)),
        ours=True,
    )


OF: Mapping[str, Callable[[Experiment, str, Sequence[Row]], Iterator[Claim]]] = {
    "sites": _of_sites,
    "depth": _of_depth,
    "rounds": _of_rounds,
    "sensitivity": _of_sensitivity,
    "timing": _of_timing,
}
