"""What fusing is compared with: averaging by position, and ensembles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pfnm.core.errors import PFNMError
from pfnm.core.fusion import comparable
from pfnm.core.mlp import probabilities
from pfnm.core.network import Array, Network
from pfnm.core.prior import Prior


def naive_average(networks: Sequence[Network]) -> Network:
    """The mean of the sites' tensors as they stand: unit 3 with unit 3, whatever each learned."""
    sites = comparable(networks, Prior()).networks
    for site in sites:
        if site.widths != sites[0].widths:
            raise PFNMError(f"{site.name} has other widths than {sites[0].name}: no plain mean")
    tensors = {
        name: np.mean([site.tensors[name] for site in sites], axis=0) for name in sites[0].tensors
    }
    return replace(sites[0], tensors=tensors, name="average", metadata={})


def ensemble(networks: Sequence[Network], inputs: Array) -> tuple[Array, tuple[object, ...]]:
    """The mean of the sites' probabilities (examples, classes), and the classes' labels.

    A class that a site does not know has probability zero there.
    """
    aligned = comparable(networks, Prior()).networks[0]
    labels: tuple[object, ...] = aligned.labels or tuple(range(aligned.sizes["output"]))
    total = np.zeros((len(inputs), len(labels)))
    for network in networks:
        own = network.labels or tuple(range(network.sizes["output"]))
        total[:, [labels.index(label) for label in own]] += probabilities(network, inputs)
    return total / len(networks), labels
