"""Flower's grid, on which what one node sends is a failure of that node alone."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from flwr.app import Error, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from pfnm.formats import told

UNANSWERED = 0  # Flower's code of what has none of its own
SHARE_OF_LOOKING = (
    0.1  # of the time while answers are waited for: the SuperLink has others to serve
)
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 3.0  # seconds between looks


class OneByOne(Grid):
    """A grid that takes answers one at a time, and waits for none that cannot come.

    Flower reads all that have come together and hands them on at the end: an object that is none,
    made up by one node, would end the run, and with it what all others sent. And it waits until the
    time is over for a node that was killed and is back before anybody noticed.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and wait for their answers, at most so many seconds."""
        begin = time.monotonic()
        sent = list(messages)
        before = self._activations()
        pushed = set(self._grid.push_messages(sent)) if sent else set()
        waiting = [message for message in sent if message.metadata.message_id in pushed]
        replies = []
        while waiting:
            look = time.monotonic()
            now = self._activations()
            later = []
            for message in waiting:
                node = message.metadata.dst_node_id
                reply = self._reply(message)
                if reply is None and before.get(node) != now.get(node, before.get(node)):
                    reply = _failure(message, "its SuperNode was restarted meanwhile")
                if reply is None:
                    later.append(message)
                else:
                    replies.append(reply)
            waiting, end = later, time.monotonic()
            if not waiting or (timeout is not None and end - begin > timeout):
                break
            pause = (end - look) / SHARE_OF_LOOKING
            time.sleep(min(max(pause, SHORTEST_PAUSE), LONGEST_PAUSE))
        return replies

    def _activations(self) -> dict[int, str]:
        """When each connected node was started last, by the SuperLink's clock."""
        return {node.node_id: node.last_activated_at for node in self._grid.get_nodes()}

    def _reply(self, message: Message) -> Message | None:
        """The answer to a message, if it has come; an error where it cannot be read."""
        number = message.metadata.message_id
        try:
            replies = list(self._grid.pull_messages([number]))
            if not replies:
                return None
            (reply,) = replies
            if reply.metadata.reply_to_message_id != number:
                raise ValueError("it answers another message")
            _ = reply.error if reply.has_error() else reply.content
        except Exception as error:  # whatever Flower raises on bytes that are no message
            return _failure(message, f"its answer cannot be read: {told(error)}")
        return reply

    def get_node_ids(self) -> Iterable[int]:
        """Of the nodes that are connected."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[NodeInfo]:
        """The nodes that are connected, as the SuperLink knows them."""
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """As Flower's grid does."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """As Flower's grid does."""
        return self._grid.pull_messages(message_ids)

    def set_run(self, run: Any) -> None:
        """As Flower's grid does."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """As Flower's grid has it."""
        return self._grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """As Flower's grid does."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)


def _failure(message: Message, reason: str) -> Message:
    return Message(Error(UNANSWERED, reason), reply_to=message)
