"""What fusing is compared with: averaging by position, and ensembles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from pfnm.core.errors import PFNMError
from pfnm.core.mlp import probabilities
from pfnm.core.network import OUTPUT, Array, Label, Network
from pfnm.core.sites import comparable


def naive_average(networks: Sequence[Network]) -> Network:
    """The mean of the sites' tensors as they stand: unit 3 with unit 3, whatever each learned.

    What leads into a class is averaged over the sites that know it.
    """
    compared = comparable(networks)
    sites = compared.networks
    for site in sites:
        if site.widths != sites[0].widths:
            raise PFNMError(
                f"{site.name} has other widths than {sites[0].name}, so there is no plain mean; "
                "fuse them"
            )
    tensors = {}
    for name, tensor in sites[0].tensors.items():
        # Sites count the same, but not at all for classes that they do not know.
        weights = [
            np.broadcast_to(compared.weights_of(name, j), tensor.shape) for j in range(len(sites))
        ]
        mean = np.average([site.tensors[name] for site in sites], axis=0, weights=weights)
        tensors[name] = mean.astype(np.result_type(*(site.tensors[name] for site in sites)))
    return replace(sites[0], tensors=tensors, name="average", metadata={})


def ensemble(
    networks: Sequence[Network],
    inputs: Array,
    class_counts: ArrayLike | None = None,
    site_weights: ArrayLike | None = None,
) -> tuple[Array, tuple[Label, ...]]:
    """The mean of the sites' probabilities (examples, classes), and the classes' labels.

    With class counts, a site counts for a class as far as it has seen it. A class that a site does
    not know is left to those that do.
    """
    sites = comparable(networks, class_counts, site_weights)
    labels = sites.networks[0].labels or tuple(range(sites.networks[0].sizes[OUTPUT]))
    total = np.zeros((len(inputs), len(labels)))
    for network, shares in zip(networks, sites.class_shares, strict=True):
        own = [labels.index(label) for label in network.labels or labels]
        total[:, own] += shares[own] * probabilities(network, inputs)
    return total, labels
