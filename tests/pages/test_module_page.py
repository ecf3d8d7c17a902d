"""The page of fused PyTorch modules: a residual network, live and from its file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from browsing import browser, check_answers, check_opens
from torch import nn

import pfnm
from pfnm.report.of import report_of


class Block(nn.Module):
    """Two convolutions beside a way past them."""

    def __init__(self, entering: int, leaving: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(entering, leaving, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(leaving)
        self.conv2 = nn.Conv2d(leaving, leaving, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(leaving)
        self.past: nn.Module = nn.Identity()
        if entering != leaving:
            self.past = nn.Sequential(
                nn.Conv2d(entering, leaving, 1, stride, bias=False), nn.BatchNorm2d(leaving)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(inner + self.past(x))


def resnet(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 8, 5, padding=2, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        Block(8, 8, 1), Block(8, 12, 2), Block(12, 16, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5),
    )  # fmt: skip


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def fusion() -> pfnm.Fusion:
    example = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    both = [resnet(0), resnet(1)]  # how they answer does not matter here: any inputs will do
    return pfnm.fuse(both, example_inputs=(example,), inputs=example, budget=1.5)


def test_a_residual_network_shows_its_groups_and_filters(fusion: pfnm.Fusion) -> None:
    page = fusion.report()
    sections = {section.name: section for section in page.sections}
    assert len(fusion.network.graph.outer_groups) == 6  # three streams, and one in each block
    assert "6 unit groups" in sections["Groups"].heading
    assert sections["Weights"].html("weights").count("<img") > 8


def test_a_file_of_a_module_shows_its_record(fusion: pfnm.Fusion, tmp_path: Path) -> None:
    fusion.save(tmp_path / "fused.pt")
    page = report_of(tmp_path / "fused.pt")
    assert page.figures["Sites"][0] == "2"
    assert page.figures["Parameters"][0].replace(",", "").isdigit()


@pytest.mark.parametrize(("scheme", "width"), [("dark", 1200), ("light", 390)])
def test_a_browser_shows_a_residual_network(
    chromium: Any, fusion: pfnm.Fusion, tmp_path: Path, scheme: str, width: int
) -> None:
    fusion.report(tmp_path / "page.html")
    check_opens(chromium, tmp_path / "page.html", scheme, width)


def test_the_page_of_a_residual_network_answers(
    chromium: Any, fusion: pfnm.Fusion, tmp_path: Path
) -> None:
    fusion.report(tmp_path / "page.html")
    check_answers(chromium, tmp_path / "page.html")
