"""Polish: the sites' networks teach the fused one, on inputs made from the networks. No data.

The teacher is what the sites say together: their log probabilities, each site by its share of the
class. Probes stay in memory and are never written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, log_softmax, softmax

from pfnm.api import as_networks, counts_table, same_kind
from pfnm.core.errors import PFNMError
from pfnm.core.fusion import Fusion
from pfnm.core.mlp import LEAKY_SLOPE, forward, layers
from pfnm.core.network import Network, Tensor
from pfnm.core.probes import CHECK_PROBES, agreement, atom_probes, is_classifier, probe
from pfnm.core.sites import Sites, comparable

if TYPE_CHECKING:
    import torch

# Diversity of probes helps: kinds in proportions that did well on MNIST (docs/deep.md).
ATOM_PROBES, MIXED_PROBES, SEEKING_PROBES = 20_000, 10_000, 10_000
SEEKING_STEPS = (3, 10)  # of gradient ascent, drawn for each block of probes
SEEKING_BLOCK = 1000
SEEKING_RATE = 0.1  # of the largest step of an input, whose range is 0 to 1
EPOCHS, BATCH, LARGEST_RATE = 6, 128, 1e-3


def polish(
    fusion: Fusion,
    networks: Sequence[Any],
    *,
    class_counts: Any = None,
    site_weights: Sequence[float] | None = None,
    rng: np.random.Generator | int | None = None,
    seconds: float | None = None,
    on_step: Callable[[], None] | None = None,
) -> Fusion:
    """The fusion with its network taught by the sites' networks on probes.

    networks, class_counts and site_weights: what was fused, as `fuse` takes it. seconds: stop
    training then. The network is kept as it was where agreement on other probes does not rise.
    Units stay where they are, so assignments and a site's part stay meaningful.
    """
    try:
        import torch  # noqa: F401
    except ImportError:
        raise PFNMError("polish needs PyTorch; pip install 'pfnm[torch]'") from None
    own = as_networks(networks)
    sites = comparable(own, counts_table(class_counts, own), site_weights)
    make_rng, seek_rng, check_rng, order_rng = np.random.default_rng(
        0 if rng is None else rng
    ).spawn(4)
    inputs = _probes(sites, make_rng, seek_rng)
    polished = _taught(fusion.network, inputs, _teacher(sites, inputs), order_rng, seconds, on_step)
    to_check = probe(sites, CHECK_PROBES, check_rng, with_noise=True)
    before, after = agreement(fusion.network, to_check), agreement(polished, to_check)
    kept = polished if after > before else fusion.network
    record = {
        "agreement_before": before,
        "agreement_after": after,
        "kept": after > before,
        "seconds": seconds,
        "seed": rng if isinstance(rng, int) else None if rng is not None else 0,
    }
    network = replace(kept, metadata={**fusion.network.metadata, "polish": record})
    return replace(
        fusion,
        network=network,
        agreement=max(0.0, before, after),
        model=None if fusion.model is None else same_kind(network, fusion.model),
    )


def _probes(sites: Sites, make_rng: np.random.Generator, seek_rng: np.random.Generator) -> Tensor:
    """Atom probes, mixtures of two of them, and some that climb towards a class."""
    atoms = atom_probes(sites.networks, ATOM_PROBES, make_rng)
    one, two = make_rng.integers(ATOM_PROBES, size=(2, MIXED_PROBES))
    share = make_rng.uniform(size=(MIXED_PROBES, 1)).astype(np.float32)
    mixed = share * atoms[one] + (1 - share) * atoms[two]
    kinds = [atoms, mixed]
    if is_classifier(sites.networks[0]):
        kinds += [
            _seeking(sites, atoms[first : first + SEEKING_BLOCK], seek_rng)
            for first in range(0, SEEKING_PROBES, SEEKING_BLOCK)
        ]
    return np.concatenate(kinds)


def _seeking(sites: Sites, start: Tensor, rng: np.random.Generator) -> Tensor:
    """Inputs that the sites' ensemble takes more and more for a random class."""
    import torch

    shares = torch.from_numpy(sites.class_shares.astype(np.float32))
    wanted = torch.from_numpy(rng.integers(shares.shape[1], size=(len(start), 1)))
    stacks = [_tensors(network) for network in sites.networks]
    activation = _activation(sites.networks[0])
    x = torch.from_numpy(start.copy())
    for _ in range(rng.integers(*SEEKING_STEPS)):
        x.requires_grad_()
        total = torch.zeros(len(start), shares.shape[1])
        for own, stack in zip(shares, stacks, strict=True):
            total = total + own * torch.softmax(_forward(stack, x, activation), dim=1)
        height = total.clamp_min(torch.finfo(total.dtype).tiny).log().gather(1, wanted).sum()
        (slope,) = torch.autograd.grad(height, x)
        largest = slope.abs().amax(dim=1, keepdim=True)
        steps = slope / torch.where(largest > 0, largest, 1)
        x = (x.detach() + SEEKING_RATE * steps).clamp(0, 1)
    result: Tensor = x.detach().numpy()
    return result


def _teacher(sites: Sites, inputs: Tensor) -> Tensor:
    """What the sites say together, (probes, outputs): probabilities, or plain values."""
    first = sites.networks[0]
    total = np.zeros((len(inputs), sites.class_shares.shape[1]))
    for network, shares, known in zip(sites.networks, sites.class_shares, sites.known, strict=True):
        outputs = forward(network, inputs).astype(float)
        if is_classifier(first):
            outputs = log_softmax(np.where(known, outputs, -np.inf), axis=1)
            total[:, known] += shares[known] * outputs[:, known]
        else:
            total += shares * (expit(outputs) if first.output == "sigmoid" else outputs)
    taught = softmax(total, axis=1) if is_classifier(first) else total
    return np.asarray(taught, dtype=np.float32)


def _taught(
    network: Network,
    inputs: Tensor,
    targets: Tensor,
    rng: np.random.Generator,
    seconds: float | None,
    on_step: Callable[[], None] | None,
) -> Network:
    """The network after some epochs of Adam with a one-cycle rate."""
    import torch

    loss_of: Callable[..., torch.Tensor] = torch.nn.functional.mse_loss
    if is_classifier(network):
        loss_of = torch.nn.functional.cross_entropy
    elif network.output == "sigmoid":
        loss_of = torch.nn.functional.binary_cross_entropy_with_logits
    x, y = torch.from_numpy(inputs), torch.from_numpy(targets)
    stack = _tensors(network)
    parameters = [
        tensor.requires_grad_() for layer in stack for tensor in layer if tensor is not None
    ]
    activation = _activation(network)
    optimizer = torch.optim.Adam(parameters, lr=LARGEST_RATE, fused=True)
    per_epoch = len(inputs) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LARGEST_RATE, total_steps=EPOCHS * per_epoch
    )
    begin = time.monotonic()
    for _ in range(EPOCHS):
        order = torch.from_numpy(rng.permutation(len(inputs)))
        for rows in order[: per_epoch * BATCH].view(per_epoch, BATCH):
            if seconds is not None and time.monotonic() - begin > seconds:
                return _with(network, stack)
            loss = loss_of(_forward(stack, x[rows], activation), y[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            if on_step is not None:
                on_step()
    return _with(network, stack)


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


def _with(network: Network, stack: Stack) -> Network:
    tensors = {}
    for layer, (weight, bias) in zip(layers(network), stack, strict=True):
        own = weight.detach().numpy().astype(network.dtype)
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
