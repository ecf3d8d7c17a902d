"""Probes: made-up inputs of the sites' kind, and what the sites answer to them.

Probes stand in for data in three places: to see what a unit does (`joint`), to fit the fused layers
(`refit`), and to judge a fused network (`agreement`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from pfnm.fusing.inputs import InputRange, Units
from pfnm.fusing.sites import Sites
from pfnm.networks.graph import OUTPUT
from pfnm.networks.network import Array, Network, Tensor

CHECK_PROBES = 2000  # to judge a network by: agreement is then known to about a point
IMPOSSIBLE = -1e9  # the output for a class that a site does not know
MOST_RESPONSES = 40_000_000  # numbers kept of what units do, or of probes: 160 MB


@dataclass(frozen=True, eq=False)
class Probing:
    """Probes, and the sites' responses to them.

    inputs: (probes, inputs). outputs[j]: (outputs, probes), site j's before the output function.
    answer: (outputs, probes), what the sites say together (`said_together`). mean: (outputs,
    probes), the plain ensemble's answer, each site counting for a class as far as it has seen it.
    trust: (sites, probes), how much each site has seen of what a probe looks like; sums to 1.
    """

    inputs: Tensor
    outputs: Sequence[Tensor]
    answer: Array
    mean: Array
    trust: Array


def noise_like(probes: Tensor, within: InputRange, rng: np.random.Generator) -> Tensor:
    """Gaussian noise as strong as the given probes: nothing any unit looks for."""
    strength = np.sqrt(np.mean(np.square((probes - within.rest) / within.width)))
    noise = (strength * rng.normal(size=probes.shape)).astype(np.float32)
    return np.asarray(within.rest + within.width * noise)


def probe(sites: Sites, count: int, rng: np.random.Generator, *, to_judge: bool = False) -> Probing:
    """Make probes and ask all sites; fewer than `count` where what units do would fill memory.

    A fusion fitted to what units look for is judged the more fairly where every second probe is
    noise; of other kinds some have inputs of their own to judge by.
    """
    inputs = probes_for(sites, count, rng, to_judge=to_judge)
    if to_judge and isinstance(sites.inputs, Units):
        inputs[::2] = noise_like(inputs[::2], sites.inputs.within, rng)
    outputs = [np.ascontiguousarray(n.run(inputs).T, dtype=np.float32) for n in sites.networks]
    shares = sites.class_shares
    answer = said_together(sites, outputs)
    if is_classifier(sites.networks[0]):
        for own, known in zip(outputs, sites.known, strict=True):
            own[~known] = IMPOSSIBLE
        # In logarithms: sites may each be certain of what only the others have seen.
        logs = np.array([scipy.special.log_softmax(own.astype(float), axis=0) for own in outputs])
        mean = scipy.special.softmax(
            scipy.special.logsumexp(logs, axis=0, b=shares[:, :, None]), axis=0
        )
        trust = shares @ mean
    else:
        mean = answer
        trust = np.tile(sites.weights[:, None], (1, answer.shape[1]))
    return Probing(inputs, outputs, answer, mean, trust / trust.sum(axis=0))


def probes_for(
    sites: Sites, count: int, rng: np.random.Generator, *, to_judge: bool = False
) -> Tensor:
    """Made-up inputs, fewer than `count` where what units do on them would fill memory."""
    units = sum(sum(n.widths.values()) + n.sizes[OUTPUT] for n in sites.networks)
    units = max(units, sites.networks[0].numbers)
    count = max(2, min(count, MOST_RESPONSES // units))
    count = sites.networks[0].program.probes(count)
    make = sites.inputs.make
    if to_judge:
        make = getattr(sites.inputs, "make_to_judge", make)
    return make(sites.networks, count, rng)


def said_together(sites: Sites, outputs: Sequence[Tensor]) -> Array:
    """What the sites say together, (outputs, probes), from each site's outputs.

    Of classifiers: the class-weighted sum of log probabilities, as probabilities. A site that is
    sure that it is not a class it knows well then counts for more than in a mean of probabilities:
    on uneven data the better answer (docs/deep.md). Of others: the weighted mean.
    """
    first, shares = sites.networks[0], sites.class_shares
    total = np.zeros((shares.shape[1], outputs[0].shape[1]))
    for own, known, values in zip(shares, sites.known, outputs, strict=True):
        if is_classifier(first):
            total[known] += own[known, None] * scipy.special.log_softmax(
                values[known].astype(float), axis=0
            )
        else:
            total += own[:, None] * _answers(first, values)
    result: Array = scipy.special.softmax(total, axis=0) if is_classifier(first) else total
    return result


def is_classifier(network: Network) -> bool:
    """Whether the outputs exclude each other, so that the largest is the answer."""
    return network.sizes[OUTPUT] > 1 and network.output not in ("sigmoid", "values")


def _answers(network: Network, outputs: Tensor) -> Tensor:
    """Outputs (outputs, probes) as what an ensemble averages: probabilities, or plain values."""
    if is_classifier(network):
        result: Tensor = scipy.special.softmax(outputs, axis=0)
        return result
    return np.asarray(scipy.special.expit(outputs)) if network.output == "sigmoid" else outputs


def agreement(network: Network, probing: Probing) -> float:
    """The share of probes to which the network answers like the sites together."""
    return alike(network, probing.inputs, probing.answer)


def site_agreements(sites: Sites, probing: Probing) -> list[float]:
    """The same of every site, from the responses that are known already."""
    return [
        _alike(network, own, probing.answer)
        for network, own in zip(sites.networks, probing.outputs, strict=True)
    ]


def alike(network: Network, inputs: Tensor, wanted: Tensor) -> float:
    """The share of inputs to which a classifier gives the wanted answer, (outputs, inputs).

    Of outputs that do not exclude each other: the share of the wanted variation that they explain,
    which is below zero where a constant would do better.
    """
    return _alike(network, network.run(inputs).T, wanted)


def _alike(network: Network, outputs: Tensor, wanted: Tensor) -> float:
    if is_classifier(network):
        return float((outputs.argmax(axis=0) == wanted.argmax(axis=0)).mean())
    values = _answers(network, outputs)
    spread = ((wanted - wanted.mean(axis=1, keepdims=True)) ** 2).sum()
    return float(1 - ((values - wanted) ** 2).sum() / spread) if spread > 0 else 0.0


def judged(network: Network, probing: Probing, first: Tensor | None = None) -> float:
    """By what candidates are chosen: agreement, of perceptrons where the sites are sure.

    Modules are judged on few inputs. On those alone of which the sites are surest, a fusion came
    first that answered unlike them elsewhere (docs/quality.md). first: as in `sure_agreement`.
    """
    if network.program.examples is not None:
        return agreement(network, probing)
    return sure_agreement(network, probing, first)


def sure_agreement(network: Network, probing: Probing, first: Tensor | None = None) -> float:
    """Of a classifier, agreement on what the sites' ensemble is surest of, classes counting alike.

    first: what leaves the network's first map on the probes, where it is known.

    Among fusions of the same size this chooses better than agreement does (docs/deep.md), which
    compares fusions of different sizes better.
    """
    if not is_classifier(network):
        return agreement(network, probing)
    sureness = probing.mean.max(axis=0)
    sure = sureness >= np.median(sureness)
    answers = probing.mean.argmax(axis=0)[sure]
    same = network.run(probing.inputs, first=first).argmax(axis=1)[sure] == answers
    counts = np.bincount(answers)
    shares = np.bincount(answers, weights=same)[counts > 0] / counts[counts > 0]
    return float(shares.mean())
