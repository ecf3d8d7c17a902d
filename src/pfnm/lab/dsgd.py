"""Downpour SGD: gradients pushed and weights fetched after every minibatch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pfnm.lab.setting import BATCHES, Federation
from pfnm.lab.training import batch_plan
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array, Network
from pfnm.networks.perceptron import layers, mlp


def downpour(
    federation: Federation,
    network: Network,
    moments: Mapping[str, Array],
    names: list[str],
    round_number: int,
    on_step: Callable[[int, Callable[[], Network]], None] | None = None,
) -> tuple[Network, dict[str, Array], int, dict[str, str]]:
    """As many epochs as a round of the others has, with a communication every minibatch.

    Each site sends the gradient of its batch at the weights it has just fetched; the master takes
    a step of Adam along their mean. All sites send equally often, in all as often as so many epochs
    need: sites with less data begin theirs again, the largest do not get through theirs. A site
    whose gradient is not finite is left out from then on. Returns the network, what Adam remembers,
    the number of communications, and why sites were left out. on_step: told after every step how
    many there have been in this round, and how to get the network of that moment.
    """
    import torch

    setting, data = federation.setting, federation.data
    recipe = setting.recipe_of(round_number)
    plans: dict[str, IntArray] = {}
    for name in names:
        rng = setting.rng(BATCHES, round_number, setting.names.index(name))
        part = federation.parts[name]
        plan = batch_plan(part.size, recipe, rng)
        plans[name] = np.where(plan < 0, plan, part[plan])
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

    def gradients(site_names: Sequence[str], step: int) -> list[torch.Tensor]:
        """Of the mean over these sites of the mean loss of each one's batch."""
        batches = [plans[name][step % len(plans[name])] for name in site_names]
        sizes = [(batch >= 0).sum() for batch in batches]
        index = torch.from_numpy(np.concatenate([batch[batch >= 0] for batch in batches]))
        shares = np.repeat([1 / (len(batches) * size) for size in sizes], sizes)
        values = x[index]
        for c, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            values = torch.addmm(bias, values if c == 0 else torch.relu(values), weight)
        losses = torch.nn.functional.cross_entropy(values, y[index], reduction="none")
        loss = (losses * torch.from_numpy(shares.astype(np.float32))).sum()
        return list(torch.autograd.grad(loss, parameters))

    def finite(found: Sequence[torch.Tensor]) -> bool:
        return all(bool(torch.isfinite(gradient).all()) for gradient in found)

    def trained() -> Network:
        return mlp(
            [weight.detach().numpy() for weight in weights],
            [bias.detach().numpy() for bias in biases],
            output="softmax",
            name="global",
        )

    left_out: dict[str, str] = {}
    steps = round(np.mean([len(plan) for plan in plans.values()])) if plans else 0
    for step in range(steps):
        active = [name for name in names if name not in left_out]
        found = gradients(active, step) if active else []
        if not finite(found):
            for name in active:
                if not finite(gradients([name], step)):
                    left_out[name] = f"{name}: its gradient is not finite at step {step + 1}"
            active = [name for name in names if name not in left_out]
            found = gradients(active, step) if active else []
        if not active:
            steps = step
            break
        for parameter, gradient in zip(parameters, found, strict=True):
            parameter.grad = gradient
        optimizer.step()
        if on_step is not None:
            on_step(step + 1, trained)
    state = {
        f"{key}.{place}": value.numpy()
        for place, parameter in enumerate(parameters)
        for key, value in optimizer.state[parameter].items()
    }
    return trained(), state, steps, left_out
