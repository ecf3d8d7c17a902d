"""What sites may do: any module, trained already, kept, private; and what the server leaves out."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord
from local_grid import LocalGrid, digits_in_files
from torch import nn

import pfnm
from pfnm.errors import PFNMError
from pfnm.flower import PFNMStrategy, client_app
from pfnm.flower.private import Ledger, Privacy, Spent
from pfnm.fusing.atoms import part_of
from pfnm.lab.method import accuracy, train_local
from pfnm.lab.robust import LEAST_LIKENESS, copies, odd_ones, site_likenesses
from pfnm.lab.server import Server, combine, sites_of
from pfnm.lab.setting import BATCHES, Federation, Setting
from pfnm.lab.training import train_sites
from pfnm.networks.network import Network

SETTING = Setting(sites=4, hidden=(20,), epochs=4, later_epochs=2, seed=3)
TRAINING = ConfigRecord({"hidden": [20], "epochs": 4, "later_epochs": 2, "seed": 3})


def nodes_of(folder: Path, sites: int = 4, **config: Any) -> dict[int, dict[str, Any]]:
    return {
        j: {"partition-id": j, "data": str(folder / f"site{j}.npz"), **config} for j in range(sites)
    }


def picture_module() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 36, 10),
    )


def test_a_module_with_batch_normalisation_in_rounds(tmp_path: Path) -> None:
    digits_in_files(SETTING, tmp_path)
    example = (torch.rand(4, 64),)
    strategy = PFNMStrategy(picture_module(), example, method="topdown", robust=True)
    kept = tmp_path / "kept.safetensors"
    nodes = nodes_of(tmp_path)
    nodes[0]["keep"] = str(kept)
    training = ConfigRecord({"epochs": 15, "later_epochs": 5, "learning_rate": 0.003})
    app = client_app(model=picture_module, example_inputs=example)
    result = strategy.start(LocalGrid(app, nodes), ArrayRecord(), 2, train_config=training)
    assert strategy.left_out == {}
    assert result.evaluate_metrics_clientapp[2]["accuracy"] > 0.7  # type: ignore[operator]
    module = pfnm.load(kept, model=picture_module())
    inputs = np.random.default_rng(0).random((5, 64), dtype=np.float32)
    assert strategy.network is not None
    answered = module.eval()(torch.from_numpy(inputs)).detach().numpy()
    np.testing.assert_allclose(answered, strategy.network.run(inputs), atol=1e-4)


def test_networks_that_are_trained_already_are_collected_once(tmp_path: Path) -> None:
    split = digits_in_files(SETTING, tmp_path)
    nodes = nodes_of(tmp_path, keep=str(tmp_path / "kept.npz"))
    local = train_local(split).networks
    for place, config in nodes.items():
        config["trained"] = str(tmp_path / f"trained{place}.safetensors")
        pfnm.save(local[f"site{place}"], config["trained"])
    strategy = PFNMStrategy(split.start(0), input_range=split.input_range)
    strategy.start(LocalGrid(client_app(), nodes), ArrayRecord(), 1, train_config=TRAINING)
    for name, network in local.items():
        for key, tensor in network.tensors.items():
            np.testing.assert_array_equal(strategy.server.sent[name].tensors[key], tensor)
    kept = pfnm.load(tmp_path / "kept.npz")
    assert strategy.network is not None
    np.testing.assert_allclose(
        kept.run(split.data.test_inputs), strategy.network.run(split.data.test_inputs), atol=1e-5
    )


def test_once_rounds_are_averaged_sites_come_and_go(tmp_path: Path) -> None:
    """One is away for two rounds, and one sends a network of its own width."""
    split = digits_in_files(SETTING, tmp_path)
    nodes = nodes_of(tmp_path)
    grid = LocalGrid(client_app(), nodes)
    strategy = PFNMStrategy(split.start(0), input_range=split.input_range, evaluate=False)
    strategy.start(grid, ArrayRecord(), 1, train_config=TRAINING)
    strategy.server = replace(strategy.server, averaging=True)
    assert strategy.network is not None
    widths = strategy.network.widths
    grid.silent = {1}
    strategy.start(grid, ArrayRecord(), 2, timeout=0.5, train_config=TRAINING)
    assert strategy.left_out == {"site1": "it did not answer in time"}
    grid.silent, grid.app = set(), client_app(train=narrower_at_site2)
    strategy.start(grid, ArrayRecord(), 1, train_config=TRAINING)
    assert strategy.round == 4
    assert list(strategy.left_out) == ["site2"]
    assert strategy.left_out["site2"].startswith("sent layers of {'hidden1': 39,")
    assert strategy.network.widths == widths


def narrower_at_site2(network: Network, *_: object) -> Network:
    """No training; one site leaves its last hidden unit out."""
    if network.name != "site2":
        return network
    return part_of(network, {"hidden1": np.arange(network.widths["hidden1"] - 1)})


def test_a_site_joins_late_and_another_drops_and_comes_back(tmp_path: Path) -> None:
    split = digits_in_files(SETTING, tmp_path)
    everybody = nodes_of(tmp_path)
    grid = LocalGrid(client_app(), {node: everybody[node] for node in (0, 1, 2)})
    strategy = PFNMStrategy(split.start(0), method="topdown", evaluate=False)

    def next_round() -> list[str]:
        strategy.start(grid, ArrayRecord(), 1, timeout=0.5, train_config=TRAINING)
        return sorted(strategy.server.assignments["hidden1"])

    assert next_round() == ["site0", "site1", "site2"]
    grid.nodes[3] = everybody[3]
    grid.silent = {1}
    sent = strategy.server.sent["site1"]
    assert next_round() == ["site0", "site1", "site2", "site3"]
    assert strategy.left_out == {"site1": "it did not answer in time"}
    assert strategy.server.sent["site1"] is sent
    grid.nodes[7] = grid.nodes.pop(1)  # it is back under another id
    assert next_round() == ["site0", "site1", "site2", "site3"]
    assert strategy.left_out == {}
    part = grid.seen[-1].content["arrays"]
    assert isinstance(part, ArrayRecord)
    assert part["layers.0.weight"].numpy().shape == sent.tensors["layers.0.weight"].shape
    assert strategy.server.sent["site1"] is not sent


def test_private_training_stops_when_the_budget_is_spent(tmp_path: Path) -> None:
    split = digits_in_files(SETTING, tmp_path)
    ledger = tmp_path / "ledger.json"
    nodes = nodes_of(tmp_path)
    nodes[0] |= {"dp-epsilon": 8.0, "epsilon": 1.0, "dp-noise": 1.0, "dp-ledger": str(ledger)}
    strategy = PFNMStrategy(split.start(0), method="topdown")
    rounds = LocalGrid(client_app(), nodes)
    strategy.start(rounds, ArrayRecord(), 1, train_config=TRAINING)
    assert strategy.left_out == {}
    (first,) = json.loads(ledger.read_text())["trainings"]
    examples = split.parts["site0"].size
    assert first == {"noise": 1.0, "rate": 32 / examples, "steps": 4 * -(-examples // 32)}
    strategy.start(rounds, ArrayRecord(), 1, train_config=TRAINING)
    assert "this training would bring epsilon to" in strategy.left_out["site0"]
    assert len(json.loads(ledger.read_text())["trainings"]) == 1


def test_epsilon_adds_up_and_needs_a_ledger(tmp_path: Path) -> None:
    once, twice = (Ledger([Spent(1.1, 0.02, 200)] * n).epsilon(1e-5) for n in (1, 2))
    assert 0 < once < twice < 2 * once
    assert Ledger([Spent(2.2, 0.02, 200)]).epsilon(1e-5) < once
    assert Privacy.told({}) is None
    with pytest.raises(PFNMError, match="there is no ledger"):
        Privacy.told({"dp-epsilon": 1.0})
    with pytest.raises(PFNMError, match=r"dp-clip is -1.0"):
        Privacy.told({"dp-epsilon": 1.0, "dp-ledger": str(tmp_path / "l"), "dp-clip": -1})


@pytest.fixture(scope="module")
def ten_sites() -> tuple[Federation, dict[str, Network]]:
    from pfnm.lab.data import load_data
    from pfnm.lab.setting import federation

    split = federation(Setting(sites=10, hidden=(50,), seed=1), load_data("digits"))
    return split, dict(train_local(split).networks)


def spoiled(split: Federation, networks: dict[str, Network], how: str) -> dict[str, Network]:
    """Ten networks, the first of which is spoiled."""
    rng = np.random.default_rng(0)
    labels, part = split.data.train_labels.copy(), split.parts["site0"]
    if how == "copy":
        return {**networks, "site0": networks["site7"]}
    if how == "loud":
        own = networks["site0"].tensors
        loud = {k: (6 * t).astype(t.dtype) for k, t in own.items()}
        return {**networks, "site0": replace(networks["site0"], tensors=loud)}
    if how == "noise":
        own = networks["site0"].tensors
        made = {k: (t.std() * rng.normal(size=t.shape)).astype(t.dtype) for k, t in own.items()}
        return {**networks, "site0": replace(networks["site0"], tensors=made)}
    labels[part] = (labels[part] + 1) % 10
    recipe, rngs = split.setting.recipe, [split.setting.rng(BATCHES, 1, 0)]
    turned = train_sites([split.start(0)], split.data.train_inputs, labels, [part], recipe, rngs)
    return {**networks, "site0": turned[0]}


@pytest.mark.parametrize("how", ["labels", "noise", "copy", "loud", "nothing"])
def test_the_odd_one_is_left_out_and_nobody_else(
    ten_sites: tuple[Federation, dict[str, Network]], how: str
) -> None:
    split, honest = ten_sites
    sent = honest if how == "nothing" else spoiled(split, honest, how)
    within = split.input_range
    rng = np.random.default_rng(0)
    found = odd_ones(Server(), sent, split.counts, input_range=within, rng=rng)
    expected = {"nothing": set(), "copy": {"site7"}}.get(how, {"site0"})
    assert set(found) == expected
    for reason in found.values():
        assert "\n" not in reason


def test_honest_sites_are_alike(
    ten_sites: tuple[Federation, dict[str, Network]],
) -> None:
    split, networks = ten_sites
    sites = sites_of(networks, split.counts)
    likenesses = site_likenesses(sites, np.random.default_rng(0))
    assert likenesses.shape == (10,)
    assert (likenesses <= 1).all()
    assert likenesses.min() > LEAST_LIKENESS * np.median(likenesses)
    assert copies({"a": networks["site0"], "b": networks["site1"]}) == {}


def test_a_site_that_tells_no_counts_costs_little(
    ten_sites: tuple[Federation, dict[str, Network]],
) -> None:
    split, networks = ten_sites
    some = {name: own for name, own in split.counts.items() if name != "site0"}
    found = []
    for counts, estimated in ((split.counts, False), (some, False), (some, True), ({}, True)):
        server = combine(
            Server(),
            networks,
            counts=counts,
            method="joint",
            budget=2.0,
            estimated=estimated,
            input_range=split.input_range,
            rng=np.random.default_rng(0),
        )
        assert server.network is not None
        found.append(accuracy(split, server.network))
    told, dropped, one_estimated, all_estimated = found
    assert dropped < told - 0.05
    assert min(one_estimated, all_estimated) > told - 0.03
