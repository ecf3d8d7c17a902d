"""What the paper claims of each experiment, what else was asked, and what the rows say."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from pfnm.experiments.claim import (
    ASKED,
    PAPER,
    Claim,
    at_the_cap,
    clearly_above,
    data_name,
    layers_name,
    listed,
    split_name,
)
from pfnm.experiments.claims_once import of_depth, of_sites
from pfnm.experiments.claims_rounds import of_rounds
from pfnm.experiments.definition import Experiment
from pfnm.experiments.rows import Row, Spread, means, paired

ROBUST = 0.02  # of accuracy: settings of the prior that lie so close to the best do not matter
MOST = 0.9  # of those settings: robust means that so many are that close
PAPER_DATA = ("mnist", "cifar10")
AUTHORS_SECONDS = {  # of one matching on two cores of 3 GHz, as they report: data, hidden layers
    ("mnist", 1): 40,
    ("cifar10", 1): 500,
    ("mnist", 6): 60,
    ("cifar10", 6): 150,
}


def claims(experiment: Experiment, rows: Sequence[Row]) -> list[Claim]:
    """All that can be said of these rows, data set by data set."""
    found = []
    for data in experiment.data:
        for claim in OF[experiment.name](experiment, data, [r for r in rows if r["data"] == data]):
            asked = claim.whose == PAPER and data not in PAPER_DATA
            whose = ASKED if asked else claim.whose
            found.append(replace(claim, whose=whose, data=data_name(data)))
    return found


def _of_sensitivity(experiment: Experiment, data: str, rows: Sequence[Row]) -> Iterator[Claim]:
    texts, robust, against, others, stronger = [], [], 0, [], []
    for split in experiment.splits:
        cells = [
            {"method": "prior", "prior_variance": v, "mass": m, "split": split}
            for v in experiment.prior_variances
            for m in experiment.masses
        ]
        heat = [means(rows, "train_accuracy", **cell)[0] for cell in cells]
        if math.isnan(sum(heat)):
            continue
        span = max(heat) - min(heat)
        close = sum(value >= max(heat) - ROBUST for value in heat)
        best = cells[heat.index(max(heat))]
        away = sum(
            clearly_above(paired(rows, "train_accuracy", best, cell), ROBUST) for cell in cells
        )
        texts.append(
            f"{split_name(split)}: {close} of {len(heat)} within {100 * ROBUST:.0f} points of the "
            f"best ({away} clearly not), all within {100 * span:.1f}"
        )
        robust.append(close >= MOST * len(heat))
        against += len(heat) - away < MOST * len(heat)
        at = {"method": "site variance", "sites": experiment.heat_sites, "split": split}
        sweep = [
            means(rows, "train_accuracy", site_variance=v, **at)[0]
            for v in experiment.site_variances
        ]
        own = max(sweep) - min(sweep)
        others.append(f"{split_name(split)}: {100 * own:.1f} points against {100 * span:.1f}")
        stronger.append(own > span)
    yield Claim(
        f"PFNM is robust to the prior's variance and mass ({100 * MOST:.0f} % of the settings "
        f"within {100 * ROBUST:g} points of the best, on the training data).",
        listed(*texts, at_the_cap([row for row in rows if row["method"] == "prior"])),
        tuple(robust),
        len(experiment.splits),
        against=against,
    )
    yield Claim(
        "The sites' variance matters more than the prior's variance and mass (between the best and "
        "the worst of each grid).",
        listed(*others),
        tuple(stronger),
        len(experiment.splits),
        ASKED,
    )


def slowest(
    experiment: Experiment, rows: Sequence[Row], data: str, depth: int
) -> tuple[float, Spread]:
    """The site variance whose matching takes longest, and its seconds."""
    found = {
        variance: means(rows, "seconds", data=data, depth=depth, site_variance=variance)
        for variance in experiment.site_variances
    }
    known = {variance: seconds for variance, seconds in found.items() if seconds[2]}
    if not known:
        return math.nan, (math.nan, math.nan, 0)
    return max(known.items(), key=lambda item: item[1][0])


def _of_timing(experiment: Experiment, data: str, rows: Sequence[Row]) -> Iterator[Claim]:
    if data not in PAPER_DATA:
        return
    texts, fast = [], []
    for sites, depth in experiment.settings:
        variance, (mean, deviation, trials) = slowest(experiment, rows, data, depth)
        reported = AUTHORS_SECONDS[data, depth]
        if trials:
            more = f" ± {deviation:.2f}" if trials > 1 else ""
            found = f"{mean:.2f}{more} s with sigma^2 = {variance:g} (the authors: {reported} s)"
            texts.append(f"{sites} sites, {layers_name(depth)}: {found}")
            fast.append(mean < reported)
    yield Claim(
        "One matching, in one thread and with the slowest of the variances tried, is faster than "
        "the authors report on two cores of 3 GHz.",
        listed(*texts),
        tuple(fast),
        len(experiment.settings),
        ASKED,
    )


OF: Mapping[str, Callable[[Experiment, str, Sequence[Row]], Iterator[Claim]]] = {
    "sites": of_sites,
    "depth": of_depth,
    "rounds": of_rounds,
    "sensitivity": _of_sensitivity,
    "timing": _of_timing,
}
