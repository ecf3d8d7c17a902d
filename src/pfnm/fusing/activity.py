"""What units do: the features that enter each weight on probes."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from pfnm.fusing.sites import Sites
from pfnm.networks.network import Network, Tensor
from pfnm.networks.program import Map


@dataclass(frozen=True, eq=False)
class Activity:
    """Of one group: what each site's units do, (units, columns) a site, and how that varies.

    What a unit does is its output on probes times the norm of the weights it enters: it does not
    change when a ReLU unit's incoming weights grow and its outgoing ones shrink.
    """

    values: list[Tensor]
    spread: float
    """The mean variance of the values, times their columns."""
    weights: float
    """The mean squared norm of a unit's weights, were they centred."""

    def counting(self, emphasis: float) -> list[Tensor]:
        """Scaled so that all columns together count `emphasis` times as much as the weights do."""
        scale = sqrt(emphasis * self.weights / self.spread) if self.spread > 0 else 0.0
        return [own * scale for own in self.values]


def activities(sites: Sites, inputs: Tensor) -> dict[str, Activity]:
    """What the units of every group do on probes; groups with others within them are left out."""
    graph = sites.networks[0].graph
    groups = [g for g in graph.outer_groups if not graph.inner_of(g)]
    found = [_of_site(network, groups, inputs) for network in sites.networks]
    result = {}
    for group in groups:
        own = [values.pop(group) for values, _ in found]  # none is held twice for long
        if not all(own):
            continue
        values = [np.concatenate(columns, axis=1) for columns in own]
        spread = float(np.mean([v.var(dtype=float) for v in values])) * values[0].shape[1]
        weights = float(np.mean([norms[group] for _, norms in found]))
        result[group] = Activity(values, spread, weights)
    return result


def _of_site(
    network: Network, groups: list[str], inputs: Tensor
) -> tuple[dict[str, list[Tensor]], dict[str, float]]:
    values: dict[str, list[Tensor]] = {group: [] for group in groups}
    norms = dict.fromkeys(groups, 0.0)
    graph, sizes = network.graph, network.sizes

    for at in network.program.maps:
        weight = network.tensors[at.weight]
        for axis in (at.writes, at.reads):
            for group in set(graph.axes[at.weight][axis].spaces) & set(groups):
                norms[group] += float(weight.var(dtype=float)) * (weight.size // sizes[group])

    def visit(at: Map, features: Any, _: Any) -> None:
        weight = network.tensors[at.weight]
        axes = graph.axes[at.weight]
        for group in set(axes[at.reads].spaces) & set(groups):
            places = axes[at.reads].by_unit(group, sizes)
            entries = np.moveaxis(weight.astype(float), at.reads, 0)
            outgoing = np.linalg.norm(entries.reshape(len(entries), -1), axis=1)
            if network.program.examples is not None:  # of modules, which may be large, in single
                outgoing = outgoing.astype(np.float32)
            rows = np.ascontiguousarray(features.T, dtype=np.float32)
            values[group].append((rows * outgoing[:, None])[places].reshape(sizes[group], -1))

    network.run(inputs, visit)
    return values, norms
