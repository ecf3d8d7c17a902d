"""What a job does: train the sites, combine them in every way, and measure."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pfnm.api import fuse
from pfnm.core.mlp import forward
from pfnm.core.network import Network
from pfnm.core.prior import Prior
from pfnm.experiments.definition import Job
from pfnm.federated.data import Data, load_data
from pfnm.federated.methods import (
    METHODS,
    Info,
    Local,
    State,
    accuracy,
    combined_once,
    server_counts,
    train_local,
)
from pfnm.federated.setting import SERVER, Federation, Setting, federation, paper_training

UNITS = 100  # of every hidden layer, as in the paper
PRIOR_VARIANCE, MASS = 10.0, 1.0  # the paper's, where they are not varied
SITE_VARIANCE = 1.0
REPEATS = 3  # of a timed matching, after a first one
SAME_SIZE = "joint-same"  # the joint method with as many parameters as PFNM as published took
TRIED = "pfnm-tried"  # one of the site variances among which PFNM's was chosen

Row = dict[str, Any]


def run_job(job: Job, data_dir: Path | None) -> list[Row]:
    """The rows of one job, each with what tells the job from others; in one thread."""
    import torch
    from threadpoolctl import threadpool_limits

    begin = time.perf_counter()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            found = list(KINDS[job.kind](job, _federation(job, data_dir)))
    finally:
        torch.set_num_threads(threads)
    own = {name: getattr(job, name) for name in ("data", "split", "sites", "depth", "trial")}
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

    PFNM as published has its site variance chosen by accuracy on the training data; what was
    tried stands in rows of its own. SAME_SIZE comes after it.
    """
    local = train_local(sites)
    published: Row = {}
    for name in job.methods:
        begin = time.perf_counter()
        if name == "pfnm":
            tried = [_fused(sites, local, site_variance=v) for v in job.options["site_variances"]]
            yield from ({"method": TRIED, **row} for row in tried)
            row = published = max(tried, key=lambda row: row["train_accuracy"])
        elif name == SAME_SIZE:
            row = _ours(sites, local, published["parameters"])
        elif name == "fedavg":
            each = METHODS[name].round
            assert each is not None
            _, info = each(sites, State(), local, 1)
            row = _measured(info, local)
        else:
            _, info = combined_once(name, sites, local)
            row = _measured(info, local)
        yield {"method": name, **row, "seconds": time.perf_counter() - begin}


def _fused(
    sites: Federation,
    local: Local,
    *,
    prior_variance: float = PRIOR_VARIANCE,
    site_variance: float = SITE_VARIANCE,
    mass: float = MASS,
) -> Row:
    """PFNM by the published rules: its accuracy, on the training data too."""
    prior = Prior(prior_variance, site_variance, mass, rules="published")
    network = _matched(sites, local, prior)
    data = sites.data
    right = forward(network, data.train_inputs).argmax(axis=1) == data.train_labels
    return {
        "prior_variance": prior_variance,
        "site_variance": site_variance,
        "mass": mass,
        "accuracy": accuracy(sites, network),
        "train_accuracy": float(right.mean()),
        "left_out": len(local.left_out),
        **_size(network, local),
    }


def _ours(sites: Federation, local: Local, parameters: int) -> Row:
    """The joint method with at most so many parameters, else with its defaults; it sees no data."""
    fusion = fuse(
        list(local.networks.values()),
        class_counts=server_counts(sites, local.networks),
        max_params=parameters,
        input_range=sites.input_range,
        rng=sites.setting.rng(SERVER, 1),
    )
    return {
        "accuracy": accuracy(sites, fusion.network),
        "left_out": len(local.left_out),
        **_size(fusion.network, local),
    }


def _matched(sites: Federation, local: Local, prior: Prior) -> Network:
    networks = list(local.networks.values())
    counts = server_counts(sites, local.networks)
    fusion = fuse(networks, class_counts=counts, method="topdown", prior=prior, checked=False)
    return fusion.network


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
    """Round after round of one method; the ensemble of the local networks is round 0."""
    (name,) = job.methods
    method, setting = METHODS[name], sites.setting
    local = Local({}, {})
    if name in ("pfnm", "ensemble"):
        local = train_local(sites)
    if method.round is None:
        _, info = combined_once(name, sites, local)
        yield {"method": name, "round": 0, **_measured(info, local)}
        return
    state, communications = State(), 0
    for number in range(1, setting.rounds + 1):
        state, info = method.round(sites, state, local, number)
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
    prior = Prior(PRIOR_VARIANCE, SITE_VARIANCE, MASS, rules="published")
    times = []
    for _ in range(1 + REPEATS):
        begin = time.perf_counter()
        network = _matched(sites, local, prior)
        times.append(time.perf_counter() - begin)
    found = {"accuracy": accuracy(sites, network), **_size(network, local)}
    yield {"method": "pfnm", **found, "seconds": statistics.median(times[1:])}


KINDS: Mapping[str, Callable[[Job, Federation], Iterator[Row]]] = {
    "once": _once,
    "rounds": _rounds,
    "sensitivity": _sensitivity,
    "timing": _timing,
}


Spread = tuple[float, float, int]
"""Mean, standard deviation and number; what is unknown is not a number."""


def spread(found: Sequence[float]) -> Spread:
    """Of one measurement in several trials."""
    mean = float(np.mean(found)) if found else math.nan
    deviation = float(np.std(found, ddof=1)) if len(found) > 1 else math.nan
    return mean, deviation, len(found)


def fits(row: Row, where: Mapping[str, Any]) -> bool:
    """Whether a row has all of these values."""
    return all(row[name] == wanted for name, wanted in where.items())


def means(rows: Sequence[Row], value: str, **where: Any) -> Spread:
    """Over the trials of the rows that fit."""
    return spread([row[value] for row in rows if row[value] is not None and fits(row, where)])


def moments(rows: Sequence[Row], where: Mapping[str, Any]) -> list[Row]:
    """When accuracy was taken, in order: within D-SGD's first round, and after every round."""
    own = [row for row in rows if fits(row, where)]
    within = sorted({row["communications"] for row in own if row["round"] is None})
    after = sorted({row["round"] for row in own if row["round"] is not None})
    return [{"round": None, "communications": number} for number in within] + [
        {"round": number} for number in after
    ]
