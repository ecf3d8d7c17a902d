"""The sites' networks in one comparable form, and how much each of them counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pfnm.core.errors import PFNMError
from pfnm.core.features import align_inputs
from pfnm.core.labels import align_labels
from pfnm.core.mlp import in_terms_of
from pfnm.core.network import OUTPUT, Array, BoolArray, Network
from pfnm.core.prior import LARGEST, SMALLEST


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

    @property
    def class_shares(self) -> Array:
        """How much each site counts for each output, (J, K), summing to 1 over the sites."""
        shares: Array = self.output_weights / self.output_weights.sum(axis=0)
        return shares

    def weights_of(self, name: str, site: int) -> Array:
        """How much a tensor's entries count, in a shape that broadcasts to the tensor's."""
        axes = self.networks[site].graph.axes[name]
        for dimension, axis in enumerate(axes):
            if axis.space == OUTPUT:
                values = np.repeat(self.output_weights[site], axis.block)
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
    output = np.where(known, weights[:, None], 0.0)
    if class_counts is not None:
        seen = checked_counts(class_counts, aligned, known) * weights[:, None]
        output = seen / seen.sum(axis=0)
    return Sites(aligned, weights, output, known)


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
    pairs = [(network.activation, first.activation)]
    if "sigmoid" in (network.output, first.output):
        pairs.append((network.output, first.output))
    for own, expected in pairs:
        if own != expected:
            raise PFNMError(
                f"{network.name} has activation {own!r}, {first.name} has {expected!r}; only "
                "networks with the same activations can be fused"
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
