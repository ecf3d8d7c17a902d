"""The page of the paper's experiments: verdicts, figures, what they took; all from the rows."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pfnm.experiments.claim import (
    ASKED,
    CLEAR,
    OURS,
    PAPER,
    UNKNOWN,
    WIDTH_CAP,
    Claim,
    data_name,
)
from pfnm.experiments.claims import claims
from pfnm.experiments.definition import Experiment
from pfnm.experiments.rows import TRIED, Row, by_job, read_rows, spread
from pfnm.experiments.runner import seconds_spent
from pfnm.experiments.trials import SAME_WIDTH
from pfnm.formats.files import write_whole
from pfnm.report.conclusion import conclusion
from pfnm.report.experiments import figure_names

TALLIES = {  # whose claims, as the page counts them
    PAPER: "Claims of the paper",
    OURS: "Statements about the joint method",
    ASKED: "Further statements",
}
Work = Mapping[str, Sequence[Sequence[float]]]
"""By data set, of every setting: seconds of work of each of its trials."""
CORES = 2  # of the machine for which the time of everything is told
LEAST_GRID = 3  # values: of two, one is always at an end
CHOSEN = {  # a method and what is chosen for it on the training data
    "pfnm": ("site_variance", "PFNM's sigma^2"),
    SAME_WIDTH: ("site_variance", "The sigma^2 of PFNM at most twice a site's width"),
    "fedavg": ("rate", "FedAvg's rate"),
}


def write_page(experiments: Sequence[Experiment], results: Path, page: Path) -> None:
    """A page in Markdown: verdicts; of each experiment its figures, claims and time."""
    lines: list[str] = []
    found: dict[str, list[Claim]] = {}
    measured: dict[str, tuple[Experiment, Sequence[Row]]] = {}
    clock, whole, waited = 0.0, 0.0, 0.0
    for experiment in experiments:
        folder = results / experiment.name
        rows = read_rows(folder)
        if not rows:
            whole = math.nan
            continue
        measured[experiment.name] = experiment, rows
        found[experiment.name] = claims(experiment, rows)
        work = _work(experiment, rows)
        lines += [f"## {experiment.name}: {experiment.title}", ""]
        lines += _pictures(experiment, folder, page)
        lines += _measured(found[experiment.name])
        spent = sum(row["job_seconds"] or 0.0 for row in rows)
        lines += [
            f"{_trials(work, experiment)}. {len(rows)} rows in `{experiment.name}/rows.csv`; "
            f"{_duration(seconds_spent(folder))} on the clock, {_duration(spent)} of work in one "
            "thread." + "".join(_choices(rows, method) for method in CHOSEN) + _diverged(rows),
            "",
        ]
        clock += seconds_spent(folder)
        needed = _whole(work, experiment)
        whole += needed
        waited += needed / (1 if experiment.kind == "timing" else CORES)
    total = f"All experiments together: {_duration(clock)} on the clock, interrupted runs included."
    if not math.isnan(whole):
        total += (
            " Every trial of the definitions, each taking as long as those measured, would be "
            f"{_duration(whole)} of work in one thread, and with `--jobs {CORES}` some "
            f"{_duration(waited)} on the clock."
        )
    lines.append(total)
    summary = [line for whose in TALLIES for line in _tally(whose, found)]
    if summary:
        how = (
            "How to read them: a claim holds if it does so for the means of all the settings it "
            'speaks of. "no (in 2 of 4)" says in how many it is true. *Clearly* means by more '
            f"than {CLEAR} standard errors. What was measured of each stands below, experiment by "
            "experiment."
        )
        summary = ["## Verdicts", "", how, "", *summary]
    place = Path(os.path.relpath(results, page.parent)).as_posix()
    head = ["# The paper's experiments", "", *conclusion(measured, results, place)]
    write_whole(page, "\n".join([*head, *summary, INTRODUCTION, *lines, ""]).encode())


def _pictures(experiment: Experiment, folder: Path, page: Path) -> list[str]:
    """Its figures, those that are drawn."""
    lines = []
    for path in [folder / f"{name}.png" for name in figure_names(experiment)]:
        if path.exists():
            place = Path(os.path.relpath(path, page.parent)).as_posix()
            lines += [f"![{experiment.title}]({place})", ""]
    return lines


def _measured(own: Sequence[Claim]) -> list[str]:
    """A table: each claim, and for each data set what was measured and whether it holds."""
    if not own:
        return []
    lines = ["| claim | data | measured | holds |", "|---|---|---|---|"]
    for said, by_data in _grouped(own).items():
        for number, claim in enumerate(by_data.values()):
            measured = claim.measured.replace("\n", "<br>")
            name = said if number == 0 else ""
            lines.append(f"| {name} | {claim.marked} | {measured} | {claim.verdict} |")
    return [*lines, ""]


def _grouped(own: Sequence[Claim]) -> dict[str, dict[str, Claim]]:
    """What is said of several data sets in the same words, together."""
    found: dict[str, dict[str, Claim]] = {}
    for claim in own:
        found.setdefault(claim.said, {})[claim.data] = claim
    return found


def _tally(whose: str, found: Mapping[str, Sequence[Claim]]) -> list[str]:
    """How many of somebody's claims hold, and a table of them all, data set by data set."""
    own = {
        name: [claim for claim in claims_of if claim.whose == whose]
        for name, claims_of in found.items()
    }
    every = [claim for claims_of in own.values() for claim in claims_of]
    if not every:
        return []
    verdicts = [claim.verdict for claim in every]
    unknown = verdicts.count(UNKNOWN)
    more = f" ({unknown} {UNKNOWN})" if unknown else ""
    names = list(dict.fromkeys(claim.data for claim in every))
    lines = [
        f"{TALLIES[whose]}: {verdicts.count('yes')} of {len(every)} hold{more}, each data set "
        "counted by itself.",
        "",
        f"| experiment | claim | {' | '.join(names)} |",
        "|---|---|" + "---|" * len(names),
    ]
    for name, claims_of in own.items():
        for said, by_data in _grouped(claims_of).items():
            cells = [_told(by_data[data]) if data in by_data else "" for data in names]
            lines.append(f"| {name} | {said} | {' | '.join(cells)} |")
    return [*lines, ""]


