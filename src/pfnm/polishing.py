"""Polish: the sites' networks teach the fused one, on inputs made from the networks. No data.

The teacher is what the sites say together: their log probabilities, each site by its share of the
class. Real inputs can stand beside the probes or take their place, with labels or without. Probes
stay in memory and are never written.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pfnm import threads
from pfnm.conversion import rows_of, with_range_of
from pfnm.errors import PFNMError
from pfnm.evaluate import wanted_outputs
from pfnm.fusing.probes import (
    CHECK_PROBES,
    agreement,
    alike,
    is_classifier,
    probe,
    said_together,
    site_agreements,
)
from pfnm.fusing.sites import Sites
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Network, Tensor
from pfnm.teaching import Lessons, OnEpoch, seeking_probes, taught

# Diversity of probes helps: kinds in proportions that did well on MNIST (docs/deep.md).
PLAIN_PROBES, MIXED_PROBES, SEEKING_PROBES = 20_000, 10_000, 10_000
MOST_NUMBERS = 200_000_000  # in all probes: 800 MB; of very many inputs there are fewer probes
LESSONS = 6  # times as many as there may be of another purpose: a VGG then takes two minutes
BLOCK = 50_000  # inputs of which the sites are asked at a time
REAL = "the inputs to polish on"
HELD_OUT = 5  # one in so many of the real inputs judges the network instead of teaching it
LEAST_INPUTS = 20  # real ones, to teach by: fewer say little, and can be imitated instead


@dataclass(frozen=True)
class Polished:
    """What polish did: likeness to the sites before and after, who judged, whether it helped."""

    agreement_before: float
    agreement_after: float
    site_agreement: float
    judged_on: str
    kept: bool
    epochs: int
    real_inputs: int
    probes: bool
    seconds: float | None
    torch: str
    threads: dict[str, int]

    @property
    def agreement(self) -> float:
        """The likeness of the network that was kept."""
        return max(0.0, self.agreement_after if self.kept else self.agreement_before)

    def told(self) -> dict[str, Any]:
        """For the record of a fusion."""
        return asdict(self)


def polished(
    network: Network,
    sites: Sites,
    rng: np.random.Generator,
    *,
    data: ArrayLike | None = None,
    targets: ArrayLike | None = None,
    probes: bool = True,
    seconds: float | None = None,
    on_epoch: OnEpoch | None = None,
) -> tuple[Network, Polished]:
    """The network taught by the sites' networks, and what came of it; arguments as `Fusion.polish`.

    It is the same network where it did not get better. It takes inputs in the sites' units, the
    data are real inputs.
    """
    begin = time.monotonic()
    real = _real(sites, network, data, targets)
    if real is None and not probes:
        raise PFNMError("without made-up inputs there is nothing to teach by; give data")
    if data is not None:
        sites = with_range_of(sites, rows_of(data, network, REAL))
    # The third of the streams is the one that chose among the fusion's candidates.
    probe_rng, hold_rng, _, order_rng, check_rng = rng.spawn(5)
    to_check = probe(sites, CHECK_PROBES, check_rng, to_judge=True)
    if real is None:
        to_hold = probe(sites, CHECK_PROBES, hold_rng, to_judge=True)
        real_taught, judged_on = None, "probes"
        judge = partial(alike, inputs=to_hold.inputs, wanted=to_hold.answer)
    else:
        real_taught, held = real.parted(hold_rng)
        judged_on = real.kind
        wanted = held.answers.reshape(-1, held.answers.shape[-1]).T
        judge = partial(alike, inputs=held.inputs, wanted=wanted)
    made = _probes(sites, probe_rng) if probes else None
    taught_network, epochs = taught(
        network,
        _lessons(sites, made, real_taught),
        order_rng,
        within=sites.inputs.within,
        judge=judge,
        end=None if seconds is None else begin + seconds,
        on_epoch=on_epoch,
    )
    before, after = (agreement(one, to_check) for one in (network, taught_network))
    # The epochs were chosen among on what judged them; whether to keep is seen on other probes.
    kept = after > before if real is None else taught_network is not network
    record = Polished(
        agreement_before=before,
        agreement_after=after,
        site_agreement=max(0.0, *site_agreements(sites, to_check)),
        judged_on=judged_on,
        kept=kept,
        epochs=epochs,
        real_inputs=0 if real is None else len(real.inputs),
        probes=probes,
        seconds=seconds,
        torch=version("torch"),
        threads=threads.in_use(),
    )
    return taught_network if kept else network, record


def check_ready(sites: Sites, data: ArrayLike | None) -> None:
    """An error where polish could not begin: to be known before anything else is done."""
    try:
        with threads.waiting_briefly():
            import torch  # noqa: F401  (only whether it is there)
    except ImportError:
        raise PFNMError("polish needs PyTorch; pip install 'pfnm[torch]'") from None
    if data is not None and len(rows_of(data, sites.networks[0], REAL)) < LEAST_INPUTS:
        raise PFNMError(
            f"{len(np.asarray(data))} inputs to polish on are too few, expected at least "
            f"{LEAST_INPUTS}; imitate them instead (input_like, --input-like)"
        )


@dataclass(frozen=True, eq=False)
class Real:
    """Real inputs, and what is to be answered to them: by their labels, or by the sites."""

    inputs: Tensor
    answers: Tensor
    kind: str

    def parted(self, rng: np.random.Generator) -> tuple[Real, Real]:
        """Those to teach by, and those to judge by."""
        order = rng.permutation(len(self.inputs))
        held = len(order) // HELD_OUT
        return self._part(order[held:]), self._part(order[:held])

    def _part(self, places: IntArray) -> Real:
        return replace(self, inputs=self.inputs[places], answers=self.answers[places])


def _real(
    sites: Sites, network: Network, inputs: ArrayLike | None, targets: ArrayLike | None
) -> Real | None:
    if inputs is None:
        if targets is not None:
            raise PFNMError("there are targets but no data; give both")
        return None
    given = sites.rows(rows_of(inputs, network, REAL))
    if targets is None:
        return Real(given, _teacher(sites, given), "real inputs")
    return Real(given, wanted_outputs(network, given, np.asarray(targets)), "labels")


def _probes(sites: Sites, rng: np.random.Generator) -> Tensor:
    """Inputs of the sites' kind, mixtures of two of them, and some that climb towards a class."""
    make_rng, seek_rng = rng.spawn(2)
    part = _number(sites) / (PLAIN_PROBES + MIXED_PROBES + SEEKING_PROBES)
    number, mixtures, climbing = (
        max(1, int(part * kind)) for kind in (PLAIN_PROBES, MIXED_PROBES, SEEKING_PROBES)
    )
    plain = sites.inputs.make(sites.networks, number, make_rng)
    plain = np.tile(plain, (max(1, number // len(plain)), 1))  # there may be few real ones
    examples = sites.networks[0].program.examples
    if examples is not None and examples.whole:
        return plain  # between two tokens there is none
    share = make_rng.uniform(size=(mixtures, 1)).astype(np.float32)
    one, two = (plain[make_rng.integers(len(plain), size=mixtures)] for _ in range(2))
    kinds = [plain, share * one + (1 - share) * two]
    if is_classifier(sites.networks[0]) and len(sites.networks[0].run(plain[:1])) == 1:
        kinds.append(seeking_probes(sites, plain[:climbing], seek_rng))
    return np.concatenate(kinds)


def _number(sites: Sites) -> int:
    """How many inputs there may be to teach by: fewer of large networks, and of large inputs."""
    first = sites.networks[0]
    whole = PLAIN_PROBES + MIXED_PROBES + SEEKING_PROBES
    return min(first.program.probes(whole, LESSONS), max(1, MOST_NUMBERS // first.numbers))


def _teacher(sites: Sites, inputs: Tensor) -> Tensor:
    """What the sites say together, (inputs, outputs), block by block."""
    said = [
        said_together(sites, [network.run(block).T for network in sites.networks]).T
        for block in np.array_split(inputs, -(-len(inputs) // BLOCK))
    ]
    found: Tensor = np.concatenate(said, dtype=np.float32, casting="same_kind")
    several = len(found) > len(inputs)
    return found.reshape(len(inputs), -1, found.shape[1]) if several else found


def _lessons(sites: Sites, made: Tensor | None, real: Real | None) -> Lessons:
    """An epoch goes through every probe once, and through real inputs as often as that takes."""
    if real is None:
        assert made is not None
        return Lessons(made, _teacher(sites, made), np.arange(len(made)))
    size = _number(sites) if made is None else len(made)
    repeated = np.resize(np.arange(len(real.inputs)), max(size, len(real.inputs)))
    if made is None:
        return Lessons(real.inputs, real.answers, repeated)
    return Lessons(
        np.concatenate([real.inputs, made]),
        np.concatenate([real.answers, _teacher(sites, made)]),
        np.concatenate([repeated, len(real.inputs) + np.arange(len(made))]),
    )
