"""Which site is behind which of Flower's nodes, and what came back from it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from logging import INFO, WARNING
from math import inf

from flwr.app import Message, MessageType, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid

from pfnm.errors import PFNMError
from pfnm.flower.grids import UNANSWERED
from pfnm.flower.messages import name_in, one_line

SECONDS_BETWEEN_LOOKS = 3.0  # while too few sites are connected
SECONDS_BETWEEN_QUESTIONS = 60.0  # to nodes that have not told a name that they can have
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
            said = (
                lines[-1].rpartition("Message: ")[2].removesuffix("'>")
            )  # Flower wraps what is raised
            code = "" if reply.error.code == UNANSWERED else f"error {reply.error.code}: "
            found[name] = Answer(None, f"{code}{one_line(said)}")
        else:
            found[name] = Answer(reply.content)
    return found


class Nodes:
    """The names that nodes gave when they were asked; each is asked once while it is connected."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def connected(self, grid: Grid) -> dict[int, str]:
        """The nodes that are still connected, of those that told their names."""
        nodes = sorted(grid.get_node_ids())
        self._names = {node: self._names[node] for node in nodes if node in self._names}
        return dict(self._names)

    def gathered(self, grid: Grid, least: int, patience: float) -> dict[int, str]:
        """The connected nodes and their names; new ones are asked.

        Waits until at least so many have told theirs, for so many seconds at most. The first to
        give a name has it for as long as it is connected; a node whose key the SuperLink's operator
        registered under a name has that one and no other.
        """
        begin, asked_at, asked, told = time.monotonic(), -inf, set[int](), -1
        while True:
            there = {node.node_id: node.name for node in grid.get_nodes()}
            new = {node: there[node] for node in sorted(there) if node not in self._names}
            again = time.monotonic() - asked_at > SECONDS_BETWEEN_QUESTIONS
            names = self.connected(grid)
            if new and (again or set(there) != asked):
                self._ask(grid, new)
                asked, asked_at, names = set(there), time.monotonic(), self.connected(grid)
            if len(names) >= least:
                return names
            if time.monotonic() - begin > patience:
                raise PFNMError(
                    f"{len(names)} sites are connected after {patience:g} seconds, expected at "
                    f"least {least}; start more SuperNodes, or ask for fewer (min_sites)"
                )
            if len(names) != told:
                log(INFO, "%d sites are connected, waiting for %d", len(names), least)
                told = len(names)
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def _ask(self, grid: Grid, nodes: Mapping[int, str]) -> None:
        """Who nodes are, of which some were registered under a name (else "")."""
        asked = [
            (str(node), Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY))
            for node in nodes
        ]
        replies = grid.send_and_receive(
            [message for _, message in asked], timeout=SECONDS_FOR_A_NAME
        )
        for node, answer in answers(asked, replies).items():
            registered = nodes[int(node)]
            try:
                name = name_in(answer.read())
                if registered and name != registered:
                    raise PFNMError(
                        f"it calls itself {name}, and its key is registered as {registered}; "
                        f"start it with --node-config 'name=\"{registered}\"'"
                    )
                if name in self._names.values():
                    raise PFNMError(f"another node is {name} already; give each its own name")
                self._names[int(node)] = name
            except PFNMError as error:
                known = f" ({one_line(registered)})" if registered else ""
                log(WARNING, "node %s%s is left out: %s", node, known, one_line(error))
