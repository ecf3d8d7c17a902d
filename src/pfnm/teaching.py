"""What polish needs of PyTorch: probes that climb towards a class, and the training itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import cos, pi
from typing import TYPE_CHECKING

import numpy as np

from pfnm.fusing.inputs import InputRange
from pfnm.fusing.probes import is_classifier
from pfnm.fusing.sites import Sites
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Network, Tensor
from pfnm.threads import for_large_products

if TYPE_CHECKING:
    import torch

SEEKING_STEPS = (3, 10)  # of gradient ascent, drawn for each block of probes
SEEKING_BLOCK = 1000
SEEKING_RATE = 0.1  # of the inputs' range: how far the input that matters most moves in a step
EPOCHS, BATCH = 14, 128  # 20 epochs gave no more (docs/deep.md)
PATIENCE = 8  # epochs without a better network before training stops
LARGEST_RATE, FIRST_RATE = 1e-3, 4e-5
TABLE = 2  # axes of what one answer an input gives
BETAS, EPSILON = (0.9, 0.999), 1e-8  # of Adam, as is usual
WARM_UP = 0.3  # of the training, in which the rate rises; then it falls to zero

OnEpoch = Callable[[int, float], None]
"""Told the epochs done and what the judge says of the network now."""


@dataclass(frozen=True, eq=False)
class Lessons:
    """Inputs, what a network is to answer, and which of them an epoch goes through."""

    inputs: Tensor
    answers: Tensor
    """(inputs, outputs): probabilities of classes that exclude each other, or plain values. Where
    each input has several positions, (inputs, positions, outputs)."""
    places: IntArray


def seeking_probes(sites: Sites, starts: Tensor, rng: np.random.Generator) -> Tensor:
    """Inputs that the sites' ensemble takes more and more for a random class."""
    blocks = range(0, len(starts), SEEKING_BLOCK)
    with for_large_products():
        return np.concatenate(
            [_climbed(sites, starts[first : first + SEEKING_BLOCK], rng) for first in blocks]
        )


def _climbed(sites: Sites, start: Tensor, rng: np.random.Generator) -> Tensor:
    import torch

    shares = torch.from_numpy(sites.class_shares.astype(np.float32))
    knows = torch.from_numpy(sites.known)
    wanted = torch.from_numpy(rng.integers(shares.shape[1], size=(len(start), 1)))
    programs = [(network.program, _tensors(network)) for network in sites.networks]
    low, high = map(torch.tensor, sites.inputs.within.ends)
    x = torch.from_numpy(start.copy())
    for _ in range(rng.integers(*SEEKING_STEPS)):
        x.requires_grad_()
        total = torch.zeros(len(start), shares.shape[1])
        for own, known, (program, tensors) in zip(shares, knows, programs, strict=True):
            outputs = program.run(tensors, x).masked_fill(~known, -torch.inf)
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
    units = Units.of(network, within)
    x = torch.from_numpy(lessons.inputs / units.width)
    y = torch.from_numpy(lessons.answers)
    tensors = units.in_them(_tensors(network))
    parameters = [
        tensor.requires_grad_()
        for name, tensor in tensors.items()
        if network.graph.role(name) != "statistic"
    ]
    step = adam_steps(parameters)
    size = network.program.probes(BATCH)
    batches = -(-lessons.places.size // size)
    begin = time.monotonic()
    best, found, since, epochs = judge(network), network, 0, 0
    for epoch in range(EPOCHS):
        order = torch.from_numpy(rng.permutation(lessons.places))
        for batch, rows in enumerate(torch.split(order, size)):
            done = (epoch * batches + batch) / (EPOCHS * batches)
            if end is not None:
                done = max(done, (time.monotonic() - begin) / max(end - begin, SHORTEST))
            if done >= 1:
                break
            epochs = epoch + 1
            wanted = y[rows].flatten(0, -2) if y.dim() > TABLE else y[rows]
            loss = loss_of(network.program.run(tensors, x[rows]), wanted)
            step(torch.autograd.grad(loss, parameters, materialize_grads=True), rate(done))
        if not all(torch.isfinite(tensor).all() for tensor in parameters):
            break
        present = units.out_of_them(network, tensors)
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


def adam_steps(parameters: list[torch.Tensor]) -> Callable[[Sequence[torch.Tensor], float], None]:
    """Steps of Adam, from the gradients and the rate.

    As torch.optim.Adam takes them, which loads PyTorch's compiler first: for longer than PyTorch
    itself. The fused step goes through memory as it lies, so gradients have to lie as the
    parameters do.
    """
    import torch
    from torch.optim.adam import adam

    means = [torch.zeros_like(tensor) for tensor in parameters]
    squares = [torch.zeros_like(tensor) for tensor in parameters]
    steps = [torch.zeros((), dtype=torch.float32) for _ in parameters]

    def step(gradients: Sequence[torch.Tensor], rate: float) -> None:
        with torch.no_grad():
            adam(
                parameters,
                [gradient.contiguous() for gradient in gradients],
                means,
                squares,
                [],
                steps,
                fused=True,
                amsgrad=False,
                beta1=BETAS[0],
                beta2=BETAS[1],
                lr=rate,
                weight_decay=0.0,
                eps=EPSILON,
                maximize=False,
            )

    return step


SHORTEST = 1e-9  # seconds: no time at all is over at once


def rate(done: float) -> float:
    """The learning rate when so much of the training is done: up and down, each half a cosine."""
    if done < WARM_UP:
        return FIRST_RATE + (LARGEST_RATE - FIRST_RATE) * (1 - cos(pi * done / WARM_UP)) / 2
    return LARGEST_RATE * (1 + cos(pi * (done - WARM_UP) / (1 - WARM_UP))) / 2


def _tensors(network: Network) -> dict[str, torch.Tensor]:
    """The network's tensors for PyTorch, in single precision."""
    import torch

    return {
        name: torch.from_numpy(np.array(tensor, dtype=np.float32, order="C"))
        for name, tensor in network.tensors.items()
    }


@dataclass(frozen=True, eq=False)
class Units:
    """The units of inputs' range, in which a perceptron learns better; a module learns in its own.

    first: the weight that inputs enter. scale: the units, in a shape that multiplies it.
    """

    width: Tensor
    first: str | None = None
    scale: Tensor | None = None

    @classmethod
    def of(cls, network: Network, within: InputRange) -> Units:
        """Those of a network's inputs."""
        if network.program.examples is not None:
            return cls(np.ones((), np.float32))
        first = network.program.maps[0]
        width = np.broadcast_to(within.width, network.numbers)
        shape = [-1 if axis == first.reads else 1 for axis in range(2)]
        return cls(width, first.weight, width.reshape(shape).copy())

    def in_them(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The tensors, changed to take inputs in these units."""
        import torch

        if self.first is not None and self.scale is not None:
            tensors[self.first].mul_(torch.from_numpy(self.scale))
        return tensors

    def out_of_them(self, network: Network, tensors: Mapping[str, torch.Tensor]) -> Network:
        """The network with these tensors, its inputs no longer in these units."""
        own = {name: tensor.detach().numpy() for name, tensor in tensors.items()}
        if self.first is not None:
            own[self.first] = own[self.first] / self.scale
        # A copy, for training goes on in place.
        return replace(network, tensors={n: np.array(v, network.dtype) for n, v in own.items()})
