"""Doubts about the sites' classes, from what their networks answer to probes: no data, no labels.

Two things that spoil a fusion can be seen in the answers. A site that has seen little of a class
gives it little probability, on any inputs. And outputs that mean the same class at two sites rise
and fall together, so where they do so better in another order, the order is not the same.
`studies/doubts.py` measures both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy

from pfnm.fusing.probes import Probing, is_classifier
from pfnm.fusing.sites import Sites
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array, BoolArray, Label

UNEVEN = 0.85  # deviation of log shares from which there is a doubt
OTHER_ORDER = 0.08  # gain in likeness by another order of outputs from which there is a doubt
UNSURE = 0.3  # below such a sureness there is a doubt: 0.35 and more where the range was right
SHARPENING = 2.0  # of probabilities: small or short training leaves networks less sure than right
LEAST_SHARE = 1e-3  # below it, how little is given to a class says more of the training than of it
HARDLY_ANY = 1e-9  # share of a class that a network knows and never answers
IN_USE = 0.1  # of an even share: outputs with less are hardly trained, and not compared
COMPARED = 0.5  # of the outputs must be in use at both sites, or they are not compared
MOST_PARTNERS = 10  # sites with which each is compared
MOST_NUMBERS = 4_000_000  # probabilities to look at: with very many classes, fewer probes
CENTRING = 20  # sweeps over rows and columns; one would do where all sites know all classes
NAMED = 3  # sites or outputs that a message names


@dataclass(frozen=True)
class Doubt:
    """Something about the sites' classes that was not told and looks different from the default."""

    kind: Literal["shares", "labels"]
    message: str


def class_doubts(sites: Sites, probing: Probing) -> list[Doubt]:
    """Whether outputs seem to mean other classes at some sites; whether shares seem to differ.

    Of classifiers only; outputs with labels are taken at their word. Where both are doubted, the
    labels come first: shares of different classes cannot be compared.
    """
    if not is_classifier(sites.networks[0]):
        return []
    answers = probabilities(sites, probing, SHARPENING)
    named = sites.networks[0].labels is not None
    return [*([] if named else _labels(sites, answers)), *_shares(sites, answers)]


def range_doubt(sites: Sites, probing: Probing) -> list[str]:
    """Whether networks seem to know other inputs than are assumed: they are sure of hardly any.

    Inputs that are too small leave a network little but its biases. `studies/doubts.py` measures.
    """
    if "input_range" in sites.told or sites.modules or not is_classifier(sites.networks[0]):
        return []
    sure = sureness(sites, probing)
    if sure >= UNSURE:
        return []
    return [
        f"the sites are hardly sure of any answer on made-up inputs {sites.inputs.within} "
        f"({sure:.0%} on the way from guessing to certainty): unless they were trained little, "
        "they know other inputs, larger ones probably; tell their range (--input-range), or give "
        "a few real inputs (--input-like)"
    ]


def sureness(sites: Sites, probing: Probing) -> float:
    """The mean probability of what sites answer, 0 being that of guessing and 1 certainty."""
    largest = probabilities(sites, probing).max(axis=1)
    guessed = 1 / np.maximum(sites.known.sum(axis=1), 2)[:, None]
    return float(np.mean((largest - guessed) / (1 - guessed)))


def told_doubts(sites: Sites) -> list[str]:
    """Where what some sites tell of their inputs or classes does not go with what others tell."""
    found = []
    if sites.unscaled:
        found.append(
            f"{_listed(sites.unscaled)} has no scaler before its network, and others have: it is "
            "taken to know inputs as they are, unscaled, as theirs do; if it was trained on scaled "
            "ones, put its scaler before it (a pipeline of both)"
        )
    if sites.unnamed:
        found.append(
            f"{_listed(sites.unnamed)} does not name its inputs, and others do: they are taken to "
            "be in the order of the first site that names them; save it with names to be sure"
        )
    return found + _named_apart(sites)


def _named_apart(sites: Sites) -> list[str]:
    """Whether sites may have one class under several names."""
    labels = sites.networks[0].labels
    if labels is None or sites.known.all():
        return []
    own = [
        [label for label, known in zip(labels, row, strict=True) if known] for row in sites.known
    ]
    for j, mine in enumerate(own):
        others = {label for i, theirs in enumerate(own) if i != j for label in theirs}
        new = [label for label in mine if label not in others]
        alike = {_as_written(label): label for label in others}
        twin = next((label for label in new if _as_written(label) in alike), None)
        if twin is not None:
            what = f"its {twin!r} looks like {alike[_as_written(twin)]!r} elsewhere"
        elif len(new) == len(mine):
            theirs = sorted(others, key=str)
            what = f"no class of its is another site's ({_shown(mine)}; elsewhere {_shown(theirs)})"
        elif any(_counted_apart(mine, theirs) for theirs in own):
            start = 0 if 0 not in mine else 1
            what = f"its classes are {_shown(mine)}, elsewhere as many are counted from {start}"
        else:
            continue
        return [
            f"{sites.networks[j].name} may name classes otherwise than the others: {what}; every "
            "name counts as a class of its own, so name the same classes alike at all sites"
        ]
    return []


def _as_written(label: Label) -> str:
    """A label without what is easily written in two ways."""
    return str(label).strip().casefold()


def _counted_apart(mine: Sequence[Label], theirs: Sequence[Label]) -> bool:
    """Whether one site counts its classes from 0 and the other as many from 1."""
    if not all(isinstance(label, int) for label in (*mine, *theirs)):
        return False
    lower, higher = sorted((sorted(map(int, mine)), sorted(map(int, theirs))))
    return lower == list(range(len(lower))) and higher == [number + 1 for number in lower]