def _told(claim: Claim) -> str:
    """Its verdict, in how many of the measured settings it is true, and how clearly."""
    if claim.holds is None:
        return claim.verdict
    if claim.holds:
        faint = claim.clear is not None and claim.clear < claim.wanted
        return f"yes (clearly in {claim.clear} of {claim.wanted})" if faint else "yes"
    against = f"; clearly not in {claim.against}" if claim.against is not None else ""
    return f"no (in {sum(claim.found)} of {len(claim.found)}{against})"


def _trials(work: Work, experiment: Experiment) -> str:
    """Of each data set how many trials were measured, and of how many."""
    said = []
    for data, settings in work.items():
        counts = [len(trials) for trials in settings]
        measured = " to ".join(map(str, sorted({min(counts), max(counts)})))
        said.append(f"{data_name(data)} {measured} of {experiment.trials[data]}")
    return "Trials: " + ", ".join(said)


def _whole(work: Work, experiment: Experiment) -> float:
    """Seconds of work of all trials, those to come taking as long as those measured."""
    return sum(
        experiment.trials[data] * spread(trials)[0]
        for data, settings in work.items()
        for trials in settings
    )


def _work(experiment: Experiment, rows: Sequence[Row]) -> Work:
    """By data set and setting: seconds of work of each trial that was measured."""
    seconds: dict[tuple[str, ...], float] = {}
    for row in rows:
        key = experiment.key_of(row)
        seconds[key] = seconds.get(key, 0.0) + (row["job_seconds"] or 0.0)
    missing = {job.key for job in experiment.missing(rows)}
    settings: dict[str, dict[tuple[str, ...], list[float]]] = {data: {} for data in experiment.data}
    for job in experiment.jobs():
        trials = settings[job.data].setdefault(replace(job, trial=0).key, [])
        if job.key not in missing:
            trials.append(seconds[job.key])
    return {data: list(found.values()) for data, found in settings.items()}


def _choices(rows: Sequence[Row], method: str) -> str:
    """From what was chosen, and how often it is an end of the grid and better for it."""
    name, said = CHOSEN[method]
    grids: dict[str, set[float]] = {}
    gains: dict[str, list[float]] = {"smallest": [], "largest": []}
    several = 0
    for job in by_job([row for row in rows if row["method"] == method + TRIED]):
        found = {row[name]: row["train_accuracy"] for row in job}
        grids.setdefault(data_name(job[0]["data"]), set()).update(found)
        values, best = sorted(found), max(found, key=lambda value: found[value])
        if len(values) < LEAST_GRID:
            continue
        several += 1
        for which, end, inner in (("smallest", 0, 1), ("largest", -1, -2)):
            gain = found[values[end]] - found[values[inner]]
            if best == values[end] and gain > 0:
                gains[which].append(gain)
    if not grids:
        return ""
    given = {
        data: ", ".join(f"{value:g}" for value in sorted(grid)) for data, grid in grids.items()
    }
    if len({*given.values()}) == 1:
        given = {"": next(iter(given.values()))}
    grid = "; ".join(f"{data} {values}".strip() for data, values in given.items())
    text = f"{said} was chosen from {grid} (each in a row `{method}{TRIED}`)"
    for which, own in gains.items():
        if own:
            text += (
                f"; in {len(own)} of {several} choices it is the {which} of these and better on "
                f"the training data than the next, by {100 * spread(own)[0]:.1f} points on "
                f"average and {100 * max(own):.1f} at most"
            )
    return f" {text}."


