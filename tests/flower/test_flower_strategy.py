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
    network = random_network(3, SIZES)
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
        "inputs": (arrays(network, first=first[:, :4]), "4 inputs, expected 6"),
        "nan": (arrays(network, first=nan), "NaN"),
        "whole numbers": (arrays(network, first=np.ones((5, 6), dtype=int)), "floating point"),
        "too large": (arrays(network, first=1e5 * first), "largest weight"),
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
