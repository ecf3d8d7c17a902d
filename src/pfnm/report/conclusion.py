"""What a reader should conclude from the paper's experiments: five findings with their figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pfnm.experiments.claim import data_name
from pfnm.experiments.claims_once import NEAR, NEAR_SAID, differences
from pfnm.experiments.claims_rounds import lead_at_the_end, needed_communications
from pfnm.experiments.definition import Experiment
from pfnm.experiments.rows import Row
from pfnm.experiments.trials import EACH_ROUND, SAME_SIZE
from pfnm.report.experiments import beside_all, size_figure_name

Measured = Mapping[str, tuple[Experiment, Sequence[Row]]]
"""By name: an experiment and its rows."""
ONCE = ("sites", "depth")

SINCE = (
    "Ours on CIFAR-10 (3 and 4) was measured before made-up inputs had a kind. With natural "
    "pictures it is now 1.5 to 4 points below the ensemble there at twice a site's width on even "
    "data, and above it on uneven data ([deep.md](deep.md#inputs-of-the-right-kind), one seed)."
)


@dataclass(frozen=True)
class Finding:
    """A conclusion: what it says, and the points it rests on, for the table below all of them."""

    says: str
    against: str
    """Who is compared with whom."""
    leads: Sequence[tuple[str, Sequence[float]]]
    """By data set, in all settings."""


def conclusion(measured: Measured, results: Path, place: str) -> list[str]:
    """Lines of Markdown; a finding whose rows are missing is left out.

    results: the folder of all; place: the same, as the page names it.
    """
    makers = (_against_fedavg, _against_ensemble, _of_size, _of_ours, _of_rounds)
    findings = [
        (number, found)
        for number, maker in enumerate(makers, 1)
        if (found := maker(measured)) is not None
    ]
    if not findings:
        return []
    lines = ["## What to conclude", "", *(f"{n}. {found.says}" for n, found in findings), ""]
    if "depth" in measured:
        name = f"depth/{size_figure_name(measured['depth'][0])}.png"
        if (results / name).exists():
            lines += [f"![Accuracy against size, beside the ensemble]({place}/{name})", ""]
    names = list(dict.fromkeys(data for _, found in findings for data, _ in found.leads))
    lines += [
        "In points of accuracy, from the worst setting to the best:",
        "",
        f"| | who against whom | {' | '.join(map(data_name, names))} |",
        "|---|---|" + "---|" * len(names),
    ]
    for number, found in findings:
        leads = dict(found.leads)
        cells = [_range(leads[data]) if data in leads else "" for data in names]
        lines.append(f"| {number} | {found.against} | {' | '.join(cells)} |")
    lines.append("")
    if "cifar10" in names:
        lines += [SINCE, ""]
    return lines


def _against_fedavg(measured: Measured) -> Finding | None:
    leads = _leads(measured, ONCE, "pfnm", "fedavg")
    if not leads:
        return None
    return Finding(
        "**Networks trained apart can be combined once, by matching their units.** PFNM as "
        f"published is above FedAvg after one round in {_above(leads)} settings.",
        "PFNM as published against FedAvg, one round",
        leads,
    )


def _against_ensemble(measured: Measured) -> Finding | None:
    leads = _leads(measured, ONCE, "pfnm", "ensemble")
    if not leads:
        return None
    near = " and ".join(
        f"{_above([(data, own)], -NEAR)} settings on {data_name(data)}" for data, own in leads
    )
    return Finding(
        "**It comes near keeping all networks, on easy data.** It is above their uniform ensemble, "
        f"or {NEAR_SAID}, in {near}.",
        "PFNM as published against the uniform ensemble",
        leads,
    )


def _of_size(measured: Measured) -> Finding | None:
    leads = _leads(measured, ["depth"], "joint", "ensemble")
    if not leads:
        return None
    experiment, rows = measured["depth"]
    depths = f"{min(experiment.depths)} to {max(experiment.depths)} hidden layers"
    published, ours = (_shares(rows, method) for method in ("pfnm", "joint"))
    return Finding(
        f"**Size is the price.** With {depths} its network has {_span(published)} times the "
        f"parameters of all sites' together. Ours, at twice a site's width, has {_span(ours)} "
        f"times as many, and is above the ensemble in {_above(leads)} settings.",
        "ours at twice a site's width against the uniform ensemble",
        leads,
    )


def _of_ours(measured: Measured) -> Finding | None:
    leads = _leads(measured, ONCE, SAME_SIZE, "pfnm")
    if not leads:
        return None
    return Finding(
        "**Of equal size, matching without data holds its own.** PFNM's variance is chosen on "
        f"training data, ours sees none: it is above PFNM in {_above(leads)} settings.",
        "ours, with PFNM's number of parameters, against PFNM",
        leads,
    )


def _of_rounds(measured: Measured) -> Finding | None:
    if "rounds" not in measured or EACH_ROUND not in measured["rounds"][0].methods:
        return None
    experiment, rows = measured["rounds"]
    texts, ends = [], []
    for data in experiment.data:
        own = [row for row in rows if row["data"] == data]
        needed = needed_communications(experiment, own, (EACH_ROUND, "fedavg"))
        last = lead_at_the_end(experiment, own, EACH_ROUND, "fedavg")
        if needed and last:
            ours, fedavg = (sorted(one[m] for one in needed) for m in (EACH_ROUND, "fedavg"))
            texts.append(
                f"after {_counts(ours)} communications on {data_name(data)}, FedAvg after "
                f"{_counts(fedavg)}"
            )
            ends.append((data, last))
    if not texts:
        return None
    return Finding(
        "**Matching in every round is a head start, and not the way to go on.** So matched, ours "
        f"reaches the ensemble {'; '.join(texts)}. After the last round it is above FedAvg in "
        f"{_above(ends)} settings, at twice the width. Rounds of ours therefore go over from "
        "matching to averaging ([lab.md](lab.md#methods)).",
        "ours, matched in every round, against FedAvg after the last round",
        ends,
    )


def _leads(
    measured: Measured, names: Iterable[str], one: str, other: str
) -> list[tuple[str, list[float]]]:
    """By data set: the differences of mean accuracy in all settings of these experiments."""
    found: dict[str, list[float]] = {}
    for name in names:
        if name in measured:
            experiment, rows = measured[name]
            for data in experiment.data:
                own = [row for row in rows if row["data"] == data]
                spreads = differences(experiment, own, one, other).values()
                found.setdefault(data, []).extend(mean for mean, *_ in spreads)
    return [(data, values) for data, values in found.items() if values]


def _shares(rows: Sequence[Row], method: str) -> list[float]:
    """Of every setting: a method's parameters beside those of all sites' networks together."""
    settings = sorted({(row["data"], row["split"], row["depth"]) for row in rows})
    shares = [
        beside_all(rows, method, data=data, split=split, depth=depth)
        for data, split, depth in settings
    ]
    return [share for share in shares if not math.isnan(share)]


def _above(leads: Iterable[tuple[str, Sequence[float]]], bound: float = 0.0) -> str:
    """In how many settings of how many one is above the other."""
    values = [value for _, own in leads for value in own]
    return f"{sum(value > bound for value in values)} of {len(values)}"


def _range(values: Sequence[float]) -> str:
    """From the least to the most, in points, with signs."""
    ends = [f"{100 * value:+.1f}" for value in (min(values), max(values))]
    return " to ".join(dict.fromkeys("0.0" if end[1:] == "0.0" else end for end in ends))


def _span(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(f"{value:.2g}" for value in (min(values), max(values))))


def _counts(values: Sequence[float]) -> str:
    ends = dict.fromkeys("never" if math.isinf(v) else f"{v:.0f}" for v in (values[0], values[-1]))
    return " to ".join(ends)
