"""Bytes between each site and the server, counted on the wire: PFNM beside FedAvg.

The hospitals of examples/flower-hospital reach the SuperLink through a proxy each, which counts
what passes (TLS, keys, polling and all). Both methods run until the network that all share answers
a share of what the hospitals held back. Writes results/flower/wire.csv.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "flower-hospital"
sys.path.insert(0, str(EXAMPLE))

from deploy import HOST, Deployment, free_port  # noqa: E402
from hospital.data import HELD_BACK  # noqa: E402

from pfnm.formats.data import read_examples  # noqa: E402

RESULTS = ROOT / "results" / "flower" / "wire.csv"
COLUMNS = ("method", "round", "accuracy", "up", "down", "tensors")
CHUNK = 1 << 16
HIDDEN = 200  # units: 60 kB of weights
SERVER = '''"""The server of a comparison: every round's network is put down."""

from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from hospital.data import CLASSES, INPUTS
from pfnm.flower import PFNMStrategy
from pfnm.flower.messages import arrays_of
from pfnm.lab.training import Recipe, initial_network

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config, folder = context.run_config, Path(context.run_config["folder"])
    recipe = Recipe(hidden=(config["hidden"],))
    start = initial_network(INPUTS, CLASSES, recipe, np.random.default_rng(0))

    def put_down(number: int, arrays: ArrayRecord) -> MetricRecord | None:
        if number:
            found = {name: array.numpy() for name, array in arrays.items()}
            np.savez(folder / f".round-{number}.npz", **found)
            (folder / f".round-{number}.npz").rename(folder / f"round-{number}.npz")
        return None

    training = {"hidden": [config["hidden"]], "epochs": config["epochs"], "seed": 0}
    training["later_epochs"] = config["later-epochs"]
    if config["method"] == "pfnm":
        strategy = PFNMStrategy(start, input_range=(0.0, 1.0), min_sites=3, evaluate=False)
        first = ArrayRecord()
    else:
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3)
        training |= {"classes": CLASSES}
        first = arrays_of(start)
    strategy.start(
        grid, first, config["rounds"], train_config=ConfigRecord(training), evaluate_fn=put_down
    )
'''
CLIENT = '''"""A hospital that trains as PFNM or as FedAvg asks."""

from dataclasses import replace

import numpy as np
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from hospital.data import CLASSES, train_data
from pfnm.flower import client_app
from pfnm.flower.messages import arrays_of, config_in, network_of, setting_in
from pfnm.lab.training import initial_network, train_sites

SGD_RATE = 0.1  # the lab's, of FedAvg

app = ClientApp()
ours = client_app(train_data=train_data)


@app.query()
def query(message: Message, context: Context) -> Message:
    return ours(message, context)


@app.train()
def train(message: Message, context: Context) -> Message:
    if context.run_config["method"] == "pfnm":
        return ours(message, context)
    setting = setting_in(config_in(message))
    inputs, labels = train_data(context)
    labels = np.asarray(labels, dtype=np.int64)
    like = initial_network(inputs.shape[1], CLASSES, setting.recipe, np.random.default_rng(0))
    start = network_of(message.content, like, "the global network")
    number = config_in(message)["server-round"]
    recipe = replace(setting.recipe_of(number), optimizer="sgd", learning_rate=SGD_RATE)
    rng = np.random.default_rng(number)
    (trained,) = train_sites([start], inputs, labels, [np.arange(len(labels))], recipe, [rng])
    content = RecordDict({"arrays": arrays_of(trained)})
    content["metrics"] = MetricRecord({"num-examples": len(labels)})
    return Message(content, reply_to=message)
'''


class Proxy:
    """Passes connections on to a port, and counts the bytes in both directions."""

    def __init__(self, port: int) -> None:
        self.up = self.down = 0
        self._to = port
        self._listening = socket.create_server((HOST, free_port()))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            site, _ = self._listening.accept()
            try:
                server = socket.create_connection((HOST, self._to))
            except OSError:  # the SuperLink has gone
                site.close()
                continue
            for source, target, up in ((site, server, True), (server, site, False)):
                threading.Thread(target=self._pass, args=(source, target, up), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, up: bool) -> None:
        try:
            while content := source.recv(CHUNK):
                if up:
                    self.up += len(content)
                else:
                    self.down += len(content)
                target.sendall(content)
            target.shutdown(socket.SHUT_WR)
        except OSError:  # the other end has gone
            return


def app_in(folder: Path) -> Path:
    """The example's app with the server and the client of this comparison."""
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__", "deploy.py"))
    (folder / "hospital" / "server.py").write_text(SERVER)
    (folder / "hospital" / "client.py").write_text(CLIENT)
    project = folder / "pyproject.toml"
    project.write_text(project.read_text() + 'method = "pfnm"\n')
    return folder


def accuracy(deployment: Deployment, path: Path) -> float:
    """Of a round's network, on what the hospitals held back."""
    tensors = np.load(path)
    right = []
    for data in deployment.data.values():
        inputs, labels = read_examples(data)
        values = inputs[::HELD_BACK]
        for layer in (0, 1):
            weight, bias = (tensors[f"layers.{layer}.{part}"] for part in ("weight", "bias"))
            values = (np.maximum(values, 0) if layer else values) @ np.asarray(weight).T + bias
        right.append(values.argmax(axis=1) == labels[::HELD_BACK])
    return float(np.concatenate(right).mean())


def measured(method: str, rounds: int, folder: Path) -> list[list[object]]:
    """A row a round: accuracy, and the mean bytes of a site up to its end."""
    rows: list[list[object]] = []
    with Deployment(folder) as deployment:
        proxies = {name: Proxy(deployment.port) for name in deployment.hospitals}
        deployment.ways = {name: proxy.port for name, proxy in proxies.items()}
        deployment.start()
        app = app_in(folder / "app")
        run = deployment.run(app, method=method, rounds=rounds, hidden=HIDDEN)
        for number in range(1, rounds + 1):
            path = deployment.folder / "server" / f"round-{number}.npz"
            while not path.exists():
                if run.poll() is not None and not path.exists():
                    raise SystemExit(deployment.log_of("run"))
                time.sleep(0.1)
            up = round(np.mean([proxy.up for proxy in proxies.values()]))
            down = round(np.mean([proxy.down for proxy in proxies.values()]))
            size = sum(tensor.nbytes for tensor in np.load(path).values())
            rows.append([method, number, round(accuracy(deployment, path), 4), up, down, size])
            print(*rows[-1], sep=",", flush=True)
        run.wait()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, nargs=2, default=(3, 10), help="of PFNM, FedAvg")
    told = parser.parse_args()
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    for method, rounds in zip(("pfnm", "fedavg"), told.rounds, strict=True):
        with tempfile.TemporaryDirectory() as folder:
            rows += measured(method, rounds, Path(folder))
    lines = [",".join(map(str, row)) for row in (COLUMNS, *rows)]
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
