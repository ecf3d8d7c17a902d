"""What a reader should conclude from the paper's experiments: five sentences with their figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pfnm.experiments.claim import data_name
from pfnm.experiments.claims_once import differences
from pfnm.experiments.claims_rounds import lead_at_the_end, needed_communications
from pfnm.experiments.definition import Experiment
from pfnm.experiments.rows import Row
from pfnm.experiments.trials import EACH_ROUND, SAME_SIZE
from pfnm.report.experiments import beside_all, size_figure_name

Measured = Mapping[str, tuple[Experiment, Sequence[Row]]]
"""By name: an experiment and its rows."""
ONCE = ("sites", "depth")


def conclusion(measured: Measured, results: Path, place: str) -> list[str]:
    """Lines of Markdown; a sentence whose rows are missing is left out.

    results: the folder of all; place: the same, as the page names it.
    """
    sentences = [
        sentence(measured)
        for sentence in (_against_fedavg, _against_ensemble, _of_size, _of_ours, _of_rounds)
    ]
    known = [sentence for sentence in sentences if sentence is not None]
    if not known:
        return []
    lines = ["## What to conclude", "", *known, ""]
    if "depth" in measured:
        name = f"depth/{size_figure_name(measured['depth'][0])}.png"
        if (results / name).exists():
            lines += [f"![Accuracy against size, beside the ensemble]({place}/{name})", ""]
    return lines


def _against_fedavg(measured: Measured) -> str | None:
    leads = [value for _, values in _leads(measured, ONCE, "pfnm", "fedavg") for value in values]
    if not leads:
        return None
    return (
        "1. **Networks trained apart can be combined once, by matching their units.** PFNM as "
        f"published has {_range(leads)} points against FedAvg after one round, in {len(leads)} "
        "settings."
    )


def _against_ensemble(measured: Measured) -> str | None:
    leads = _leads(measured, ONCE, "pfnm", "ensemble")
    if not leads:
        return None
    return (
        "2. **It comes near keeping all networks, on easy data.** Against their uniform ensemble "
        f"it has {_by_data(leads)}."
    )


def _of_size(measured: Measured) -> str | None:
    leads = _leads(measured, ["depth"], "joint", "ensemble")
    if not leads:
        return None
    experiment, rows = measured["depth"]
    depths = f"{min(experiment.depths)} to {max(experiment.depths)} hidden layers"
    published, ours = (_shares(rows, method) for method in ("pfnm", "joint"))
    return (
        f"3. **Size is the price.** With {depths} its network has {_span(published)} times the "
        f"parameters of all sites' together. Ours at twice a site's width has {_span(ours)} times "
        f"as many, and against the ensemble {_by_data(leads)}."
    )


def _of_ours(measured: Measured) -> str | None:
    leads = _leads(measured, ONCE, SAME_SIZE, "pfnm")
    if not leads:
        return None
    return (
        "4. **Of equal size, matching without data holds its own.** With as many parameters as "
        "PFNM, whose variance is chosen on training data, ours has against it "
        f"{_by_data(leads)}."
    )


def _of_rounds(measured: Measured) -> str | None:
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
            texts.append(f"{_counts(ours)} on {data_name(data)} (FedAvg: {_counts(fedavg)})")
            ends.append((data, last))
    if not texts:
        return None
    return (
        "5. **Matching in every round is a head start, and not the way to go on.** So matched, "
        "ours first has the ensemble's accuracy after so many communications: "
        f"{'; '.join(texts)}. After the last round it has against FedAvg {_by_data(ends)}, and is "
        "twice as wide. Rounds of ours therefore go over from matching to averaging, which "
        "[lab.md](lab.md#methods) has figures of."
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


def _by_data(leads: Iterable[tuple[str, Sequence[float]]]) -> str:
    return ", ".join(f"{_range(values)} points on {data_name(data)}" for data, values in leads)


def _range(values: Sequence[float]) -> str:
    """From the least to the most, in points, with signs."""
    ends = [f"{100 * value:+.1f}" for value in (min(values), max(values))]
    return " to ".join(dict.fromkeys("0.0" if end[1:] == "0.0" else end for end in ends))


def _span(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(f"{value:.2g}" for value in (min(values), max(values))))


def _counts(values: Sequence[float]) -> str:
    ends = dict.fromkeys("never" if math.isinf(v) else f"{v:.0f}" for v in (values[0], values[-1]))
    return " to ".join(ends)
