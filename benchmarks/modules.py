"""PyTorch modules: two ResNet-18s and ten ResNet-20s, traced and fused; seconds and memory.

    python benchmarks/modules.py

Each case runs in a process of its own. Memory is what fusing adds to the process at its largest,
beside the modules' own parameters. Processor seconds say more than seconds where the machine does
other work too (its load is told).
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

import pfnm

OUT = Path(__file__).with_suffix(".json")
KILOBYTE = 1024


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        values: Tensor = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(values + self.shortcut(x))


def resnet(widths: tuple[int, ...], blocks: int, outputs: int = 10) -> nn.Sequential:
    """A residual network with so many blocks of each width."""
    parts: list[nn.Module] = [
        nn.Conv2d(3, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU(),
    ]  # fmt: skip
    below = widths[0]
    for place, width in enumerate(widths):
        for number in range(blocks):
            parts.append(Block(below, width, 2 if place and not number else 1))
            below = width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(below, outputs))


CASES = {
    "two ResNet-18": (2, (64, 128, 256, 512), 2, 1.0),
    "two ResNet-18, 1.5x": (2, (64, 128, 256, 512), 2, 1.5),
    "ten ResNet-20": (10, (16, 32, 64), 3, 1.0),
    "ten ResNet-20, 2x": (10, (16, 32, 64), 3, 2.0),
}


def peak() -> int:
    """The most memory this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KILOBYTE


def measured(case: str) -> dict[str, float | str]:
    """One case, in this process."""
    warnings.simplefilter("ignore")
    number, widths, blocks, budget = CASES[case]
    modules = []
    for seed in range(number):
        torch.manual_seed(seed)
        modules.append(resnet(widths, blocks))
    x = torch.randn(2, 3, 32, 32)
    pfnm.trace(resnet((4, 8), 1), x)  # PyTorch's own start
    own = sum(p.numel() * p.element_size() for module in modules for p in module.parameters())
    before = peak()
    begin, processor = time.perf_counter(), time.process_time()
    fusion = pfnm.fuse(modules, example_inputs=(x,), budget=budget)
    fused, worked = time.perf_counter() - begin, time.process_time() - processor
    most = peak()
    begin = time.perf_counter()
    pfnm.trace(modules[0], x)
    traced = time.perf_counter() - begin
    return {
        "case": case,
        "trace, s": round(traced, 2),
        "fuse, s": round(fused, 1),
        "fuse, processor s": round(worked, 1),
        "models, MB": round(own / 2**20),
        "memory added, MB": round((most - before) / 2**20),
        "times the models": round((most - before) / own, 1),
        "agreement": round(fusion.agreement or 0, 3),
    }


def main() -> None:
    """All cases, each in a process of its own."""
    if len(sys.argv) > 1 and sys.argv[1] in CASES:
        print(json.dumps(measured(sys.argv[1])))
        return
    rows = []
    for case in CASES:
        done = subprocess.run(
            [sys.executable, __file__, case], check=True, capture_output=True, text=True
        )
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    load = round(os.getloadavg()[-1], 1)  # of the last fifteen minutes
    machine = {"cores": os.cpu_count(), "torch": torch.__version__, "load": load}
    OUT.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
