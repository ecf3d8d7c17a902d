"""Every way to combine the sites' networks, once or in rounds, by its name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec

from pfnm.errors import PFNMError
from pfnm.lab.baselines import kmeans
from pfnm.lab.method import Info, Local, Method
from pfnm.lab.once import alone, averaged, ensembled, fused, one_network
from pfnm.lab.rounds import average_round, downpour_round, pfnm_round
from pfnm.lab.setting import PERCEPTRON, SERVER, Federation, Setting
from pfnm.networks.network import Network

METHODS: Mapping[str, Method] = {
    "local": Method("one site alone (mean)", once=alone),
    "ensemble": Method("uniform ensemble", once=partial(ensembled, weighted=False)),
    "weighted": Method("class-weighted ensemble", once=partial(ensembled, weighted=True)),
    "average": Method("plain average, once", once=partial(averaged, by="place")),
    "rebasin": Method("Git Re-Basin, once", once=partial(averaged, by="rebasin")),
    "ot": Method("OT fusion, once", once=partial(averaged, by="ot"), needs="ot"),
    "average-reset": Method(
        "plain average, BatchNorm anew",
        once=partial(averaged, by="place", reset=True),
        perceptrons=False,
    ),
    "rebasin-reset": Method(
        "Git Re-Basin, BatchNorm anew",
        once=partial(averaged, by="rebasin", reset=True),
        perceptrons=False,
    ),
    "ot-reset": Method(
        "OT fusion, BatchNorm anew",
        once=partial(averaged, by="ot", reset=True),
        perceptrons=False,
        needs="ot",
    ),
    "kmeans": Method(
        "k-means of units, once",
        once=lambda federation, local: one_network(
            federation, local, lambda n, _: kmeans(n, federation.setting.rng(SERVER, 1))
        ),
        deep=False,
        modules=False,
    ),
    "topdown": Method("PFNM top-down, once", once=partial(fused, method="topdown"), modules=False),
    "joint": Method("PFNM joint, once", once=partial(fused, method="joint")),
    "pfnm": Method("PFNM with rounds", round=partial(pfnm_round, method="topdown"), modules=False),
    "pfnm-joint": Method("PFNM joint with rounds", round=partial(pfnm_round, method="joint")),
    "fedavg": Method("FedAvg, shared start", round=partial(average_round, shared=True)),
    "fedavg-apart": Method("FedAvg, starts apart", round=partial(average_round, shared=False)),
    "fedprox": Method("FedProx", round=partial(average_round, shared=True, proximal=True)),
    "dsgd": Method("downpour SGD", round=downpour_round, modules=False),
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
    unknown = sorted(set(setting.methods) - set(METHODS))
    if unknown:
        raise PFNMError(f"unknown method {unknown[0]!r}; choose from {', '.join(METHODS)}")
    refused = {name: _refused(name, setting) for name in METHODS}
    for name in setting.methods:
        if refused[name] is not None:
            raise PFNMError(refused[name])
    return [
        name
        for name, reason in refused.items()
        if name in setting.methods or not (setting.methods or reason)
    ]


def _refused(name: str, setting: Setting) -> str | None:
    """Why a method cannot be used in a setting, if it cannot."""
    if setting.model != PERCEPTRON and not METHODS[name].modules:
        return f"{name} is for perceptrons; leave it out, or choose the model {PERCEPTRON}"
    if setting.model == PERCEPTRON and not METHODS[name].perceptrons:
        return f"{name} is for models with batch normalisation; leave it out, or choose one"
    needed = METHODS[name].needs
    if needed is not None and find_spec(needed) is None:
        return f"{name} needs the library POT, which is not installed; pip install 'pfnm[peers]'"
    if len(setting.hidden) > 1 and not METHODS[name].deep:
        return f"{name} is for one hidden layer; leave it out, or the other layers"
    if name == "weighted" and not setting.share_counts:
        return "the class-weighted ensemble needs class counts; leave it out, or share them"
    return None
