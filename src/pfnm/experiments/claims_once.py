"""Claims about one round: against the number of sites, and of hidden layers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pfnm.experiments.claim import (
    ASKED,
    OURS,
    PAPER,
    Claim,
    at_the_cap,
    clearly_above,
    clearly_below,
    layers_name,
    listed,
    points,
    points_shown,
    split_name,
)
from pfnm.experiments.definition import Experiment
from pfnm.experiments.rows import COMPACT, Row, Spread, means, paired, with_compact
from pfnm.experiments.trials import SAME_SIZE, SAME_WIDTH

NEAR = 0.01  # of accuracy: so far below the ensemble is still near it
NEAR_SAID = f"at most {100 * NEAR:g} point below"
Differences = dict[tuple[str, int], Spread]
"""By split and by what is varied: a difference of accuracies, taken trial by trial."""


def varied_in(experiment: Experiment) -> tuple[str, Sequence[int]]:
    """What is varied, and its values."""
    if len(experiment.sites) > 1:
        return "sites", experiment.sites
    return "depth", experiment.depths


def differences(experiment: Experiment, rows: Sequence[Row], one: str, other: str) -> Differences:
    """Accuracy of one method minus another's, wherever both are measured."""
    varied, values = varied_in(experiment)
    found: Differences = {}
    for split in experiment.splits:
        for value in values:
            at = {"split": split, varied: value}
            found[split, value] = paired(
                rows, "accuracy", {"method": one, **at}, {"method": other, **at}
            )
    return {key: difference for key, difference in found.items() if difference[2]}


def of_sites(experiment: Experiment, data: str, rows: Sequence[Row]) -> Iterator[Claim]:
    """The paper's, then of the size, then of the joint method."""
    said = "at every number of sites"
    for other, name in (("local", "the sites' own networks"), ("fedavg", "FedAvg")):
        claim = f"PFNM is above {name} {said}."
        yield _compared(experiment, rows, claim, "pfnm", other)
    yield _compared(
        experiment,
        rows,
        f"PFNM is near the uniform ensemble ({NEAR_SAID}) or above it, {said}.",
        *("pfnm", "ensemble"),
        least=-NEAR,
        whose=PAPER if data == "mnist" else ASKED,
    )
    yield _of_kmeans(experiment, rows)
    yield _of_size(experiment, rows)
    yield from _of_ours(experiment, rows, said)


def of_depth(experiment: Experiment, data: str, rows: Sequence[Row]) -> Iterator[Claim]:
    """PFNM beside its baselines, then the joint method."""
    said = "at every depth"
    rows = with_compact(rows)
    for other, name in (("local", "the sites' own networks"), ("fedavg", "FedAvg")):
        claim = f"PFNM is above {name} {said}."
        yield _compared(experiment, rows, claim, "pfnm", other, whose=ASKED)
    yield _of_parameters(experiment, rows)
    yield from _of_ours(experiment, rows, said)
    for other, limit in (
        (SAME_WIDTH, "with the same limit on its width"),
        (
            COMPACT,
            "with at most as many parameters as the sites' networks together (of those tried)",
        ),
    ):
        yield _compared(
            experiment,
            rows,
            f"The joint method with its default width is above top-down matching {limit} {said}.",
            *("joint", other),
            whose=OURS,
            more=_sizes(rows, "joint", other),
        )
    yield _compared(
        experiment,
        rows,
        "The joint method with its default width is near the class-weighted ensemble, which knows "
        f"as much ({NEAR_SAID}), or above it, {said}.",
        *("joint", "weighted"),
        least=-NEAR,
        whose=OURS,
    )


