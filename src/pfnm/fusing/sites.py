"""The sites' networks in one comparable form, and how much each of them counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pfnm.errors import PFNMError
from pfnm.fusing.inputs import Inputs, Units
from pfnm.matching.prior import LARGEST, SMALLEST
from pfnm.networks.features import align_inputs
from pfnm.networks.graph import OUTPUT
from pfnm.networks.labels import align_labels
from pfnm.networks.network import Array, BoolArray, Network, Scaling, Tensor
from pfnm.networks.perceptron import in_terms_of, layers
from pfnm.networks.scaling import taking_plain, taking_scaled

LOGITS = {"softmax", "identity"}  # outputs of which the one is as good as the other


@dataclass(frozen=True, eq=False)
class Sites:
    """Comparable networks, and how much each site's tensors count, 1 being one plain site."""

    networks: Sequence[Network]
    weights: Array
    """(J,)"""
    output_weights: Array
    """(J, K): on what leads into output k; a class a site does not know counts nothing."""
    known: BoolArray
    """(J, K): the classes each site's network has an output for."""
    class_counts: Array | None = None
    """(J, K): the examples of each class at each site, where they were told."""
    inputs: Inputs = field(default_factory=Units)
    """What kind of inputs the networks know."""
    told: frozenset[str] = frozenset()
    """Which of "inputs" (their kind) and "input_range" somebody told."""
    hashes: tuple[str | None, ...] = ()
    """sha256 of each site's file, where it came from one."""
    scaling: Scaling | None = None
    """The pooled scaling in whose units the networks take their inputs, if there is one."""
    unscaled: tuple[str, ...] = ()
    """The sites without a scaler before their network, where others have one."""
    unnamed: tuple[str, ...] = ()
    """The sites that do not name their inputs, where others do."""

    @property
    def modules(self) -> bool:
        """Whether they are traced modules, which may be large."""
        return self.networks[0].program.examples is not None

    @property
    def dtype(self) -> np.dtype[Any]:
        """In which precision they are matched and averaged: modules in their own."""
        return (
            np.result_type(*(n.dtype for n in self.networks)) if self.modules else np.dtype(float)
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The sites' names."""
        return tuple(network.name for network in self.networks)

    @property
    def parameters(self) -> tuple[int, ...]:
        """How many weights and biases each site's network has: those of classes it knows."""
        found = []
        for network, known in zip(self.networks, self.known, strict=True):
            sizes = {**network.sizes, OUTPUT: int(known.sum())}
            shapes = (network.graph.shape(name, sizes) for name in network.graph.axes)
            found.append(sum(prod(shape) for shape in shapes))
        return tuple(found)

    def check_unchanged(self) -> None:
        """An error if modules have been trained on since they became sites."""
        for network in self.networks:
            if network.taken is not None:
                network.taken.check(network.name)

    def rows(self, inputs: Tensor) -> Tensor:
        """Real inputs (examples, inputs) in the units in which these networks take them."""
        if self.scaling is None:
            return inputs
        return np.asarray((inputs - self.scaling.centre) / self.scaling.scale, inputs.dtype)

    def scaled(self, network: Network) -> Network:
        """A network of real inputs as one of inputs in these units."""
        return network if self.scaling is None else taking_scaled(network, self.scaling)

    def plain(self, network: Network) -> Network:
        """A network of inputs in these units as one of real inputs."""
        return network if self.scaling is None else taking_plain(network, self.scaling)

    @property
    def class_shares(self) -> Array:
        """How much each site counts for each output, (J, K), summing to 1 over the sites."""
        shares: Array = self.output_weights / self.output_weights.sum(axis=0)
        return shares

    def weights_of(self, name: str, site: int) -> Array:
        """How much a tensor's entries count, in a shape that broadcasts to the tensor's."""
        network = self.networks[site]
        axes = network.graph.axes[name]
        for dimension, axis in enumerate(axes):
            if OUTPUT in axis.spaces:
                places = axis.coordinates(OUTPUT, network.sizes)
                own = self.output_weights[site]
                values: Array = np.where(places < 0, self.weights[site], own[places])
                return values.reshape([-1 if d == dimension else 1 for d in range(len(axes))])
        return np.full([1] * len(axes), self.weights[site])


def comparable(
    networks: Sequence[Network],
    class_counts: ArrayLike | None = None,
    site_weights: ArrayLike | None = None,
) -> Sites:
    """The networks in one form: same tensor names, same axis order, same outputs; or an error.

    Inputs are put in one order where they have names, and all share the pooled scaling where some
    have one (`align_inputs`).

    class_counts: (J, K), the examples of each class that each site has seen, classes in the order
    of the labels' union: on what leads into a class, a site then counts with its share of them
    (n_jk / sum over sites of n_jk, each times the site's weight). site_weights: (J,), all 1 if not
    given.
    """
    if len(networks) < 2:
        raise PFNMError(f"{len(networks)} network(s) given; fusing needs at least two")
    first = networks[0]
    if not first.graph.groups:
        raise PFNMError(f"{first.name} has no hidden layer, so there are no units to match")
    aligned = [in_terms_of(network, first) for network in networks]
    for network in aligned:
        _check_same_kind(network, first)
        for space, size in network.sizes.items():
            if space not in (*first.graph.groups, OUTPUT) and size != first.sizes[space]:
                raise PFNMError(
                    f"{network.name} has {size} {space}s, {first.name} has {first.sizes[space]}; "
                    "the sites' networks must take the same inputs"
                )
    aligned, known = align_labels(align_inputs(aligned))
    weights = _checked_weights(site_weights, len(aligned))
    sites = Sites(
        aligned,
        weights,
        np.where(known, weights[:, None], 0.0),
        known,
        unscaled=_lacking("scaling", networks),
        unnamed=_lacking("features", networks),
    )
    return sites if class_counts is None else with_counts(sites, class_counts)


def _lacking(what: str, networks: Sequence[Network]) -> tuple[str, ...]:
    """The networks of which this is not known, where it is of others."""
    found = tuple(network.name for network in networks if getattr(network, what) is None)
    return found if len(found) < len(networks) else ()


def with_counts(sites: Sites, class_counts: ArrayLike) -> Sites:
    """The sites, each counting for a class with its share of the class's examples."""
    counts = checked_counts(class_counts, sites.networks, sites.known)
    seen = counts * sites.weights[:, None]
    return replace(sites, class_counts=counts, output_weights=seen / seen.sum(axis=0))


def contrasted(sites: Sites) -> Sites:
    """Sites of two classes, each counting by n_j1 n_j2 / (n_j1 + n_j2) for both of them.

    Two outputs say one thing, their difference, which is known as well as the rarer class is: a
    site with hundreds of one class and hardly any of the other must not decide. (The published
    code counts each class by its own share.)
    """
    if sites.class_counts is None or sites.class_counts.shape[1] != 2:
        return sites
    seen = sites.class_counts * sites.weights[:, None]
    contrast = seen.prod(axis=1) / np.maximum(seen.sum(axis=1), SMALLEST)
    if not contrast.any():  # nobody has seen both
        return sites
    return replace(sites, output_weights=np.tile(contrast[:, None] / contrast.sum(), 2))


def in_scaled_units(sites: Sites) -> Sites:
    """The sites with networks that take inputs in units of the pooled scaling, if there is one.

    Raw columns of small numbers have large weights, which would decide every match.
    """
    scaling = sites.networks[0].scaling
    if scaling is None:
        return sites
    if layers(sites.networks[0])[0].bias is None:  # without one nothing can be shifted
        scaling = replace(scaling, centre=np.zeros_like(scaling.centre))
    networks = [taking_scaled(network, scaling) for network in sites.networks]
    return replace(sites, networks=networks, scaling=scaling)


def _checked_weights(site_weights: ArrayLike | None, sites: int) -> Array:
    try:
        weights = np.ones(sites) if site_weights is None else np.asarray(site_weights, dtype=float)
    except (TypeError, ValueError):
        weights = np.empty(0)
    if weights.shape != (sites,) or not ((weights >= SMALLEST) & (weights <= LARGEST)).all():
        raise PFNMError(f"site weights: expected {sites} positive numbers, one a site")
    return weights


def _check_same_kind(network: Network, first: Network) -> None:
    """Same activation; same output function, a softmax being as good as the logits before it."""
    if network.activation != first.activation:
        raise PFNMError(
            f"{network.name} has activation {network.activation!r}, {first.name} has "
            f"{first.activation!r}; only networks with the same activations can be fused"
        )
    if network.output != first.output and {network.output, first.output} != LOGITS:
        raise PFNMError(
            f"{network.name} has output {network.output!r}, {first.name} has {first.output!r}; "
            "tell what the outputs of all are (head, --head), or leave one out"
        )


def checked_counts(class_counts: ArrayLike, networks: Sequence[Network], known: BoolArray) -> Array:
    """The examples of each class at each site, (J, K), or an error that says what is wrong."""
    try:
        counts = np.asarray(class_counts, dtype=float)
    except (TypeError, ValueError):
        raise PFNMError("class counts are no table of numbers, one row a site") from None
    if counts.shape != known.shape:
        raise PFNMError(
            f"class counts have shape {counts.shape}, expected {known.shape}: one row a site, one "
            "number a class"
        )
    if not (np.isfinite(counts).all() and (counts >= 0).all()):
        raise PFNMError("class counts must be finite and not negative")
    label = networks[0].labels or tuple(range(known.shape[1]))
    stray = np.argwhere((counts > 0) & ~known)
    if stray.size:
        j, k = stray[0]
        raise PFNMError(
            f"{networks[j].name} counts examples of class {label[k]!r}, which its network does not "
            "know"
        )
    unseen = np.flatnonzero(counts.sum(axis=0) == 0)
    if unseen.size:
        raise PFNMError(
            f"class {label[unseen[0]]!r} has been seen by no site; give counts in which every "
            "class occurs, or none at all"
        )
    return counts
