"""The same rounds in the lab, on Flower's messages, and on Flower's simulation."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from local_grid import LocalGrid, digits_in_files

from pfnm.flower import PFNMStrategy, client_app
from pfnm.formats.data import read_examples
from pfnm.lab.data import load_data
from pfnm.lab.method import State, train_local
from pfnm.lab.models import LeNet, _example
from pfnm.lab.rounds import pfnm_round
from pfnm.lab.server import Server
from pfnm.lab.setting import Federation, Setting

PERCEPTRON = Setting(sites=4, hidden=(20,), epochs=4, later_epochs=2, rounds=3, seed=3)
LENET = replace(PERCEPTRON, model="lenet", epochs=8, later_epochs=3, learning_rate=0.001)
SETTINGS = {"perceptron": PERCEPTRON, "lenet": LENET}


def training_of(setting: Setting) -> ConfigRecord:
    told: dict[str, Any] = {
        "hidden": list(setting.hidden),
        "epochs": setting.epochs,
        "later_epochs": setting.later_epochs,
        "seed": setting.seed,
    }
    told |= {"learning_rate": setting.learning_rate}
    return ConfigRecord(told)


def in_the_lab(split: Federation, method: str) -> Server:
    state, local = State(), train_local(split)
    for number in range(1, split.setting.rounds + 1):
        state, _ = pfnm_round(split, state, local, number, method=method)
    return state.server


def strategy_of(split: Federation, method: str, folder: Path | None = None) -> PFNMStrategy:
    options: dict[str, Any] = {"method": method, "seed": split.setting.seed}
    options |= {**split.known_inputs, "checkpoints": folder}
    if split.setting is LENET:
        return PFNMStrategy(LeNet((1, 8, 8)), (_example(split.data),), **options)
    return PFNMStrategy(split.start(0), **options)


def assert_same(one: Server, other: Server) -> None:
    assert one.network is not None
    assert other.network is not None
    for group, sites in one.assignments.items():
        for name, units in sites.items():
            np.testing.assert_array_equal(other.assignments[group][name], units)
    for key, tensor in one.network.tensors.items():
        np.testing.assert_allclose(other.network.tensors[key], tensor, rtol=0, atol=1e-5)


def reader(folder: str) -> Callable[[Context], object]:
    def read(context: Context) -> object:
        return read_examples(f"{folder}/site{context.node_config['partition-id']}.npz")

    return read


def app_of(setting: Setting, folder: Path) -> ClientApp:
    options: dict[str, Any] = {"train_data": reader(str(folder)), "test_data": reader(str(folder))}
    if setting is LENET:
        example = _example(load_data("digits"))
        options |= {"model": partial(LeNet, (1, 8, 8)), "example_inputs": (example,)}
    return client_app(**options)


@pytest.mark.parametrize(
    ("model", "method"),
    [
        ("perceptron", "topdown"),
        ("perceptron", "joint"),
        pytest.param("lenet", "joint", marks=pytest.mark.long),
    ],
)
def test_the_lab_and_flower_make_the_same_network(tmp_path: Path, model: str, method: str) -> None:
    setting = SETTINGS[model]
    split = digits_in_files(setting, tmp_path)
    nodes = {100 + j: {"partition-id": j} for j in range(4)}
    strategy = strategy_of(split, method)
    result = strategy.start(
        LocalGrid(app_of(setting, tmp_path), nodes),
        ArrayRecord(),
        setting.rounds,
        train_config=training_of(setting),
    )
    assert_same(in_the_lab(split, method), strategy.server)
    assert strategy.server.averaging == (method == "joint")
    metrics = result.evaluate_metrics_clientapp
    assert list(metrics) == list(range(1, setting.rounds + 1))
    assert metrics[setting.rounds]["accuracy"] > 0.8  # type: ignore[operator]


def test_a_site_that_comes_once_rounds_are_averaged_tells_its_counts(tmp_path: Path) -> None:
    setting = PERCEPTRON
    split = digits_in_files(setting, tmp_path)
    nodes = {100 + j: {"partition-id": j} for j in range(3)}
    strategy, grid = strategy_of(split, "joint"), LocalGrid(app_of(setting, tmp_path), nodes)
    strategy.start(grid, ArrayRecord(), 1, train_config=training_of(setting))
    strategy.server = replace(strategy.server, averaging=True)
    grid.nodes[103] = {"partition-id": 3}
    strategy.start(grid, ArrayRecord(), 1, train_config=training_of(setting))
    assert set(strategy.server.counts) == set(split.parts)
    assert strategy.server.averaging


@pytest.mark.filterwarnings("ignore")  # Flower's and Ray's own
@pytest.mark.parametrize("model", ["lenet", pytest.param("perceptron", marks=pytest.mark.long)])
def test_flowers_simulation_makes_the_same_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # else sites wait for all else on the machine
    setting = SETTINGS[model]
    split = digits_in_files(setting, tmp_path)
    strategy = strategy_of(split, "topdown")
    server_app = ServerApp()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        training = training_of(setting)
        strategy.start(grid, ArrayRecord(), setting.rounds, train_config=training)

    resources: dict[str, Any] = {"num_cpus": 1, "num_gpus": 0.0}
    app = app_of(setting, tmp_path)
    run_simulation(server_app, app, 4, backend_config={"client_resources": resources})
    assert strategy.round == setting.rounds
    assert_same(in_the_lab(split, "topdown"), strategy.server)


@pytest.mark.parametrize("model", SETTINGS)
def test_a_server_goes_on_from_its_checkpoint(tmp_path: Path, model: str) -> None:
    setting = SETTINGS[model]
    split, training = digits_in_files(setting, tmp_path), training_of(setting)
    app = app_of(setting, tmp_path)
    nodes = {100 + j: {"partition-id": j} for j in range(4)}
    whole = strategy_of(split, "topdown")
    whole.start(LocalGrid(app, nodes), ArrayRecord(), 3, train_config=training)
    folder = tmp_path / "checkpoints"
    first = strategy_of(split, "topdown", folder)
    first.start(LocalGrid(app, nodes), ArrayRecord(), 2, train_config=training)
    again = strategy_of(split, "topdown", folder)
    assert again.round == 2
    assert_same(first.server, again.server)
    restarted = {node + 1000: config for node, config in nodes.items()}  # ids of other nodes
    grid = LocalGrid(app, restarted)
    again.start(grid, ArrayRecord(), 3 - again.round, train_config=training)
    assert again.round == 3
    assert_same(whole.server, again.server)
