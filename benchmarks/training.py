"""Stacked local training against tight one-by-one loops: same networks, same batches, one run.

`python benchmarks/training.py` writes benchmarks/training.json.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path

import numpy as np
import torch

from pfnm.lab.partition import dirichlet
from pfnm.lab.plain import module_of
from pfnm.lab.training import Recipe, batch_plan, initial_network, train_sites
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Network, Tensor
from pfnm.networks.perceptron import layers

SITES, EXAMPLES, INPUTS, CLASSES = 25, 12_000, 784, 10
REPEATS = 5
RECIPE = Recipe(epochs=5)


def plainly(
    networks: list[Network], x: Tensor, y: IntArray, parts: list[IntArray]
) -> list[list[torch.Tensor]]:
    """A tight loop as one writes it: a module, PyTorch's Adam, batches by index, no loader."""
    result = []
    for j, (network, part) in enumerate(zip(networks, parts, strict=True)):
        own_x, own_y = torch.from_numpy(x[part]), torch.from_numpy(y[part])
        module = module_of(network)
        optimizer = torch.optim.Adam(
            module.parameters(),
            lr=RECIPE.learning_rate,
            weight_decay=RECIPE.weight_decay,
            amsgrad=True,
        )
        for batch in batches_of(part, j):
            loss = torch.nn.functional.cross_entropy(module(own_x[batch]), own_y[batch])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        result.append([parameter.detach() for parameter in module.parameters()])
    return result


def sparely(
    networks: list[Network], x: Tensor, y: IntArray, parts: list[IntArray]
) -> list[list[torch.Tensor]]:
    """As fast as one site at a time goes: no module, one fused optimizer step."""
    result = []
    for j, (network, part) in enumerate(zip(networks, parts, strict=True)):
        own_x, own_y = torch.from_numpy(x[part]), torch.from_numpy(y[part])
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
        for batch in batches_of(part, j):
            hidden = torch.relu(torch.addmm(b1, own_x[batch], w1))
            loss = torch.nn.functional.cross_entropy(torch.addmm(b2, hidden, w2), own_y[batch])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        result.append([parameter.detach() for parameter in parameters])
    return result


def batches_of(part: IntArray, site: int) -> list[torch.Tensor]:
    plan = batch_plan(part.size, RECIPE, np.random.default_rng(site))
    return [torch.from_numpy(rows[rows >= 0]) for rows in plan]


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(EXAMPLES, INPUTS)).astype(np.float32)
    y = rng.integers(CLASSES, size=EXAMPLES)
    networks = [initial_network(INPUTS, CLASSES, RECIPE, rng) for _ in range(SITES)]
    found = {}
    even = np.array_split(rng.permutation(EXAMPLES), SITES)
    for split, parts in (("even", even), ("dirichlet", dirichlet(y, SITES, 0.5, rng, 10))):
        times: dict[str, list[float]] = {"plain": [], "spare": [], "stacked": []}
        for _ in range(1 + REPEATS):  # the first is for warming up
            for name, seconds in times.items():
                rngs = [np.random.default_rng(j) for j in range(SITES)]
                begin = time.perf_counter()
                if name == "plain":
                    plainly(networks, x, y, parts)
                elif name == "spare":
                    apart = sparely(networks, x, y, parts)
                else:
                    together = train_sites(networks, x, y, parts, RECIPE, rngs)
                seconds.append(time.perf_counter() - begin)
        gap = max(
            float(np.abs(layers(a)[0].weight - b[0].numpy()).max())
            for a, b in zip(together, apart, strict=True)
        )
        medians = {name: statistics.median(seconds[1:]) for name, seconds in times.items()}
        found[split] = {
            "seconds": {name: round(value, 3) for name, value in medians.items()},
            "times_faster_than_plain_loop": round(medians["plain"] / medians["stacked"], 2),
            "times_faster_than_spare_loop": round(medians["spare"] / medians["stacked"], 2),
            "largest_difference_of_weights": gap,
        }
        print(split, found[split], flush=True)
    result = {"sites": SITES, "threads": torch.get_num_threads(), "splits": found}
    path = Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
