"""Polish: taught by the sites, kept only where it helps."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import random_network

import pfnm
from pfnm import polishing as module
from pfnm.core.mlp import ACTIVATIONS, forward
from pfnm.core.network import Network
from pfnm.core.probes import agreement, probe
from pfnm.core.sites import comparable
from pfnm.federated.data import load_data
from pfnm.federated.methods import accuracy, train_local
from pfnm.federated.setting import Setting
from pfnm.federated.setting import federation as digit_sites

torch = pytest.importorskip("torch")


@pytest.fixture
def few_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("ATOM", 3000), ("MIXED", 1000), ("SEEKING", 1000)):
        monkeypatch.setattr(module, f"{name}_PROBES", number)


def federation(**changes: object) -> list[Network]:
    return [
        replace(random_network(j, (8, 12, 12, 4), name=f"site{j}"), **changes)  # type: ignore[arg-type]
        for j in range(4)
    ]


def test_a_narrow_fusion_of_digits_gets_better_and_repeatably() -> None:
    setting = Setting(sites=4, hidden=(20, 20, 20), epochs=20)
    digits = digit_sites(setting, load_data("digits"))
    networks, counts = list(train_local(digits).networks.values()), list(digits.counts.values())
    fusion = pfnm.fuse(networks, class_counts=counts, budget=1.0)
    polished = pfnm.polish(fusion, networks, class_counts=counts)
    assert fusion.agreement is not None
    assert polished.agreement is not None
    assert polished.agreement > fusion.agreement + 0.03
    assert accuracy(digits, polished.network) > accuracy(digits, fusion.network) + 0.03
    assert polished.widths == fusion.widths
    assert polished.assignments is fusion.assignments
    again = pfnm.polish(fusion, networks, class_counts=counts)
    for name, tensor in polished.network.tensors.items():
        np.testing.assert_array_equal(again.network.tensors[name], tensor)
    assert polished.network.metadata["polish"]["kept"]


@pytest.mark.usefixtures("few_probes")
def test_what_cannot_be_bettered_is_kept() -> None:
    network = random_network(0, (8, 12, 4))
    copies = [replace(network, name=name) for name in ("a", "b")]
    fusion = replace(pfnm.fuse(copies, budget=1.0), network=network)
    polished = pfnm.polish(fusion, copies)
    assert not polished.network.metadata["polish"]["kept"]
    np.testing.assert_array_equal(
        polished.network.tensors["layers.0.weight"], network.tensors["layers.0.weight"]
    )
    hurried = pfnm.polish(pfnm.fuse(federation(), budget=1.0), federation(), seconds=0.0)
    assert not hurried.network.metadata["polish"]["kept"]


@pytest.mark.usefixtures("few_probes")
@pytest.mark.parametrize("output", ["values", "sigmoid"])
def test_values_and_sigmoids(output: str) -> None:
    networks = federation(output=output)
    fusion = pfnm.fuse(networks, budget=1.0)
    polished = pfnm.polish(fusion, networks)
    fresh = probe(comparable(networks), 2000, np.random.default_rng(77))
    assert agreement(polished.network, fresh) > agreement(fusion.network, fresh)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_every_activation_is_numpys(activation: str) -> None:
    network = replace(random_network(0, (8, 12, 4)), activation=activation)
    inputs = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32)
    stack = module._tensors(network)
    found = module._forward(stack, torch.from_numpy(inputs), module._activation(network))
    np.testing.assert_allclose(found.numpy(), forward(network, inputs), rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("few_probes")
def test_sites_that_know_different_classes_and_no_biases() -> None:
    networks = [
        replace(random_network(j, (8, 12, len(own)), biases=False), labels=tuple(own))
        for j, own in enumerate(("abc", "bcd"))
    ]
    polished = pfnm.polish(pfnm.fuse(networks, budget=1.0), networks)
    assert polished.network.labels == ("a", "b", "c", "d")
