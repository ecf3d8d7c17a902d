"""Sites that answer unlike all others, shout, or are one of the others again: left out if asked.

Weights may be plausible and spoiled all the same: trained on wrong labels, made up, or somebody
else's. What networks answer to made-up inputs tells the first two: outputs that mean the same rise
and fall together at honest sites, however uneven their data (`docs/deploy.md` has measurements).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from pfnm.conversion import with_inputs
from pfnm.fusing.doubts import IN_USE, MOST_PARTNERS, probabilities
from pfnm.fusing.inputs import Inputs
from pfnm.fusing.probes import is_classifier, probe
from pfnm.fusing.sites import Sites
from pfnm.lab.server import Server, sites_of, too_large
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array, BoolArray, Network

PROBES = 1000
LOUD = 4.0  # times the others' largest weight: honest sites had up to 1.8 times, however uneven
LEAST_SITES = 4  # with fewer nobody can tell who is the odd one out
LEAST_LIKENESS = 0.35  # of the median site's: honest ones had more, spoiled ones less


def odd_ones(
    server: Server,
    returned: Mapping[str, Network],
    counts: Mapping[str, IntArray],
    *,
    inputs: Inputs | str | None = None,
    input_range: tuple[float, float] | None = None,
    rng: np.random.Generator,
) -> dict[str, str]:
    """Sites to be left out of what was returned, and why.

    They are compared with each other and with what absent ones sent last. counts: what sites tell
    this time; inputs, input_range: as `combine` has them.
    """
    absent = {name: sent for name, sent in server.sent.items() if name not in returned}
    together = {**absent, **returned}
    if len(together) < LEAST_SITES:
        return {}
    found = {**too_large(server, returned, LOUD), **copies(together)}
    rest = {name: sent for name, sent in together.items() if name not in found}
    sites = with_inputs(sites_of(rest, {**server.counts, **counts}), inputs, input_range)
    strange = unlike(sites, rng)
    return {name: why for name, why in {**found, **strange}.items() if name in returned}


def copies(networks: Mapping[str, Network]) -> dict[str, str]:
    """Sites that send the very numbers of one before them, and why they are left out."""
    first: dict[bytes, str] = {}
    found = {}
    for name, network in networks.items():
        numbers = hashlib.sha256()
        for key in sorted(network.tensors):
            numbers.update(np.ascontiguousarray(network.tensors[key]).tobytes())
        same = first.setdefault(numbers.digest(), name)
        if same != name:
            found[name] = f"its weights are those of {same}, number by number"
    return found


def unlike(sites: Sites, rng: np.random.Generator) -> dict[str, str]:
    """Sites whose answers go with the others' much less than usual, and why they are left out."""
    likenesses = site_likenesses(sites, rng)
    usual = float(np.nanmedian(likenesses))
    return {
        network.name: f"its answers go with the other sites' by {own:.2f}, which is usually "
        f"{usual:.2f}; look at its labels and its training"
        for network, own in zip(sites.networks, likenesses, strict=True)
        if own < LEAST_LIKENESS * usual
    }


def site_likenesses(sites: Sites, rng: np.random.Generator) -> Array:
    """How each site's answers to probes go with the other sites', (J,), 1 at most.

    The median over others, of which a spoiled one is then no measure; NaN for a site that has no
    two outputs in use together with any other.
    """
    probing = probe(sites, PROBES, rng)
    if is_classifier(sites.networks[0]):
        values = probabilities(sites, probing)
        shares = values.mean(axis=2)
        in_use = shares > IN_USE / np.maximum(sites.known.sum(axis=1, keepdims=True), 1)
    else:
        values = np.array(probing.outputs, dtype=float)
        in_use = np.ones(values.shape[:2], dtype=bool)
    deviations = values - values.mean(axis=2, keepdims=True)
    number = len(deviations)
    partners = (1 + np.arange(min(number - 1, MOST_PARTNERS)))[None] + np.arange(number)[:, None]
    result = np.full(number, np.nan)
    for site, others in enumerate(partners % number):
        found = [_correlation(deviations[[site, j]], in_use[site] & in_use[j]) for j in others]
        known = [one for one in found if one is not None]
        if known:
            result[site] = np.median(known)
    return result


def _correlation(deviations: Array, outputs: BoolArray) -> float | None:
    """Of two sites' answers (2, K, probes) over some outputs; None where these are too few."""
    if outputs.sum() < min(2, len(outputs)):
        return None
    one, other = deviations[:, outputs].reshape(2, -1)
    scale = np.sqrt((one @ one) * (other @ other))
    return float(one @ other / scale) if scale > 0 else 0.0
