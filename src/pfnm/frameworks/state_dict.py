"""State dicts as people hold them in memory: names to PyTorch tensors or numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pfnm.formats import network_of
from pfnm.formats.naming import arrange
from pfnm.formats.state_dicts import find_state_dict, to_numpy
from pfnm.networks.network import Label, Network


def from_state_dict(
    mapping: Mapping[Any, Any],
    *,
    name: str = "network",
    activation: str | None = None,
    output: str | None = None,
    labels: Sequence[Label] | None = None,
) -> Network:
    """A network from a state dict, bare or in a checkpoint, as `load` reads it from a file.

    Its tensors are copied, so that training the model on leaves the network as it is.

    >>> import numpy as np
    >>> state = {"fc1.weight": np.ones((3, 2)), "fc2.weight": np.ones((1, 3))}
    >>> from_state_dict(state, activation="tanh").widths
    {'hidden1': 3}
    """
    tensors = {
        key: np.array(to_numpy(name, key, value))
        for key, value in find_state_dict(name, mapping).items()
    }
    content = arrange(name, tensors, {}, in_order=True)
    network = network_of(content, name, activation=activation, output=output, labels=labels)
    return replace(network, name=name)


def to_state_dict(network: Network, like: Mapping[Any, Any]) -> dict[str, Any]:
    """The network's tensors as those of `like` are: PyTorch's or numpy's, of the same type.

    A tensor that `like` does not have (the bias of a layer that took over a BatchNorm) is as its
    first one.
    """
    samples = find_state_dict(network.name, like)
    first = next(iter(samples.values()))
    return {
        name: as_sample(tensor, samples.get(name, first))
        for name, tensor in network.tensors.items()
    }


def as_sample(tensor: np.ndarray[Any, Any], sample: Any) -> Any:
    """The array as what the sample is, with its type and on its device."""
    if isinstance(sample, np.ndarray):
        return np.array(tensor, sample.dtype)
    import torch

    return torch.tensor(tensor, dtype=sample.dtype, device=sample.device)
