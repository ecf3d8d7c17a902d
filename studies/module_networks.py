"""The networks of studies/quality.py and studies/peers.py: small ones of pictures, trained apart.

    python studies/module_networks.py NETWORKS [--sets vgg lenet-even ...] [--seeds 10 11 12]

Each goes to NETWORKS/SET-seedS-siteJ.pt, a bare state dict, with its class counts in a .json beside
it, as soon as it is trained; what is there already is passed over. Pictures of CIFAR-10 are shifted
and mirrored while a network trains on them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from quality import SETS, Set, made
from torch import Tensor
from torch.nn import functional

from pfnm.lab.data import Data, load_data
from pfnm.lab.partition import dirichlet, homogeneous
from pfnm.networks.graph import IntArray

ALPHA, LEAST_EXAMPLES = 0.5, 10
EPOCHS = {"mnist": 10, "cifar10": 16}
HIGHEST_RATE = {"mnist": 0.003, "cifar10": 0.01}  # of AdamW, in one cycle
DECAY, BATCH, SHIFT = 0.05, 128, 4


def parts(own: Set, data: Data, rng: np.random.Generator) -> list[IntArray]:
    """Which training examples each site holds."""
    labels = data.train_labels
    if own.split == "dirichlet":
        return dirichlet(labels, own.sites, ALPHA, rng, LEAST_EXAMPLES)
    if own.split == "classes":
        share = len(data.classes) // own.sites
        return [np.flatnonzero(labels // share == site) for site in range(own.sites)]
    return homogeneous(labels, own.sites, rng)


def varied(x: Tensor, generator: torch.Generator) -> Tensor:
    """Pictures, each shifted by a few pixels, and half of them mirrored."""
    height, width = x.shape[-2:]
    padded = functional.pad(x, (SHIFT,) * 4)
    moves = torch.randint(2 * SHIFT + 1, (2, len(x), 1, 1, 1), generator=generator)
    rows = moves[0] + torch.arange(height)[:, None]
    columns = moves[1] + torch.arange(width)
    mirrored = torch.rand((len(x), 1, 1, 1), generator=generator) < 1 / 2
    columns = torch.where(mirrored, columns.flip(-1), columns)
    places = (torch.arange(len(x))[:, None, None, None], torch.arange(x.shape[1])[:, None, None])
    return padded[(*places, rows, columns)]


def trained(own: Set, x: Tensor, y: Tensor, seed: tuple[int, ...]) -> torch.nn.Module:
    """A network, from weights of its own."""
    torch.manual_seed(int(np.random.default_rng(seed).integers(2**31)))
    generator = torch.Generator().manual_seed(torch.initial_seed())
    module = made(own).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(module.parameters(), weight_decay=DECAY)
    epochs, steps = EPOCHS[own.data], -(-len(y) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, HIGHEST_RATE[own.data], epochs=epochs, steps_per_epoch=steps
    )
    module.train()
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(y), generator=generator), BATCH):
            batch = varied(x[rows], generator) if own.data == "cifar10" else x[rows]
            batch = batch.contiguous(memory_format=torch.channels_last)
            optimizer.zero_grad()
            functional.cross_entropy(module(batch), y[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    found: torch.nn.Module = module.eval()
    return found


def train(folder: Path, name: str, seed: int) -> None:
    """What is not there yet of one set."""
    own = SETS[name]
    data = load_data(own.data)
    split = parts(own, data, np.random.default_rng([seed, own.sites]))
    for site, rows in enumerate(split):
        path = folder / f"{name}-seed{seed}-site{site}.pt"
        if path.with_suffix(".json").exists():
            continue
        x = torch.from_numpy(data.train_inputs[rows].astype(np.float32)).view(-1, *own.shape)
        y = torch.from_numpy(data.train_labels[rows])
        module = trained(own, x, y, (seed, site))
        torch.save(module.state_dict(), path)
        counts = np.bincount(data.train_labels[rows], minlength=len(data.classes)).tolist()
        path.with_suffix(".json").write_text(json.dumps({"class_counts": counts}))
        print(path.name, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", type=Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[10, 11, 12])
    told = parser.parse_args()
    torch.set_num_threads(1)
    told.networks.mkdir(parents=True, exist_ok=True)
    for number in told.seeds:
        for one in told.sets:
            train(told.networks, one, number)
