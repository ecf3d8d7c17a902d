"""Where a result may be less than it seems: what is warned of, and what to do."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from pfnm.errors import PFNMWarning
from pfnm.fusing.sites import Sites
from pfnm.networks.graph import OUTPUT
from pfnm.networks.network import Network

CLEARLY = 0.02  # of agreement: less is within what another set of probes would give
DOUBTFUL = 0.74  # of agreement: below, three in ten fusions of the study were worse than a site


def tell(texts: Iterable[str]) -> None:
    """Warn of each, as from the code that called pfnm."""
    for text in texts:
        warnings.warn(text, PFNMWarning, stacklevel=3)


def size_warning(network: Network, sites: Sites) -> str | None:
    """A warning where the result is larger than what it was made of."""
    together = sum(sites.parameters)
    if network.parameters <= together:
        return None
    return (
        f"the result has {network.parameters:,} parameters, the {len(sites.networks)} networks "
        f"together {together:,}; a smaller budget (--budget, or --max-params) makes it worth while"
    )


def open_head(sites: Sites) -> str | None:
    """A warning where one output may be a probability or a value, and nobody told."""
    first = sites.networks[0]
    if first.sizes[OUTPUT] > 1 or first.output != "identity":
        return None
    return (
        "one output, which may be a probability's logit or a plain value; taken as a value: say "
        "which with head (--head sigmoid or --head values)"
    )


def verdict(
    fused: float | None,
    site: float | None,
    *,
    polished: bool = False,
    network: Network | None = None,
    real: bool = False,
) -> str | None:
    """A warning when a fused network lost what its sites know.

    From its likeness to the sites together on made-up inputs, and the best single site's. network:
    what was fused. real: whether real inputs were given.
    """
    if fused is None or site is None:
        return None
    advice = _advice(polished, network, real)
    if fused < min(site + CLEARLY, 1 - CLEARLY):
        return (
            "not worth having: on made-up inputs it answers like the sites together "
            f"{fused:.0%} of the time, the best single site {site:.0%}; {advice}"
        )
    if fused < DOUBTFUL:
        return (
            f"doubtful: likeness to the sites together is only {fused:.0%}, and below "
            f"{DOUBTFUL:.0%} a fusion may be worse than its largest site; measure it where there "
            f"is data, {advice}"
        )
    return None


def _advice(polished: bool, network: Network | None, real: bool) -> str:
    """What would help, the best first: of a network that cannot be wider, all but more width."""
    rigid = network is not None and set(network.graph.outer_groups) <= set(network.graph.rigid)
    module = network is not None and network.program.examples is not None
    ways = [] if rigid else ["allow a larger budget (--budget)"]
    if module and not real:
        ways.append("give a few real inputs (--input-like)")
    if not polished:
        ways.append("polish it (--polish)")
    if module:
        ways.append("go on in rounds")
    return ", ".join(ways[:-1]) + (", or " if len(ways) > 1 else "") + ways[-1]