def _compared(
    experiment: Experiment,
    rows: Sequence[Row],
    said: str,
    one: str,
    other: str,
    *,
    least: float = 0.0,
    whose: str = PAPER,
    more: str = "",
) -> Claim:
    """In how many settings one is above the other (or at least so near), and where it is worst."""
    found = differences(experiment, rows, one, other)
    varied, values = varied_in(experiment)
    wanted = len(experiment.splits) * len(values)
    if not found:
        return Claim(said, "", (), wanted, whose)
    worst, best = (f(found, key=lambda key: found[key][0]) for f in (min, max))

    def told(key: tuple[str, int]) -> str:
        place = layers_name(key[1]) if varied == "depth" else f"{key[1]} sites"
        return f"{points_shown(found[key])} ({place}, {split_name(key[0])})"

    good = tuple(mean > least for mean, *_ in found.values())
    clear = sum(clearly_above(difference, least) for difference in found.values())
    against = sum(clearly_below(difference, least) for difference in found.values())
    text = (
        f"in {sum(good)} of {len(found)} settings, clearly in {clear}, clearly not in {against}; "
        f"from {told(worst)} to {told(best)}"
    )
    return Claim(said, listed(text, more), good, wanted, whose, clear=clear, against=against)


def _of_kmeans(experiment: Experiment, rows: Sequence[Row]) -> Claim:
    lead = differences(experiment, rows, "pfnm", "kmeans")
    even, uneven = (
        [mean for (split, _), (mean, *_) in lead.items() if (split == "even") is is_even]
        for is_even in (True, False)
    )
    text, found = "", [value > 0 for value in uneven]
    if even and uneven:
        leads = [sum(some) / len(some) for some in (even, uneven)]
        text = (
            f"PFNM's lead, averaged over the numbers of sites: {points(leads[0])} points on "
            f"even splits, {points(leads[1])} on Dirichlet splits (there from "
            f"{points(min(uneven))} to {points(max(uneven))})"
        )
        if len(lead) == len(experiment.splits) * len(experiment.sites):
            found.append(leads[1] > leads[0])
    uneven_splits = [split for split in experiment.splits if split != "even"]
    return Claim(
        "k-means falls behind PFNM on Dirichlet splits (at every number of sites, and further than "
        "on even ones).",
        text,
        tuple(found),
        len(uneven_splits) * len(experiment.sites) + 1,
    )


def _of_size(experiment: Experiment, rows: Sequence[Row]) -> Claim:
    ends = experiment.sites[0], experiment.sites[-1]
    texts, smaller = [], []
    for split in experiment.splits:
        one, two = (
            means(rows, "log_ratio", split=split, sites=sites, method="pfnm")[0] for sites in ends
        )
        if not math.isnan(one + two):
            texts.append(f"{split_name(split)}: log ratio {one:.2f} to {two:.2f}")
            smaller.append(two < one)
    return Claim(
        "The more sites, the smaller the global network beside all of theirs "
        f"({ends[1]} sites against {ends[0]}).",
        listed(*texts, at_the_cap([row for row in rows if row["method"] == "pfnm"])),
        tuple(smaller),
        len(experiment.splits),
        ASKED,
    )


def _of_parameters(experiment: Experiment, rows: Sequence[Row]) -> Claim:
    texts, smaller = [], []
    for split in experiment.splits:
        shares = []
        for depth in experiment.depths:
            one, all_of_them = (
                means(rows, "parameters", split=split, depth=depth, method=method)[0]
                for method in ("pfnm", "ensemble")
            )
            if not math.isnan(one + all_of_them):
                shares.append(one / all_of_them)
        if shares:
            texts.append(f"{split_name(split)}: {', '.join(f'{s:.2f}' for s in shares)} of theirs")
        smaller += [share < 1 for share in shares]
    return Claim(
        "PFNM's network has fewer parameters than all the sites' together at every depth.",
        listed(*texts),
        tuple(smaller),
        len(experiment.splits) * len(experiment.depths),
        ASKED,
    )


def _of_ours(experiment: Experiment, rows: Sequence[Row], where: str) -> Iterator[Claim]:
    """The joint method, which sees no data, against what has a variance chosen on the data."""
    for method, size in (
        (SAME_SIZE, "with at most as many parameters"),
        ("joint", "with its default width"),
    ):
        yield _compared(
            experiment,
            rows,
            f"The joint method {size} is above top-down matching (PFNM as published) {where}.",
            *(method, "pfnm"),
            whose=OURS,
            more=_sizes(rows, method, "pfnm"),
        )


def _sizes(rows: Sequence[Row], one: str, other: str) -> str:
    sizes = [means(rows, "parameters", method=method)[0] for method in (one, other)]
    return f"parameters on average {sizes[0]:,.0f} against {sizes[1]:,.0f}"
