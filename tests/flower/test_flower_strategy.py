"""What the server makes of answers, with real messages of Flower's; and what a site tells."""

import logging
from pathlib import Path

import numpy as np
import pytest
from conftest import random_network
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from local_grid import LocalGrid

from pfnm.errors import PFNMError
from pfnm.flower import PFNMStrategy, client_app
from pfnm.flower.messages import arrays_of
from pfnm.networks.network import Network

SIZES = (6, 5, 3)
TRAINING = ConfigRecord({"hidden": [5], "epochs": 1, "later_epochs": 1})
NODES = {1: {"name": "a"}, 2: {"name": "b"}, 3: {"name": "c"}}


def strategy_of(**options: int) -> PFNMStrategy:
    return PFNMStrategy(random_network(0, SIZES), method="topdown", **options)  # type: ignore[arg-type]


def answered(strategy: PFNMStrategy, grid: LocalGrid, bad: RecordDict | Error | None) -> None:
    """A round in which a and b send networks, and c what is bad, or nothing."""
    messages = list(strategy.configure_train(1, ArrayRecord(), ConfigRecord(), grid))
    replies = []
    for place, message in enumerate(messages):
        message.metadata.__dict__["_message_id"] = f"train{place}"
        content: RecordDict | Error | None = bad
        if place < 2:
            content = RecordDict({"arrays": arrays_of(random_network(place + 1, SIZES))})
        if content is not None:
            replies.append(Message(content, reply_to=message))
    strategy.aggregate_train(1, replies)


def arrays(network: Network, **changed: np.ndarray) -> RecordDict:
    tensors = {**network.tensors, **{"layers.0.weight": changed["first"]}}
    return RecordDict({"arrays": ArrayRecord({k: Array(t) for k, t in tensors.items()})})


def bad_answers() -> dict[str, tuple[RecordDict | Error | None, str]]:
    network, wide = random_network(3, SIZES), random_network(3, (6, 2000, 3))
    first = np.asarray(network.tensors["layers.0.weight"])
    nan = first.copy()
    nan[0, 0] = np.nan
    pickled = RecordDict({"arrays": arrays_of(network)})
    record = pickled["arrays"]
    assert isinstance(record, ArrayRecord)
    objects = np.lib.format.magic(1, 0)
    record["layers.0.bias"] = Array("object", (1,), "numpy.ndarray", objects + b"junk")
    counted = RecordDict({"arrays": arrays_of(network)})
    counted["metrics"] = MetricRecord({"class-counts": [1, -1, 2]})
    return {
        "shape": (arrays(network, first=first[:1]), "shape"),
        "deeper": (
            RecordDict({"arrays": arrays_of(random_network(3, (6, 5, 5, 3)))}),
            "'layers.2.bias' is missing, or is none of this network's",
        ),
        "inputs": (arrays(network, first=first[:, :4]), "4 inputs, expected 6"),
        "nan": (arrays(network, first=nan), "NaN"),
        "whole numbers": (arrays(network, first=np.ones((5, 6), dtype=int)), "floating point"),
        "too large": (arrays(network, first=1e5 * first), "largest weight"),
        "too wide": (RecordDict({"arrays": arrays_of(wide)}), "20003 parameters"),
        "escapes": (Error(2, "\x1b[31mred\u202e"), r"error 2: \x1b[31mred\u202e"),
        "a long story": (Error(2, "x" * 10**6), "xxx..."),
        "no array": (pickled, "no array can be read"),
        "counts": (counted, "class counts"),
        "nothing in it": (RecordDict(), "no arrays"),
        "failed": (Error(2, "Traceback\nout of memory"), "error 2: out of memory"),
        "silent": (None, "did not answer"),
    }


