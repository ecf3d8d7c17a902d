"""Claims about several rounds: who reaches the ensemble first, who ends higher, what shrinks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pfnm.experiments.claim import ASKED, OURS, PAPER, Claim, data_name, layers_name, split_name
from pfnm.experiments.definition import Experiment
from pfnm.experiments.rows import Row, fits, means, moments

RIVALS = {"fedavg": "FedAvg", "dsgd": "D-SGD"}
COUNTED = {  # against what, in which words, and how its numbers are written
    "communications": ("with fewer communications", ",.0f"),
    "epochs": ("after fewer epochs of local training", ".1f"),
}
Panels = Mapping[str, tuple[str, Sequence[Row]]]
"""Of each panel, by its name, its split and its rows."""
Needed = dict[str, dict[str, float]]
"""By method: communications and epochs until it reaches the ensemble; infinite where never."""


def of_rounds(experiment: Experiment, data: str, rows: Sequence[Row]) -> Iterator[Claim]:
    """Of PFNM as published; the joint method's, if it took part."""
    panels = {
        f"{split_name(split)}, {layers_name(depth)}": (
            split,
            [row for row in rows if fits(row, {"split": split, "depth": depth})],
        )
        for split in experiment.splits
        for depth in experiment.depths
    }
    name = data_name(data)
    yield from _reaches(name, panels, "pfnm", "PFNM")
    yield _shrinks(experiment, name, panels)
    yield _ends(experiment, name, panels, "pfnm", "PFNM")
    if "pfnm-joint" in experiment.methods:
        yield from _reaches(name, panels, "pfnm-joint", "the joint method")
        yield _ends(experiment, name, panels, "pfnm-joint", "the joint method")


def _reaches(name: str, panels: Panels, method: str, title: str) -> Iterator[Claim]:
    """Whether a method reaches the ensemble sooner than its rivals, counted in two ways."""
    titles = {method: title, **RIVALS}
    found: dict[str, list[Needed]] = {}  # of all trials together, then of each
    for panel, (_, own) in panels.items():
        each = _together(own, (*titles, "ensemble"))
        if each:
            whole = [row for rows_of in each for row in rows_of]
            found[panel] = [_needed(some, titles) for some in (whole, *each)]
    for against, (words, form) in COUNTED.items():
        texts = []
        for panel, (together, *apart) in found.items():
            said = ", ".join(
                f"{title} {_amount(together[m][against], form)}" for m, title in titles.items()
            )
            first = sum(_first(needed, method, against) for needed in apart)
            texts.append(f"{panel}: {said} ({title} first in {first} of {len(apart)} trials)")
        of_paper = method == "pfnm" and against == "communications"
        yield Claim(
            f"{name}: {title} reaches the accuracy of the uniform ensemble {words} than FedAvg and "
            "D-SGD (means over trials).",
            "; ".join(texts),
            tuple(_first(needed[0], method, against) for needed in found.values()),
            len(panels),
            PAPER if of_paper else ASKED if method == "pfnm" else OURS,
        )


def _together(rows: Sequence[Row], methods: Iterable[str]) -> list[list[Row]]:
    """The rows of each trial that all of these methods have."""
    there = [{row["trial"] for row in rows if row["method"] == method} for method in methods]
    return [
        [row for row in rows if row["trial"] == trial] for trial in sorted(set.intersection(*there))
    ]


def _needed(rows: Sequence[Row], methods: Iterable[str]) -> Needed:
    """When each method's mean accuracy first reaches the uniform ensemble's."""
    goal = means(rows, "accuracy", method="ensemble")[0]
    found: Needed = {}
    for method in methods:
        found[method] = dict.fromkeys(COUNTED, math.inf)
        for moment in moments(rows, {"method": method}):
            at = {"method": method, **moment}
            if means(rows, "accuracy", **at)[0] >= goal:
                found[method] = {against: means(rows, against, **at)[0] for against in COUNTED}
                break
    return found


def _first(needed: Needed, method: str, against: str) -> bool:
    """Whether a method needs less than its rivals."""
    return needed[method][against] < min(needed[rival][against] for rival in RIVALS)


def _amount(value: float, form: str) -> str:
    return "never" if math.isinf(value) else format(value, form)


def _shrinks(experiment: Experiment, name: str, panels: Panels) -> Claim:
    found = {}
    for panel, (split, own) in panels.items():
        one, last = (
            means(own, "units", method="pfnm", round=number)[0]
            for number in (1, experiment.rounds[split])
        )
        if not math.isnan(one + last):
            found[panel] = one, last
    return Claim(
        f"{name}: the global network shrinks with the rounds.",
        "; ".join(f"{panel}: {one:.0f} to {two:.0f} units" for panel, (one, two) in found.items()),
        tuple(two < one for one, two in found.values()),
        len(panels),
    )


def _ends(experiment: Experiment, name: str, panels: Panels, method: str, title: str) -> Claim:
    """Who is higher after the last round."""
    texts, above = [], []
    for panel, (split, own) in panels.items():
        rows = [row for of_trial in _together(own, (method, *RIVALS)) for row in of_trial]
        last = {
            one: means(rows, "accuracy", method=one, round=experiment.rounds[split])[0]
            for one in (method, *RIVALS)
        }
        if not math.isnan(sum(last.values())):
            said = [f"{t} {100 * last[m]:.1f} %" for m, t in {method: title, **RIVALS}.items()]
            texts.append(f"{panel}: {', '.join(said)}")
            above.append(last[method] > last["fedavg"])
    return Claim(
        f"{name}: after the last round {title} is above FedAvg.",
        "; ".join(texts),
        tuple(above),
        len(panels),
        ASKED if method == "pfnm" else OURS,
    )
