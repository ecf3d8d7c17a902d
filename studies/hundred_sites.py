"""A hundred sites on Flower's simulation, of which a fifth drop in each round: the server's time.

MNIST, one hidden layer. Processor time of the server's thread: all of a round (messages written and
read, too), of that combining, of that matching. Writes results/flower/hundred.csv.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # else simulated sites wait for everything else on the machine
}

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from pfnm.flower import PFNMStrategy, client_app
from pfnm.flower.models import train_one
from pfnm.formats.data import read_examples
from pfnm.fusing import joint, topdown
from pfnm.lab.data import load_data
from pfnm.lab.method import accuracy
from pfnm.lab.setting import Setting, federation
from pfnm.lab.training import Recipe
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Network, Tensor

RESULTS = Path("results/flower/hundred.csv")
COLUMNS = ("round", "sites", "left_out", "accuracy", "wall", "server", "combining", "matching")
SETTING = Setting(data="mnist", sites=100, hidden=(50,), epochs=2, later_epochs=1, rounds=3)
DROPPING = 0.2


class Stopwatch:
    """Processor time of the thread that asks, spent in functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.thread_time() - begin

        return timed


def dropping(
    network: Network, inputs: Tensor, labels: IntArray, recipe: Recipe, rng: np.random.Generator
) -> Network:
    """A site's training, or a failure in the middle of the round."""
    if np.random.default_rng().random() < DROPPING:  # another time in the same round, another fate
        raise RuntimeError("lost in the middle of the round")
    return train_one(network, inputs, labels, recipe, rng)


def client_of(folder: str) -> ClientApp:
    def read(context: Context) -> tuple[Any, Any]:
        return read_examples(f"{folder}/site{context.node_config['partition-id']}.npz")

    return client_app(train_data=read, train=dropping)


def main(folder: str) -> None:
    split = federation(SETTING, load_data("mnist"))
    for name, part in split.parts.items():
        inputs, labels = split.data.train_inputs[part], split.data.train_labels[part]
        np.savez(f"{folder}/{name}.npz", x=inputs, y=labels)
    strategy = PFNMStrategy(split.start(0), input_range=(0.0, 1.0), evaluate=False)
    combining, matching = Stopwatch(), Stopwatch()
    for module in (joint, topdown):  # the joint method tries the paper's solution too
        module.match = matching.around(module.match)  # type: ignore[attr-defined]
    for name in ("configure_train", "aggregate_train"):
        setattr(strategy, name, combining.around(getattr(strategy, name)))
    rows: list[list[object]] = []
    begin, thread = time.perf_counter(), 0.0

    def note(number: int, arrays: ArrayRecord) -> MetricRecord | None:
        nonlocal begin, thread
        if number and strategy.network is not None:
            seconds = [time.perf_counter() - begin, time.thread_time() - thread]
            seconds += [combining.seconds, matching.seconds]
            left_out = len(strategy.left_out)
            found = round(accuracy(split, strategy.network), 4)
            rows.append([number, SETTING.sites - left_out, left_out, found])
            rows[-1] += [round(one, 2) for one in seconds]
            print(*rows[-1], sep=",", flush=True)
            combining.seconds = matching.seconds = 0.0
        begin, thread = time.perf_counter(), time.thread_time()
        return None

    app = ServerApp()

    @app.main()
    def run(grid: Grid, context: Context) -> None:
        training = {"hidden": list(SETTING.hidden), "epochs": 2, "later_epochs": 1}
        strategy.start(
            grid,
            ArrayRecord(),
            SETTING.rounds,
            train_config=ConfigRecord(training),  # type: ignore[arg-type]
            evaluate_fn=note,
        )

    resources: dict[str, Any] = {"num_cpus": 1, "num_gpus": 0.0}
    run_simulation(
        app, client_of(folder), SETTING.sites, backend_config={"client_resources": resources}
    )
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join(map(str, row)) for row in (COLUMNS, *rows)]
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(temporary)
