"""What fusing is compared with: averaging by position, k-means, and ensembles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from pfnm.errors import PFNMError
from pfnm.fusing.sites import Sites, comparable
from pfnm.networks.graph import OUTPUT, IntArray
from pfnm.networks.network import Array, Label, Network, Tensor
from pfnm.networks.outputs import probabilities
from pfnm.networks.perceptron import layers, mlp, perceptron

MOST_CENTRES, CENTRES_PER_SITE = 500, 50  # as in the paper's experiments


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


def weighted_average(networks: Sequence[Network], weights: ArrayLike) -> Network:
    """The mean of networks of one shape, each counting as said: FedAvg's."""
    shares = np.asarray(weights, dtype=float) / np.sum(weights)
    tensors = {
        name: np.tensordot(shares, np.array([n.tensors[name] for n in networks]), axes=1)
        for name in networks[0].tensors
    }
    own = {name: tensor.astype(networks[0].dtype) for name, tensor in tensors.items()}
    return replace(networks[0], tensors=own, name="average", metadata={})


def outputs_by_class(mean: Network, networks: Sequence[Network], counts: IntArray) -> Network:
    """The mean, but what leads into a class is averaged by each site's share of its examples.

    A site that sees little of a class unlearns it while it trains. counts: (sites, classes).
    """
    shares = counts / counts.sum(axis=0)
    tensors = dict(mean.tensors)
    for name, axes in mean.graph.axes.items():
        for dimension, axis in enumerate(axes):
            if OUTPUT not in axis.spaces:
                continue
            classes = axis.coordinates(OUTPUT, mean.sizes)
            (places,) = np.nonzero(classes >= 0)
            own = [np.moveaxis(n.tensors[name], dimension, 0)[places] for n in networks]
            found = np.moveaxis(tensors[name].copy(), dimension, 0)
            found[places] = np.einsum("jk,jk...->k...", shares[:, classes[places]], own)
            tensors[name] = np.ascontiguousarray(np.moveaxis(found, 0, dimension))
    return replace(mean, tensors=tensors)


def kmeans(networks: Sequence[Network], rng: np.random.Generator) -> Network:
    """The centres of all sites' units, as the units of one network with one hidden layer.

    A unit is its incoming weights, bias and outgoing weights; k = min(500, 50 J). The output bias
    is the mean.
    """
    from sklearn.cluster import KMeans

    stacks = [layers(network) for network in networks]
    if len(stacks[0]) != 2 or stacks[0][0].bias is None or stacks[0][1].bias is None:
        raise PFNMError("k-means of units needs networks with one hidden layer and biases")
    atoms = np.concatenate(
        [np.concatenate([below.weight, [below.bias], above.weight.T]).T for below, above in stacks]
    )
    number = min(MOST_CENTRES, CENTRES_PER_SITE * len(networks), len(atoms))
    seed = int(rng.integers(2**31))
    centres = KMeans(number, n_init=1, random_state=seed).fit(atoms).cluster_centers_
    inputs = stacks[0][0].weight.shape[0]
    bias = np.mean([a.bias for _, a in stacks if a.bias is not None], axis=0)
    return mlp(
        [centres[:, :inputs].T.copy(), centres[:, inputs + 1 :].copy()],
        [centres[:, inputs].copy(), bias],
        activation=perceptron(networks[0]).activation,
        output=networks[0].output,
        labels=networks[0].labels,
        name="kmeans",
    )


def ensemble(sites: Sites, inputs: Tensor) -> tuple[Array, tuple[Label, ...]]:
    """The mean of the sites' probabilities (examples, classes), and the classes' labels.

    With class counts, a site counts for a class as far as it has seen it. A class that a site does
    not know is left to those that do.
    """
    first = sites.networks[0]
    total: Array = np.zeros(first.sizes[OUTPUT])
    for network, known, shares in zip(sites.networks, sites.known, sites.class_shares, strict=True):
        total = total + shares * probabilities(network, inputs, known)
    return total, first.labels or tuple(range(first.sizes[OUTPUT]))