def _shown(labels: Sequence[Label]) -> str:
    return _listed([repr(label) for label in labels])


def estimated_shares(sites: Sites, probing: Probing) -> Array:
    """The share of each class at each site, (J, K), as its network's answers suggest.

    A site's mean probabilities on probes; zero for a class that it does not know.
    """
    shares = np.maximum(probabilities(sites, probing).mean(axis=2), HARDLY_ANY)
    return np.where(sites.known, shares, 0.0)


def probabilities(sites: Sites, probing: Probing, sharpening: float = 1.0) -> Array:
    """What sites give to classes, (J, K, probes), to the power `sharpening`, summing to 1 over K.

    Nothing to classes that they do not know.
    """
    count = max(2, MOST_NUMBERS // sites.known.size)
    outputs = [own[:, :count].astype(float) for own in probing.outputs]
    logits = np.where(sites.known[:, :, None], sharpening * np.array(outputs), -np.inf)
    result: Array = scipy.special.softmax(logits, axis=1)
    return result


def unevenness(shares: Array, known: BoolArray) -> float:
    """The standard deviation of log shares (J, K) that no order of sites or classes explains.

    A class that is rare everywhere, or that probes look like, is no reason for doubt.
    """
    freedom = known.sum() - known.any(axis=1).sum() - known.any(axis=0).sum() + 1
    if freedom < 1:
        return 0.0
    return float(np.sqrt(np.square(_relative(shares, known)).sum() / freedom))


def likeness(answers: Array) -> Array:
    """How each site's outputs go with the other sites', (J, K, K): own outputs, theirs.

    answers: (J, K, probes), probabilities. The covariances of a site's outputs with another's, in
    units of their deviations (so that a site's with itself add up to 1 on the diagonal); the mean
    over other sites, in which what two sites have in common by chance is lost.
    """
    number, classes, probes = answers.shape
    shares = answers.mean(axis=2)
    in_use = shares > IN_USE / np.maximum((shares > 0).sum(axis=1, keepdims=True), 1)
    deviations = answers - shares[:, :, None]
    variances = np.square(deviations).mean(axis=2)
    result = np.zeros((number, classes, classes))
    for i in range(number):
        partners = 0
        for j in (i + 1 + np.arange(min(number - 1, MOST_PARTNERS))) % number:
            outputs = np.flatnonzero(in_use[i] & in_use[j])
            scale = np.sqrt(variances[i, outputs].sum() * variances[j, outputs].sum())
            if outputs.size >= max(2, COMPARED * classes) and scale > 0:
                covariance = deviations[i, outputs] @ deviations[j, outputs].T / probes
                result[i][np.ix_(outputs, outputs)] += covariance / scale
                partners += 1
        result[i] /= max(partners, 1)
    return result


def order_gains(alike: Array) -> Array:
    """How much better each site's outputs go with the others' in another order, (J,).

    alike: (J, K, K), see `likeness`.
    """
    return np.array([own[_best(own)].sum() - np.trace(own) for own in alike])


def _best(alike: Array) -> tuple[IntArray, IntArray]:
    """Outputs, and which of the others' each goes with best, one to one."""
    rows, columns = scipy.optimize.linear_sum_assignment(-alike)
    return rows, columns


def _relative(shares: Array, known: BoolArray) -> Array:
    """Log shares less what is common to a site and to a class; zero where it is unknown."""
    logs = np.where(known, np.log(np.maximum(shares, LEAST_SHARE)), 0.0)
    for _ in range(1 if known.all() else CENTRING):
        for axis in (1, 0):
            number = np.maximum(known.sum(axis=axis, keepdims=True), 1)
            logs = np.where(known, logs - logs.sum(axis=axis, keepdims=True) / number, 0.0)
    return logs


def _shares(sites: Sites, answers: Array) -> Iterator[Doubt]:
    shares = answers.mean(axis=2)
    if unevenness(shares, sites.known) < UNEVEN:
        return
    relative = _relative(shares, sites.known)
    lowest = np.argsort(relative, axis=None)[:NAMED]
    examples = _listed(
        f"{sites.networks[j].name} of {_name(sites, int(k))}"
        for j, k in zip(*np.unravel_index(np.sort(lowest), relative.shape), strict=True)
        if relative[j, k] < 0
    )
    yield Doubt(
        "shares",
        "the sites seem to have seen very different shares of the classes (comparatively little: "
        f"{examples}); give the number of examples of each class at each site as class_counts "
        "(--class-counts), or have it estimated (--class-counts estimated)",
    )


def _labels(sites: Sites, answers: Array) -> Iterator[Doubt]:
    alike = likeness(answers)
    gains = order_gains(alike)
    doubtful = np.flatnonzero(gains > OTHER_ORDER)
    if doubtful.size == 0:
        return
    names = [network.name for network in sites.networks]
    worst = int(np.argmax(gains))
    own, others = _best(alike[worst])
    place = int(np.argmax(alike[worst][own, others] - np.diag(alike[worst])))
    who = _listed([names[j] for j in doubtful])
    few = 2 * doubtful.size < len(names)
    yield Doubt(
        "labels",
        f"the outputs of {who} do not seem to mean the same classes as "
        f"{'those of the other sites' if few else 'each other'} (output {own[place]} of "
        f"{names[worst]} behaves more like output {others[place]} elsewhere); give the class of "
        "each output of each site as labels (--labels)",
    )


def _name(sites: Sites, output: int) -> str:
    labels = sites.networks[0].labels
    return f"output {output}" if labels is None else f"class {labels[output]!r}"


def _listed(words: Iterator[str] | Sequence[str]) -> str:
    found = list(words)
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return ", ".join(found[:NAMED]) + more
