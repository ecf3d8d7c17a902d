"""Local training: the networks of several sites at once, as stacked tensors.

Every step is one batched product a layer for all the sites of a stack that are still at work, and
one optimizer step. The result is that of training the sites one by one on the same batches, up to
rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from pfnm.errors import PFNMError
from pfnm.lab.data import Data
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Network, Tensor
from pfnm.networks.perceptron import layers, mlp, perceptron

if TYPE_CHECKING:
    import torch

PADDING = -1  # in a batch with fewer examples than the others
STACK_BYTES = 8_000_000  # of a stack, for each thread: what one has of the processor's last cache
COPIES = 5  # of every weight: itself, its gradient, and what AMSGrad remembers (SGD: nothing)


@dataclass(frozen=True)
class Recipe:
    """How a site trains: the paper's choices for MNIST unless said otherwise."""

    hidden: tuple[int, ...] = (100,)
    epochs: int = 10
    batch_size: int = 32
    learning_rate: float = 0.01
    weight_decay: float = 1e-6
    weight_scale: float | None = 0.1
    """Standard deviation of the first weights; None: PyTorch's default, uniform by fan-in."""
    bias_start: float | None = 0.1
    """What biases start from; None: no biases."""
    optimizer: str = "amsgrad"
    """Or "sgd": plain stochastic gradient descent."""
    proximal: float = 0.0
    """FedProx: half of this times the squared distance from the start is added to the loss."""


Trained = dict[str, Network | PFNMError]
"""By site: its trained network, or why there is none."""
Rngs = Mapping[str, np.random.Generator]
LocalTraining = Callable[
    [
        Mapping[str, Network],
        Data,
        Mapping[str, IntArray],
        Recipe,
        Mapping[str, np.random.Generator],
    ],
    Trained,
]
"""How sites train, by name: from their networks, the data, each site's positions in its training
examples, the recipe, and each site's randomness. A user may give another (see `plain`)."""


def initial_network(inputs: int, outputs: int, recipe: Recipe, rng: np.random.Generator) -> Network:
    """A network before training, as the recipe says."""
    sizes = (inputs, *recipe.hidden, outputs)
    weights = []
    for shape in pairwise(sizes):
        if recipe.weight_scale is None:
            bound = 1 / np.sqrt(shape[0])
            weights.append(rng.uniform(-bound, bound, size=shape).astype(np.float32))
        else:
            weights.append(rng.normal(scale=recipe.weight_scale, size=shape).astype(np.float32))
    biases = None
    if recipe.bias_start is not None:
        biases = [np.full(size, recipe.bias_start, dtype=np.float32) for size in sizes[1:]]
    return mlp(weights, biases, output="softmax")


