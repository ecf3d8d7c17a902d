"""Inputs made from the networks alone, and what the sites answer to them.

A probe is a sum of a few first-layer weight vectors of random sites with random signs: what some
units look for. Probes stand in for data in three places: to see what a unit does (`joint`), to fit
the fused layers (`refit`), and, with noise among them, to judge a fused network (`agreement`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, log_softmax, logsumexp, softmax

from pfnm.core.mlp import forward, layers, preactivations
from pfnm.core.network import OUTPUT, Array, Network, Tensor
from pfnm.core.sites import Sites

MOST_ATOMS = 4  # weight vectors in one probe
CHECK_PROBES = 2000  # to judge a network by: agreement is then known to about a point
IMPOSSIBLE = -1e9  # the output for a class that a site does not know
MOST_RESPONSES = 40_000_000  # numbers kept of the sites' responses: 160 MB


@dataclass(frozen=True, eq=False)
class Probing:
    """Probes, and the sites' responses to them.

    inputs: (probes, inputs). responses[j][c]: (units, probes), site j's layer c before activation.
    answer: (outputs, probes), the ensemble's: each site counts for a class as far as it has seen
    it. trust: (sites, probes), how much each site has seen of what a probe looks like; sums to 1.
    """

    inputs: Tensor
    responses: Sequence[Sequence[Tensor]]
    answer: Array
    trust: Array


def atom_probes(networks: Sequence[Network], count: int, rng: np.random.Generator) -> Tensor:
    """Probes (count, inputs): sums of weight vectors, negative parts cut, scaled to maximum 1."""
    atoms = np.concatenate([layers(network)[0].weight.T for network in networks])
    number = rng.integers(1, MOST_ATOMS + 1, size=count)
    probes = np.zeros((count, atoms.shape[1]), dtype=np.float32)
    for k in range(MOST_ATOMS):
        (more,) = np.nonzero(number > k)
        signs = rng.choice([-1, 1], size=(more.size, 1))
        probes[more] += signs * atoms[rng.integers(len(atoms), size=more.size)]
    np.maximum(probes, 0, out=probes)
    largest = probes.max(axis=1, keepdims=True)
    return probes / np.where(largest > 0, largest, 1)


def noise_probes(like: Tensor, rng: np.random.Generator) -> Tensor:
    """Gaussian noise as strong as the given probes: nothing any unit looks for."""
    strength = np.sqrt(np.mean(np.square(like)))
    noise: Tensor = (strength * rng.normal(size=like.shape)).astype(np.float32)
    return noise


def probe(
    sites: Sites, count: int, rng: np.random.Generator, *, with_noise: bool = False
) -> Probing:
    """Make probes and ask all sites; fewer than `count` where the responses would fill memory.

    With noise, every second probe is one: a fusion fitted to atom probes is judged the more fairly.
    """
    units = sum(sum(n.widths.values()) + n.sizes[OUTPUT] for n in sites.networks)
    count = max(2, min(count, MOST_RESPONSES // units))
    inputs = atom_probes(sites.networks, count, rng)
    if with_noise:
        inputs[::2] = noise_probes(inputs[::2], rng)
    responses = [
        [np.ascontiguousarray(values.T, dtype=np.float32) for values in preactivations(n, inputs)]
        for n in sites.networks
    ]
    shares = sites.class_shares
    if is_classifier(sites.networks[0]):
        for own, known in zip(responses, sites.known, strict=True):
            own[-1][~known] = IMPOSSIBLE
        # In logarithms: sites may each be certain of what only the others have seen.
        logs = np.array([log_softmax(own[-1].astype(float), axis=0) for own in responses])
        answer = softmax(logsumexp(logs, axis=0, b=shares[:, :, None]), axis=0)
        trust = shares @ answer
    else:
        outputs = [_answers(n, own[-1]) for n, own in zip(sites.networks, responses, strict=True)]
        answer = np.einsum("jk,jkn->kn", shares, np.array(outputs))
        trust = np.tile(sites.weights[:, None], (1, count))
    return Probing(inputs, responses, answer, trust / trust.sum(axis=0))


def is_classifier(network: Network) -> bool:
    """Whether the outputs exclude each other, so that the largest is the answer."""
    return network.sizes[OUTPUT] > 1 and network.output not in ("sigmoid", "values")


def _answers(network: Network, outputs: Tensor) -> Tensor:
    """Outputs (outputs, probes) as what an ensemble averages: probabilities, or plain values."""
    if is_classifier(network):
        result: Tensor = softmax(outputs, axis=0)
        return result
    return np.asarray(expit(outputs)) if network.output == "sigmoid" else outputs


def agreement(network: Network, probing: Probing) -> float:
    """The share of probes to which the network answers like the ensemble of the sites.

    Of a classifier, on the half of the probes of which the ensemble is surest, classes counting
    alike. Of outputs that do not exclude each other: the share of the ensemble's variation that it
    explains, which is below zero where a constant would do better.
    """
    return _agreement(network, forward(network, probing.inputs).T, probing)


def site_agreements(sites: Sites, probing: Probing) -> list[float]:
    """The same of every site, from the responses that are known already."""
    return [
        _agreement(network, own[-1], probing)
        for network, own in zip(sites.networks, probing.responses, strict=True)
    ]


def _agreement(network: Network, outputs: Tensor, probing: Probing) -> float:
    """From the outputs (outputs, probes)."""
    values = _answers(network, outputs)
    wanted = probing.answer
    if is_classifier(network):
        sureness = wanted.max(axis=0)
        sure = sureness >= np.median(sureness)
        answers = wanted.argmax(axis=0)[sure]
        same = values.argmax(axis=0)[sure] == answers
        counts = np.bincount(answers)
        shares = np.bincount(answers, weights=same)[counts > 0] / counts[counts > 0]
        return float(shares.mean())
    spread = ((wanted - wanted.mean(axis=1, keepdims=True)) ** 2).sum()
    return float(1 - ((values - wanted) ** 2).sum() / spread) if spread > 0 else 0.0