def _diverged(rows: Sequence[Row]) -> str:
    """How many global networks were made without all of the sites."""
    without = [row for row in rows if row["left_out"] and not row["method"].endswith(TRIED)]
    if not without:
        return ""
    methods = ", ".join(sorted({row["method"] for row in without}))
    return (
        " Rows from which sites are left out whose training diverged (`left_out`): "
        f"{len(without)} (`{methods}`)."
    )


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    return f"{minutes / 60:.1f} hours" if minutes > 90 else f"{minutes:.1f} minutes"


INTRODUCTION = f"""## How it was measured

Every experiment is a file (`src/pfnm/experiments/definitions/`), every number on this page follows
from rows of `results/NAME/rows.csv` (time on the clock from `experiment.json`), and figures and
the page are made from them (`pfnm[lab]`):

```sh
pfnm reproduce --list                      # names them
pfnm reproduce timing --quick --trials 1   # one of them in small, on digits; then its figures
```

<!-- long: some minutes -->
```sh
pfnm reproduce all --quick --jobs 2        # all of them in small, two trials of each setting
pfnm reproduce sites --quick --engine ray --output on-ray   # on a cluster (ray or dask)
pfnm reproduce all --draw --page docs/results.md   # figures and this page alone, from the rows
```

Without `--quick` the same commands run the experiments whole, into `results`: hours (the last line
of this page says how many), and MNIST and CIFAR-10 have to be there. What has rows is not run
again, so a run may be stopped and gone on with, and trials can be added later (`--trials`).

Local training is the paper's (10 epochs, AMSGrad, batches of 32, hidden layers of 100 units). The
Dirichlet(0.5) split is that of the authors' code, in which a site that holds its even share gets no
more.

- *PFNM, as published* is top-down matching by the rules of the authors' code, one of which is that
  a layer has about {WIDTH_CAP} units at most: with ten sites and more it often stands at that
  limit. In one round it has sigma_0^2 = 10, gamma_0 = 1 and sigma^2 chosen from a grid by accuracy
  on the training data, in every trial. In several rounds both variances and the mass are 1; 10
  epochs come before the first matching and 5 before each later one.
- With a small sigma^2 top-down matching merges little, and of deep networks it may make one with
  more parameters than all of them together. *PFNM, at most twice a site's width* is the same with
  that limit, which is ours by default; its sigma^2 is chosen in the same way. The one with at most
  as many parameters as the sites' networks together, of which the claims on depth speak, is chosen
  so among all that were tried for these two.
- *Ours*, or *the joint method*, is joint matching as `pfnm fuse` does it, which sees the networks,
  the class counts and the range of the inputs, and no data: at twice a site's width, which is the
  default, and with at most as many parameters as PFNM as published took in that trial. Its
  constants were chosen on MNIST, ten sites of one to six layers, by test accuracy (docs/deep.md),
  so on the same pictures as here: what it does on CIFAR-10 is the harder test.
- PFNM, ours and the class-weighted ensemble know how many examples of each class a site has; the
  uniform ensemble and k-means (k = min(500, 50 J), one start) do not.
- FedAvg begins from one shared start and trains with SGD. Its rate is chosen like PFNM's variance,
  by accuracy on the training data after one round, in every trial, from those named below each
  experiment (in rounds on CIFAR-10 there is one, the best with 25 sites). In no setting of
  `results/rates.csv`, which has smaller and larger ones, another than these was the best.
- D-SGD exchanges gradients and weights after every minibatch, so a round of it is hundreds of
  communications. In its first round it is measured after 1, 2, 4, ... of them: where it reaches the
  ensemble "after 64" it may have done so after 33. Its first few lie below the panels.
- A method reaches the ensemble when it first has its accuracy; a noisy one may fall below it again.

Curves are means over trials, bars and bands the standard deviation; another trial is another split
and another start. A claim holds if it does so for the means of all the settings it speaks of;
"no (in 2 of 4)" says in how many of those measured it is true, and an empty place that it was not
made of that data set. *Clearly* says that the mean lies more than {CLEAR} of its standard errors
beyond the claim's bound, on this side or that. By chance alone about one of twelve settings with
three trials would do so on each side, and half a one with ten. Methods are compared on the trials
that they have in common. What is marked (ours) is about the joint method; what is marked (asked) is
what a reader would want to know besides.

Rows were measured by several versions of the code, whose digests are in `experiment.json`. They
train alike up to rounding, which ten epochs amplify: networks of the same trial trained by two of
them differ by some tenths of a point on even data and by up to two and a half on uneven data.
Where methods of one trial were measured by different versions, this is part of the deviations.
"""
