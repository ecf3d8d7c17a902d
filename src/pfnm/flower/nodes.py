"""Which site is behind which of Flower's nodes, and what came back from it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from logging import INFO, WARNING

from flwr.app import Message, MessageType, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid

from pfnm.errors import PFNMError
from pfnm.flower.messages import name_in

SECONDS_BETWEEN_LOOKS = 3.0  # while too few sites are connected
SECONDS_FOR_A_NAME = 300.0  # to answer who one is: no work, but a program to start, maybe many


@dataclass(frozen=True)
class Answer:
    """What came back from a site: a content, or why there is none."""

    content: RecordDict | None = None
    reason: str = "it did not answer in time"

    def read(self) -> RecordDict:
        """The content, or an error."""
        if self.content is None:
            raise PFNMError(self.reason)
        return self.content


def answers(sent: Iterable[tuple[str, Message]], replies: Iterable[Message]) -> dict[str, Answer]:
    """Who answered what: by the message that is answered, for a failure may name another node."""
    by_message = {reply.metadata.reply_to_message_id: reply for reply in replies}
    found = {}
    for name, message in sent:
        reply = by_message.get(message.metadata.message_id)
        if reply is None:
            found[name] = Answer()
        elif reply.has_error():
            lines = str(reply.error.reason).strip().splitlines() or [""]
            said = lines[-1].rpartition("Message: ")[2].rstrip("'>")  # Flower wraps what is raised
            found[name] = Answer(None, f"error {reply.error.code}: {said}")
        else:
            found[name] = Answer(reply.content)
    return found


class Nodes:
    """The names that nodes gave when they were asked; each is asked once while it is connected."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def connected(self, grid: Grid, least: int) -> dict[int, str]:
        """The connected nodes and their names; waits until at least so many have told theirs.

        The first to give a name has it for as long as it is connected.
        """
        while True:
            nodes = sorted(grid.get_node_ids())
            self._names = {node: self._names[node] for node in nodes if node in self._names}
            new = [node for node in nodes if node not in self._names]
            if new:
                self._ask(grid, new)
            if len(self._names) >= least:
                return dict(self._names)
            log(INFO, "%d sites are connected, waiting for %d", len(self._names), least)
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def _ask(self, grid: Grid, nodes: Iterable[int]) -> None:
        asked = [
            (str(node), Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY))
            for node in nodes
        ]
        replies = grid.send_and_receive(
            [message for _, message in asked], timeout=SECONDS_FOR_A_NAME
        )
        for node, answer in answers(asked, replies).items():
            try:
                name = name_in(answer.read())
                if name in self._names.values():
                    raise PFNMError(f"another node is {name} already; give each its own name")
                self._names[int(node)] = name
            except PFNMError as error:
                log(WARNING, "node %s is left out: %s", node, error)
