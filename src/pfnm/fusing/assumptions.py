"""What a fusion takes for granted because nobody told, and by which option to tell it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pfnm.fusing.probes import is_classifier
from pfnm.fusing.sites import Sites
from pfnm.networks.graph import OUTPUT


@dataclass(frozen=True)
class Assumption:
    """What is assumed, in words, and the option of `fuse` that tells it."""

    what: str
    option: str

    @property
    def command_option(self) -> str:
        """The same option on the command line."""
        return "--" + self.option.replace("_", "-")


LIKE_SHARES = Assumption("all sites saw the classes in like shares", "class_counts")


def assumed_told(assumed: Iterable[Assumption]) -> list[dict[str, str]]:
    """For records, and for machines."""
    return [{"what": one.what, "option": one.command_option} for one in assumed]


def assumptions(sites: Sites) -> tuple[Assumption, ...]:
    """All that was assumed of these sites and not told."""
    first = sites.networks[0]
    found: list[Assumption] = []
    if not all(network.activation_told for network in sites.networks):
        found.append(Assumption(f"activation {first.activation}", "activation"))
    if "inputs" not in sites.told:
        found.append(Assumption(f"inputs {sites.inputs}", "inputs"))
    if "input_range" not in sites.told:
        found.append(Assumption(f"inputs {sites.inputs.within}", "input_range"))
    if first.output == "identity":
        several = "classes that exclude each other, by softmax"
        what = several if is_classifier(first) else "plain values, no probabilities"
        found.append(Assumption(f"outputs are {what}", "head"))
    if first.labels is None and first.sizes[OUTPUT] > 1:
        what = "class" if is_classifier(first) else "thing"
        found.append(Assumption(f"output i is the same {what} at every site", "labels"))
    if is_classifier(first) and sites.class_counts is None:
        found.append(LIKE_SHARES)
    return tuple(found)
