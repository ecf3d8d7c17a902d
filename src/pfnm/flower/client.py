"""A ready client: a site trains on its own data, and sends weights."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from logging import ERROR
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.logger import log

from pfnm.errors import PFNMError
from pfnm.flower.messages import (
    ACCURACY,
    ARRAYS,
    AT_REST,
    CLASS_COUNTS,
    CLASSES,
    FEATURES,
    METRICS,
    NAME,
    RATE_SHARE,
    ROUND,
    SITE,
    arrays_of,
    config_in,
    network_of,
    number_in,
    one_line,
    setting_in,
)
from pfnm.flower.models import (
    MakeModule,
    at_home,
    of_modules,
    read_network,
    train_one,
    write_network,
)
from pfnm.flower.private import KEY as PRIVATE
from pfnm.flower.private import Privacy, train_one_privately
from pfnm.formats.data import read_examples
from pfnm.lab.plain import TrainOne
from pfnm.lab.setting import BATCHES, STARTING, Setting
from pfnm.lab.training import initial_network
from pfnm.networks.graph import IntArray
from pfnm.networks.network import MOST_LISTED, Tensor

Examples = tuple[Any, Any]
"""Inputs (examples, ...) and labels (examples,)."""
ReadData = Callable[[Context], Examples]
Numbered = tuple[Tensor, IntArray, tuple[Any, ...]]
"""Inputs (examples, inputs), labels as positions among the classes (examples,), the classes."""

EXACT, ROUNDED, REFUSED = "exact", "rounded", "refused"  # what a site tells of its class counts
ROUNDED_TO = 10  # a count that is rounded
TRAINED, KEEP = "trained", "keep"  # files of the node's configuration
FAILED = 2  # Flower's code of a client that failed

Handler = Callable[[Message, Context], Message]


def client_app(
    *,
    train_data: ReadData | None = None,
    test_data: ReadData | None = None,
    model: MakeModule | None = None,
    example_inputs: Any = None,
    train: TrainOne | None = None,
) -> ClientApp:
    """A Flower client that trains a perceptron, or a module of yours, on the site's own data.

    Parameters
    ----------
    train_data, test_data
        Functions from Flower's context to inputs and labels. By default the files that the node's
        configuration calls `data` and `test` (without `test`, `data` is what is measured on).
    model, example_inputs
        A function that makes the PyTorch module that all sites train, and a batch as it takes it.
        By default a perceptron as the lab has it, of the widths that the server says.
    train
        One training of a network. By default as in the lab.

    The node's configuration may also have

    - `name`: by default `site` and Flower's `partition-id`;
    - `counts`: "exact", "rounded" or "refused", what the server is told of the classes; `epsilon`:
      Laplace noise of scale 1 / epsilon is added to them;
    - `trained`: a file with a network to send the first time, instead of training one;
    - `keep`: a file to which the global network is written whenever it is measured;
    - `dp-epsilon`, `dp-ledger` and more: training with differential privacy (docs/deploy.md).
    """

    def examples(context: Context, config: Mapping[str, Any], *, measured: bool) -> Numbered:
        read = test_data if measured else train_data
        if read is not None:
            return _numbered(read(context), config, site_name(context))
        key = "test" if measured and "test" in context.node_config else "data"
        return _numbered(_read(context, key, config), config, str(context.node_config[key]))

    network = initial_network if model is None else of_modules(model, example_inputs)
    app = ClientApp()

    @app.query()
    @_told_in_a_line
    def query(message: Message, context: Context) -> Message:
        name = ConfigRecord({NAME: site_name(context)})
        return Message(RecordDict({SITE: name}), reply_to=message)

    @app.train()
    @_told_in_a_line
    def fit(message: Message, context: Context) -> Message:
        config = config_in(message)
        setting, place = setting_in(config), _place(context)
        inputs, labels, classes = examples(context, config, measured=False)
        start = network(inputs.shape[1], len(classes), setting.recipe, setting.rng(STARTING, place))
        start = replace(start, name=site_name(context))
        content = RecordDict()
        number = 1
        if _has_part(message):
            number = int(config[ROUND])
            start = network_of(message.content, start, start.name)
            if config.get(AT_REST, True):
                start = at_home(start, inputs)
        if number == 1 or METRICS not in context.state:
            # Drawn once in a run, for noise that is drawn again and again averages out.
            if METRICS not in context.state:
                context.state[METRICS] = _told_counts(labels, len(classes), context)
            content[METRICS] = context.state[METRICS]
        if number == 1 and TRAINED in context.node_config:
            if PRIVATE in context.node_config:
                raise PFNMError(
                    f"{TRAINED} is sent as it is, which no ledger counts, but {PRIVATE} asks for "
                    "private training; leave one of them out"
                )
            trained = read_network(str(context.node_config[TRAINED]), start, start.name)
        else:
            rng, recipe = setting.rng(BATCHES, number, place), setting.recipe_of(number)
            rate = float(config.get(RATE_SHARE, 1.0)) * recipe.learning_rate
            recipe = replace(recipe, learning_rate=rate)
            trained = _training(train, context)(start, inputs, labels, recipe, rng)
        content[ARRAYS] = arrays_of(trained)
        return Message(content, reply_to=message)

    @app.evaluate()
    @_told_in_a_line
    def evaluate(message: Message, context: Context) -> Message:
        config = config_in(message)
        inputs, labels, classes = examples(context, config, measured=True)
        like = network(inputs.shape[1], len(classes), Setting().recipe, np.random.default_rng(0))
        received = network_of(message.content, like, "the global network")
        if KEEP in context.node_config:
            write_network(received, str(context.node_config[KEEP]))
        values = received.run(inputs)
        found = MetricRecord({ACCURACY: float((values.argmax(axis=1) == labels).mean())})
        return Message(RecordDict({METRICS: found}), reply_to=message)

    return app


def _told_in_a_line(handler: Handler) -> Handler:
    """The same, but what this site's configuration or data is wrong in is said, in its own log and
    to the server, and is no program's failure."""

    def answer(message: Message, context: Context) -> Message:
        try:
            return handler(message, context)
        except PFNMError as error:
            log(ERROR, "%s", one_line(error))
            return Message(Error(FAILED, one_line(error)), reply_to=message)

    return answer


