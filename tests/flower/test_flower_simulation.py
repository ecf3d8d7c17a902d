"""The same rounds in the lab, on Flower's messages, and on Flower's simulation."""

from collections.abc import Callable
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
from pfnm.lab.method import State, train_local
from pfnm.lab.rounds import pfnm_round
from pfnm.lab.server import Server
from pfnm.lab.setting import Federation, Setting

SETTING = Setting(sites=4, hidden=(20,), epochs=4, later_epochs=2, rounds=3, seed=3)
TRAINING = ConfigRecord({"hidden": [20], "epochs": 4, "later_epochs": 2, "seed": 3})


def in_the_lab(split: Federation, method: str) -> Server:
    state, local = State(), train_local(split)
    for number in range(1, SETTING.rounds + 1):
        state, _ = pfnm_round(split, state, local, number, method=method)
    return state.server


def strategy_of(split: Federation, method: str, folder: Path | None = None) -> PFNMStrategy:
    return PFNMStrategy(
        split.start(0),
        method=method,
        input_range=split.input_range,
        seed=SETTING.seed,
        checkpoints=folder,
    )


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


def app_of(folder: Path) -> ClientApp:
    return client_app(train_data=reader(str(folder)), test_data=reader(str(folder)))  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["topdown", "joint"])
def test_the_lab_and_flower_make_the_same_network(tmp_path: Path, method: str) -> None:
    split = digits_in_files(SETTING, tmp_path)
    nodes = {100 + j: {"partition-id": j, "data": str(tmp_path / f"site{j}.npz")} for j in range(4)}
    strategy = strategy_of(split, method)
    result = strategy.start(
        LocalGrid(client_app(), nodes), ArrayRecord(), SETTING.rounds, train_config=TRAINING
    )
    assert_same(in_the_lab(split, method), strategy.server)
    metrics = result.evaluate_metrics_clientapp
    assert list(metrics) == [1, 2, 3]
    assert metrics[3]["accuracy"] > 0.8  # type: ignore[operator]


@pytest.mark.filterwarnings("ignore")  # Flower's and Ray's own
def test_flowers_simulation_makes_the_same_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    monkeypatch.setenv("FLWR_DISABLE_UPDATE_CHECK", "1")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    split = digits_in_files(SETTING, tmp_path)
    strategy = strategy_of(split, "topdown")
    server_app = ServerApp()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy.start(grid, ArrayRecord(), SETTING.rounds, train_config=TRAINING)

    resources: dict[str, Any] = {"num_cpus": 1, "num_gpus": 0.0}
    run_simulation(server_app, app_of(tmp_path), 4, backend_config={"client_resources": resources})
    assert strategy.round == SETTING.rounds
    assert_same(in_the_lab(split, "topdown"), strategy.server)


def test_a_server_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    split = digits_in_files(SETTING, tmp_path)
    nodes = {100 + j: {"partition-id": j, "data": str(tmp_path / f"site{j}.npz")} for j in range(4)}
    whole = strategy_of(split, "topdown")
    whole.start(LocalGrid(client_app(), nodes), ArrayRecord(), 3, train_config=TRAINING)
    folder = tmp_path / "checkpoints"
    first = strategy_of(split, "topdown", folder)
    first.start(LocalGrid(client_app(), nodes), ArrayRecord(), 2, train_config=TRAINING)
    again = strategy_of(split, "topdown", folder)
    assert again.round == 2
    assert_same(first.server, again.server)
    restarted = {node + 1000: config for node, config in nodes.items()}  # ids of other nodes
    grid = LocalGrid(client_app(), restarted)
    again.start(grid, ArrayRecord(), 3 - again.round, train_config=TRAINING)
    assert again.round == 3
    assert_same(whole.server, again.server)
