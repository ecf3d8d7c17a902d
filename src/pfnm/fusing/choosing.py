"""Which kind of inputs the networks know, where nobody tells.

Sites agree with each other most on inputs of the kind they know: a share of agreement beyond what
chance would give, for on strange inputs all may well give one and the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isqrt, sqrt

import numpy as np

from pfnm.fusing.inputs import FEW_INPUTS, UNIT_RANGE, InputRange, Inputs, Units, WithUnits
from pfnm.fusing.kinds import STANDARD_ENDS, Pictures
from pfnm.fusing.probes import is_classifier
from pfnm.fusing.sites import Sites
from pfnm.networks.network import Array, Network, Tensor
from pfnm.networks.perceptron import layers

CHOICE_INPUTS = 600  # of each kind: their agreement is then known to a hundredth or so
SMALLEST_SIDE = 8  # of a picture's grid, in pixels
CHANNELS = (1, 3)
LEAST_SMOOTHNESS = 0.01  # correlation of neighbouring weights; untrained ones have none
CLEAR = 4.0  # standard errors
# Sites that know inputs of 0 to 1 agreed on standardised ones by up to 0.073 more, those that know
# standardised ones by 0.08 to 0.4; with few inputs the two cannot be told apart (docs/deep.md).
CLEARLY_MORE = 0.09


def chosen_inputs(sites: Sites, within: InputRange | None, rng: np.random.Generator) -> Inputs:
    """What units look for, or natural pictures where the sites agree more on those.

    within: the range, where it is known. Where it is not, inputs lie between 0 and 1, unless the
    sites agree clearly more on standardised ones.
    """
    grid = guessed_grid(sites.networks)
    scales = [UNIT_RANGE if within is None else within]
    if within is None and sites.networks[0].numbers >= FEW_INPUTS:
        scales.append(InputRange(*STANDARD_ENDS))
    found: list[tuple[float, Inputs]] = []
    for scale in scales:
        kinds: list[Inputs] = [Units(scale)]
        if grid is not None and scale is scales[0]:
            kinds.append(replace(grid, range=(scale.low, scale.high)))
        elif grid is not None:
            kinds.append(replace(grid, mean=0.0, deviation=1.0))
        shares = [
            sites_agreement(sites, kind.make(sites.networks, CHOICE_INPUTS, rng)) for kind in kinds
        ]
        best = int(np.argmax(shares))
        found.append((shares[best], kinds[best]))
    clearly = len(found) > 1 and found[1][0] > found[0][0] + CLEARLY_MORE
    kind = found[1 if clearly else 0][1]
    return kind if isinstance(kind, Units) else WithUnits(kind)


def sites_agreement(sites: Sites, inputs: Tensor) -> float:
    """How far pairs of sites agree on these inputs beyond chance, on average: 1 is always.

    Of classifiers (a - c) / (1 - c), a the share of inputs to which two sites give one answer, c
    what it would be by chance; of others the correlation of their outputs.
    """
    outputs = [network.run(inputs) for network in sites.networks]
    number = len(outputs)
    pairs = number * (number - 1)
    if not is_classifier(sites.networks[0]):
        values = np.array([own.T - own.mean(axis=0)[:, None] for own in outputs], dtype=float)
        norms = np.linalg.norm(values, axis=2, keepdims=True)
        units = values / np.where(norms > 0, norms, 1)
        together = np.square(units.sum(axis=0)).sum(axis=1) - np.square(units).sum(axis=(0, 2))
        return float(together.mean() / pairs)
    masked = [
        np.where(known, own, -np.inf) for known, own in zip(sites.known, outputs, strict=True)
    ]
    answers = np.eye(sites.known.shape[1])[[own.argmax(axis=1) for own in masked]]
    votes = answers.sum(axis=0)
    agreed = float((votes * (votes - 1)).sum(axis=1).mean() / pairs)
    shares = answers.mean(axis=1)
    total = shares.sum(axis=0)
    chance = float((total @ total - np.square(shares).sum()) / pairs)
    return (agreed - chance) / (1 - chance) if chance < 1 else 0.0


def guessed_grid(networks: Sequence[Network]) -> Pictures | None:
    """The square grid on which first-layer weights are smooth, if there is one."""
    inputs = networks[0].numbers
    weights = np.concatenate([layers(network)[0].weight.T for network in networks]).astype(float)
    weights -= weights.mean(axis=0)
    least = max(LEAST_SMOOTHNESS, CLEAR / sqrt(weights.size))
    found: list[tuple[float, Pictures]] = []
    for channels in CHANNELS:
        side = isqrt(inputs // channels)
        if channels * side * side != inputs or side < SMALLEST_SIDE:
            continue
        for last in (False, True) if channels > 1 else (False,):
            grid = Pictures(channels, side, side, channels_last=last)
            found.append((_smoothness(weights, grid), grid))
    smooth = [pair for pair in found if pair[0] > least]
    return max(smooth, key=lambda pair: pair[0])[1] if smooth else None


def _smoothness(weights: Array, grid: Pictures) -> float:
    """The correlation of weights (units, inputs) with those next to them on the grid."""
    channels, side = grid.channels, grid.height
    if grid.channels_last:
        maps = np.moveaxis(weights.reshape(-1, side, side, channels), -1, 1)
    else:
        maps = weights.reshape(-1, channels, side, side)
    across = (maps[..., 1:] * maps[..., :-1]).mean()
    down = (maps[..., 1:, :] * maps[..., :-1, :]).mean()
    power = np.square(maps).mean()
    return float((across + down) / 2 / power) if power > 0 else 0.0
