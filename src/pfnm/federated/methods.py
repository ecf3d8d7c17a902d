"""Every way to combine the sites' networks, once or in rounds, behind one signature each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from pfnm.api import fuse
from pfnm.core.errors import PFNMError
from pfnm.core.mlp import forward
from pfnm.core.network import Array, IntArray, Network
from pfnm.federated.baselines import ensemble, kmeans, naive_average, weighted_average
from pfnm.federated.dsgd import downpour
from pfnm.federated.server import Server, combine, seen
from pfnm.federated.setting import SERVER, Federation, Setting
from pfnm.federated.training import Recipe
from pfnm.polishing import polish

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
    """A way to combine: once, or in rounds; `deep`: for more than one hidden layer too."""

    title: str
    once: Once | None = None
    round: Round | None = None
    deep: bool = True


def train_local(federation: Federation) -> Local:
    """Every site trains alone, from its own start."""
    names = federation.setting.names
    begin = time.perf_counter()
    starts = {name: federation.start(place) for place, name in enumerate(names)}
    left_out: dict[str, str] = {}
    networks = _usable(federation.trained(starts, federation.setting.recipe, 1), starts, left_out)
    return Local(networks, left_out, time.perf_counter() - begin)


def _usable(
    returned: Mapping[str, Network | PFNMError],
    starts: Mapping[str, Network],
    left_out: dict[str, str],
) -> dict[str, Network]:
    """The networks that can be used; why the others cannot is added to `left_out`."""
    usable = {}
    for name, start in starts.items():
        found = returned.get(name, PFNMError(f"{name}: sent nothing"))
        if isinstance(found, PFNMError):
            left_out[name] = str(found)
        elif found.sizes != start.sizes:
            left_out[name] = f"{name}: sent layers of {found.sizes}, expected {start.sizes}"
        else:
            usable[name] = found
    return usable


def _returned(
    federation: Federation,
    starts: Mapping[str, Network],
    recipe: Recipe,
    number: int,
    left_out: dict[str, str],
) -> dict[str, Network]:
    """What sites send after training from their starts, if there are any."""
    if not starts:
        return {}
    return _usable(federation.trained(starts, recipe, number), starts, left_out)


# Once -------------------------------------------------------------------------------------------


def _once(
    federation: Federation,
    local: Local,
    combined: Callable[[list[Network], IntArray | None], Network],
    *,
    counted: bool = False,
) -> tuple[Network, Info]:
    """One network made of all local ones."""
    begin = time.perf_counter()
    network = combined(list(local.networks.values()), server_counts(federation, local.networks))
    middle = time.perf_counter()
    found = accuracy(federation, network)
    return network, Info(
        found,
        network.parameters,
        tuple(network.widths.values()),
        bytes_up=_bytes_up(federation, local.networks, counted=counted),
        left_out=local.left_out,
        seconds_training=local.seconds,
        seconds_combining=middle - begin,
        seconds_evaluating=time.perf_counter() - middle,
    )


def _alone(federation: Federation, local: Local) -> tuple[None, Info]:
    found = [accuracy(federation, network) for network in local.networks.values()]
    first = next(iter(local.networks.values()))
    return None, Info(
        float(np.mean(found)),
        first.parameters,
        tuple(first.widths.values()),
        left_out=local.left_out,
        seconds_training=local.seconds,
    )


def _ensemble(federation: Federation, local: Local, *, weighted: bool) -> tuple[None, Info]:
    networks = list(local.networks.values())
    counts = server_counts(federation, local.networks) if weighted else None
    begin = time.perf_counter()
    values, _ = ensemble(networks, federation.data.test_inputs, counts)
    return None, Info(
        float((values.argmax(axis=1) == federation.data.test_labels).mean()),
        sum(network.parameters for network in networks),
        bytes_up=_bytes_up(federation, local.networks, counted=weighted),
        left_out=local.left_out,
        seconds_training=local.seconds,
        seconds_evaluating=time.perf_counter() - begin,
    )


def _fused(federation: Federation, local: Local, *, method: str) -> tuple[Network, Info]:
    setting = federation.setting
    budget = setting.budget if method == "joint" else None
    rng = setting.rng(SERVER, 1)

    def combined(networks: list[Network], counts: IntArray | None) -> Network:
        fusion = fuse(
            networks,
            class_counts=counts,
            method=method,
            budget=budget,
            input_range=federation.input_range,
            checked=False,
            rng=rng,
        )
        if setting.polish:
            fusion = polish(fusion, networks, class_counts=counts, rng=rng)
        return fusion.network

    return _once(federation, local, combined, counted=True)


# In rounds --------------------------------------------------------------------------------------


def _pfnm_round(
    federation: Federation, state: State, local: Local, number: int, *, method: str
) -> tuple[State, Info]:
    """Sites train on from their part of the global network; new ones send their first network."""
    setting, server = federation.setting, state.server
    names, left_out = federation.taking_part(number)
    active = [name for name in names if name not in left_out]
    known = () if server.network is None else server.sent
    down = {name: server.part(name) for name in names if name in known}
    starts = {name: sent for name, sent in down.items() if name in active}
    begin = time.perf_counter()
    returned = _returned(federation, starts, setting.recipe_of(number), number, left_out)
    new = [name for name in active if name not in starts]
    training = time.perf_counter() - begin + local.seconds * len(new) / setting.sites
    for name in new:
        if name in local.networks:
            returned[name] = local.networks[name]
        else:
            left_out[name] = local.left_out[name]
    begin = time.perf_counter()
    after = combine(
        server,
        returned,
        counts=federation.counts if setting.share_counts else None,
        method=method,
        budget=setting.budget,
        polished=setting.polish,
        input_range=federation.input_range,
        rng=setting.rng(SERVER, number),
    )
    combining = time.perf_counter() - begin
    info = _measured(federation, after.network, down, returned, left_out, training, combining)
    up = _bytes_up(federation, returned, counted=True)
    return State(after), replace(info, objective=after.objective, bytes_up=up)


def _average_round(
    federation: Federation,
    state: State,
    local: Local,
    number: int,
    *,
    shared: bool,
    proximal: bool = False,
) -> tuple[State, Info]:
    """FedAvg: sites train on from the global network with SGD, the server averages."""
    setting = federation.setting
    names, left_out = federation.taking_part(number)
    active = [name for name in names if name not in left_out]
    present = state.server.network
    down = {
        name: federation.start(0 if shared else setting.names.index(name))
        if present is None
        else present
        for name in names
    }
    starts = {name: sent for name, sent in down.items() if name in active}
    recipe = replace(
        setting.recipe_of(number),
        optimizer="sgd",
        learning_rate=setting.sgd_rate,
        proximal=setting.proximal if proximal else 0.0,
    )
    begin = time.perf_counter()
    returned = _returned(federation, starts, recipe, number, left_out)
    training = time.perf_counter() - begin
    begin = time.perf_counter()
    after = present
    if returned:
        sizes = [federation.parts[name].size for name in returned]
        weights = sizes if setting.share_counts else np.ones(len(sizes))
        after = weighted_average(list(returned.values()), weights)
    combining = time.perf_counter() - begin
    if present is None and not shared:
        down = {}  # every site begins with what it has
    info = _measured(federation, after, down, returned, left_out, training, combining)
    return State(Server(after)), info


def _downpour_round(
    federation: Federation, state: State, local: Local, number: int
) -> tuple[State, Info]:
    names, left_out = federation.taking_part(number)
    active = [name for name in names if name not in left_out]
    network = state.server.network or federation.start(0)
    begin = time.perf_counter()
    within: list[tuple[int, float]] = []
    evaluating = 0.0

    def on_step(step: int, trained: Callable[[], Network]) -> None:
        nonlocal evaluating
        if step & (step - 1) == 0:  # a power of two
            before = time.perf_counter()
            within.append((step, accuracy(federation, trained())))
            evaluating += time.perf_counter() - before

    after, moments, steps, bad = downpour(
        federation, network, state.moments, active, number, on_step if number == 1 else None
    )
    training = time.perf_counter() - begin - evaluating
    sent = dict.fromkeys(active, after)
    left_out |= bad
    info = _measured(federation, after, sent, sent, left_out, training, 0.0)
    up = {name: steps * size for name, size in info.bytes_up.items()}
    down = {name: steps * size for name, size in info.bytes_down.items()}
    return State(Server(after), moments), replace(
        info,
        communications=steps,
        within=within,
        bytes_up=up,
        bytes_down=down,
        seconds_evaluating=info.seconds_evaluating + evaluating,
    )


def _measured(
    federation: Federation,
    network: Network | None,
    down: Mapping[str, Network],
    up: Mapping[str, Network],
    left_out: Mapping[str, str],
    training: float,
    combining: float,
) -> Info:
    begin = time.perf_counter()
    found = None if network is None else accuracy(federation, network)
    return Info(
        found,
        0 if network is None else network.parameters,
        () if network is None else tuple(network.widths.values()),
        bytes_up=_bytes_up(federation, up, counted=False),
        bytes_down={name: size_of(sent) for name, sent in down.items()},
        left_out=dict(left_out),
        seconds_training=training,
        seconds_combining=combining,
        seconds_evaluating=time.perf_counter() - begin,
    )


def accuracy(federation: Federation, network: Network) -> float:
    """On the test examples."""
    values = forward(network, federation.data.test_inputs)
    return float((values.argmax(axis=1) == federation.data.test_labels).mean())


def size_of(network: Network) -> int:
    """Bytes of its tensors."""
    return sum(tensor.nbytes for tensor in network.tensors.values())


def _bytes_up(
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


METHODS: Mapping[str, Method] = {
    "local": Method("one site alone (mean)", once=_alone),
    "ensemble": Method("uniform ensemble", once=partial(_ensemble, weighted=False)),
    "weighted": Method("class-weighted ensemble", once=partial(_ensemble, weighted=True)),
    "average": Method(
        "plain average, once",
        once=lambda federation, local: _once(federation, local, lambda n, _: naive_average(n)),
    ),
    "kmeans": Method(
        "k-means of units, once",
        once=lambda federation, local: _once(
            federation, local, lambda n, _: kmeans(n, federation.setting.rng(SERVER, 1))
        ),
        deep=False,
    ),
    "topdown": Method("PFNM top-down, once", once=partial(_fused, method="topdown")),
    "joint": Method("PFNM joint, once", once=partial(_fused, method="joint")),
    "pfnm": Method("PFNM with rounds", round=partial(_pfnm_round, method="topdown")),
    "pfnm-joint": Method("PFNM joint with rounds", round=partial(_pfnm_round, method="joint")),
    "fedavg": Method("FedAvg, shared start", round=partial(_average_round, shared=True)),
    "fedavg-apart": Method("FedAvg, starts apart", round=partial(_average_round, shared=False)),
    "fedprox": Method("FedProx", round=partial(_average_round, shared=True, proximal=True)),
    "dsgd": Method("downpour SGD", round=_downpour_round),
}


def combined_once(name: str, federation: Federation, local: Local) -> tuple[Network | None, Info]:
    """What a method makes of the local networks; nothing where fewer than two could be trained."""
    once = METHODS[name].once
    assert once is not None
    if len(local.networks) > 1 or name == "local":
        return once(federation, local)
    return None, Info(None, 0, left_out=local.left_out, seconds_training=local.seconds)


def chosen_methods(setting: Setting) -> list[str]:
    """The methods asked for, or all that the setting allows."""
    names, depth = setting.methods, len(setting.hidden)
    unknown = sorted(set(names) - set(METHODS))
    if unknown:
        raise PFNMError(f"unknown method {unknown[0]!r}; choose from {', '.join(METHODS)}")
    for name in names:
        if depth > 1 and not METHODS[name].deep:
            raise PFNMError(f"{name} is for one hidden layer; leave it out, or the other layers")
    if "weighted" in names and not setting.share_counts:
        raise PFNMError(
            "the class-weighted ensemble needs class counts; leave it out, or share them"
        )
    return [
        name
        for name, method in METHODS.items()
        if name in names
        or (
            not names
            and (depth == 1 or method.deep)
            and (name != "weighted" or setting.share_counts)
        )
    ]
