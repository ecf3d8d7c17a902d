"""Modules that are built or counted otherwise than most."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pfnm
from pfnm.errors import PFNMError


def scaled(width: int, scale: float, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    last = nn.Linear(width, 3)
    with torch.no_grad():
        last.weight *= scale
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), last)


class TimeFirst(nn.Module):
    """Its second layer takes examples along the second axis."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        within = torch.relu(self.second(torch.relu(self.first(x)).transpose(0, 1)))
        out: Tensor = self.last(within.mean(0))
        return out


class MoreOutputs(nn.Module):
    """A language model with more outputs than tokens it can read."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.hidden, self.out = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(torch.relu(self.hidden(self.table(x))))
        return out


def test_two_narrow_sites_side_by_side_leave_no_place_for_a_wide_one() -> None:
    sites = [scaled(4, 20.0, 0), scaled(4, 20.0, 1), scaled(20, 0.01, 2)]
    fusion = pfnm.fuse(sites, example_inputs=(torch.rand(4, 6),))
    assert max(fusion.widths.values()) >= 20


def test_examples_along_another_axis_are_not_taken_for_others() -> None:
    x = torch.rand(4, 17, 6)
    fusion = pfnm.fuse([TimeFirst(), TimeFirst()], example_inputs=(x,))
    assert fusion.model(x).shape == (4, 3)


def test_a_language_model_may_have_outputs_that_are_no_tokens() -> None:
    x = torch.randint(0, 20, (2, 6))
    fusion = pfnm.fuse([MoreOutputs(), MoreOutputs()], example_inputs=(x,))
    assert fusion.model(x).shape == (2, 6, 24)


def test_a_site_that_has_seen_nothing_counts_for_nothing() -> None:
    both = [
        nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)).eval()
        for _ in range(2)
    ]
    counts = [[5, 5, 5], [0, 0, 0]]
    fusion = pfnm.fuse(both, example_inputs=(torch.rand(4, 6),), class_counts=counts)
    assert np.isfinite(fusion.predict(np.zeros((1, 6), dtype=np.float32))).all()


@pytest.mark.parametrize("groups", [[{}], {"0.weight": 0}, [{"0.weight": "0"}]])
def test_groups_by_hand_that_are_none(groups: object) -> None:
    with pytest.raises(PFNMError, match="a group by hand is"):
        pfnm.trace(scaled(4, 1.0, 0), torch.rand(4, 6), groups=groups)  # type: ignore[arg-type]


@pytest.mark.parametrize("inputs", ["tokens:500", np.full((8, 4), 499)])
def test_tokens_that_a_network_does_not_know(inputs: object) -> None:
    modules = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        modules.append(nn.Sequential(nn.Embedding(20, 8), nn.Flatten(), nn.Linear(32, 3)))
    with pytest.raises(
        PFNMError, match=r"tokens up to 4\d\d, but Sequential knows 20 of them"
    ) as told:
        pfnm.fuse(modules, example_inputs=torch.randint(20, (2, 4)), inputs=inputs)  # type: ignore[arg-type]
    assert "inputs='tokens:20'" in str(told.value)