@pytest.mark.parametrize("case", bad_answers())
def test_what_cannot_be_used_is_left_out_and_the_round_goes_on(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    bad, reason = bad_answers()[case]
    strategy = strategy_of()
    with caplog.at_level(logging.WARNING, logger="flwr"):
        answered(strategy, LocalGrid(client_app(), NODES), bad)
    assert strategy.round == 1
    assert list(strategy.server.sent) == ["a", "b"]
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("round 1: c is left out: ")
    assert reason in line
    assert "\n" not in line


def test_one_node_that_sends_what_is_no_message_does_not_end_the_run(tmp_path: Path) -> None:
    nodes = sites_with_data(tmp_path)
    grid = LocalGrid(client_app(), nodes)
    strategy = strategy_of(evaluate=False)
    strategy.start(grid, ArrayRecord(), 1, train_config=TRAINING)
    grid.spoiling = {3}
    strategy.start(grid, ArrayRecord(), 1, train_config=TRAINING)
    assert strategy.round == 2
    assert list(strategy.left_out) == ["c"]
    assert strategy.left_out["c"].startswith("its answer cannot be read: ")


def test_a_node_that_was_killed_and_is_back_is_not_waited_for(tmp_path: Path) -> None:
    grid = LocalGrid(client_app(), sites_with_data(tmp_path))
    strategy = strategy_of(evaluate=False)
    strategy.start(grid, ArrayRecord(), 1, train_config=TRAINING)
    grid.silent, grid.restarting = {2}, True
    strategy.start(grid, ArrayRecord(), 1, timeout=600, train_config=TRAINING)
    assert strategy.left_out == {"b": "its SuperNode was restarted meanwhile"}
    assert strategy.round == 2


def sites_with_data(folder: Path) -> dict[int, dict[str, str]]:
    """The nodes, each with twenty examples of its own."""
    rng = np.random.default_rng(0)
    nodes = {
        node: {**config, "data": str(folder / f"{node}.npz")} for node, config in NODES.items()
    }
    for config in nodes.values():
        np.savez(config["data"], x=rng.normal(size=(20, 6)), y=rng.integers(3, size=20))
    return nodes


@pytest.mark.parametrize("told", ["c", "d"])
def test_a_key_that_is_registered_under_a_name_has_that_one_alone(
    caplog: pytest.LogCaptureFixture, told: str
) -> None:
    grid = LocalGrid(client_app(), {**NODES, 3: {"name": told}, 4: {"name": "d"}})
    grid.registered = {1: "a", 2: "b", 3: "c"}
    with caplog.at_level(logging.WARNING, logger="flwr"):
        messages = strategy_of().configure_train(1, ArrayRecord(), ConfigRecord(), grid)
    wanted = [1, 2, 3, 4] if told == "c" else [1, 2, 4]
    assert [message.metadata.dst_node_id for message in messages] == wanted
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [] if told == "c" else "registered as c; start it with" in lines[0]


def test_a_run_that_never_has_enough_sites_ends() -> None:
    strategy = strategy_of(min_sites=4, patience=0)
    with pytest.raises(PFNMError, match="3 sites are connected after 0 seconds, expected at least"):
        strategy.start(LocalGrid(client_app(), NODES), ArrayRecord(), 3)


def test_a_disk_that_is_full_does_not_end_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "checkpoints"
    strategy = strategy_of(checkpoints=folder)  # type: ignore[arg-type]
    grid = LocalGrid(client_app(), NODES)
    folder.rmdir()
    with caplog.at_level(logging.ERROR, logger="flwr"):
        answered(strategy, grid, None)
    assert "round 1: the run goes on without a checkpoint: " in caplog.text
    folder.mkdir()
    answered(strategy, grid, None)
    assert strategy_of(checkpoints=folder).round == 2  # type: ignore[arg-type]


def test_a_checkpoint_of_another_run_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    strategy = strategy_of(checkpoints=tmp_path)  # type: ignore[arg-type]
    answered(strategy, LocalGrid(client_app(), NODES), None)
    with pytest.raises(PFNMError, match="other settings; choose another folder"):
        strategy_of(checkpoints=tmp_path, seed=5)  # type: ignore[arg-type]
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(PFNMError, match="damaged"):
        strategy_of(checkpoints=tmp_path)  # type: ignore[arg-type]


def test_too_few_sites_change_nothing() -> None:
    strategy = strategy_of(min_sites=3)
    answered(strategy, LocalGrid(client_app(), NODES), None)
    assert strategy.round == 0
    assert strategy.network is None


def test_a_site_is_known_by_its_name_and_gets_its_own_part() -> None:
    strategy = strategy_of()
    answered(strategy, LocalGrid(client_app(), NODES), None)
    moved = {7: {"name": "b"}, 8: {"name": "a"}, 9: {"name": "a"}}  # the last is an impostor
    grid = LocalGrid(client_app(), moved)
    messages = list(strategy.configure_train(2, ArrayRecord(), ConfigRecord(), grid))
    assert [message.metadata.dst_node_id for message in messages] == [7, 8]
    for message, name in zip(messages, ("b", "a"), strict=True):
        sent = message.content["arrays"]
        assert isinstance(sent, ArrayRecord)
        for key, tensor in strategy.server.part(name).tensors.items():
            np.testing.assert_array_equal(sent[key].numpy(), tensor)


def test_the_mean_accuracy_and_the_lowest() -> None:
    strategy = strategy_of()
    grid = LocalGrid(client_app(), NODES)
    answered(strategy, grid, None)
    messages = list(strategy.configure_evaluate(1, ArrayRecord(), ConfigRecord(), grid))
    replies = []
    for place, (message, value) in enumerate(zip(messages, (0.5, 1.0, 7.0), strict=True)):
        message.metadata.__dict__["_message_id"] = f"evaluate{place}"
        content = RecordDict({"metrics": MetricRecord({"accuracy": value})})
        replies.append(Message(content, reply_to=message))
    assert strategy.aggregate_evaluate(1, replies) == MetricRecord(
        {"accuracy": 0.75, "lowest-accuracy": 0.5}
    )


def told_counts(app: ClientApp, path: Path, **config: str | float) -> object:
    grid = LocalGrid(app, {1: {"name": "a", "data": str(path), **config}})
    told = ConfigRecord({"classes": 3, "hidden": [2], "epochs": 1})
    message = Message(RecordDict({"config": told}), dst_node_id=1, message_type="train")
    (reply,) = grid.send_and_receive([message])
    if reply.has_error():
        raise PFNMError(str(reply.error.reason))
    metrics = reply.content["metrics"]
    assert isinstance(metrics, MetricRecord)
    return metrics.get("class-counts")


def test_a_site_tells_its_class_counts_as_it_likes(tmp_path: Path) -> None:
    path, labels = tmp_path / "a.npz", [0] * 14 + [2] * 6
    np.savez(path, x=np.random.default_rng(0).normal(size=(20, 4)), y=labels)
    app = client_app()
    assert told_counts(app, path) == [14, 0, 6]
    assert told_counts(app, path, counts="rounded") == [10, 0, 10]
    assert told_counts(app, path, counts="refused") is None
    assert told_counts(app, path, epsilon=1e9) == [14, 0, 6]
    assert told_counts(app, path, epsilon=1e-6) != [14, 0, 6]
    with pytest.raises(PFNMError, match="expected a positive number"):
        told_counts(app, path, epsilon=0.0)


def failure(path: Path, told: ConfigRecord | None = None, **config: str | float) -> str:
    """What a site says when it is asked to train."""
    grid = LocalGrid(client_app(), {1: {"name": "a", "data": str(path), **config}})
    training = {"classes": 3, "hidden": [2], "epochs": 1, **(told or {})}
    message = Message(RecordDict({"config": ConfigRecord(training)}), 1, "train")
    (reply,) = grid.send_and_receive([message])
    return str(reply.error.reason) if reply.has_error() else ""


def test_what_is_wrong_at_a_site_is_one_line_there_and_at_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.npz"
    x, y = np.random.default_rng(0).normal(size=(6, 4)), np.array([0, 1, 2, 0, 1, 2])
    cases: dict[str, tuple[np.ndarray, np.ndarray]] = {
        "hold NaN": (np.where(x == x[0, 0], np.nan, x), y),
        "label 'cat', which is none of the server's classes (0, 1, 2)": (x, np.array(["cat"] * 6)),
        "label '7'": (x, y + 7),
        "label '0.5'": (x, y + 0.5),
        "do not go together": (x[:0], y[:0]),
        "": (x, y.astype(float)),
    }
    for reason, (inputs, labels) in cases.items():
        np.savez(path, x=inputs, y=labels)
        caplog.clear()
        with caplog.at_level(logging.ERROR, logger="flwr"):
            said = failure(path)
        assert reason in said
        assert [record.getMessage() for record in caplog.records] == [said] * bool(reason)
    path.write_bytes(b"")
    assert str(path) in failure(path)
    assert "No such file" in failure(tmp_path / "missing.npz")
    np.savez(path, x=x, y=y)
    assert failure(path, epsilon="nan") == "epsilon is nan, expected a positive number"
    assert failure(path, epsilon="much") == "epsilon is 'much', expected a number"
    private: dict[str, str | float] = {"dp-epsilon": "much", "dp-ledger": "l"}
    assert failure(path, None, **private).startswith("dp-epsilon is")


def test_columns_are_read_by_the_names_that_the_server_knows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("age,y,height\n" + "\n".join(f"{k},{k % 3},{k / 7}" for k in range(9)))
    assert "'weight' is no column" in failure(path, ConfigRecord({"features": ["age", "weight"]}))
    assert failure(path, ConfigRecord({"features": ["height", "age"]})) == ""
