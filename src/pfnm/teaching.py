"""What polish needs of PyTorch: probes that climb towards a class, and the training itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import cos, pi
from typing import TYPE_CHECKING

import numpy as np

from pfnm.fusing.inputs import InputRange
from pfnm.fusing.probes import is_classifier
from pfnm.fusing.sites import Sites
from pfnm.networks.network import IntArray, Network, Tensor
from pfnm.networks.perceptron import LEAKY_SLOPE, layers

if TYPE_CHECKING:
    import torch

SEEKING_STEPS = (3, 10)  # of gradient ascent, drawn for each block of probes
SEEKING_BLOCK = 1000
SEEKING_RATE = 0.1  # of the inputs' range: how far the input that matters most moves in a step
EPOCHS, BATCH = 20, 128
PATIENCE = 8  # epochs without a better network before training stops
LARGEST_RATE, FIRST_RATE = 1e-3, 4e-5
WARM_UP = 0.3  # of the training, in which the rate rises; then it falls to zero

OnEpoch = Callable[[int, float], None]
"""Told the epochs done and what the judge says of the network now."""


@dataclass(frozen=True, eq=False)
class Lessons:
    """Inputs, what a network is to answer, and which of them an epoch goes through."""

    inputs: Tensor
    answers: Tensor
    """(inputs, outputs): probabilities of classes that exclude each other, or plain values."""
    places: IntArray


def seeking_probes(sites: Sites, starts: Tensor, rng: np.random.Generator) -> Tensor:
    """Inputs that the sites' ensemble takes more and more for a random class."""
    blocks = range(0, len(starts), SEEKING_BLOCK)
    return np.concatenate(
        [_climbed(sites, starts[first : first + SEEKING_BLOCK], rng) for first in blocks]
    )


def _climbed(sites: Sites, start: Tensor, rng: np.random.Generator) -> Tensor:
    import torch

    shares = torch.from_numpy(sites.class_shares.astype(np.float32))
    knows = torch.from_numpy(sites.known)
    wanted = torch.from_numpy(rng.integers(shares.shape[1], size=(len(start), 1)))
    stacks = [_tensors(network) for network in sites.networks]
    activation = _activation(sites.networks[0])
    low, high = map(torch.tensor, sites.inputs.within.ends)
    x = torch.from_numpy(start.copy())
    for _ in range(rng.integers(*SEEKING_STEPS)):
        x.requires_grad_()
        total = torch.zeros(len(start), shares.shape[1])
        for own, known, stack in zip(shares, knows, stacks, strict=True):
            outputs = _forward(stack, x, activation).masked_fill(~known, -torch.inf)
            total = total + own * torch.softmax(outputs, dim=1)
        height = total.clamp_min(torch.finfo(total.dtype).tiny).log().gather(1, wanted).sum()
        (slope,) = torch.autograd.grad(height, x)
        slope = (high - low) * slope
        largest = slope.abs().amax(dim=1, keepdim=True)
        steps = (high - low) * slope / torch.where(largest > 0, largest, 1)
        x = torch.clamp(x.detach() + SEEKING_RATE * steps, low, high)
    result: Tensor = x.detach().numpy()
    return result


