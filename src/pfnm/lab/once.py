"""One network made of the sites' networks, once."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from pfnm.api import fuse_sites
from pfnm.conversion import with_inputs
from pfnm.fusing.sites import comparable
from pfnm.lab.baselines import ensemble, naive_average
from pfnm.lab.method import Info, Local, bytes_up, scores, server_counts, tested
from pfnm.lab.peers import ot_fusion, rebasin
from pfnm.lab.server import as_sent, matchable
from pfnm.lab.setting import SERVER, Federation
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Network

RESET_ROWS = 500  # on which batch normalisation's statistics are computed anew


def one_network(
    federation: Federation,
    local: Local,
    combined: Callable[[list[Network], IntArray | None], Network],
    *,
    counted: bool = False,
) -> tuple[Network, Info]:
    """One network made of all local ones."""
    begin = time.perf_counter()
    network = combined(list(local.networks.values()), server_counts(federation, local.networks))
    middle = time.perf_counter()
    found, bits = tested(federation, network)
    return network, Info(
        found,
        network.parameters,
        tuple(network.widths.values()),
        bits,
        bytes_up=bytes_up(federation, local.networks, counted=counted),
        left_out=local.left_out,
        seconds_training=local.seconds,
        seconds_combining=middle - begin,
        seconds_evaluating=time.perf_counter() - middle,
    )


def alone(federation: Federation, local: Local) -> tuple[None, Info]:
    """Each site with its own network: the mean of all."""
    found = [tested(federation, network) for network in local.networks.values()]
    right, bits = np.mean(found, axis=0).tolist()
    first = next(iter(local.networks.values()))
    return None, Info(
        right,
        first.parameters,
        tuple(first.widths.values()),
        bits,
        left_out=local.left_out,
        seconds_training=local.seconds,
    )


def ensembled(federation: Federation, local: Local, *, weighted: bool) -> tuple[None, Info]:
    """All networks asked, their answers averaged."""
    networks = list(local.networks.values())
    counts = server_counts(federation, local.networks) if weighted else None
    begin = time.perf_counter()
    values, _ = ensemble(comparable(networks, counts), federation.data.test_inputs)
    with np.errstate(divide="ignore"):
        right, bits = scores(federation, np.log(values / values.sum(axis=1, keepdims=True)))
    return None, Info(
        right,
        sum(network.parameters for network in networks),
        bits=bits,
        bytes_up=bytes_up(federation, local.networks, counted=weighted),
        left_out=local.left_out,
        seconds_training=local.seconds,
        seconds_evaluating=time.perf_counter() - begin,
    )


def averaged(
    federation: Federation, local: Local, *, by: str, reset: bool = False
) -> tuple[Network, Info]:
    """The mean of the networks by place, their units as they are or renamed to be alike before.

    reset: batch normalisation's statistics are then computed anew, on inputs that the server holds
    or else on made-up ones.
    """
    rng = federation.setting.rng(SERVER, 1)
    mean = {
        "place": naive_average,
        "rebasin": lambda networks: rebasin(networks, rng),
        "ot": ot_fusion,
    }[by]

    def combined(networks: list[Network], counts: IntArray | None) -> Network:
        network = mean(networks)
        return _reset(federation, networks, network, rng) if reset else network

    return one_network(federation, local, combined)


def _reset(
    federation: Federation, networks: list[Network], mean: Network, rng: np.random.Generator
) -> Network:
    """The mean with batch normalisation's statistics computed anew."""
    from pfnm.lab.modules import remembering

    sites = with_inputs(
        comparable([matchable(network) for network in networks]), **federation.known_inputs
    )
    return remembering(mean, sites.inputs.make(sites.networks, RESET_ROWS, rng))


def fused(federation: Federation, local: Local, *, method: str) -> tuple[Network, Info]:
    """The networks fused by matching their units."""
    setting = federation.setting
    budget = setting.budget if method == "joint" else None
    rng = setting.rng(SERVER, 1)

    def combined(networks: list[Network], counts: IntArray | None) -> Network:
        sites = comparable([matchable(network) for network in networks], counts)
        if method == "joint" or setting.polish:
            sites = with_inputs(sites, **federation.known_inputs)
        fusion = fuse_sites(sites, method=method, budget=budget, measured=False, rng=rng)
        found = fusion.polished(rng) if setting.polish else fusion
        return as_sent(found.network, networks[0])

    return one_network(federation, local, combined, counted=True)
