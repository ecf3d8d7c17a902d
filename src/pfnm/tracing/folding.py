"""Batch normalisation as what it is at rest: a scale and a shift, folded into the map before it.

Units are matched and averaged in this form, for a weight of 2 before a scale of 1/2 is a weight of
1. In the result it is batch normalisation again, with statistics of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pfnm.networks.graph import Role, UnitGraph
from pfnm.networks.network import Array, Tensor

REST_VARIANCE = 1.0  # until the statistics are computed


@dataclass(frozen=True)
class Norm:
    """A batch normalisation: the names of its tensors, and of the map whose values enter it alone.

    `scale` and `shift` are the names under which its folded form stands.
    """

    weight: str | None
    bias: str | None
    mean: str
    variance: str
    eps: float
    after: tuple[str, str | None, int] | None
    """The weight, the bias and the weight's axis of outputs."""

    @property
    def scale(self) -> str:
        """Where the folded scale stands; nothing stands there if it is folded into a weight."""
        return self.variance if self.weight is None else self.weight

    @property
    def shift(self) -> str:
        """Where the folded shift stands."""
        return self.mean if self.bias is None else self.bias

    @property
    def names(self) -> tuple[str, ...]:
        """All its tensors."""
        named = (self.weight, self.bias, self.mean, self.variance)
        return tuple(name for name in named if name is not None)


@dataclass(frozen=True, eq=False)
class Statistics:
    """What enters a batch normalisation on some inputs: mean and variance, (units,)."""

    mean: Array
    variance: Array


class Folded(Mapping[str, Tensor]):
    """Folded tensors, a weight times its scale whenever it is asked for.

    The weights are a module's own and may be large: a site is not held twice.
    """

    def __init__(self, tensors: Mapping[str, Tensor], scales: Mapping[str, Array]) -> None:
        self._tensors, self._scales = tensors, scales

    def __getitem__(self, name: str) -> Tensor:
        own = self._tensors[name]
        if name not in self._scales:
            return own
        # In double, but a little at a time.
        return np.multiply(own, self._scales[name], out=np.empty_like(own), casting="same_kind")

    @property
    def arrays(self) -> Mapping[str, Tensor]:
        """What is read: the tensors without their scales."""
        return self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


@dataclass(frozen=True)
class Folding:
    """Tensors with and without batch normalisation."""

    norms: tuple[Norm, ...]

    def graph(self, graph: UnitGraph) -> UnitGraph:
        """The graph of the folded tensors."""
        roles: dict[str, Role] = dict(graph.roles)
        gone = set()
        for norm in self.norms:
            kept = {norm.shift} if norm.after else {norm.shift, norm.scale}
            gone |= set(norm.names) - kept
            if norm.after and norm.after[1] is not None:
                gone.add(norm.after[1])
            roles[norm.shift] = "bias"
            if not norm.after:
                roles[norm.scale] = "scale"
        axes = {name: own for name, own in graph.axes.items() if name not in gone}
        return replace(graph, axes=axes, roles={n: r for n, r in roles.items() if n in axes})

    def fold(self, tensors: Mapping[str, Tensor]) -> Folded:
        """The tensors, every normalisation as a scale and a shift."""
        result = dict(tensors)
        scales: dict[str, Array] = {}
        for norm in self.norms:
            mean, variance = (tensors[name].astype(float) for name in (norm.mean, norm.variance))
            scale = 1 / np.sqrt(variance + norm.eps)
            if norm.weight is not None:
                scale = scale * tensors[norm.weight]
            shift = -mean * scale
            if norm.bias is not None:
                shift = shift + tensors[norm.bias]
            for name in norm.names:
                del result[name]
            if norm.after is None:
                result[norm.scale] = scale.astype(tensors[norm.variance].dtype)
            else:
                weight, bias, axis = norm.after
                each = np.repeat(scale, result[weight].shape[axis] // scale.size)  # of groups
                scales[weight] = each.reshape(
                    [-1 if d == axis else 1 for d in range(result[weight].ndim)]
                )
                if bias is not None:
                    shift = shift + scale * result.pop(bias)
            result[norm.shift] = shift.astype(tensors[norm.mean].dtype)
        return Folded(result, scales)

    def unfold(
        self, tensors: Mapping[str, Any], statistics: Mapping[str, Statistics] | None = None
    ) -> dict[str, Any]:
        """Folded tensors (numpy's or PyTorch's) as they were, the same function at rest.

        statistics: by the name of a normalisation's mean, what enters it; they become what it
        remembers, so that it does the same while training.
        """
        result = dict(tensors)
        for norm in self.norms:
            shift = result.pop(norm.shift)
            mean = 0 * _detached(shift)
            variance = mean + REST_VARIANCE
            scale = mean + 1 if norm.after else result.pop(norm.scale)
            if statistics is not None and norm.weight is not None and norm.bias is not None:
                found = statistics[norm.mean]
                mean = found.mean.astype(shift.dtype)
                variance = found.variance.astype(shift.dtype)
            if norm.weight is None:
                variance = 1 / scale**2 - norm.eps
            if norm.bias is None:
                mean = -shift / scale
            result[norm.mean], result[norm.variance] = _detached(mean), _detached(variance)
            if norm.weight is not None:
                result[norm.weight] = scale * (variance + norm.eps) ** 0.5
            if norm.bias is not None:
                result[norm.bias] = shift + scale * mean
            if norm.after and norm.after[1] is not None:
                result[norm.after[1]] = 0 * shift
        return result

    def memory(self, tensors: Mapping[str, Tensor]) -> dict[str, tuple[Array, Array]]:
        """Mean and variance of what left each normalisation in training, by the name of its shift.

        Its scale and shift say it: what it remembers of what entered became mean 0 and variance 1.
        """
        result = {}
        for norm in self.norms:
            rest = np.zeros_like(tensors[norm.mean], dtype=float)
            scale = rest + 1 if norm.weight is None else tensors[norm.weight].astype(float)
            mean = rest if norm.bias is None else tensors[norm.bias].astype(float)
            result[norm.shift] = mean, np.square(scale)
        return result


def _detached(values: Any) -> Any:
    """Without a gradient, for batch normalisation gives its statistics none."""
    return values.detach() if hasattr(values, "detach") else values
