"""A map that adds to a residual stream is fitted to the sum: it mends what went wrong before."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pfnm.networks.program import Map
from pfnm.tracing.modules import from_modules

ROWS = 10_000  # all of them


class Stream(nn.Module):
    """Two convolutions beside a stream, the second normalised; then the stream's mean."""

    def __init__(self, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.up = nn.Conv2d(4, 5, 3, padding=1, bias=False)
        self.down = nn.Conv2d(5, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.shortcut = shortcut or nn.Identity()
        self.head = nn.Linear(4, 2)

    def stream(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        before = self.first(x).relu()
        added = self.norm(self.down(self.up(before).relu()))
        return before, added, added + self.shortcut(before)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.stream(x)[2].relu().mean(dim=(2, 3)))
        return found


class Attached(nn.Module):
    """A perceptron beside a stream of tokens' places, written into it in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 4)
        self.dropout = nn.Dropout()
        self.head = nn.Linear(4, 2)

    def stream(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        before = self.first(x)
        added = self.dropout(self.down(self.up(before).relu()))
        return before, added, before + added

    def forward(self, x: Tensor) -> Tensor:
        before, added, _ = self.stream(x)
        before += added
        found: Tensor = self.head(before.relu())
        return found


def seen(module: nn.Module, x: Tensor) -> dict[str, np.ndarray]:
    module.eval()
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.running_mean, norm.running_var = torch.randn(4), torch.rand(4) + 0.5
    (network,) = from_modules([module], x)
    found: dict[str, np.ndarray] = {}

    def visit(at: Map, _: Any, values: Any) -> None:
        found[at.weight] = values.T

    network.run(x.flatten(1).numpy(), visit, rows=ROWS)
    return found


def rows(values: Tensor, axis: int, like: np.ndarray) -> None:
    """The same numbers, whatever the order of the rows."""
    own = values.detach().movedim(axis, -1).flatten(0, -2).numpy().T
    assert own.shape == like.shape
    np.testing.assert_allclose(np.sort(own), np.sort(like), atol=1e-5)


@pytest.mark.parametrize(
    ("make", "shape", "axis"),
    [(Stream, (6, 3, 5, 5), 1), (Attached, (6, 7, 3), -1)],
    ids=["convolutions", "linear"],
)
def test_what_leaves_a_map_that_adds_to_a_stream_is_the_sum(
    make: Callable[[], Stream | Attached], shape: tuple[int, ...], axis: int
) -> None:
    torch.manual_seed(0)
    module, x = make(), torch.randn(shape)
    found = seen(module, x)
    with torch.no_grad():
        before, _, after = module.stream(x)
        rows(after, axis, found["down.weight"])
        rows(module.up(before), axis, found["up.weight"])


def test_of_two_maps_that_are_added_the_later_one_sees_the_sum() -> None:
    torch.manual_seed(0)
    module, x = Stream(nn.Conv2d(4, 4, 1)), torch.randn(6, 3, 5, 5)
    found = seen(module, x)
    with torch.no_grad():
        _, added, after = module.stream(x)
        rows(added, 1, found["down.weight"])  # the other is not computed yet
        rows(after, 1, found["shortcut.weight"])


class Apart(Stream):
    """A normalisation that does not follow its convolution at once is not folded into it."""

    def stream(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        before = self.first(x).relu()
        added = self.norm(nn.functional.dropout(self.down(self.up(before).relu()), training=False))
        return before, added, added + self.shortcut(before)


def test_behind_a_normalisation_of_its_own_a_map_does_not_see_the_sum() -> None:
    torch.manual_seed(0)
    module, x = Apart(), torch.randn(6, 3, 5, 5)
    found = seen(module, x)
    with torch.no_grad():
        before, _, _ = module.stream(x)
        rows(module.down(module.up(before).relu()), 1, found["down.weight"])