def _training(train: TrainOne | None, context: Context) -> TrainOne:
    """How this site trains: privately, as the user says, or as the lab does."""
    privacy = Privacy.told(context.node_config)
    if privacy is None:
        return train or train_one
    if train is not None:
        raise PFNMError(
            f"this site's configuration asks for private training ({PRIVATE}), but the app trains "
            "in its own way, which may not be private; leave one of them out"
        )
    return partial(train_one_privately, privacy=privacy)


def site_name(context: Context) -> str:
    """By what name the server knows a site: whatever its node id, which changes."""
    config = context.node_config
    if "name" in config:
        return str(config["name"])
    if "partition-id" in config:
        return f"site{config['partition-id']}"
    raise PFNMError("this node has no name; give it one with --node-config 'name=\"north\"'")


def _place(context: Context) -> int:
    """Which of the streams of randomness is this site's."""
    place = context.node_config.get("partition-id")
    return zlib.crc32(site_name(context).encode()) if place is None else int(place)


def _has_part(message: Message) -> bool:
    return isinstance(message.content.get(ARRAYS), ArrayRecord)


def _read(context: Context, key: str, config: Mapping[str, Any]) -> Examples:
    """What is in a file of the node's configuration: the columns that the server names, if so."""
    path = context.node_config.get(key)
    if path is None:
        raise PFNMError(
            f"{site_name(context)}: it has no data; give it with --node-config 'data=\"FILE\"'"
        )
    return read_examples(str(path), features=config.get(FEATURES))


def _numbered(examples: Examples, config: Mapping[str, Any], source: str) -> Numbered:
    """Inputs, labels as positions among the classes, and the classes that the server names."""
    told = config.get(CLASSES)
    if told is None:
        raise PFNMError(f"the server does not tell the {CLASSES!r}; set them in its configuration")
    classes = tuple(range(told)) if isinstance(told, int) else tuple(told)
    inputs, labels = (np.asarray(part) for part in examples)
    if labels.ndim != 1 or labels.size == 0 or len(inputs) != len(labels):
        raise PFNMError(
            f"{source}: inputs {inputs.shape} and labels {labels.shape}, expected one label for "
            "each example, and at least one example"
        )
    inputs = np.ascontiguousarray(inputs.reshape(len(inputs), -1), dtype=np.float32)
    if not np.isfinite(inputs).all():
        raise PFNMError(f"{source}: inputs are NaN or infinite; leave such examples out")
    if labels.dtype.kind == "f" and (labels == np.rint(labels)).all():
        labels = labels.astype(np.int64)  # of a table with gaps, as pandas writes it
    places = {str(label): place for place, label in enumerate(classes)}
    strange = sorted({str(label) for label in labels.tolist()} - set(places))
    if strange:
        listed = [*map(str, classes[:MOST_LISTED]), *["..."] * (len(classes) > MOST_LISTED)]
        raise PFNMError(
            f"{source}: there is a label {strange[0]!r}, which is none of the server's classes "
            f"({', '.join(listed)})"
        )
    numbers = np.array([places[str(label)] for label in labels.tolist()], dtype=np.int64)
    return inputs, numbers, classes


def _told_counts(labels: IntArray, classes: int, context: Context) -> MetricRecord:
    """The class counts as far as the site tells them."""
    config = context.node_config
    how = config.get("counts", EXACT)
    if how not in (EXACT, ROUNDED, REFUSED):
        raise PFNMError(f"counts is {how!r}; choose one of {EXACT}, {ROUNDED}, {REFUSED}")
    if how == REFUSED:
        return MetricRecord()
    counts = np.bincount(labels, minlength=classes).astype(float)
    if "epsilon" in config:
        epsilon = number_in(config, "epsilon")
        if not 0 < epsilon < np.inf:
            raise PFNMError(f"epsilon is {epsilon}, expected a positive number")
        # Of fresh entropy: what a seed of the server's makes, the server could take away again.
        counts += np.random.default_rng().laplace(scale=1 / epsilon, size=classes)
    step = ROUNDED_TO if how == ROUNDED else 1
    whole = step * np.rint(np.maximum(counts, 0) / step)
    return MetricRecord({CLASS_COUNTS: [int(count) for count in whole]})
