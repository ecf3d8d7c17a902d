"""Claims about several rounds: who reaches the ensemble first, who ends higher, what shrinks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pfnm.experiments.claim import (
    ASKED,
    OURS,
    PAPER,
    Claim,
    clearly_above,
    clearly_below,
    layers_name,
    listed,
    points_shown,
    split_name,
)
from pfnm.experiments.definition import Experiment
from pfnm.experiments.rows import Row, fits, means, moments, paired

RIVALS = ("fedavg", "dsgd")
NAMES = {"pfnm": "PFNM", "joint-each": "the joint method", "fedavg": "FedAvg", "dsgd": "D-SGD"}
CLAUSES = {"joint-each": ", matched in every round,"}
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
    panels = _panels(experiment, rows)
    yield from _reaches(panels, "pfnm")
    yield _shrinks(experiment, panels)
    yield _ends(experiment, panels, "pfnm", RIVALS)
    if "joint-each" in experiment.methods:
        yield from _reaches(panels, "joint-each")
        yield _ends(experiment, panels, "joint-each", RIVALS)
        yield _ends(experiment, panels, "joint-each", ("pfnm",))


def needed_communications(
    experiment: Experiment, rows: Sequence[Row], methods: Sequence[str]
) -> list[dict[str, float]]:
    """Of every panel, by method: after how many the ensemble's accuracy is reached."""
    needed = []
    for _, own in _panels(experiment, rows).values():
        each = _together(own, (*methods, "ensemble"))
        if each:
            found = _needed([row for rows_of in each for row in rows_of], methods)
            needed.append({method: found[method]["communications"] for method in methods})
    return needed


def lead_at_the_end(
    experiment: Experiment, rows: Sequence[Row], one: str, other: str
) -> list[float]:
    """Of every panel: how far one method is above another after the last round."""
    leads = [
        paired(
            own,
            "accuracy",
            {"method": one, "round": experiment.rounds[split]},
            {"method": other, "round": experiment.rounds[split]},
        )
        for split, own in _panels(experiment, rows).values()
    ]
    return [mean for mean, _, number in leads if number]


def _panels(experiment: Experiment, rows: Sequence[Row]) -> Panels:
    return {
        f"{split_name(split)}, {layers_name(depth)}": (
            split,
            [row for row in rows if fits(row, {"split": split, "depth": depth})],
        )
        for split in experiment.splits
        for depth in experiment.depths
    }


def _reaches(panels: Panels, method: str) -> Iterator[Claim]:
    """Whether a method reaches the ensemble sooner than its rivals, counted in two ways."""
    methods = (method, *RIVALS)
    found: dict[str, list[Needed]] = {}  # of all trials together, then of each
    for panel, (_, own) in panels.items():
        each = _together(own, (*methods, "ensemble"))
        if each:
            whole = [row for rows_of in each for row in rows_of]
            found[panel] = [_needed(some, methods) for some in (whole, *each)]
    for against, (words, form) in COUNTED.items():
        texts = []
        for panel, (together, *apart) in found.items():
            said = ", ".join(
                f"{NAMES[one]} {_amount(together[one][against], form)}" for one in methods
            )
            first = sum(_first(needed, method, against) for needed in apart)
            trials = f"{len(apart)} trial{'s' if len(apart) > 1 else ''}"
            texts.append(f"{panel}: {said} ({NAMES[method]} first in {first} of {trials})")
        of_paper = method == "pfnm" and against == "communications"
        yield Claim(
            f"{_beginning(method)} reaches the accuracy of the uniform ensemble {words} than "
            "FedAvg and D-SGD (means over trials).",
            listed(*texts),
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


def _beginning(method: str) -> str:
    """A method's name, where a sentence begins with it."""
    return NAMES[method][0].upper() + NAMES[method][1:] + CLAUSES.get(method, "")


def _amount(value: float, form: str) -> str:
    return "never" if math.isinf(value) else format(value, form)


def _shrinks(experiment: Experiment, panels: Panels) -> Claim:
    found = {}
    for panel, (split, own) in panels.items():
        one, last = (
            means(own, "units", method="pfnm", round=number)[0]
            for number in (1, experiment.rounds[split])
        )
        if not math.isnan(one + last):
            found[panel] = one, last
    return Claim(
        "The global network shrinks with the rounds.",
        listed(*(f"{panel}: {one:.0f} to {two:.0f} units" for panel, (one, two) in found.items())),
        tuple(two < one for one, two in found.values()),
        len(panels),
    )


def _ends(experiment: Experiment, panels: Panels, method: str, rivals: Sequence[str]) -> Claim:
    """Whether a method is above the first of its rivals after the last round."""
    texts, leads = [], []
    for panel, (split, own) in panels.items():
        rows = [row for of_trial in _together(own, (method, *rivals)) for row in of_trial]
        at = {one: {"method": one, "round": experiment.rounds[split]} for one in (method, *rivals)}
        last = {
            one: [means(rows, value, **where)[0] for value in ("accuracy", "units")]
            for one, where in at.items()
        }
        if not any(math.isnan(accuracy) for accuracy, _ in last.values()):
            said = [
                f"{NAMES[one]} {100 * accuracy:.1f} % with {units:.0f} units"
                for one, (accuracy, units) in last.items()
            ]
            leads.append(paired(rows, "accuracy", at[method], at[rivals[0]]))
            lead = f"against {NAMES[rivals[0]]} {points_shown(leads[-1])}"
            texts.append(f"{panel}: {', '.join(said)}; {lead}")
    return Claim(
        f"{_beginning(method)} is above {NAMES[rivals[0]]} after the last round.",
        listed(*texts),
        tuple(mean > 0 for mean, *_ in leads),
        len(panels),
        ASKED if method == "pfnm" else OURS,
        clear=sum(map(clearly_above, leads)),
        against=sum(map(clearly_below, leads)),
    )
