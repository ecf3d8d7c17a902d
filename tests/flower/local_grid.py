"""A grid of Flower's in one process: real messages, real clients, no transport."""

from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from pfnm.lab.data import load_data
from pfnm.lab.setting import Federation, Setting, federation

FAILED = 2  # Flower's code for an exception in a client


class LocalGrid(Grid):
    """Nodes by id, each with its configuration; those in `silent` never answer."""

    def __init__(self, app: ClientApp, nodes: Mapping[int, Mapping[str, Any]]) -> None:
        self.app, self.nodes = app, {node: dict(config) for node, config in nodes.items()}
        self.silent: set[int] = set()
        self.seen: list[Message] = []
        self._ids = map(str, count(1))
        # Whose messages these are: what starts a server of Flower's sets the same.
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        replies = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = next(self._ids)  # as Flower's grids do
            self.seen.append(message)
            node = message.metadata.dst_node_id
            if node in self.silent:
                continue
            context = Context(1, node, self.nodes[node], RecordDict(), {})
            try:
                replies.append(self.app(message, context))
            except Exception as error:
                replies.append(Message(Error(FAILED, str(error)), reply_to=message))
        return replies

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError


def digits_in_files(setting: Setting, folder: Path) -> Federation:
    """The lab's split of the digits, a file for each site."""
    split = federation(setting, load_data("digits"))
    for name, part in split.parts.items():
        inputs, labels = split.data.train_inputs[part], split.data.train_labels[part]
        np.savez(folder / f"{name}.npz", x=inputs, y=labels)
    return split
