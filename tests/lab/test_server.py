"""PFNM with rounds: what the server keeps of whom."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import random_network

from pfnm.api import fuse_sites
from pfnm.conversion import with_inputs
from pfnm.fusing.joint import FIRST_ROUND, ROUND
from pfnm.lab.schedule import matching_pays, rate_share
from pfnm.lab.server import Server, combine, sites_of
from pfnm.networks.network import Network


def networks(*names: str) -> dict[str, Network]:
    return {name: random_network(ord(name), (6, 5, 3), name=name) for name in names}


def combined(server: Server, sent: dict[str, Network], method: str = "topdown") -> Server:
    return combine(server, sent, counts=None, method=method, rng=np.random.default_rng(0))


@pytest.mark.parametrize("method", ["topdown", "joint"])
def test_a_missing_site_loses_nothing_and_comes_back_to_its_own_units(method: str) -> None:
    sites = networks("a", "b", "c")
    server = combined(Server(), sites, method)
    server = replace(server, averaging=False)  # as long as it matches
    server = replace(combined(server, sites, method), averaging=False)
    first = server  # later rounds try less than the first
    for _ in range(3):
        server = combined(server, {name: sites[name] for name in ("a", "b")}, method)
        server = replace(server, averaging=False)
        assert list(server.sent) == ["a", "b", "c"]
    for name in sites:
        for key, tensor in first.part(name).tensors.items():
            np.testing.assert_allclose(server.part(name).tensors[key], tensor, rtol=1e-9)


def test_a_site_that_joins_late_founds_units_and_the_others_keep_theirs() -> None:
    """Its weights are far from all others', so that nothing of it matches."""
    first = combined(Server(), networks("a", "b"))
    (late,) = networks("c").values()
    far = replace(late, tensors={name: 50 + tensor for name, tensor in late.tensors.items()})
    second = combined(first, {"c": far})
    assert list(second.sent) == ["a", "b", "c"]
    assert first.network is not None
    assert second.network is not None
    assert second.network.widths["hidden1"] == first.network.widths["hidden1"] + 5
    for name in ("a", "b"):
        for key in ("layers.0.weight", "layers.0.bias"):
            before, after = first.part(name).tensors[key], second.part(name).tensors[key]
            np.testing.assert_allclose(after, before, rtol=1e-6)


def test_a_later_round_tries_fewer_matchings() -> None:
    """With which it is the same as the fusion of that effort, of the same seed."""
    sites = networks("a", "b", "c")
    server = Server()
    for effort in (FIRST_ROUND, ROUND):
        server = replace(combined(server, sites, "joint"), averaging=False)
        known = with_inputs(sites_of(sites, {}), None, None)
        rng = np.random.default_rng(0)
        fusion = fuse_sites(known, budget=None, effort=effort, measured=False, rng=rng)
        assert server.objective == fusion.objective
    assert len(fusion.candidates) == 4


def test_once_sites_are_averaged_everybody_trains_the_whole_network() -> None:
    matched = combined(Server(), networks("a", "b"), "joint")
    server = replace(matched, averaging=True)
    assert server.network is not None
    assert not matched.starts("new")
    assert server.starts("new")
    assert server.part("new") is server.part("a") is server.network
    values = {"a": 1.0, "new": 4.0}
    sent = {
        name: replace(
            server.network,
            tensors={key: tensor + value for key, tensor in server.network.tensors.items()},
        )
        for name, value in values.items()
    }
    counts = {"a": np.array([1, 0, 1]), "new": np.array([0, 0, 1])}
    after = combine(server, sent, counts=counts, method="joint", rng=np.random.default_rng(0))
    assert after.averaging
    assert after.assignments == server.assignments
    assert not after.at_rest  # what batch normalisation remembers was seen at the sites
    assert after.network is not None
    for key, tensor in server.network.tensors.items():
        np.testing.assert_allclose(after.network.tensors[key], tensor + 2.0)
    assert combined(after, {}, "joint").network is after.network
    equal = combine(server, sent, counts=None, method="joint", rng=np.random.default_rng(0))
    assert equal.network is not None
    for key, tensor in server.network.tensors.items():
        np.testing.assert_allclose(equal.network.tensors[key], tensor + 2.5)


def test_sites_train_with_smaller_steps_once_they_are_averaged() -> None:
    server = combined(Server(), networks("a", "b"), "joint")
    assert rate_share(server, 3) == 1.0
    assert rate_share(replace(server, averaging=True), 3) == 0.5


def test_one_site_waits_for_a_second() -> None:
    alone = combined(Server(), networks("a"))
    assert alone.network is None
    assert combined(alone, networks("b")).network is not None


def test_a_class_nobody_in_the_round_has_seen_counts_alike() -> None:
    sent = networks("a", "b")

    def biases(last: tuple[int, int]) -> np.ndarray:
        counts = {"a": np.array([3, 0, last[0]]), "b": np.array([1, 5, last[1]])}
        rng = np.random.default_rng(0)
        server = combine(Server(), sent, counts=counts, method="topdown", rng=rng)
        assert server.network is not None
        return server.network.tensors["layers.1.bias"]

    np.testing.assert_array_equal(biases((0, 0)), biases((7, 7)))
    assert biases((0, 0))[2] != biases((1, 7))[2]


def test_matching_gives_way_to_averaging_once_it_gains_little() -> None:
    sites = networks("a", "b")
    wide = random_network(0, (6, 9, 3))
    first, second = (Server(wide, sent=sites, agreement=share) for share in (0.6, 0.7))
    assert matching_pays(Server(), first)
    assert matching_pays(first, second)
    assert not matching_pays(second, Server(wide, sent=sites, agreement=0.71))
    assert matching_pays(second, Server(None))
    # Where sites have the whole network anyway, any gain is enough.
    assert matching_pays(second, Server(sites["a"], sent=sites, agreement=0.71))
    assert not matching_pays(second, Server(sites["a"], sent=sites, agreement=0.69))
