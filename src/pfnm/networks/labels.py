"""Sites that know different classes: one union of labels, and who knows which of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pfnm.errors import PFNMError
from pfnm.networks.graph import OUTPUT
from pfnm.networks.network import BoolArray, Label, Network, Tensor


def align_labels(networks: Sequence[Network]) -> tuple[list[Network], BoolArray]:
    """The networks with one common output space, and (J, K) who knows which class.

    Outputs of classes a site does not know are zeros. Networks without labels are left as they are.
    """
    unnamed = [network for network in networks if network.labels is None]
    if unnamed and len(unnamed) < len(networks):
        named = next(network for network in networks if network.labels is not None)
        raise PFNMError(
            f"{named.name} names its classes and {unnamed[0].name} does not; give labels for all "
            "sites, or for none"
        )
    outputs = [network.sizes[OUTPUT] for network in networks]
    if unnamed:
        for network, count in zip(networks, outputs, strict=True):
            if count != outputs[0]:
                raise PFNMError(
                    f"{network.name} has {count} outputs, {networks[0].name} has {outputs[0]}; "
                    "give the labels of each site's outputs to fuse different classes"
                )
        return list(networks), np.ones((len(networks), outputs[0]), dtype=bool)
    _refuse_mixed_types(networks)
    labels = union([network.labels or () for network in networks])
    known = np.array([[label in (n.labels or ()) for label in labels] for n in networks])
    return [_with_labels(network, labels) for network in networks], known


def _refuse_mixed_types(networks: Sequence[Network]) -> None:
    """An error where 1 at one site and "1" at another would become two classes."""
    seen: dict[str, tuple[Label, str]] = {}
    for network in networks:
        for label in network.labels or ():
            other, name = seen.setdefault(str(label), (label, network.name))
            if type(other) is not type(label):
                raise PFNMError(
                    f"{name} has the label {other!r} ({type(other).__name__}), {network.name} has "
                    f"{label!r} ({type(label).__name__}); give both as one type"
                )


def union(labels: Sequence[tuple[Label, ...]]) -> tuple[Label, ...]:
    """All labels: in the sites' order where they agree, else sorted where that is possible."""
    if all(own == labels[0] for own in labels):
        return labels[0]
    found = list(dict.fromkeys(label for own in labels for label in own))
    if len({type(label) for label in found}) == 1:
        found.sort()
    return tuple(found)


def _with_labels(network: Network, labels: tuple[Label, ...]) -> Network:
    own = network.labels or ()
    if own == labels:
        return network
    position = np.array([labels.index(label) for label in own])
    sizes = {**network.sizes, OUTPUT: len(labels)}
    tensors: dict[str, Tensor] = dict(network.tensors)
    for name in network.graph.tensors_of(OUTPUT):
        wide = np.zeros(network.graph.shape(name, sizes), dtype=tensors[name].dtype)
        wide[network.graph.index(name, {OUTPUT: position}, sizes)] = tensors[name]
        tensors[name] = wide
    return replace(network, tensors=tensors, labels=labels)
