"""A grid of Flower's in one process: real messages, real clients, no transport."""

from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from pfnm.lab.data import load_data
from pfnm.lab.setting import Federation, Setting, federation

FAILED = 2  # Flower's code for an exception in a client


class LocalGrid(Grid):
    """Nodes by id, each with its configuration; those in `silent` never answer."""

    def __init__(self, app: ClientApp, nodes: Mapping[int, Mapping[str, Any]]) -> None:
        self.app, self.nodes = app, {node: dict(config) for node, config in nodes.items()}
        self.silent: set[int] = set()
        self.registered: dict[int, str] = {}
        """Names under which nodes' keys are known to the operator."""
        self.activated: dict[int, str] = {}
        self.restarting = False
        """Whether the silent ones are killed by what they are asked, and restarted at once."""
        self.spoiling: set[int] = set()
        """Nodes whose owners change what Flower sends."""
        self._replies: dict[str, tuple[str, dict[str, bytes]]] = {}
        self.seen: list[Message] = []
        self._ids = map(str, count(1))
        # Whose messages these are: what starts a server of Flower's sets the same.
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        numbers = []
        for message in messages:
            number = message.metadata.__dict__["_message_id"] = next(self._ids)  # as Flower's do
            numbers.append(number)
            self.seen.append(message)
            node = message.metadata.dst_node_id
            if node in self.silent:
                self.activated[node] = self.activated.get(node, "") + "again" * self.restarting
                continue
            context = Context(1, node, self.nodes[node], RecordDict(), {})
            try:
                reply = self.app(message, context)
            except Exception as error:
                reply = Message(Error(FAILED, str(error)), reply_to=message)
            objects = get_all_nested_objects(reply)
            content = {number: part.deflate() for number, part in objects.items()}
            if node in self.spoiling:
                content = {number: part[:-1] + b"\xff" for number, part in content.items()}
            self._replies[number] = reply.object_id, content
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies = [self._replies.pop(number) for number in message_ids if number in self._replies]
        made = [inflate_object_from_contents(number, content) for number, content in replies]
        return [message for message in made if isinstance(message, Message)]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [
            NodeInfo(
                node_id=node,
                name=self.registered.get(node),
                last_activated_at=self.activated.get(node),
            )
            for node in self.nodes
        ]

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError


def digits_in_files(setting: Setting, folder: Path) -> Federation:
    """The lab's split of the digits, a file for each site."""
    split = federation(setting, load_data("digits"))
    for name, part in split.parts.items():
        inputs, labels = split.data.train_inputs[part], split.data.train_labels[part]
        np.savez(folder / f"{name}.npz", x=inputs, y=labels)
    return split
