"""Networks of other libraries, traced and shuffled: proved, or refused and why (docs/zoo.md).

make zoo                      all of them, in an environment of their own (.venv-zoo)
python studies/zoo.py vit     those whose name holds a word, printed only
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path

import torch
from torch import nn
from zoo_networks import NETWORKS, Made

import pfnm
from pfnm.errors import PFNMError
from pfnm.tracing.proof import distance
from pfnm.tracing.shuffling import shuffled_by
from pfnm.tracing.trace import Trace, module_outputs, trace

PAGE = Path(__file__).parents[1] / "docs" / "zoo.md"
COPIES = 3
MOST_FUSED = 2_000_000  # parameters of a network whose copies are fused, to be done in minutes
SPREAD = 0.2  # of what is added to scales, biases and statistics, so that none of them is trivial
HEAD = """# Networks of other libraries

Each is traced and proved on random inputs, then a copy with every hidden unit renamed is run beside
it (`pfnm.shuffled`). *Moved* is the share of parameters in tensors of which an axis was permuted.
*Fused back*: three such copies are fused at budget 1; how far the result's outputs are from the
network's, relative to the largest (not tried above two million parameters).
{proved} of {all} are proved, {refused} refused, none is silently wrong. Made by `make zoo`.

| network | library | parameters | groups | result | moved | fused back | seconds to trace |
|---|---|---:|---:|---|---:|---:|---:|
"""


@dataclass(frozen=True)
class Row:
    name: str
    library: str
    parameters: int
    groups: int
    result: str
    moved: float
    fused_back: float
    seconds: float

    def __str__(self) -> str:
        cells = (self.name, self.library, f"{self.parameters:,}", str(self.groups), self.result)
        back = "" if isnan(self.fused_back) else f"{self.fused_back:.0e}"
        return f"| {' | '.join(cells)} | {self.moved:.0%} | {back} | {self.seconds:.1f} |"


def disturbed(module: nn.Module, seed: int) -> nn.Module:
    """The module with scales, biases and statistics that are not ones and zeros."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if not tensor.is_floating_point():
                continue
            noise = SPREAD * torch.randn(tensor.shape, generator=generator)
            if name.endswith("running_var"):
                tensor.mul_(noise.exp())
            elif isinstance(tensor, nn.Parameter) or name.endswith("running_mean"):
                tensor.add_(noise * (tensor.std() if tensor.ndim > 1 and tensor.any() else 1))
    return module


def moved(traced: Trace, module: nn.Module) -> float:
    """The share of parameters in tensors of which an axis is permuted."""
    state = module.state_dict()
    groups = set(traced.graph.groups)
    sizes = {name: state[name].numel() for name in traced.names}
    own = [
        size
        for name, size in sizes.items()
        if any(groups & set(axis.spaces) for axis in traced.graph.axes[name])
    ]
    return float(sum(own) / sum(sizes.values()))


def tried(name: str, library: str, build: Callable[[], Made]) -> Row:
    """One network: traced, proved and shuffled, or refused."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        module, inputs, kwargs = build()
    module = disturbed(module, 0).eval()
    parameters = sum(own.numel() for own in module.parameters())
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = trace(module, *inputs, **kwargs)
            seconds = time.perf_counter() - start
            copies = [shuffled_by(traced, module, seed=seed) for seed in range(COPIES)]
            far = fused_back(traced, module, copies)
    except PFNMError as error:
        seconds = time.perf_counter() - start
        return Row(name, library, parameters, 0, f"refused: {error}", 0, nan, seconds)
    ways = [own for own in traced.pinned if own.in_the_way]
    result = f"proved; pinned: {ways[0]}" if ways else "proved"
    share = moved(traced, module)
    return Row(name, library, parameters, len(traced.graph.groups), result, share, far, seconds)


def fused_back(traced: Trace, module: nn.Module, copies: list[nn.Module]) -> float:
    """How far the fusion of shuffled copies is from the network, relative to the largest output."""
    large = sum(own.numel() for own in module.parameters()) > MOST_FUSED
    if large or any(own.in_the_way for own in traced.pinned):
        return nan
    example = traced.example
    given = dict(example.kwargs) if example.kwargs else example.inputs
    fused = pfnm.fuse(copies, example_inputs=given, budget=1.0).model
    number = traced.program.output
    found, expected = (module_outputs(own, example)[number] for own in (fused, module))
    return float(distance(found, expected))


def rows(word: str) -> Iterator[Row]:
    """All networks whose name holds a word."""
    for name, (library, build) in NETWORKS.items():
        if word.lower() in f"{library} {name}".lower():
            row = tried(name, library, build)
            print(row, flush=True)
            yield row


def main(arguments: list[str]) -> None:
    found = list(rows(arguments[0] if arguments else ""))
    if not arguments:
        proved = sum(row.result.startswith("proved") for row in found)
        head = HEAD.format(proved=proved, all=len(found), refused=len(found) - proved)
        PAGE.write_text(head + "".join(f"{row}\n" for row in found))


if __name__ == "__main__":
    main(sys.argv[1:])
