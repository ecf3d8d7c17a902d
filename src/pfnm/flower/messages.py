"""What travels between the server and a site, and how it is read: nothing received is trusted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from pfnm.errors import PFNMError
from pfnm.formats import told
from pfnm.lab.setting import Setting
from pfnm.networks.graph import INPUT, OUTPUT, IntArray
from pfnm.networks.network import Network, Tensor
from pfnm.pages.text import escaped

ARRAYS, CONFIG, METRICS, SITE = "arrays", "config", "metrics", "site"  # records of a message
ROUND, NAME, CLASS_COUNTS, ACCURACY = "server-round", "name", "class-counts", "accuracy"
# What the server may tell sites of training: fields of the lab's `Setting`, and the classes.
TRAINING = (
    *("hidden", "epochs", "later_epochs", "batch_size"),
    *("learning_rate", "weight_decay", "rate_decay", "seed"),
)
CLASSES = "classes"
FEATURES = "features"  # the inputs' names, where the server's network has them
RATE_SHARE = "rate-share"  # of the rate at which sites train
AT_REST = "at-rest"  # whether what batch normalisation remembers was made up, not seen
SITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")  # it stands in logs and in files
MOST_EXAMPLES = 10**12  # of a class: beyond is no count
MOST_TOLD = 400  # characters of what another machine says went wrong


def one_line(words: object) -> str:
    """What another machine says, or what was made of it, as it can stand in a log."""
    found = escaped(str(words)[: MOST_TOLD + 1])
    return found if len(found) <= MOST_TOLD else f"{found[:MOST_TOLD]}..."


def arrays_of(network: Network) -> ArrayRecord:
    """A network's tensors, by name."""
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in network.tensors.items()}
    return ArrayRecord({name: Array(tensor) for name, tensor in tensors.items()})


def network_of(content: RecordDict, like: Network, name: str) -> Network:
    """The network in a message: tensors as `like` has them, of whatever widths; or an error."""
    record = content.get(ARRAYS)
    if not isinstance(record, ArrayRecord):
        raise PFNMError(f"{name}: there are no arrays; send the network's tensors")
    odd = sorted(set(record) ^ set(like.tensors))
    if odd:
        raise PFNMError(f"{name}: tensor {odd[0]!r} is missing, or is none of this network's")
    tensors = {key: _tensor(record[key], like.tensors[key], f"{name}: {key}") for key in record}
    network = replace(like, tensors=tensors, name=name)
    for space in (INPUT, OUTPUT):
        if network.sizes.get(space) != like.sizes.get(space):
            raise PFNMError(
                f"{name}: its network has {network.sizes.get(space)} {space}s, expected "
                f"{like.sizes.get(space)}; train the network that the server describes"
            )
    return network


def _tensor(array: Array, like: Tensor, name: str) -> Tensor:
    try:
        tensor = array.numpy()  # never unpickles
    except Exception as error:  # whatever numpy raises on bytes that are no array
        raise PFNMError(f"{name}: no array can be read ({told(error)}); send it again") from None
    if not np.issubdtype(tensor.dtype, np.floating):
        raise PFNMError(f"{name}: it holds {tensor.dtype}, expected floating point")
    with np.errstate(over="ignore"):  # what becomes infinite is refused with the network
        return tensor.astype(like.dtype)


def name_in(content: RecordDict) -> str:
    """By what name a site asks to be known."""
    record = content.get(SITE)
    name = record.get(NAME) if isinstance(record, ConfigRecord) else None
    if not isinstance(name, str) or not SITE_NAME.fullmatch(name):
        raise PFNMError(
            f"a site calls itself {str(name)[:64]!r}; give it a name of letters, digits, '-', '_' "
            "and '.' (--node-config 'name=\"north\"')"
        )
    return name


def counts_in(content: RecordDict, classes: int, name: str) -> IntArray | None:
    """The examples of each class that a site tells; None where it tells nothing."""
    record = content.get(METRICS)
    values = record.get(CLASS_COUNTS) if isinstance(record, MetricRecord) else None
    if values is None:
        return None
    counts = np.asarray(values)
    whole = counts.shape == (classes,) and np.issubdtype(counts.dtype, np.integer)
    if not whole or counts.min() < 0 or counts.max() > MOST_EXAMPLES:
        raise PFNMError(f"{name}: its class counts are no {classes} whole numbers from 0 on")
    return counts.astype(np.intp)


def accuracy_in(content: RecordDict, name: str) -> float:
    """What a site measured."""
    record = content.get(METRICS)
    value = record.get(ACCURACY) if isinstance(record, MetricRecord) else None
    if not isinstance(value, float) or not 0 <= value <= 1:
        raise PFNMError(f"{name}: its accuracy is {str(value)[:64]}, expected 0 to 1")
    return value


def config_in(message: Message) -> Mapping[str, Any]:
    """What the server tells."""
    record = message.content.get(CONFIG)
    return record if isinstance(record, ConfigRecord) else {}


def number_in(config: Mapping[str, Any], key: str) -> float:
    """A number of a configuration."""
    try:
        return float(config[key])
    except (TypeError, ValueError):
        raise PFNMError(f"{key} is {config[key]!r}, expected a number") from None


def setting_in(config: Mapping[str, Any]) -> Setting:
    """How the server asks sites to train; what it does not say is as in the lab."""
    odd = sorted(set(config) - {*TRAINING, CLASSES, FEATURES, ROUND, RATE_SHARE, AT_REST})
    if odd:
        raise PFNMError(
            f"the server's training configuration has {odd[0]!r}; it may have {', '.join(TRAINING)}"
        )
    values = {f.name: config[f.name] for f in fields(Setting) if f.name in config}
    if "hidden" in values:
        values["hidden"] = tuple(values["hidden"])
    return Setting(**values)
