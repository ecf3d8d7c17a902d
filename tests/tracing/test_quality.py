"""How good fused modules are: a small network of pictures, two sites, no data."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

import pfnm
from pfnm.fusing.tokens import Written
from pfnm.lab.data import load_data
from pfnm.tracing import remembering

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


def test_sites_with_different_classes_know_all_of_them_together() -> None:
    x, y, test_x, test_y = digits()
    low, high = y < 5, y >= 5
    modules = [trained(x[low], y[low], 0), trained(x[high], y[high] - 5, 1)]
    labels = [list(range(5)), list(range(5, 10))]
    fusion = pfnm.fuse(modules, example_inputs=EXAMPLE, labels=labels, budget=2.0)
    both = Digits(modules, test_x, test_y)
    assert isinstance(fusion.model, Small)
    print("Q", both.accuracy(fusion.model))
    assert both.accuracy(fusion.model) > 0.6


class Speaker(nn.Module):
    """A language model of few tokens."""

    def __init__(self, tokens: int, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, tokens)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.lstm(self.embedding(text))[0])
        return y


def test_language_models_write_the_text_on_which_they_are_fused() -> None:
    torch.manual_seed(0)
    tokens, length = 12, 20
    counting = (torch.arange(length + 1) + torch.arange(60)[:, None]) % tokens  # 3, 4, 5, ...
    modules = []
    for seed in range(2):
        torch.manual_seed(seed)
        module = Speaker(tokens)
        optimizer = torch.optim.Adam(module.parameters(), 0.02)
        for _ in range(60):
            said = module(counting[:, :-1]).flatten(0, 1)
            optimizer.zero_grad()
            nn.functional.cross_entropy(said, counting[:, 1:].flatten()).backward()
            optimizer.step()
        modules.append(module.eval())
    sites = pfnm.as_sites(modules, example_inputs=torch.zeros(2, length, dtype=torch.long))
    assert isinstance(sites.inputs, Written)
    written = sites.inputs.pool.astype(int)
    follows = (written[:, 1:] - written[:, :-1]) % tokens == 1
    assert follows[:, 2:].mean() > 0.9  # they count
    fusion = pfnm.fuse(sites, budget=2.0)
    answers = fusion.network.run(counting[:, :-1].numpy().astype(np.float32)).argmax(axis=1)
    assert (answers == counting[:, 1:].flatten().numpy()).mean() > 0.9
    assert fusion.agreement is not None
    polished = pfnm.fuse(sites, budget=1.0).polish()
    assert polished.polish_record is not None
