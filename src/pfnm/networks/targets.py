"""What the targets of labelled data mean to a network: classes, yes or no, or values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfnm.errors import PFNMError
from pfnm.networks.graph import OUTPUT, IntArray
from pfnm.networks.network import Array, BoolArray, Label, Network, Tensor

MOST_LISTED = 10  # labels in an error message
WHOLE = re.compile(r"[+-]?(0|[1-9]\d{0,17})(\.0*)?")  # as long as 64 bits hold; 007 is a name
TRUTH = {"true": 1, "false": 0}
# How two classes are written; the larger number is "yes".
NO_AND_YES = ({0, 1}, {1, 2}, {-1, 1})


@dataclass(frozen=True, eq=False)
class Classes:
    """The output each example belongs to, (examples,), below zero where the network has none.

    Each label that the network does not know has a number of its own, -1, -2, ...: `unknown`
    holds them in that order. `note` says what was taken for granted, if anything.
    """

    places: IntArray
    unknown: tuple[Label, ...] = ()
    note: str | None = None

    @property
    def known(self) -> BoolArray:
        """Whether the network knows an example's label."""
        return np.asarray(self.places >= 0)

    def one_hot(self, count: int) -> BoolArray:
        """Rows (known examples, count classes) with one True each."""
        return np.asarray(self.places[self.known, None] == np.arange(count))


def one_column(inputs: Tensor, targets: NDArray[Any]) -> NDArray[Any]:
    """Targets as (examples,) where there is one for each example, or an error."""
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.ndim not in (1, 2) or len(targets) != len(inputs):
        raise PFNMError(
            f"the targets have shape {targets.shape} for {len(inputs)} examples; give one row of "
            "targets for each example"
        )
    if targets.dtype.kind == "f" and not np.isfinite(targets).all():
        raise PFNMError("the targets hold NaN or infinite values; leave such rows out")
    if len(targets) == 0:
        raise PFNMError("there are no examples; give at least one")
    return targets


def labels_of(network: Network) -> tuple[Label, ...]:
    """The network's labels; output numbers stand for labels where there are none."""
    return network.labels or tuple(range(network.sizes[OUTPUT]))


def is_binary(network: Network) -> bool:
    """Whether the one output is the probability of yes."""
    return network.output == "sigmoid" and network.sizes[OUTPUT] == 1


def are_classes(network: Network, targets: NDArray[Any]) -> bool:
    """Whether these targets are classes to this network, rather than values; an error if unclear.

    Networks with a softmax, sigmoids or labels classify. Several outputs that nobody has explained
    do so where the targets are one label an example, or one-hot rows.
    """
    if network.output in ("softmax", "sigmoid"):
        return True
    if network.output == "values":
        return False
    if network.sizes[OUTPUT] > 1:
        if network.labels is not None:
            return True
        if targets.ndim == 1:
            return is_whole(targets)
        if is_one_hot(targets):
            return True
    refuse_unclear(network, targets)
    return network.labels is not None


def refuse_unclear(network: Network, targets: NDArray[Any]) -> None:
    """An error where outputs that nobody has explained meet targets that say yes or no."""
    if network.output != "identity":
        return
    distinct = set(map(plain, dict.fromkeys(_as_list(targets.ravel()))))
    texts = len(distinct) == 2 and all(isinstance(value, str) for value in distinct)
    if distinct in NO_AND_YES or (network.sizes[OUTPUT] == 1 and texts):
        outputs = network.sizes[OUTPUT]
        raise PFNMError(
            f"{network.name} has {outputs} output{'s' * (outputs > 1)}, not known whether a "
            f"probability or a value, and the targets are {listed(distinct)}; say which: --head "
            'sigmoid or --head values (in Python fuse(..., head="sigmoid"), or '
            'load(..., output="sigmoid"))'
        )


def is_whole(targets: NDArray[Any]) -> bool:
    """Whether the targets can be names of classes: texts, or whole numbers of any type."""
    return targets.dtype.kind != "f" or bool(np.all(targets == np.floor(targets)))


def is_one_hot(targets: NDArray[Any]) -> bool:
    """Whether each row (examples, classes) has a single one among zeros."""
    return says_yes_or_no(targets) and bool((targets.sum(axis=1) == 1).all())


def says_yes_or_no(targets: NDArray[Any]) -> bool:
    """Whether these are zeros and ones."""
    return targets.dtype.kind in "biuf" and bool(np.isin(targets, (0, 1)).all())


def plain(label: Any) -> Label:
    """A label in the form by which "3", b"3", 3.0 and 3 are one, and so are True, "true" and 1."""
    if isinstance(label, bytes):
        label = label.decode(errors="backslashreplace")
    if isinstance(label, str):
        text = label.strip()
        if WHOLE.fullmatch(text):
            return int(text.split(".")[0])
        return TRUTH.get(text.lower(), text)
    if isinstance(label, bool) or (isinstance(label, float) and label.is_integer()):
        return int(label)
    return label if isinstance(label, int | float) else str(label)


def classes_of(network: Network, targets: NDArray[Any]) -> Classes:
    """The class of each example: from labels (examples,), or from one-hot rows.

    One sigmoid output has the classes no (0) and yes (1). Where the network's outputs have no
    names, labels from 1 to the number of classes, none of them 0, are taken as 0 and up.
    """
    binary = is_binary(network)
    if targets.ndim == 2:
        if binary and targets.shape[1] == 2 and is_one_hot(targets):
            return Classes(targets.argmax(axis=1))
        rows = zeros_and_ones(network, targets)
        if (rows.sum(axis=1) != 1).any():
            raise PFNMError(
                f"{network.name} knows one class for each example, the data has rows with none or "
                "several; give one-hot rows or one label for each example"
            )
        note = None
        if network.output == "identity" and network.labels is None:
            note = "taken for a classifier, for the targets are one-hot; --head tells otherwise"
        return Classes(rows.argmax(axis=1), note=note)
    if binary:
        return _yes_or_no(network, targets)
    return _by_label(network, targets)


