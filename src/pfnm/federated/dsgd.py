"""Downpour SGD: gradients pushed and weights fetched after every minibatch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pfnm.core.mlp import layers, mlp
from pfnm.core.network import Array, Network
from pfnm.federated.setting import BATCHES, Federation
from pfnm.federated.training import batch_plan


def downpour(
    federation: Federation,
    network: Network,
    moments: Mapping[str, Array],
    names: list[str],
    round_number: int,
) -> tuple[Network, dict[str, Array], int]:
    """As many epochs as a round of the others has, with a communication every minibatch.

    Each site sends the gradient of its batch at the weights it has just fetched; the master takes
    a step of Adam along their mean. All sites send equally often, in all as often as so many epochs
    need: sites with less data begin theirs again. Returns the network, what Adam remembers, and the
    number of communications.
    """
    import torch

    setting, data = federation.setting, federation.data
    recipe = setting.recipe_of(round_number)
    plans = []
    for name in names:
        rng = setting.rng(BATCHES, round_number, setting.names.index(name))
        part = federation.parts[name]
        plan = batch_plan(part.size, recipe, rng)
        plans.append(np.where(plan < 0, plan, part[plan]))
    stack = layers(network)
    weights = [torch.from_numpy(np.array(layer.weight)).requires_grad_() for layer in stack]
    biases = [torch.from_numpy(np.array(layer.bias)).requires_grad_() for layer in stack]
    parameters = [*weights, *biases]
    optimizer = torch.optim.Adam(
        parameters, lr=setting.learning_rate, weight_decay=recipe.weight_decay
    )
    for place, parameter in enumerate(parameters if moments else ()):
        optimizer.state[parameter] = {
            key: torch.from_numpy(np.array(moments[f"{key}.{place}"]))
            for key in ("step", "exp_avg", "exp_avg_sq")
        }
    x, y = torch.from_numpy(data.train_inputs), torch.from_numpy(data.train_labels)
    steps = round(np.mean([len(plan) for plan in plans]))
    for step in range(steps):
        batches = [plan[step % len(plan)] for plan in plans]
        rows = np.concatenate(batches)
        sizes = np.repeat([(batch >= 0).sum() for batch in batches], [b.size for b in batches])
        share = torch.from_numpy((1 / (len(batches) * sizes[rows >= 0])).astype(np.float32))
        index = torch.from_numpy(rows[rows >= 0])
        values = x[index]
        for c, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            values = torch.addmm(bias, values if c == 0 else torch.relu(values), weight)
        losses = torch.nn.functional.cross_entropy(values, y[index], reduction="none")
        optimizer.zero_grad()
        (losses * share).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    state = {
        f"{key}.{place}": value.numpy()
        for place, parameter in enumerate(parameters)
        for key, value in optimizer.state[parameter].items()
    }
    trained = mlp(
        [weight.detach().numpy() for weight in weights],
        [bias.detach().numpy() for bias in biases],
        output="softmax",
        name="global",
    )
    return trained, state, steps
