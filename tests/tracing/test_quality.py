"""How good fused modules are: a small network of pictures, two sites, no data."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

import pfnm
from pfnm.errors import PFNMError
from pfnm.fusing.inputs import Given
from pfnm.lab.data import load_data
from pfnm.tracing import remembering
from pfnm.tracing.remembering import Memory, Remembered

EPOCHS, RATE, BATCH = 12, 0.01, 32
SIDE = 8


class Small(nn.Module):
    """Two convolutions and a hidden layer, for digits of 8 x 8."""

    def __init__(self, classes: int = 10, *, batch_norm: bool = False) -> None:
        super().__init__()
        norm: Callable[[int], nn.Module] = nn.BatchNorm2d if batch_norm else nn.Identity  # type: ignore[assignment]
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), norm(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), norm(16), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, classes)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.features(x))
        return y


@dataclass(frozen=True)
class Digits:
    """Two trained networks, and what to test them on."""

    modules: list[nn.Module]
    x: torch.Tensor
    y: torch.Tensor

    def accuracy(self, model: nn.Module) -> float:
        with torch.no_grad():
            return float((model(self.x).argmax(dim=1) == self.y).float().mean())


def digits() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    data = load_data("digits")
    pictures = [
        torch.from_numpy(x.astype(np.float32)).reshape(-1, 1, SIDE, SIDE)
        for x in (data.train_inputs, data.test_inputs)
    ]
    labels = [torch.from_numpy(y) for y in (data.train_labels, data.test_labels)]
    return pictures[0], labels[0], pictures[1], labels[1]


def trained(x: torch.Tensor, y: torch.Tensor, seed: int, **how: bool) -> nn.Module:
    torch.manual_seed(seed)
    module = Small(int(y.max()) + 1, **how)
    optimizer = torch.optim.Adam(module.parameters(), RATE)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x[rows]), y[rows]).backward()
            optimizer.step()
    return module.eval()


@pytest.fixture(autouse=True, scope="module")
def _seeded() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng(devices=[]):
        patch.setattr(remembering, "POOL", 400)
        yield


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "batch_norm"])
def pair(request: pytest.FixtureRequest, _seeded: None) -> Digits:
    x, y, test_x, test_y = digits()
    half = len(x) // 2
    modules = [
        trained(x[part], y[part], seed, batch_norm=request.param)
        for seed, part in enumerate((slice(half), slice(half, None)))
    ]
    return Digits(modules, test_x, test_y)


EXAMPLE = torch.rand(4, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0))


def test_at_one_width_it_is_refitted_and_taught(pair: Digits) -> None:
    sites = pfnm.as_sites(pair.modules, example_inputs=EXAMPLE)
    fusion = pfnm.fuse(sites, budget=1.0)
    averaged = next(one for one in fusion.candidates if one.ridge is None)
    assert fusion.agreement is not None
    assert max(one.sure_agreement for one in fusion.candidates) > averaged.sure_agreement
    network, rows = fusion.network, pair.x.flatten(1).numpy()
    fused = float((network.run(rows).argmax(axis=1) == pair.y.numpy()).mean())
    polished = fusion.polish()
    taught = float((polished.network.run(rows).argmax(axis=1) == pair.y.numpy()).mean())
    local = max(map(pair.accuracy, pair.modules))
    print("Q", local, fused, taught, fusion.agreement, polished.agreement)
    assert fused > 0.6
    assert taught > local - 0.1
