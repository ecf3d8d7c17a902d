"""What a job does: train the sites, combine them in every way, and measure."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from pfnm import threads
from pfnm.api import fuse_sites
from pfnm.conversion import with_inputs
from pfnm.experiments.definition import Job
from pfnm.experiments.rows import JOB, TRIED, Row
from pfnm.fusing.sites import Sites, comparable
from pfnm.lab.data import Data, load_data
from pfnm.lab.method import (
    Info,
    Local,
    Round,
    State,
    accuracy,
    server_counts,
    train_local,
)
from pfnm.lab.methods import METHODS, combined_once
from pfnm.lab.rounds import pfnm_round
from pfnm.lab.setting import SERVER, Federation, Setting, federation, paper_training
from pfnm.matching.prior import Prior
from pfnm.networks.network import Network

UNITS = 100  # of every hidden layer, as in the paper
PRIOR_VARIANCE, MASS = 10.0, 1.0  # the paper's, where they are not varied
SITE_VARIANCE = 1.0
REPEATS = 3  # of a timed matching, after a first one
SAME_SIZE = "joint-same"  # the joint method with as many parameters as PFNM as published took
EACH_ROUND = "joint-each"  # the joint method in rounds, which are all matched
SAME_WIDTH = "pfnm-same"  # PFNM at most as wide as the joint method is by default
NONE = Local({}, {})
STARTED_TOGETHER = ("fedavg", "dsgd")  # methods that do not begin with the sites' own networks


def run_job(job: Job, data_dir: Path | None) -> list[Row]:
    """The rows of one job, each with what tells the job from others; in one thread."""
    import torch  # noqa: F401  (loaded before the number of its threads is set)

    begin = time.perf_counter()
    with threads.limited(1):
        found = list(KINDS[job.kind](job, _federation(job, data_dir)))
    own = {name: getattr(job, name) for name in JOB}
    seconds = time.perf_counter() - begin
    return [{**own, **row, "job_seconds": seconds / len(found)} for row in found]


def setting_of(job: Job) -> Setting:
    """The federation that a job simulates."""
    return Setting(
        data=job.data,
        sites=job.sites,
        split=job.split,
        hidden=(UNITS,) * job.depth,
        rounds=job.options["rounds"] or 1,
        seed=job.trial,
        **paper_training(job.data),
    )


@lru_cache(maxsize=1)
def _data(name: str, data_dir: Path | None) -> Data:
    return load_data(name, data_dir)


def _federation(job: Job, data_dir: Path | None) -> Federation:
    return federation(setting_of(job), _data(job.data, data_dir))


def _once(job: Job, sites: Federation) -> Iterator[Row]:
    """Local networks combined once, in every way.

    PFNM as published has its site variance, FedAvg its rate chosen by accuracy on the training
    data; what was tried stands in rows of its own.
    """
    local = train_local(sites)
    published: list[Row] = []
    if SAME_SIZE in job.methods and "pfnm" not in job.methods:  # which has its rows already
        published = _fused_each(job, sites, local, None)
    for name in job.methods:
        begin = time.perf_counter()
        if name in ("pfnm", SAME_WIDTH):
            budget = sites.setting.budget if name == SAME_WIDTH else None
            tried = _fused_each(job, sites, local, budget)
            yield from ({"method": name + TRIED, **row} for row in tried)
            row = _chosen(tried)
            if name == "pfnm":
                published = tried
        elif name == SAME_SIZE:
            row = _ours(sites, local, _chosen(published)["parameters"])
        elif name == "fedavg":
            starts = _averages(job, sites)
            yield from ({"method": name + TRIED, **start.row} for start in starts)
            row = _chosen([start.row for start in starts])
        else:
            _, info = combined_once(name, sites, local)
            row = _measured(info, local)
        yield {"method": name, **row, "seconds": time.perf_counter() - begin}


def _chosen(tried: Sequence[Row]) -> Row:
    """By accuracy on the training data."""
    return max(tried, key=lambda row: row["train_accuracy"])


def _fused_each(job: Job, sites: Federation, local: Local, budget: float | None) -> list[Row]:
    """PFNM with each of the site variances among which its own is chosen."""
    variances = job.options["site_variances"]
    return [_fused(sites, local, site_variance=v, budget=budget) for v in variances]


def _fused(
    sites: Federation,
    local: Local,
    *,
    prior_variance: float = PRIOR_VARIANCE,
    site_variance: float = SITE_VARIANCE,
    mass: float = MASS,
    budget: float | None = None,
) -> Row:
    """PFNM by the published rules: its accuracy, on the training data too."""
    prior = Prior(prior_variance, site_variance, mass, rules="published")
    network = _matched(sites, local, prior, budget)
    return {
        **_said(prior),
        "accuracy": accuracy(sites, network),
        "train_accuracy": _train_accuracy(sites, network),
        "left_out": len(local.left_out),
        **_size(network, local),
    }


def _said(prior: Prior) -> Row:
    return {name: getattr(prior, name) for name in ("prior_variance", "site_variance", "mass")}


def _train_accuracy(sites: Federation, network: Network) -> float:
    data = sites.data
    right = network.run(data.train_inputs).argmax(axis=1) == data.train_labels
    return float(right.mean())


@dataclass(frozen=True, eq=False)
class Start:
    """FedAvg after its first round with one of the rates: what was measured, and how to go on."""

    row: Row
    state: State
    info: Info
    sites: Federation


def _averages(job: Job, sites: Federation) -> list[Start]:
    """FedAvg's first round, with each of the rates among which its own is chosen."""
    found = []
    for rate in job.options["sgd_rates"][job.data]:
        own = replace(sites, setting=replace(sites.setting, sgd_rate=rate))
        state, info = _round_of("fedavg")(own, State(), NONE, 1)
        network = state.server.network
        trained = 0.0 if network is None else _train_accuracy(own, network)
        row = {"rate": rate, "train_accuracy": trained, **_measured(info, NONE)}
        found.append(Start(row, state, info, own))
    return found


