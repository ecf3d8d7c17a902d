"""Stacked local training against a tight one-by-one loop: same networks, same batches, one run.

`python benchmarks/training.py` writes benchmarks/training.json.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from pfnm.core.mlp import layers
from pfnm.core.network import IntArray, Network, Tensor
from pfnm.federated.partition import dirichlet
from pfnm.federated.training import Recipe, batch_plan, initial_network, train_sites

SITES, EXAMPLES, INPUTS, CLASSES = 25, 12_000, 784, 10
REPEATS = 3
RECIPE = Recipe(epochs=2)


def one_by_one(
    networks: list[Network], x: Tensor, y: IntArray, parts: list[IntArray]
) -> list[list[torch.Tensor]]:
    """As fast as one site at a time goes: plain tensors, one fused optimizer, no loader."""
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
    result = []
    for j, (network, part) in enumerate(zip(networks, parts, strict=True)):
        own_x, own_y = inputs[part], labels[part]
        parameters = []
        for layer in layers(network):
            assert layer.bias is not None
            parameters.append(torch.tensor(np.ascontiguousarray(layer.weight), requires_grad=True))
            parameters.append(torch.tensor(layer.bias, requires_grad=True))
        w1, b1, w2, b2 = parameters
        optimizer = torch.optim.Adam(
            parameters,
            lr=RECIPE.learning_rate,
            weight_decay=RECIPE.weight_decay,
            amsgrad=True,
            fused=True,
        )
        plan = batch_plan(part.size, RECIPE, np.random.default_rng(j))
        for batch in [torch.from_numpy(rows[rows >= 0]) for rows in plan]:
            hidden = torch.relu(torch.addmm(b1, own_x[batch], w1))
            logits = torch.addmm(b2, hidden, w2)
            loss = torch.nn.functional.cross_entropy(logits, own_y[batch])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        result.append([parameter.detach() for parameter in parameters])
    return result


def seconds(work: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(EXAMPLES, INPUTS)).astype(np.float32)
    y = rng.integers(CLASSES, size=EXAMPLES)
    networks = [initial_network(INPUTS, CLASSES, RECIPE, rng) for _ in range(SITES)]
    found = {}
    even = np.array_split(rng.permutation(EXAMPLES), SITES)
    for name, parts in (("even", even), ("dirichlet", dirichlet(y, SITES, 0.5, rng, 10))):

        def rngs() -> list[np.random.Generator]:
            return [np.random.default_rng(j) for j in range(SITES)]

        together = train_sites(networks, x, y, parts, RECIPE, rngs())
        apart = one_by_one(networks, x, y, parts)
        first = [np.ascontiguousarray(layers(network)[0].weight) for network in together]
        gap = max(float(np.abs(a - b[0].numpy()).max()) for a, b in zip(first, apart, strict=True))
        slow = seconds(lambda parts=parts: one_by_one(networks, x, y, parts))  # type: ignore[misc]
        fast = seconds(lambda parts=parts: train_sites(networks, x, y, parts, RECIPE, rngs()))  # type: ignore[misc]
        found[name] = {
            "one_by_one_seconds": round(slow, 3),
            "stacked_seconds": round(fast, 3),
            "ratio": round(slow / fast, 2),
            "largest_difference_of_weights": gap,
        }
        print(name, found[name], flush=True)
    result = {"sites": SITES, "threads": torch.get_num_threads(), "splits": found}
    path = Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