def batch_plan(examples: int, recipe: Recipe, rng: np.random.Generator) -> IntArray:
    """The batches of all epochs: (steps, batch_size), each epoch in a new order, padded."""
    per_epoch = -(-examples // recipe.batch_size)
    plan = np.full((recipe.epochs, per_epoch * recipe.batch_size), PADDING)
    for epoch in plan:
        epoch[:examples] = rng.permutation(examples)
    return plan.reshape(-1, recipe.batch_size)


def stacked(
    starts: Mapping[str, Network],
    data: Data,
    parts: Mapping[str, IntArray],
    recipe: Recipe,
    rngs: Rngs,
) -> Trained:
    """Several sites at once: the lab's own `LocalTraining`."""
    tensors = _train(
        list(starts.values()),
        data.train_inputs,
        data.train_labels,
        [parts[name] for name in starts],
        recipe,
        [rngs[name] for name in starts],
    )
    result: Trained = {}
    for (name, start), own in zip(starts.items(), tensors, strict=True):
        try:
            result[name] = _unstack(replace(start, name=name), own)
        except PFNMError as error:  # its weights are not finite
            result[name] = error
    return result


def train_sites(
    networks: Sequence[Network],
    inputs: Tensor,
    labels: IntArray,
    parts: Sequence[IntArray],
    recipe: Recipe,
    rngs: Sequence[np.random.Generator],
) -> list[Network]:
    """Train each network (ReLU, softmax; all of one shape) on its part of the data.

    inputs (examples, D) and labels (examples,) are everybody's; parts[j] are site j's positions;
    rngs[j] orders its batches. Sites with less data finish earlier and take no further part.
    """
    trained = _train(networks, inputs, labels, parts, recipe, rngs)
    return [_unstack(start, own) for start, own in zip(networks, trained, strict=True)]


def _train(
    networks: Sequence[Network],
    inputs: Tensor,
    labels: IntArray,
    parts: Sequence[IntArray],
    recipe: Recipe,
    rngs: Sequence[np.random.Generator],
) -> list[list[torch.Tensor]]:
    """The trained weights and biases of each site."""
    import torch

    plans = [batch_plan(part.size, recipe, rng) for part, rng in zip(parts, rngs, strict=True)]
    order = np.argsort([-len(plan) for plan in plans], kind="stable")
    x = torch.from_numpy(np.ascontiguousarray(inputs, dtype=np.float32))
    y = torch.from_numpy(np.asarray(labels, dtype=np.int64))
    depth = len(layers(networks[0]))
    at_once = sites_at_once(networks[0].parameters, torch.get_num_threads())
    trained: dict[int, list[torch.Tensor]] = {}
    for first in range(0, len(order), at_once):
        some = order[first : first + at_once].tolist()
        own_plans = [plans[j] for j in some]
        found = _train_stack(
            _stack([networks[j] for j in some]),
            depth,
            x,
            y,
            _stacked_batches([parts[j] for j in some], own_plans),
            [len(plan) for plan in own_plans],
            recipe,
        )
        trained.update(zip(some, found, strict=True))
    return [trained[j] for j in range(len(networks))]


def sites_at_once(parameters: int, threads: int) -> int:
    """How many sites with so many weights make a stack that stays in the processor's cache."""
    own_bytes = COPIES * np.dtype(np.float32).itemsize * parameters
    return max(1, threads * STACK_BYTES // own_bytes)


def _train_stack(
    stack: list[torch.Tensor],
    depth: int,
    x: torch.Tensor,
    y: torch.Tensor,
    batches: IntArray,
    lengths: Sequence[int],
    recipe: Recipe,
) -> list[list[torch.Tensor]]:
    """Sites at once, those with most steps first: (steps, sites, batch) rows of x and y."""
    import torch

    starts = [p.clone() for p in stack] if recipe.proximal > 0 else []
    optimizer = optimizer_of(stack, recipe)
    finished: list[list[torch.Tensor]] = []
    for step, batch in enumerate(batches):
        active = sum(length > step for length in lengths)
        if active < len(stack[0]):
            finished += [[p[s] for p in stack] for s in range(len(stack[0]) - 1, active - 1, -1)]
            stack, optimizer = _shrunk(stack, optimizer, active, recipe)
        _set_gradients(stack, depth, x, y, torch.from_numpy(batch[:active]))
        for p, start in zip(stack, starts, strict=False):
            assert p.grad is not None
            p.grad.add_(p - start[:active], alpha=recipe.proximal)
        optimizer.step()
    finished += [[p[s] for p in stack] for s in range(len(stack[0]) - 1, -1, -1)]
    return finished[::-1]


def _set_gradients(
    stack: Sequence[torch.Tensor],
    depth: int,
    x: torch.Tensor,
    y: torch.Tensor,
    index: torch.Tensor,
) -> None:
    """The gradients of the mean cross-entropy of each site's batch, (sites, batch) rows of x.

    Written out, into memory kept from step to step: twice as fast as recording the graph.
    """
    import torch

    weights, biases = stack[:depth], stack[depth:]
    real = (index >= 0).to(torch.float32)
    rows = index.clamp(min=0)
    values = [x.index_select(0, rows.flatten()).view(*rows.shape, -1)]
    for c, weight in enumerate(weights):
        below = values[-1] if c == 0 else values[-1].relu_()
        outputs = torch.baddbmm(biases[c], below, weight) if biases else torch.bmm(below, weight)
        values.append(outputs)
    logs = torch.log_softmax(values.pop(), dim=2)
    change = torch.zeros_like(logs)  # of the loss, by the log probabilities
    change.scatter_(2, y[rows].unsqueeze(2), (-real / real.sum(dim=1, keepdim=True)).unsqueeze(2))
    change = torch.ops.aten._log_softmax_backward_data(change, logs, 2, logs.dtype)
    for c in range(depth - 1, -1, -1):
        torch.bmm(values[c].transpose(1, 2), change, out=weights[c].grad)
        if biases:
            torch.sum(change, dim=1, keepdim=True, out=biases[c].grad)
        if c > 0:
            change = torch.bmm(change, weights[c].transpose(1, 2)) * (values[c] > 0)


def _stacked_batches(parts: Sequence[IntArray], plans: Sequence[IntArray]) -> IntArray:
    """(steps, sites, batch) positions in the data, PADDING where a site has nothing."""
    steps = max(len(plan) for plan in plans)
    batches = np.full((steps, len(parts), plans[0].shape[1]), PADDING)
    for j, (part, plan) in enumerate(zip(parts, plans, strict=True)):
        batches[: len(plan), j] = np.where(plan == PADDING, PADDING, part[plan])
    return batches


def _stack(networks: Sequence[Network]) -> list[torch.Tensor]:
    """Weights (sites, inputs, outputs) of all layers, then biases (sites, 1, outputs), if any."""
    import torch

    stacks = [layers(network) for network in networks]
    weights = [np.stack([layer.weight for layer in depth]) for depth in zip(*stacks, strict=True)]
    biases = [
        np.stack([layer.bias[None] for layer in depth if layer.bias is not None])
        for depth in zip(*stacks, strict=True)
        if depth[0].bias is not None
    ]
    tensors = [np.ascontiguousarray(tensor, dtype=np.float32) for tensor in weights + biases]
    return _with_gradients([torch.from_numpy(tensor.copy()) for tensor in tensors])


def _with_gradients(stack: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same, with memory for the gradients."""
    for p in stack:
        p.grad = p.new_zeros(p.shape)
    return stack


def _unstack(network: Network, tensors: Sequence[torch.Tensor]) -> Network:
    depth = len(layers(network))
    weights, biases = tensors[:depth], tensors[depth:]
    return mlp(
        [tensor.numpy().copy() for tensor in weights],
        [tensor.numpy()[0].copy() for tensor in biases] or None,
        activation=perceptron(network).activation,
        output=network.output,
        labels=network.labels,
        name=network.name,
    )


def optimizer_of(stack: Sequence[torch.Tensor], recipe: Recipe) -> torch.optim.Optimizer:
    """What the recipe says takes the steps."""
    import torch

    if recipe.optimizer == "sgd":
        return torch.optim.SGD(
            stack, lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True
        )
    return torch.optim.Adam(
        stack,
        lr=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        amsgrad=True,
        fused=True,
    )


def _shrunk(
    stack: Sequence[torch.Tensor], optimizer: torch.optim.Optimizer, active: int, recipe: Recipe
) -> tuple[list[torch.Tensor], torch.optim.Optimizer]:
    """The first `active` sites alone, with what the optimizer knows of them."""
    smaller = _with_gradients([p[:active].clone() for p in stack])
    result = optimizer_of(smaller, recipe)
    for old, new in zip(stack, smaller, strict=True):
        state = optimizer.state[old]
        result.state[new] = {
            key: value[:active].clone() if value.shape == old.shape else value.clone()
            for key, value in state.items()
            if value is not None
        }
    return smaller, result
