"""An experiment is a TOML file: what is varied, which methods, how many trials."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from itertools import product
from typing import Any

from pfnm.errors import PFNMError
from pfnm.experiments.rows import JOB, TRIED, Row
from pfnm.lab.partition import PARTITIONS

OPTIONS = ("heat_sites", "prior_variances", "masses", "site_variances", "sgd_rates")
NAMES = ("sites", "depth", "rounds", "sensitivity", "timing")


@dataclass(frozen=True)
class Job:
    """One trial of one setting: the smallest piece of work, written when it ends."""

    kind: str
    data: str
    split: str
    sites: int
    depth: int
    trial: int
    methods: tuple[str, ...]
    options: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, ...]:
        """What tells it from the other jobs of its experiment, as its rows say it."""
        own = tuple(str(getattr(self, name)) for name in JOB)
        return own + (self.methods if self.kind == "rounds" else ())


@dataclass(frozen=True)
class Experiment:
    """What is varied (data, splits, numbers of sites and of hidden layers), and what is measured.

    trials: of each data set. rounds: of each split. The grids of variances and masses are those
    over which the prior is chosen or varied; sgd_rates: of each data set, FedAvg's.
    """

    name: str
    title: str
    kind: str
    data: Sequence[str]
    splits: Sequence[str]
    sites: Sequence[int]
    depths: Sequence[int]
    methods: Sequence[str]
    trials: Mapping[str, int]
    rounds: Mapping[str, int] = field(default_factory=dict)
    heat_sites: int | None = None
    prior_variances: Sequence[float] = ()
    masses: Sequence[float] = ()
    site_variances: Sequence[float] = ()
    sgd_rates: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = sorted({*self.splits} - {*PARTITIONS})
        if unknown:
            raise PFNMError(f"experiment {self.name}: unknown split {unknown[0]!r}")
        missing = sorted({*self.data} - {*self.trials})
        if missing:
            raise PFNMError(f"experiment {self.name}: no number of trials for {missing[0]}")

    @property
    def settings(self) -> list[tuple[int, int]]:
        """Numbers of sites and of hidden layers: all pairs; for timing, one with the other."""
        if self.kind == "timing":
            return list(zip(self.sites, self.depths, strict=True))
        return list(product(self.sites, self.depths))

    @property
    def panels(self) -> list[tuple[str, str]]:
        """Data set and split, in the paper's order."""
        return list(product(self.data, self.splits))

    def key_of(self, row: Row) -> tuple[str, ...]:
        """The key of the job that a row came from."""
        own = tuple(str(row[name]) for name in JOB)
        return own + ((row["method"].removesuffix(TRIED),) if self.kind == "rounds" else ())

    def missing(self, rows: Sequence[Row]) -> list[Job]:
        """Jobs without rows; where methods have been added since, the job with these alone."""
        there: dict[tuple[str, ...], set[str]] = {}
        for row in rows:
            there.setdefault(self.key_of(row), set()).add(row["method"])
        found = []
        for job in self.jobs():
            if job.key not in there:
                found.append(job)
            elif self.kind == "once":  # in rounds a method has its own job; else rows name grids
                left = tuple(name for name in job.methods if name not in there[job.key])
                found += [replace(job, methods=left)] if left else []
        return found

    def jobs(self) -> list[Job]:
        """All of its trials, the first trial of everything first."""
        options = {name: getattr(self, name) for name in OPTIONS}
        found = []
        for trial in range(max(self.trials.values())):
            for (data, split), (sites, depth) in product(self.panels, self.settings):
                if trial >= self.trials[data]:
                    continue
                own = {**options, "rounds": self.rounds.get(split)}
                # Rounds take long, so each method is a job of its own.
                groups = [(m,) for m in self.methods] if self.kind == "rounds" else [self.methods]
                for methods in groups:
                    job = (self.kind, data, split, sites, depth, trial, tuple(methods), own)
                    found.append(Job(*job))
        return found


def experiment(name: str, *, quick: bool = False, most_trials: int | None = None) -> Experiment:
    """One of NAMES; quick: on digits, a few minutes for all of them together."""
    if name not in NAMES:
        raise PFNMError(f"unknown experiment {name!r}; choose one of {', '.join(NAMES)}, or all")
    text = files("pfnm.experiments").joinpath("definitions", f"{name}.toml").read_text()
    given = tomllib.loads(text)
    smaller = given.pop("quick", {})
    if quick:
        given |= smaller
    known = {own.name for own in fields(Experiment)}
    stray = sorted({*given} - known)
    if stray:
        raise PFNMError(f"experiment {name}: unknown entry {stray[0]!r}")
    if most_trials is not None:
        given["trials"] = {data: min(n, most_trials) for data, n in given["trials"].items()}
    return Experiment(name=name, **given)
