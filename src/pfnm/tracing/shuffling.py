"""A module with its hidden units renamed: other tensors, the same function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pfnm.errors import PFNMError
from pfnm.tracing.proof import distance, random_units, rearranged
from pfnm.tracing.resize import resized
from pfnm.tracing.trace import Trace, module_outputs, trace


def shuffled(
    module: nn.Module,
    example_inputs: tuple[Any, ...],
    seed: int = 0,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    output: str | int | None = None,
) -> nn.Module:
    """A copy of a module in which no unit of any group stands where it stood; the same function.

    It is proved on the example inputs, and the copy itself is run on them.
    """
    traced = trace(module, *example_inputs, output=output, **(example_kwargs or {}))
    return shuffled_by(traced, module, seed)


def shuffled_by(traced: Trace, module: nn.Module, seed: int = 0) -> nn.Module:
    """The same, with a trace that was made before."""
    tensors = traced.tensors(module)
    sizes = traced.program.sizes(tensors)
    random = np.random.default_rng(seed)
    units = random_units(traced.graph, sizes, traced.graph.groups, random)
    state = traced.state(rearranged(traced.graph, tensors, units, sizes))
    copy = resized(module, state)
    _same(traced, module, copy)
    return copy


def _same(traced: Trace, module: nn.Module, copy: nn.Module) -> None:
    """An error unless two modules answer alike, as far as their precision goes."""
    expected = module_outputs(module, traced.example)
    found = module_outputs(copy, traced.example)
    for number in traced.program.fixed_outputs:
        own, other = found[number], expected[number]
        if not isinstance(other, Tensor) or not other.is_floating_point():
            continue
        if distance(own, other) > torch.finfo(other.dtype).eps ** 0.5:
            raise PFNMError(
                f"{type(module).__name__}: a copy with its units renamed answers otherwise, though "
                "the operations traced from it do not; the module computes something that is not "
                "in its graph"
            )
