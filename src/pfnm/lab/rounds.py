"""One round of a method with rounds: what sites train from, send, and what becomes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from pfnm.lab.baselines import weighted_average
from pfnm.lab.dsgd import downpour
from pfnm.lab.method import Info, Local, State, accuracy, bytes_up, size_of, tested, usable
from pfnm.lab.schedule import rate_share
from pfnm.lab.server import Server, combine
from pfnm.lab.setting import SERVER, Federation
from pfnm.lab.training import Recipe
from pfnm.networks.network import Network


def pfnm_round(
    federation: Federation, state: State, local: Local, number: int, *, method: str
) -> tuple[State, Info]:
    """Sites train on from what the server has for them; new ones send their first network."""
    setting, server = federation.setting, state.server
    names, left_out = federation.taking_part(number)
    active = [name for name in names if name not in left_out]
    down = {name: server.part(name) for name in names if server.starts(name)}
    starts = {name: down[name] for name in active if name in down}
    if server.at_rest:
        starts = {name: federation.at_home(name, sent) for name, sent in starts.items()}
    recipe = setting.recipe_of(number)
    rate = rate_share(server, number) * recipe.learning_rate
    begin = time.perf_counter()
    returned = _returned(federation, starts, replace(recipe, learning_rate=rate), number, left_out)
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
        **federation.known_inputs,
        rng=setting.rng(SERVER, number),
    )
    combining = time.perf_counter() - begin
    info = _measured(federation, after.network, down, returned, left_out, training, combining)
    up = bytes_up(federation, returned, counted=True)
    return State(after), replace(info, objective=after.objective, bytes_up=up)


def average_round(
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
    recipe = replace(setting.recipe_of(number), proximal=setting.proximal if proximal else 0.0)
    if setting.sgd_rate is not None:
        recipe = replace(recipe, optimizer="sgd", learning_rate=setting.sgd_rate)
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


def downpour_round(
    federation: Federation, state: State, local: Local, number: int
) -> tuple[State, Info]:
    """D-SGD: as many epochs as the others have, an exchange after every minibatch."""
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
    return usable(federation.trained(starts, recipe, number), starts, left_out)


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
    found, bits = (None, None) if network is None else tested(federation, network)
    return Info(
        found,
        0 if network is None else network.parameters,
        () if network is None else tuple(network.widths.values()),
        bits,
        bytes_up=bytes_up(federation, up, counted=False),
        bytes_down={name: size_of(sent) for name, sent in down.items()},
        left_out=dict(left_out),
        seconds_training=training,
        seconds_combining=combining,
        seconds_evaluating=time.perf_counter() - begin,
    )
