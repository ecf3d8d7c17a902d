"""What fusing is compared with: averaging by position, and ensembles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pfnm.core.errors import PFNMError
from pfnm.core.mlp import probabilities
from pfnm.core.network import Array, Network
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


def ensemble(networks: Sequence[Network], inputs: Array) -> tuple[Array, tuple[object, ...]]:
    """The mean of the sites' probabilities (examples, classes), and the classes' labels.

    A class that a site does not know has probability zero there.
    """
    aligned = comparable(networks).networks[0]
    labels: tuple[object, ...] = aligned.labels or tuple(range(aligned.sizes["output"]))
    total = np.zeros((len(inputs), len(labels)))
    for network in networks:
        own = network.labels or tuple(range(network.sizes["output"]))
        total[:, [labels.index(label) for label in own]] += probabilities(network, inputs)
    return total / len(networks), labels
