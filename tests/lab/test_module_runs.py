"""Runs of modules: once and in rounds, resumed, of the user's own class, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pfnm.errors import PFNMError
from pfnm.formats.states import read_state
from pfnm.lab.data import load_data
from pfnm.lab.method import Local, State, train_local
from pfnm.lab.methods import METHODS
from pfnm.lab.rounds import pfnm_round
from pfnm.lab.runs import resume, simulate
from pfnm.lab.server import Server
from pfnm.lab.setting import Setting, federation, usual_training

torch = pytest.importorskip("torch")
pytest.importorskip("ot")

NORMED = {"filters": [4, 4], "pools": [1, 2], "hidden": [6]}
SMALL = Setting(
    model="vgg",
    model_args=NORMED,
    sites=2,
    split="even",
    rounds=2,
    epochs=2,
    later_epochs=1,
    budget=1.0,
    server_inputs=50,  # to fit made-up ones to batch normalisation's memory takes its time
    **usual_training("digits", "vgg"),
)
OURS = """
from torch import nn

def net(units=5):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, units), nn.ReLU(), nn.Linear(units, 10))
"""


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in rows]


def test_every_method_for_modules_and_the_same_when_resumed(tmp_path: Path) -> None:
    rows = simulate(SMALL, tmp_path / "run", threads=1)
    for name, method in METHODS.items():
        own = [row for row in rows if row["method"] == name]
        rounds = [1] if method.round is None else [1, 2]
        assert [row["round"] for row in own] == (rounds if method.modules else [])
        assert all(0 <= row["accuracy"] <= 1 and row["bits"] > 0 for row in own)
        assert all(row["left_out"] == {} for row in own)
    sent = [row["bytes_up"]["site0"] for row in rows if row["method"] == "fedavg"]
    assert sent == [4 * federation(SMALL, load_data("digits")).start(0).parameters] * 2
    kept = read_state(tmp_path / "run" / "global" / "fedavg.safetensors").tensors
    assert kept["layers.1.running_var"].shape == (4,)
    # As if some of it had never been.
    folder = tmp_path / "run"
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[:-3]))
    for name in ("pfnm-joint", "fedprox"):
        (folder / "checkpoints" / f"method-{name}.safetensors").unlink()
    again = sorted(resume(folder), key=lambda row: [*METHODS].index(row["method"]))
    assert without_times(again) == without_times(rows)


def test_modules_are_matched_once_and_then_averaged() -> None:
    federated = federation(SMALL, load_data("digits"))
    local = train_local(federated)
    matched, _ = pfnm_round(federated, State(), local, 1, method="joint")
    assert matched.server.averaging
    assert matched.server.assignments
    averaged, info = pfnm_round(federated, matched, local, 2, method="joint")
    assert averaged.server.averaging
    assert not averaged.server.at_rest
    assert info.accuracy is not None


def test_the_server_makes_up_inputs_of_the_kind_and_range_that_the_data_has() -> None:
    setting = replace(SMALL, server_inputs=0)
    (kind,) = federation(setting, load_data("digits")).known_inputs.values()
    assert str(kind) == "pictures of 1x8x8"
    assert (kind.within.low, kind.within.high) == (0, 1)
    perceptrons = federation(Setting(sites=2), load_data("digits"))
    assert perceptrons.known_inputs == {"input_range": (0, 1)}


def test_averaging_after_matching_begins_with_what_batch_normalisation_sees_at_the_site() -> None:
    begun = {}

    def train(starts: Any, data: Any, parts: Any, recipe: Any, rngs: Any) -> Any:
        begun.update(starts)
        return dict(starts)

    federated = federation(SMALL, load_data("digits"), train)
    sent = {name: federated.start(place) for place, name in enumerate(SMALL.names)}
    server = Server(federated.start(0), sent=sent, averaging=True)
    state, info = pfnm_round(federated, State(server), Local({}, {}), 2, method="joint")
    assert state.server.averaging
    assert set(info.bytes_down) == set(begun) == set(SMALL.names)
    rows = federated.data.test_inputs
    for start in begun.values():
        assert (start.tensors["layers.1.running_mean"] != 0).any()
        np.testing.assert_allclose(start.run(rows), federated.start(0).run(rows), atol=1e-4)


def test_a_class_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ours_for_a_test.py").write_text(OURS)
    monkeypatch.chdir(tmp_path)
    setting = replace(
        SMALL,
        model="ours_for_a_test:net",
        model_args={"units": 7},
        methods=("local", "joint", "fedavg"),
    )
    rows = simulate(setting, tmp_path / "run", threads=1)
    assert rows[0]["parameters"] == 64 * 7 + 7 + 7 * 10 + 10
    with pytest.raises(PFNMError, match="cannot be made with"):
        simulate(replace(setting, model_args={"width": 7}), tmp_path / "other")
    with pytest.raises(PFNMError, match="cannot be imported"):
        simulate(replace(setting, model="nowhere:Net"), tmp_path / "other")
    with pytest.raises(PFNMError, match=r"expected package\.module:Class"):
        simulate(replace(setting, model="lennet"), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_text(tmp_path: Path) -> None:
    data = load_data("pydoc")
    assert data.train_inputs.shape[1:] == data.train_labels.shape[1:] == data.shape
    np.testing.assert_array_equal(data.train_inputs[:, 1:], data.train_labels[:, :-1])
    setting = replace(SMALL, data="pydoc", model="lstm", model_args={"embedding": 3, "hidden": 4})
    some = replace(setting, batch_size=500, epochs=1, rounds=1, methods=("local", "fedavg"))
    rows = simulate(some, tmp_path / "run", threads=1)
    assert all(row["bits"] < 1.1 * np.log2(len(data.classes)) for row in rows)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ("kmeans",)}, "kmeans is for perceptrons"),
        ({"model": "mlp", "methods": ("ot-reset",)}, "for models with batch normalisation"),
        ({"model": "lstm"}, "lstm is not for pictures"),
        ({"data": "pydoc"}, "vgg is not for text"),
        ({"data": "pydoc", "model": "mlp"}, "no perceptron takes"),
    ],
)
def test_what_does_not_fit_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(PFNMError, match=message):
        simulate(replace(SMALL, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()
