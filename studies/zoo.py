"""Networks of other libraries, traced, shuffled, fused: proved, or refused and why (docs/zoo.md).

make zoo                      all of them, in an environment of their own (.venv-zoo)
python studies/zoo.py vit     those whose name holds a word, printed only

The small ones come first, and every row is written to results/zoo.jsonl as it is measured, so an
interrupted `make zoo` goes on where it stopped; remove the file to measure all anew.
"""

from __future__ import annotations

import inspect
import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import isnan, nan
from pathlib import Path
from typing import Any

import torch
from torch import nn
from zoo_networks import NETWORKS, Made

import pfnm
from pfnm.errors import PFNMError
from pfnm.tracing import running
from pfnm.tracing.proof import distance
from pfnm.tracing.shuffling import shuffled_by
from pfnm.tracing.trace import Trace, module_outputs, trace

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "zoo.md"
ROWS = ROOT / "results" / "zoo.jsonl"
COPIES = 3
WORK = 1e8  # multiplications for made-up inputs: far below the default, for copies need few
SPREAD = 0.2  # of what is added to scales, biases and statistics, so that none of them is trivial
HEAD = """# Networks of other libraries

Each is traced and proved on random inputs, then a copy with every hidden unit renamed is run beside
it (`pfnm.shuffled`). *Moved* is the share of parameters in tensors of which an axis was permuted.
*Fused back*: three such copies are fused at budget 1; how far the result's outputs are from the
network's, relative to the largest (empty: nothing could be fused). Seconds are by the clock, of
machines that did other work too: of VNet's 1,306 the processor worked 126.
{proved} of {all} are proved, {refused} refused, none is silently wrong. Made by `make zoo`.

| network | library | parameters | groups | result | moved | fused back | s to trace | s to fuse |
|---|---|---:|---:|---|---:|---:|---:|---:|
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
    seconds_to_fuse: float

    def __str__(self) -> str:
        cells = [self.name, self.library, f"{self.parameters:,}", str(self.groups), self.result]
        back, fusing = "", ""
        if not isnan(self.fused_back):
            back, fusing = f"{self.fused_back:.0e}", f"{self.seconds_to_fuse:.1f}"
        cells += [f"{self.moved:.0%}", back, f"{self.seconds:.1f}", fusing]
        return f"| {' | '.join(cells)} |"


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


def built(build: Callable[[], Made]) -> Made:
    """A network with its inputs, the same every time."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        module, inputs, kwargs = build()
    return disturbed(module, 0).eval(), inputs, kwargs


def parameters(module: nn.Module) -> int:
    return sum(own.numel() for own in module.parameters())


def tried(name: str, library: str, build: Callable[[], Made]) -> Row:
    """One network: traced, proved, shuffled and fused back, or refused."""
    module, inputs, kwargs = built(build)
    size = parameters(module)
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = trace(module, *inputs, **kwargs)
            seconds = time.perf_counter() - start
            copies = [shuffled_by(traced, module, seed=seed) for seed in range(COPIES)]
            start = time.perf_counter()
            far = fused_back(traced, module, copies)
            fusing = time.perf_counter() - start
    except PFNMError as error:
        seconds = time.perf_counter() - start
        return Row(name, library, size, 0, f"refused: {error}", 0, nan, seconds, nan)
    ways = [own for own in traced.pinned if own.in_the_way]
    result = f"proved; pinned: {ways[0]}" if ways else "proved"
    share, groups = moved(traced, module), len(traced.graph.groups)
    return Row(name, library, size, groups, result, share, far, seconds, fusing)


def fused_back(traced: Trace, module: nn.Module, copies: list[nn.Module]) -> float:
    """How far the fusion of shuffled copies is from the network, relative to the largest output."""
    if any(own.in_the_way for own in traced.pinned):
        return nan
    example = traced.example
    given: Any = example.inputs
    if example.kwargs:  # all by name
        names = inspect.signature(module.forward).parameters
        given = {**dict(zip(names, example.inputs, strict=False)), **example.kwargs}
    fused = pfnm.fuse(copies, example_inputs=given, budget=1.0).model
    number = traced.program.output
    found, expected = (module_outputs(own, example)[number] for own in (fused, module))
    return float(distance(found, expected))


def measured() -> dict[str, Row]:
    """The rows of earlier runs, by name."""
    lines = ROWS.read_text().splitlines() if ROWS.exists() else []
    return {row.name: row for row in (Row(**json.loads(line)) for line in lines)}


def measure_all() -> None:
    """Every network that has no row yet, the small ones first; then the page."""
    running.WORK = WORK
    done = measured()
    left = [name for name in NETWORKS if name not in done]
    sizes = {name: parameters(built(NETWORKS[name][1])[0]) for name in left}
    for name in sorted(left, key=lambda name: sizes[name]):
        done[name] = tried(name, *NETWORKS[name])
        print(done[name], flush=True)
        with ROWS.open("a") as file:
            file.write(json.dumps(asdict(done[name])) + "\n")
    found = [done[name] for name in NETWORKS]
    proved = sum(row.result.startswith("proved") for row in found)
    head = HEAD.format(proved=proved, all=len(found), refused=len(found) - proved)
    PAGE.write_text(head + "".join(f"{row}\n" for row in found))


def main(arguments: list[str]) -> None:
    if not arguments:
        measure_all()
    for name, (library, build) in NETWORKS.items():
        if arguments and arguments[0].lower() in f"{library} {name}".lower():
            print(tried(name, library, build), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
