"""PFNM as a strategy of Flower's: what the lab's server decides, on messages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from logging import ERROR, INFO, WARNING
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from pfnm.errors import PFNMError
from pfnm.flower.grids import OneByOne
from pfnm.flower.messages import (
    ACCURACY,
    ARRAYS,
    AT_REST,
    CLASSES,
    CONFIG,
    FEATURES,
    RATE_SHARE,
    ROUND,
    accuracy_in,
    arrays_of,
    counts_in,
    network_of,
    one_line,
)
from pfnm.flower.models import network_like, write_network
from pfnm.flower.nodes import Answer, Nodes, answers
from pfnm.formats.files import make_folder
from pfnm.fusing.inputs import Inputs
from pfnm.lab.checkpoints import Checkpoints
from pfnm.lab.method import State, usable
from pfnm.lab.robust import odd_ones
from pfnm.lab.schedule import rate_share
from pfnm.lab.server import Server, combine, too_large
from pfnm.lab.setting import ADMITTING, LEAST_SITES, SERVER, stream
from pfnm.networks.graph import OUTPUT, IntArray
from pfnm.networks.network import Network

if TYPE_CHECKING:
    import torch

METHODS = ("joint", "topdown")
CHECKPOINT = "flower"  # the method's name in the checkpoint's file
PATIENCE = 3600.0  # seconds in which enough sites should be connected


class PFNMStrategy(Strategy):
    """Match the sites' units, round after round; or once, with a single round.

    Parameters
    ----------
    like, example_inputs
        The network that all sites train: a `Network`, or a PyTorch module and a batch as it takes
        it. Its weights do not matter, nor do its hidden widths.
    method, budget, polish, inputs, input_range
        As `pfnm.fuse` has them.
    estimate_counts
        Whether the class counts of sites that do not tell theirs are estimated from what their
        networks answer; without, one that does not tell takes the use of all others'.
    min_sites
        Fewer usable answers, and the round changes nothing.
    robust
        Whether sites are left out whose answers to made-up inputs go with nobody else's, or whose
        weights are another site's (docs/deploy.md has what that finds, and what not).
    evaluate
        Whether every site measures the global network on its own data after each round.
    patience
        How long to wait for `min_sites` to be connected, in seconds; then the run ends, with an
        error that says how many there were.
    seed
        Of everything random at the server.
    checkpoints
        A folder for the server's state, written after every round; what is there already is gone on
        from, and `round` says how many rounds it has behind it.
    """

    def __init__(
        self,
        like: Network | torch.nn.Module,
        example_inputs: Any = None,
        *,
        method: str = "joint",
        budget: float | int | None = 2.0,
        polish: bool = False,
        inputs: Inputs | str | None = None,
        input_range: tuple[float, float] | None = None,
        estimate_counts: bool = True,
        min_sites: int = LEAST_SITES,
        robust: bool = False,
        evaluate: bool = True,
        patience: float = PATIENCE,
        seed: int = 0,
        checkpoints: str | PathLike[str] | None = None,
    ) -> None:
        if method not in METHODS:
            raise PFNMError(f"unknown method {method!r}; choose one of {', '.join(METHODS)}")
        if min_sites < LEAST_SITES:
            raise PFNMError(f"min_sites is {min_sites}, expected at least {LEAST_SITES}")
        self.like = like if isinstance(like, Network) else network_like(like, example_inputs)
        self.method, self.budget, self.polish = method, budget, polish
        self.inputs, self.input_range, self.estimate_counts = inputs, input_range, estimate_counts
        self.min_sites, self.robust, self.evaluate, self.seed = min_sites, robust, evaluate, seed
        self.patience = patience
        self.server = Server()
        self.round = 0
        """The last round that was combined, counted over all runs that were gone on with."""
        self.left_out: dict[str, str] = {}
        """Who was left out of the last round, and why."""
        self._nodes = Nodes()
        self._sent: list[tuple[str, Message]] = []  # what is under way, by site
        self._checkpoints: Checkpoints | None = None
        if checkpoints is not None:
            folder = Path(checkpoints)
            make_folder(folder)
            self._checkpoints = Checkpoints(folder, self.like, self._digest())
            self.round, state = self._checkpoints.state(CHECKPOINT)
            self.server = state.server

    def _digest(self) -> str:
        """By which a checkpoint is known to be this run's."""
        kind = [self.like.numbers, self.like.sizes[OUTPUT], sorted(self.like.tensors)]
        options = [self.method, self.budget, self.polish, self.input_range, self.seed, kind]
        options += [
            None if self.inputs is None else str(self.inputs),
            self.robust,
            self.estimate_counts,
        ]
        return hashlib.sha256(json.dumps(options).encode()).hexdigest()

    @property
    def network(self) -> Network | None:
        """The global network, once there is one."""
        return self.server.network

    def save(self, path: str | PathLike[str]) -> None:
        """The global network as a file, one before it replaced: of modules their weights.

        `pfnm.load(path)`, of modules with `model=`, has it again.
        """
        if self.network is None:
            raise PFNMError(
                "there is no global network yet: no round had enough sites; the log says why each "
                "was left out"
            )
        write_network(self.network, Path(path))

    def summary(self) -> None:
        """Log what is to be done."""
        done = f"going on after round {self.round}" if self.round else "from the beginning"
        log(INFO, "\tPFNM, %s, at least %d sites, %s", self.method, self.min_sites, done)

    def start(self, grid: Grid, *args: Any, **options: Any) -> Result:
        """As Flower's strategies do; what one node sends cannot end the run."""
        return super().start(OneByOne(grid), *args, **options)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """To each site what it goes on from, its own part of the global network or, once sites are
        averaged, all of it; to a new one, only how to train."""
        messages = []
        for node, name in self._nodes.gathered(grid, self.min_sites, self.patience).items():
            content = self._told(config)
            if self.server.starts(name):
                content[ARRAYS] = arrays_of(self.server.part(name))
            message = Message(content, dst_node_id=node, message_type=MessageType.TRAIN)
            messages.append((name, message))
        self._sent = messages
        return [message for _, message in messages]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Combine what can be used, as the lab's server does; the rest is left out, with a line."""
        number = self.round + 1
        self.left_out = {}
        returned, counts = self._read(answers(self._sent, replies), number)
        self.left_out = {
            name: one_line(reason.removeprefix(f"{name}: "))
            for name, reason in self.left_out.items()
        }
        for name, reason in self.left_out.items():
            log(WARNING, "round %d: %s is left out: %s", number, name, reason)
        if len(returned) < self.min_sites:
            log(
                WARNING,
                "round %d: nothing is combined: %d sites, expected at least %d",
                number,
                len(returned),
                self.min_sites,
            )
            return None, None
        try:
            self.server = combine(
                self.server,
                returned,
                counts=counts,
                method=self.method,
                budget=self.budget,
                polished=self.polish,
                estimated=self.estimate_counts,
                inputs=self.inputs,
                input_range=self.input_range,
                rng=stream(self.seed, SERVER, number),
            )
        except PFNMError as error:  # what sites sent must not end the server
            log(ERROR, "round %d: nothing is combined: %s", number, error)
            return None, None
        self.round = number
        self._keep_state()
        assert self.server.network is not None
        metrics = MetricRecord({"sites": len(returned), "left-out": len(self.left_out)})
        return arrays_of(self.server.network), metrics

    def _keep_state(self) -> None:
        """Write the checkpoint; a disk that is full is no reason to lose what is in memory."""
        if self._checkpoints is None:
            return
        try:
            self._checkpoints.keep_state(CHECKPOINT, self.round, State(self.server))
        except PFNMError as error:
            log(ERROR, "round %d: the run goes on without a checkpoint: %s", self.round, error)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The global network to every site, to measure it on its own data."""
        self._sent = []
        if self.server.network is None or not self.evaluate:
            return []
        content = self._told(config)
        content[ARRAYS] = arrays_of(self.server.network)
        for node, name in self._nodes.connected(grid).items():
            message = Message(content, dst_node_id=node, message_type=MessageType.EVALUATE)
            self._sent.append((name, message))
        return [message for _, message in self._sent]

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """The mean accuracy over the sites, and the lowest: nobody has to tell how much it has."""
        accuracies = []
        for name, answer in answers(self._sent, replies).items():
            try:
                accuracies.append(accuracy_in(answer.read(), name))
            except PFNMError as error:
                log(WARNING, "round %d: %s measured nothing: %s", self.round, name, one_line(error))
        if not accuracies:
            return None
        lowest = min(accuracies)
        return MetricRecord({ACCURACY: float(np.mean(accuracies)), "lowest-accuracy": lowest})

    def _told(self, config: ConfigRecord) -> RecordDict:
        """What is told to every site: the round's number, how to train, and from what."""
        number = self.round + 1
        told = ConfigRecord({**config, ROUND: number, AT_REST: self.server.at_rest})
        told[RATE_SHARE] = rate_share(self.server, number)
        if self.like.features is not None:
            told[FEATURES] = list(self.like.features)
        labels = self.like.labels
        told[CLASSES] = self.like.sizes[OUTPUT] if labels is None else [str(one) for one in labels]
        return RecordDict({CONFIG: told})

    def _read(
        self, received: Mapping[str, Answer], number: int
    ) -> tuple[dict[str, Network], dict[str, IntArray]]:
        """The networks that can be used, and class counts; why others cannot: `left_out`."""
        networks: dict[str, Network | PFNMError] = {}
        starts: dict[str, Network] = {}
        counts: dict[str, IntArray] = {}
        for name, answer in received.items():
            try:
                content = answer.read()
                network = network_of(content, self.like, name)
                told = counts_in(content, self.like.sizes[OUTPUT], name)
                if told is not None:
                    counts[name] = told
                networks[name] = network
                starts[name] = self.server.part(name) if self.server.starts(name) else network
            except PFNMError as error:
                self.left_out[name] = str(error)
        returned = usable(networks, starts, self.left_out)
        self._leave_out(too_large(self.server, returned), returned)
        if self.robust:
            odd = odd_ones(
                self.server,
                returned,
                counts,
                inputs=self.inputs,
                input_range=self.input_range,
                rng=stream(self.seed, ADMITTING, number),
            )
            self._leave_out(odd, returned)
        return returned, {name: counts[name] for name in returned if name in counts}

    def _leave_out(self, reasons: Mapping[str, str], returned: dict[str, Network]) -> None:
        self.left_out |= reasons
        for name in reasons:
            del returned[name]
