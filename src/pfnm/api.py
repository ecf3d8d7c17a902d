"""What people call: `fuse` on whatever they hold, and the same kind back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pfnm.core.atoms import Assignments
from pfnm.core.budget import DEFAULT_BUDGET, limits_by_parameters, width_limits
from pfnm.core.errors import PFNMError
from pfnm.core.fusion import Fusion, fuse_topdown
from pfnm.core.joint import fuse_joint
from pfnm.core.network import INPUT, OUTPUT, Label, Network
from pfnm.core.prior import SPREAD, Prior
from pfnm.core.probes import (
    CHECK_PROBES,
    UNIT_RANGE,
    InputRange,
    agreement,
    probe,
    site_agreements,
)
from pfnm.core.scaling import taking_plain, taking_scaled
from pfnm.core.sites import Sites, comparable
from pfnm.formats import load, site_names
from pfnm.formats.tables import counts_matrix, read_class_counts

METHODS = ("joint", "topdown")

Ends = tuple[ArrayLike, ArrayLike]
"""The smallest and the largest value of inputs: of all of them, or of each."""


def fuse(
    networks: Sequence[Any],
    *,
    class_counts: ArrayLike | Mapping[str, Any] | str | PathLike[str] | None = None,
    site_weights: Sequence[float] | None = None,
    labels: Sequence[Sequence[Label] | None] | None = None,
    activation: str | None = None,
    prior: Prior | None = None,
    spread: float = SPREAD,
    mass: float = 1.0,
    rules: str = "recommended",
    method: str = "joint",
    budget: float | int | Literal["default"] | None = "default",
    max_params: int | None = None,
    start: Assignments | None = None,
    sweeps: int | None = None,
    input_range: Ends | None = None,
    checked: bool = True,
    rng: np.random.Generator | int | None = None,
    on_step: Callable[[], None] | None = None,
) -> Fusion:
    """Fuse networks trained apart into one.

    networks: files, scikit-learn MLPs, state dicts or `Network`s, at least two. class_counts:
    examples of each class at each site, as (J, K), as a mapping from site name, or as a file of
    such. site_weights: how much each site counts. labels, activation: where they are not stated.
    prior: by default `Prior.fit` of the networks with this spread, mass and rules. method: "joint"
    (all layers together), or "topdown" (the paper's). budget: how wide a layer may become, as a
    factor (float) of the widest site's or as a number of units (int); None: no limit; by default
    2.0 for "joint", no limit for "topdown". max_params: at most so many parameters, instead of a
    budget. start: the assignments of an earlier fusion of the same sites. sweeps: exactly so many
    (topdown). input_range: between which values the inputs lie (default 0 to 1), for the probes
    made from the networks. checked: whether a top-down fusion's agreement is measured (a joint
    one's always is). rng: a generator or a seed (default 0).
    """
    if method not in METHODS:
        raise PFNMError(f"unknown method {method!r}; choose one of {', '.join(METHODS)}")
    if isinstance(networks, str | PathLike | Mapping):
        raise PFNMError("give a list of networks or files, at least two")
    given = as_networks(networks, labels=labels, activation=activation)
    counts = counts_table(class_counts, given)
    sites = comparable(given, counts, site_weights)
    scaling = sites.networks[0].scaling
    sites, within = _scaled(sites, input_range_of(input_range, given), input_range is not None)
    if prior is None:
        prior = Prior.fit(sites.networks, spread=spread, mass=mass, rules=rules)
    if counts is not None and not prior.choices.class_share:
        raise PFNMError(
            f"the {prior.rules!r} rules make no use of class counts; leave them out, or choose "
            "other rules"
        )
    if budget == "default":
        budget = DEFAULT_BUDGET if method == "joint" and max_params is None else None
    limits = width_limits(sites.networks, budget)
    if max_params is not None:
        if limits is not None:
            raise PFNMError("give a budget or a number of parameters, not both")
        limits = limits_by_parameters(sites.networks, max_params)
    generator = np.random.default_rng(0 if rng is None else rng)
    if method == "joint":
        if sweeps is not None:
            raise PFNMError("sweeps belong to the method 'topdown'; leave them out")
        fusion = fuse_joint(
            sites,
            prior=prior,
            rng=generator,
            limits=limits,
            start=start,
            within=within,
            on_step=on_step,
        )
    else:
        fusion = fuse_topdown(
            sites,
            prior=prior,
            rng=generator,
            limits=limits,
            start=start,
            sweeps=sweeps,
            on_step=on_step,
        )
        if checked:
            found = _measured(fusion.network, sites, within, generator)
            fusion = replace(fusion, agreement=found.agreement, site_agreement=found.site_agreement)
    options = {
        "method": method,
        "prior": asdict(prior),
        "budget": budget,
        "max_params": max_params,
        "sweeps": sweeps,
        "seed": rng if isinstance(rng, int) else None if rng is not None else 0,
        "class_counts": None if counts is None else np.asarray(counts).tolist(),
        "site_weights": None if site_weights is None else [float(w) for w in site_weights],
        "labels": None
        if labels is None
        else [None if own is None else list(own) for own in labels],
        "activation": activation,
        "input_range": range_told(input_range),
        "started_from_assignments": start is not None,
    }
    network = fusion.network if scaling is None else taking_plain(fusion.network, scaling)
    network = replace(network, metadata=_provenance(fusion, given, options))
    return replace(fusion, network=network, model=same_kind(network, networks[0]))


def _scaled(sites: Sites, within: InputRange, told: bool) -> tuple[Sites, InputRange]:
    """The sites and the inputs' range in the units of the pooled scaling, where there is one.

    Raw columns of small numbers have large weights, which would decide every match.
    """
    scaling = sites.networks[0].scaling
    if scaling is None:
        return sites, within
    ends = (within.low, within.high) if told else (scaling.low, scaling.high)
    low, high = ((end - scaling.centre) / scaling.scale for end in ends)
    networks = [taking_scaled(network, scaling) for network in sites.networks]
    return replace(sites, networks=networks), InputRange(low, high)


@dataclass(frozen=True)
class Check:
    """How a network and the best of its sites agree with the sites' ensemble on probes."""

    agreement: float
    best_site: str
    site_agreement: float


def check(
    network: Any,
    networks: Sequence[Any],
    *,
    class_counts: Any = None,
    site_weights: Sequence[float] | None = None,
    labels: Sequence[Sequence[Label] | None] | None = None,
    activation: str | None = None,
    input_range: Ends | None = None,
    rng: np.random.Generator | int | None = None,
) -> Check:
    """How often any network answers as the sites do together, without data.

    Networks, files, labels and the inputs' range as `fuse` takes them. The probes are made from the
    sites' networks.
    """
    (given,) = as_networks([network], activation=activation)
    own = as_networks(networks, labels=labels, activation=activation)
    sites = comparable(own, counts_table(class_counts, own), site_weights)
    aligned = comparable([given, *own]).networks[0]
    if aligned.sizes[OUTPUT] != sites.networks[0].sizes[OUTPUT]:
        raise PFNMError(f"{given.name} knows classes that none of the sites does")
    generator = np.random.default_rng(0 if rng is None else rng)
    return _measured(aligned, sites, input_range_of(input_range, own), generator)


def _measured(
    network: Network, sites: Sites, within: InputRange, rng: np.random.Generator
) -> Check:
    probing = probe(sites, CHECK_PROBES, rng, with_noise=True, within=within)
    shares = site_agreements(sites, probing)
    best = int(np.argmax(shares))
    name = sites.networks[best].name
    return Check(max(0.0, agreement(network, probing)), name, max(0.0, shares[best]))


def input_range_of(given: Ends | None, networks: Sequence[Network]) -> InputRange:
    """Between which values probes lie: as said, or 0 to 1."""
    if given is None:
        return UNIT_RANGE
    inputs = networks[0].sizes[INPUT]
    try:
        low, high = (np.asarray(end, dtype=float) for end in given)
    except (TypeError, ValueError):
        raise PFNMError(
            "the inputs' range is no pair of numbers; give the low and the high end"
        ) from None
    for end in (low, high):
        if end.shape not in ((), (inputs,)):
            raise PFNMError(
                f"the inputs' range has ends of shape {end.shape}, expected one number, or one for "
                f"each of the {inputs} inputs that {networks[0].name} takes"
            )
    return InputRange(low, high)


def range_told(given: Ends | None) -> Any:
    """The range for the record; one taken from real inputs would tell of them."""
    if given is None:
        return None
    ends = [np.asarray(end, dtype=float) for end in given]
    return [float(end) for end in ends] if ends[0].ndim == ends[1].ndim == 0 else "of each input"


def as_networks(
    given: Sequence[Any],
    *,
    labels: Sequence[Sequence[Label] | None] | None = None,
    activation: str | None = None,
) -> list[Network]:
    """Files, live objects and `Network`s as `Network`s, each named after its file or place."""
    paths = [item for item in given if isinstance(item, str | PathLike)]
    names = iter(site_names(paths))
    labels = [None] * len(given) if labels is None else labels
    if len(labels) != len(given):
        raise PFNMError(f"labels of {len(labels)} sites for {len(given)} networks")
    result = []
    for place, (item, own) in enumerate(zip(given, labels, strict=True)):
        if isinstance(item, str | PathLike):
            network = load(item, activation=activation, labels=own, name=next(names))
            result.append(replace(network, metadata={**network.metadata, "sha256": sha256(item)}))
        elif isinstance(item, Network):
            named = item if item.name != "network" else replace(item, name=f"site{place}")
            result.append(named if own is None else replace(named, labels=tuple(own)))
        elif is_sklearn(item):
            from pfnm.frameworks.sklearn import from_estimator

            result.append(from_estimator(item, name=f"site{place}"))
        elif isinstance(item, Mapping):
            from pfnm.frameworks.state_dict import from_state_dict

            result.append(
                from_state_dict(item, name=f"site{place}", activation=activation, labels=own)
            )
        else:
            raise PFNMError(
                f"network {place} is a {type(item).__name__}; give files, scikit-learn "
                "MLPClassifiers or MLPRegressors (alone or in pipelines), state dicts, or "
                "pfnm.Network"
            )
    return result


def counts_table(
    counts: ArrayLike | Mapping[str, Any] | str | PathLike[str] | None, networks: Sequence[Network]
) -> ArrayLike | None:
    """Class counts as (J, K), from whatever form they are given in."""
    if isinstance(counts, str | PathLike):
        counts = read_class_counts(Path(counts))
    return counts_matrix(counts, networks) if isinstance(counts, Mapping) else counts


def is_sklearn(item: Any) -> bool:
    """Whether this is an estimator of scikit-learn, which is not imported to find out."""
    return any(base.__module__.startswith("sklearn.") for base in type(item).__mro__)


def sha256(path: str | PathLike[str]) -> str:
    """A file's hash, for the record of what was fused."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def same_kind(network: Network, first: Any) -> Any:
    """The network as what `first` is: an estimator, a state dict, or a `Network`."""
    if is_sklearn(first):
        from pfnm.frameworks.sklearn import to_estimator

        return to_estimator(network, like=first)
    if isinstance(first, Mapping):
        from pfnm.frameworks.state_dict import to_state_dict

        return to_state_dict(network, first)
    return network


@cache
def _versions() -> Mapping[str, str]:
    return {name: version(name) for name in ("pfnm", "numpy", "scipy")}


def _provenance(
    fusion: Fusion, sites: Sequence[Network], options: Mapping[str, Any]
) -> dict[str, Any]:
    """What is written beside a fused network: everything needed to make it again."""
    return {
        "kind": "fusion",
        "versions": dict(_versions()),
        "options": dict(options),
        "sites": [
            {
                "name": site.name,
                "sha256": site.metadata.get("sha256"),
                "widths": site.widths,
            }
            for site in sites
        ],
        "widths": fusion.widths,
        "objective": fusion.objective,
        "settled": fusion.settled,
        "agreement": fusion.agreement,
        "site_agreement": fusion.site_agreement,
    }