def _by_label(network: Network, targets: NDArray[Any]) -> Classes:
    labels = labels_of(network)
    form: Callable[[Any], Label] = plain
    if len(set(map(plain, labels))) < len(labels):  # the network tells 1 from "1", and so do we
        form = lambda label: label  # noqa: E731
    place = {form(label): number for number, label in enumerate(labels)}
    each = _as_list(targets)
    distinct = {target: form(target) for target in each}
    stray = dict.fromkeys(in_order(label for label in distinct.values() if label not in place))
    note = None
    if network.labels is None and counted_from_one(distinct.values(), len(labels)):
        note = f"labels 1 to {len(labels)} were taken as outputs 0 to {len(labels) - 1}"
        place, stray = {number + 1: number for number in range(len(labels))}, {}
    elif len(stray) == len(set(distinct.values())):
        raise _none_known(network, list(stray))
    elif stray and network.labels is not None:
        note = _shifted(place, set(distinct.values()))
    place |= {label: -number for number, label in enumerate(stray, start=1)}
    places = [place[distinct[target]] for target in each]
    return Classes(np.array(places, dtype=np.intp), tuple(stray), note)


def _as_list(targets: NDArray[Any]) -> list[Any]:
    """The targets as Python's objects; a damaged file may hold characters that there are not."""
    try:
        return list(targets.tolist())
    except (SystemError, ValueError):
        raise PFNMError("the labels of the data are no proper text; save the data again") from None


def counted_from_one(labels: Iterable[Label], classes: int) -> bool:
    """Whether these are labels 1, ..., K of K classes, so that 0, ..., K - 1 cannot be meant."""
    found = set(labels)
    return classes in found and found <= set(range(1, classes + 1))


def _shifted(known: Iterable[Label], found: set[Label]) -> str | None:
    """A note where the data's labels are the network's but for an offset of one."""
    numbers = [label for label in found if isinstance(label, int)]
    if len(numbers) == len(found):
        for step, word in ((-1, "higher"), (1, "lower")):
            if {number + step for number in numbers} <= set(known):
                return f"the data's labels look one {word} than the network's; correct them if so"
    return None


def _none_known(network: Network, found: Sequence[Label]) -> PFNMError:
    if network.labels is None and any(isinstance(label, str) for label in found):
        return PFNMError(
            f"{network.name} has {network.sizes[OUTPUT]} outputs without names, the data "
            f"{len(found)} different labels ({listed(found)}); give the label of each output, in "
            "their order (--labels)"
        )
    return PFNMError(
        f"{network.name} knows the labels {listed(labels_of(network))}, and the data has none of "
        f"them (it has {listed(found)}); give the network's labels as the data has them"
    )


def _yes_or_no(network: Network, targets: NDArray[Any]) -> Classes:
    """The classes of a single sigmoid: 0 and 1, or its label and not its label."""
    each = _as_list(targets)
    found = {target: plain(target) for target in each}
    distinct = set(found.values())
    if network.labels is not None and plain(network.labels[0]) in distinct and len(distinct) <= 2:
        yes, note = plain(network.labels[0]), None
    else:
        coding = next((codes for codes in NO_AND_YES if distinct <= codes), None)
        if coding is None:
            raise PFNMError(
                f"{network.name} has one output that says yes or no, the targets are "
                f"{listed(distinct)}; give zeros and ones, or in --labels the one label that is yes"
            )
        yes = max(coding)
        note = None if yes == 1 and 0 in coding else f"{min(coding)} is taken as no, {yes} as yes"
    places = [int(found[target] == yes) for target in each]
    return Classes(np.array(places, dtype=np.intp), note=note)


def zeros_and_ones(network: Network, targets: NDArray[Any]) -> BoolArray:
    """Targets (examples, outputs) that say yes or no for each output."""
    outputs = network.sizes[OUTPUT]
    if targets.shape[1] != outputs or not says_yes_or_no(targets):
        raise PFNMError(
            f"{network.name} has {outputs} outputs that say yes or no, the data targets of shape "
            f"{targets.shape} and type {targets.dtype}; give zeros and ones, one for each output"
        )
    return targets.astype(bool)


def values_of(network: Network, targets: NDArray[Any]) -> Array:
    """A regression's targets, (examples, outputs)."""
    if targets.dtype.kind not in "biuf":
        raise PFNMError(
            f"{network.name} has no labels and the targets hold {targets.dtype}, expected numbers; "
            "give the labels of its outputs if it is a classifier"
        )
    wanted: Array = targets.reshape(len(targets), -1).astype(float)
    if wanted.shape[1] != network.sizes[OUTPUT]:
        raise PFNMError(
            f"{network.name} has {network.sizes[OUTPUT]} outputs, the data {wanted.shape[1]} "
            f"targets of {targets.dtype}; give as many, or the labels of its outputs if it is a "
            "classifier"
        )
    if not np.isfinite(wanted).all():
        raise PFNMError("the targets hold NaN or infinite values; leave such rows out")
    return wanted


def in_order(labels: Iterable[Label]) -> list[Label]:
    """Labels sorted, numbers before texts."""
    return sorted(labels, key=lambda label: (isinstance(label, str), label))


def listed(labels: Iterable[Label]) -> str:
    """Labels for a message, the first few."""
    texts = list(map(str, in_order(labels)))
    return ", ".join(texts[:MOST_LISTED]) + (", ..." if len(texts) > MOST_LISTED else "")
