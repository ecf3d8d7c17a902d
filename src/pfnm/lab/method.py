"""What a way to combine networks is, what it starts from and what is recorded of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy

from pfnm.errors import PFNMError
from pfnm.lab.server import Server, seen
from pfnm.lab.setting import Federation
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array, Network

CLASS_COUNT_BYTES = 8


@dataclass(frozen=True, eq=False)
class Local:
    """The networks all sites have after training alone, and why a site has none."""

    networks: Mapping[str, Network]
    left_out: Mapping[str, str]
    seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class State:
    """What a method with rounds carries from one to the next."""

    server: Server = field(default_factory=Server)
    moments: Mapping[str, Array] = field(default_factory=dict)
    """What D-SGD's Adam remembers."""


@dataclass(frozen=True)
class Info:
    """What is recorded of a round."""

    accuracy: float | None
    parameters: int
    widths: Sequence[int] = ()
    bits: float | None = None
    """Cross-entropy of the test labels, in bits each: of text, bits per character."""
    objective: float | None = None
    communications: int = 1
    within: Sequence[tuple[int, float]] = ()
    """D-SGD's first round: accuracies on the way, after 1, 2, 4, ... communications."""
    bytes_up: Mapping[str, int] = field(default_factory=dict)
    bytes_down: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    seconds_training: float = 0.0
    seconds_combining: float = 0.0
    seconds_evaluating: float = 0.0


Once = Callable[[Federation, Local], tuple[Network | None, Info]]
Round = Callable[[Federation, State, Local, int], tuple[State, Info]]


@dataclass(frozen=True)
class Method:
    """A way to combine: once, or in rounds; for what beside perceptrons of one hidden layer."""

    title: str
    once: Once | None = None
    round: Round | None = None
    deep: bool = True
    """Whether for more than one hidden layer too."""
    modules: bool = True
    """Whether for any module too."""
    perceptrons: bool = True
    """Whether for perceptrons too."""
    needs: str | None = None
    """A library that has to be installed."""


def train_local(federation: Federation) -> Local:
    """Every site trains alone, from its own start."""
    names = federation.setting.names
    begin = time.perf_counter()
    starts = {name: federation.start(place) for place, name in enumerate(names)}
    left_out: dict[str, str] = {}
    networks = usable(federation.trained(starts, federation.setting.recipe, 1), starts, left_out)
    return Local(networks, left_out, time.perf_counter() - begin)


def usable(
    returned: Mapping[str, Network | PFNMError],
    starts: Mapping[str, Network],
    left_out: dict[str, str],
) -> dict[str, Network]:
    """The networks that can be used; why the others cannot is added to `left_out`."""
    found = {}
    for name, start in starts.items():
        sent = returned.get(name, PFNMError(f"{name}: sent nothing"))
        if isinstance(sent, PFNMError):
            left_out[name] = str(sent)
        elif sent.sizes != start.sizes:
            left_out[name] = f"{name}: sent layers of {sent.sizes}, expected {start.sizes}"
        else:
            found[name] = sent
    return found


def accuracy(federation: Federation, network: Network) -> float:
    """On the test examples."""
    return tested(federation, network)[0]


def tested(federation: Federation, network: Network) -> tuple[float, float]:
    """On the test examples: accuracy, and bits of cross-entropy."""
    values = network.run(federation.data.test_inputs)
    return scores(federation, scipy.special.log_softmax(values.astype(float), axis=1))


def scores(federation: Federation, logs: Array) -> tuple[float, float]:
    """Of log probabilities (test examples, classes): accuracy, and bits of cross-entropy."""
    labels = federation.data.test_labels.ravel()
    right = float((logs.argmax(axis=1) == labels).mean())
    return right, float(-logs[np.arange(labels.size), labels].mean() / np.log(2))


def size_of(network: Network) -> int:
    """Bytes of its tensors."""
    return sum(tensor.nbytes for tensor in network.tensors.values())


def bytes_up(
    federation: Federation, sent: Mapping[str, Network], *, counted: bool
) -> dict[str, int]:
    """Bytes sent to the server, by site: weights, and the class counts where they are used."""
    counted = counted and federation.setting.share_counts
    more = CLASS_COUNT_BYTES * len(federation.data.classes) if counted else 0
    return {name: size_of(network) + more for name, network in sent.items()}


def server_counts(federation: Federation, networks: Mapping[str, Network]) -> IntArray | None:
    """What the server knows of the sites' classes, (sites, classes)."""
    if not federation.setting.share_counts:
        return None
    counts = federation.counts
    return seen([counts[name] for name in networks])
