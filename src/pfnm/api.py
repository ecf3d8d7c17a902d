"""What people call: `fuse` on whatever they hold, and the same kind back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pfnm.core.errors import PFNMError
from pfnm.core.fusion import Assignments, Fusion, fuse_networks
from pfnm.core.network import Label, Network
from pfnm.core.prior import Prior
from pfnm.formats import load, site_names
from pfnm.formats.tables import counts_matrix, read_class_counts

METHODS = ("topdown",)


def fuse(
    networks: Sequence[Any],
    *,
    class_counts: ArrayLike | Mapping[str, Any] | str | PathLike[str] | None = None,
    site_weights: Sequence[float] | None = None,
    labels: Sequence[Sequence[Label] | None] | None = None,
    activation: str | None = None,
    prior: Prior | None = None,
    method: str = "topdown",
    start: Assignments | None = None,
    sweeps: int | None = None,
    rng: np.random.Generator | int | None = None,
    on_step: Callable[[], None] | None = None,
) -> Fusion:
    """Fuse networks trained apart into one.

    networks: files, scikit-learn MLPs or `Network`s, at least two. class_counts: examples of each
    class at each site, as (J, K), as a mapping from site name, or as a file of such.
    site_weights: how much each site counts. labels, activation: for files that do not state theirs.
    start: the assignments of an earlier fusion of the same sites. rng: a generator or a seed (0).
    """
    if method not in METHODS:
        raise PFNMError(f"unknown method {method!r}; choose one of {', '.join(METHODS)}")
    if isinstance(networks, str | PathLike | Mapping):
        raise PFNMError("give a list of networks or files, at least two")
    sites = as_networks(networks, labels=labels, activation=activation)
    counts = class_counts
    if isinstance(counts, str | PathLike):
        counts = read_class_counts(Path(counts))
    if isinstance(counts, Mapping):
        counts = counts_matrix(counts, sites)
    fusion = fuse_networks(
        sites,
        class_counts=counts,
        site_weights=site_weights,
        prior=prior,
        start=start,
        sweeps=sweeps,
        rng=np.random.default_rng(0 if rng is None else rng),
        on_step=on_step,
    )
    network = replace(fusion.network, metadata=_provenance(fusion, sites, method, sweeps, counts))
    return replace(fusion, network=network, model=_same_kind(network, networks[0]))


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
        else:
            raise PFNMError(
                f"network {place} is a {type(item).__name__}; give files, scikit-learn "
                "MLPClassifiers or MLPRegressors, or pfnm.Network"
            )
    return result


def is_sklearn(item: Any) -> bool:
    """Whether this is a scikit-learn MLP; scikit-learn is not imported to find out."""
    return any(base.__module__.startswith("sklearn.neural_network") for base in type(item).__mro__)


def sha256(path: str | PathLike[str]) -> str:
    """A file's hash, for the record of what was fused."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _same_kind(network: Network, first: Any) -> Any:
    if is_sklearn(first):
        from pfnm.frameworks.sklearn import to_estimator

        return to_estimator(network)
    return network


def _provenance(
    fusion: Fusion, sites: Sequence[Network], method: str, sweeps: int | None, counts: Any
) -> dict[str, Any]:
    """What is written beside a fused network: everything needed to make it again."""
    return {
        "kind": "fusion",
        "versions": {name: version(name) for name in ("pfnm", "numpy", "scipy")},
        "options": {
            "method": method,
            "prior": asdict(fusion.prior),
            "sweeps": sweeps,
            "class_counts": None if counts is None else np.asarray(counts).tolist(),
        },
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
    }
