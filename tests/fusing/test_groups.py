"""Groups that are more than a layer's units: heads, gates, recurrent weights, concatenations."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from pfnm.fusing.atoms import observed_mean, part_of
from pfnm.fusing.sites import comparable
from pfnm.fusing.topdown import fuse_topdown
from pfnm.matching.prior import Prior
from pfnm.networks.graph import INPUT, OUTPUT, Axis, IntArray, Part, UnitGraph
from pfnm.networks.network import Network


@dataclass(frozen=True)
class Still:
    """A program that is never run."""

    activation: str | None = None
    activation_told: bool = True
    maps: tuple[Any, ...] = ()
    examples: Any = None

    def probes(self, count: int, times: float = 1) -> int:
        raise AssertionError

    def numbers(self, tensors: Any) -> int:
        raise AssertionError

    def run(
        self, tensors: Any, inputs: Any, visit: Any = None, first: Any = None, rows: Any = None
    ) -> Any:
        raise AssertionError

    def first_values(self, tensors: Any, inputs: Any) -> Any:
        raise AssertionError

    def in_one_frame(self, sites: Any, inputs: Any) -> Any:
        raise AssertionError


HEADS = UnitGraph(
    {
        "qkv": (
            Axis((Part(("heads", "qk")), Part(("heads", "qk")), Part(("heads", "v")))),
            Axis.of(INPUT),
        ),
        "out": (Axis.of(OUTPUT), Axis((Part(("heads", "v")),))),
    },
    ("heads", "qk", "v"),
    inner={"qk": "heads", "v": "heads"},
    constant={"qk": 3, "v": 2},
)
GROUPED = UnitGraph(
    {
        "first": (Axis((Part(("groups", "i")),)), Axis.of(INPUT)),
        "grouped": (Axis((Part(("groups", "o", "i")),)), Axis.fixed(2)),
        "last": (Axis.of(OUTPUT), Axis((Part(("groups", "o")),))),
    },
    ("groups", "i", "o"),
    inner={"i": "groups", "o": "groups"},
    constant={"i": 2, "o": 3},
)
MIXED = UnitGraph(  # channels that two group norms divide: groups of blocks of channels
    {
        "first": (Axis((Part(("groups", "blocks", "channels")),)), Axis.of(INPUT)),
        "scale": (Axis((Part(("groups", "blocks", "channels")),)),),
        "last": (Axis.of(OUTPUT), Axis((Part(("groups", "blocks", "channels")),))),
    },
    ("groups", "blocks", "channels"),
    inner={"blocks": "groups", "channels": "groups"},
    constant={"blocks": 2, "channels": 3},
    roles={"scale": "scale"},
)
RECURRENT = UnitGraph(
    {
        "ih": (Axis.of("state", before=4), Axis.of(INPUT)),
        "hh": (Axis.of("state", before=4), Axis.of("state")),
        "bias": (Axis.of("state", before=4),),
        "out": (Axis.of(OUTPUT), Axis.of("state")),
    },
    ("state",),
)
CONCATENATED = UnitGraph(
    {
        "a": (Axis.of("a"), Axis.of(INPUT)),
        "b": (Axis.of("b"), Axis.of("a")),
        "scale": (Axis((Part(("a",)), Part(("b",)))),),
        "out": (Axis.of(OUTPUT), Axis((Part(("a", 2)), Part(("b", 2))))),
    },
    ("a", "b"),
    roles={"scale": "scale"},
)
GRAPHS = {
    "heads": HEADS, "grouped": GROUPED, "mixed": MIXED, "recurrent": RECURRENT, "cat": CONCATENATED,
}  # fmt: skip
WIDTHS = {"heads": 4, "groups": 3, "state": 6, "a": 5, "b": 4, INPUT: 7, OUTPUT: 3}


def network(graph: UnitGraph, seed: int, **widths: int) -> Network:
    rng = np.random.default_rng(seed)
    sizes = {**WIDTHS, **graph.constant, **widths}
    tensors = {name: rng.normal(size=graph.shape(name, sizes)) for name in graph.axes}
    return Network(tensors, graph, Still(), name=f"site{seed}")


def shuffled(given: Network, seed: int) -> Network:
    rng = np.random.default_rng(seed)
    graph, units = given.graph, {}
    for group in graph.groups:
        size = given.sizes[group]
        if group in graph.inner:
            outer = given.sizes[graph.inner[group]]
            units[group] = np.array([rng.permutation(size) for _ in range(outer)])
        else:
            units[group] = rng.permutation(size)
    return replace(part_of(given, units), name=f"shuffled{seed}")


@pytest.mark.parametrize("name", GRAPHS)
def test_shuffled_copies_fuse_back_top_down(name: str) -> None:
    one = network(GRAPHS[name], 0)
    sites = comparable([one, shuffled(one, 1), shuffled(one, 2)])
    prior = Prior(prior_variance=1e6, site_variance=0.1)
    solution = fuse_topdown(sites, prior=prior, rng=np.random.default_rng(0))
    assert solution.widths == one.widths
    mine = {group: own[0] for group, own in solution.assignments.items()}
    part = part_of(solution.network, mine)
    for tensor, found in part.tensors.items():
        np.testing.assert_allclose(found, one.tensors[tensor], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", GRAPHS)
def test_units_that_nobody_shares_stand_beside_each_other(name: str) -> None:
    networks = [network(GRAPHS[name], seed) for seed in (0, 1)]
    assignments: dict[str, list[IntArray]] = {}
    for group in GRAPHS[name].groups:
        size = networks[0].sizes[group]
        if group in GRAPHS[name].inner:
            outer = networks[0].sizes[GRAPHS[name].inner[group]]
            assignments[group] = [np.tile(np.arange(size), (outer, 1)) for _ in networks]
        else:
            assignments[group] = [np.arange(size), size + np.arange(size)]
    fused = observed_mean(comparable(networks), assignments)
    for site, own in enumerate(networks):
        part = part_of(fused, {group: found[site] for group, found in assignments.items()})
        for tensor, found in part.tensors.items():
            outward = OUTPUT in {s for axis in own.graph.axes[tensor] for s in axis.spaces}
            expected = own.tensors[tensor] / (2 if outward else 1)
            np.testing.assert_allclose(found, expected)


def test_sizes_follow_from_the_shapes() -> None:
    wide = network(HEADS, 0, heads=6)
    assert wide.sizes["heads"] == 6
    assert wide.widths == {"heads": 6}