def _round_of(method: str) -> Round:
    if method == EACH_ROUND:
        return _matched_round
    found = METHODS[method].round
    assert found is not None
    return found


def _matched_round(
    sites: Federation, state: State, local: Local, number: int
) -> tuple[State, Info]:
    """The joint method's round, after which the next is matched too."""
    after, info = pfnm_round(sites, state, local, number, method="joint")
    return replace(after, server=replace(after.server, averaging=False)), info


def _ours(sites: Federation, local: Local, parameters: int) -> Row:
    """The joint method with at most so many parameters; it sees no data."""
    known = with_inputs(_comparable(sites, local), input_range=sites.input_range)
    fusion = fuse_sites(known, max_params=parameters, rng=sites.setting.rng(SERVER, 1))
    return {
        "accuracy": accuracy(sites, fusion.network),
        "left_out": len(local.left_out),
        **_size(fusion.network, local),
    }


def _matched(sites: Federation, local: Local, prior: Prior, budget: float | None = None) -> Network:
    fusion = fuse_sites(
        _comparable(sites, local),
        method="topdown",
        prior=prior,
        budget=budget,
        measured=False,
        rng=np.random.default_rng(0),
    )
    return fusion.network


def _comparable(sites: Federation, local: Local) -> Sites:
    networks = list(local.networks.values())
    return comparable(networks, server_counts(sites, local.networks))


def _measured(info: Info, local: Local) -> Row:
    lost = {"left_out": len(info.left_out)}
    return {"accuracy": info.accuracy, **lost, **_size(info, local)}


def _size(found: Info | Network, local: Local) -> Row:
    """Units of each hidden layer, of all, and beside those of all the sites, if these are known."""
    widths = tuple(found.widths.values() if isinstance(found, Network) else found.widths)
    if not widths:
        return {"parameters": found.parameters}
    row = {"widths": " ".join(map(str, widths)), "units": sum(widths)}
    row["parameters"] = found.parameters
    if local.networks:
        whole = sum(sum(network.widths.values()) for network in local.networks.values())
        row["log_ratio"] = math.log(sum(widths) / whole)
    return row


def _rounds(job: Job, sites: Federation) -> Iterator[Row]:
    """Round after round of one method; what has none, such as an ensemble, is round 0."""
    (name,) = job.methods
    setting = sites.setting
    local = NONE if name in STARTED_TOGETHER else train_local(sites)
    if name != EACH_ROUND and METHODS[name].round is None:
        _, info = combined_once(name, sites, local)
        yield {"method": name, "round": 0, **_measured(info, local)}
        return
    state, communications, chosen = State(), 0, {}
    for number in range(1, setting.rounds + 1):
        if (name, number) == ("fedavg", 1):
            starts = _averages(job, sites)
            yield from ({"method": name + TRIED, **start.row} for start in starts)
            best = max(starts, key=lambda start: start.row["train_accuracy"])
            sites, state, info = best.sites, best.state, best.info
            chosen = {"rate": best.row["rate"]}
        else:
            state, info = _round_of(name)(sites, state, local, number)
        for step, found in info.within:  # of the first round
            epochs = setting.epochs * step / info.communications
            row = {"method": name, "communications": step, "epochs": epochs, "accuracy": found}
            yield row
        communications += info.communications
        yield {
            "method": name,
            "round": number,
            "communications": communications,
            "epochs": float(setting.epochs + (number - 1) * setting.later_epochs),
            **chosen,
            **_measured(info, local),
        }


def _sensitivity(job: Job, sites: Federation) -> Iterator[Row]:
    """The site variance varied alone; for one number of sites, prior variance and mass too."""
    local = train_local(sites)
    for variance in job.options["site_variances"]:
        yield {"method": "site variance", **_fused(sites, local, site_variance=variance)}
    if job.sites == job.options["heat_sites"]:
        for variance in job.options["prior_variances"]:
            for mass in job.options["masses"]:
                row = _fused(sites, local, prior_variance=variance, mass=mass)
                yield {"method": "prior", **row}


def _timing(job: Job, sites: Federation) -> Iterator[Row]:
    local = train_local(sites)
    for variance in job.options["site_variances"]:
        prior = Prior(PRIOR_VARIANCE, variance, MASS, rules="published")
        times = []
        for _ in range(1 + REPEATS):
            begin = time.perf_counter()
            network = _matched(sites, local, prior)
            times.append(time.perf_counter() - begin)
        yield {
            "method": "pfnm",
            **_said(prior),
            "accuracy": accuracy(sites, network),
            **_size(network, local),
            "seconds": statistics.median(times[1:]),
        }


KINDS: Mapping[str, Callable[[Job, Federation], Iterator[Row]]] = {
    "once": _once,
    "rounds": _rounds,
    "sensitivity": _sensitivity,
    "timing": _timing,
}