def taught(
    network: Network,
    lessons: Lessons,
    rng: np.random.Generator,
    *,
    within: InputRange,
    judge: Callable[[Network], float],
    end: float | None,
    on_epoch: OnEpoch | None,
) -> tuple[Network, int]:
    """The network after the epoch of which the judge thought most; as it was, if that is best.

    And how many epochs there were.

    Adam, its rate rising and falling once, on inputs in units of their range. end: of
    time.monotonic(), by which to be done; the rate then falls the sooner.
    """
    import torch

    loss_of: Callable[..., torch.Tensor] = torch.nn.functional.mse_loss
    if is_classifier(network):
        loss_of = torch.nn.functional.cross_entropy
    elif network.output == "sigmoid":
        loss_of = torch.nn.functional.binary_cross_entropy_with_logits
    units = np.broadcast_to(within.width, lessons.inputs.shape[1:])[:, None]
    x, y = torch.from_numpy(lessons.inputs / units[:, 0]), torch.from_numpy(lessons.answers)
    stack = _tensors(network)
    stack[0][0].mul_(torch.from_numpy(units.copy()))
    parameters = [
        tensor.requires_grad_() for layer in stack for tensor in layer if tensor is not None
    ]
    activation = _activation(network)
    optimizer = torch.optim.Adam(parameters, lr=FIRST_RATE, fused=True)
    batches = -(-lessons.places.size // BATCH)
    begin = time.monotonic()
    best, found, since, epochs = judge(network), network, 0, 0
    for epoch in range(EPOCHS):
        order = torch.from_numpy(rng.permutation(lessons.places))
        for batch, rows in enumerate(torch.split(order, BATCH)):
            done = (epoch * batches + batch) / (EPOCHS * batches)
            if end is not None:
                done = max(done, (time.monotonic() - begin) / max(end - begin, SHORTEST))
            if done >= 1:
                break
            optimizer.param_groups[0]["lr"] = rate(done)
            epochs = epoch + 1
            loss = loss_of(_forward(stack, x[rows], activation), y[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        if not all(torch.isfinite(tensor).all() for tensor in parameters):
            break
        present = _with(network, stack, units)
        share = judge(present)
        if share > best:
            best, found, since = share, present, 0
        else:
            since += 1
        if on_epoch is not None:
            on_epoch(epoch + 1, share)
        if done >= 1 or since >= PATIENCE:
            break
    return found, epochs


SHORTEST = 1e-9  # seconds: no time at all is over at once


def rate(done: float) -> float:
    """The learning rate when so much of the training is done: up and down, each half a cosine."""
    if done < WARM_UP:
        return FIRST_RATE + (LARGEST_RATE - FIRST_RATE) * (1 - cos(pi * done / WARM_UP)) / 2
    return LARGEST_RATE * (1 + cos(pi * (done - WARM_UP) / (1 - WARM_UP))) / 2


Stack = list[tuple["torch.Tensor", "torch.Tensor | None"]]


def _tensors(network: Network) -> Stack:
    """Weight (inputs, outputs) and bias of each layer."""
    import torch

    return [
        (
            torch.from_numpy(np.array(layer.weight, dtype=np.float32, order="C")),
            None if layer.bias is None else torch.from_numpy(np.array(layer.bias, np.float32)),
        )
        for layer in layers(network)
    ]


def _with(network: Network, stack: Stack, units: Tensor) -> Network:
    """The network with these tensors, its inputs no longer in units of their range."""
    tensors: dict[str, Tensor] = {}
    for layer, (weight, bias) in zip(layers(network), stack, strict=True):
        own = weight.detach().numpy()
        own = (own / units if not tensors else own).astype(network.dtype)
        tensors[layer.weight_name] = own.T.copy() if layer.transposed else own
        if layer.bias_name is not None and bias is not None:
            tensors[layer.bias_name] = bias.detach().numpy().astype(network.dtype)
    return replace(network, tensors=tensors)


def _forward(
    stack: Stack, x: torch.Tensor, activation: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    for depth, (weight, bias) in enumerate(stack):
        x = (x if depth == 0 else activation(x)) @ weight
        x = x if bias is None else x + bias
    return x


def _activation(network: Network) -> Callable[[torch.Tensor], torch.Tensor]:
    import torch
    from torch.nn import functional

    known: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "relu": torch.relu,
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
        "identity": lambda x: x,
        "leaky_relu": lambda x: functional.leaky_relu(x, LEAKY_SLOPE),
        "elu": functional.elu,
        "gelu": functional.gelu,
        "silu": functional.silu,
    }
    return known[network.activation]
