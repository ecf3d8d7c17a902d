"""Polish: the sites' networks teach the fused one, on inputs made from the networks. No data.

The teacher is what the sites say together: their log probabilities, each site by its share of the
class. Real inputs can stand beside the probes or take their place, with labels or without. Probes
stay in memory and are never written.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pfnm.api import (
    Ends,
    as_networks,
    counts_table,
    input_range_of,
    range_told,
    same_kind,
)
from pfnm.core.errors import PFNMError
from pfnm.core.fusion import Fusion
from pfnm.core.mlp import forward
from pfnm.core.network import INPUT, OUTPUT, IntArray, Label, Network, Tensor
from pfnm.core.probes import (
    CHECK_PROBES,
    InputRange,
    agreement,
    alike,
    atom_probes,
    is_classifier,
    probe,
    said_together,
    site_agreements,
)
from pfnm.core.sites import Sites, comparable
from pfnm.evaluate import wanted_outputs
from pfnm.teaching import Lessons, OnEpoch, seeking_probes, taught

# Diversity of probes helps: kinds in proportions that did well on MNIST (docs/deep.md).
ATOM_PROBES, MIXED_PROBES, SEEKING_PROBES = 20_000, 10_000, 10_000
MOST_NUMBERS = 200_000_000  # in all probes: 800 MB; of very many inputs there are fewer probes
BLOCK = 50_000  # inputs of which the sites are asked at a time
REAL, LIKE = "the inputs to polish on", "the inputs to imitate"
HELD_OUT = 5  # one in so many of the real inputs judges the network instead of teaching it
LEAST_INPUTS = 20  # real ones, to teach by: fewer say little, and can be imitated instead


def polish(
    fusion: Fusion,
    networks: Sequence[Any],
    *,
    class_counts: Any = None,
    site_weights: Sequence[float] | None = None,
    labels: Sequence[Sequence[Label] | None] | None = None,
    activation: str | None = None,
    inputs: ArrayLike | None = None,
    targets: ArrayLike | None = None,
    probes: bool = True,
    like: ArrayLike | None = None,
    input_range: Ends | None = None,
    rng: np.random.Generator | int | None = None,
    seconds: float | None = None,
    on_epoch: OnEpoch | None = None,
) -> Fusion:
    """The fusion with its network taught by the sites' networks, on probes or real inputs.

    networks, class_counts, site_weights, labels and activation: what was fused, as `fuse` takes it.
    inputs: real ones (examples, inputs), of which the sites say what they are; with targets (labels
    or values), those are what is taught. Real inputs are half of what is taught, or more where
    there are many, probes the rest; without probes they are all of it. like: a few real inputs that
    probes are to imitate. input_range: between which values inputs lie (default: what the fusion
    was made with, or what the real inputs say, else 0 to 1). seconds: be done by then.

    The network is kept as it was where it does not get better: on other probes, or on the real
    inputs that were held out. Units stay where they are, so assignments and a site's part stay
    meaningful.
    """
    begin = time.monotonic()
    own = as_networks(networks, labels=labels, activation=activation)
    sites = comparable(own, counts_table(class_counts, own), site_weights)
    check_ready(own, inputs, like)
    _check_belongs(fusion, sites)
    real = _real(sites, fusion.network, inputs, targets)
    if real is None and not probes:
        raise PFNMError("without probes there is nothing to teach by; give inputs")
    shown = None if like is None else rows_of(like, fusion.network, LIKE)
    if input_range is None:
        input_range = _known_range(fusion, shown if real is None else real.inputs)
    within = input_range_of(input_range, own)
    # The third of the streams is the one that chose among the fusion's candidates.
    probe_rng, hold_rng, _, order_rng, check_rng = np.random.default_rng(
        0 if rng is None else rng
    ).spawn(5)
    to_check = probe(sites, CHECK_PROBES, check_rng, with_noise=True, within=within)
    if real is None:
        to_hold = probe(sites, CHECK_PROBES, hold_rng, with_noise=True, within=within)
        real_taught = None
        judged_on = "probes"
        judge = partial(alike, inputs=to_hold.inputs, wanted=to_hold.answer)
    else:
        real_taught, held = real.parted(hold_rng)
        judged_on = real.kind
        judge = partial(alike, inputs=held.inputs, wanted=held.answers.T)
    made = _probes(sites, probe_rng, within, shown) if probes else None
    polished, epochs = taught(
        fusion.network,
        _lessons(sites, made, real_taught),
        order_rng,
        within=within,
        judge=judge,
        end=None if seconds is None else begin + seconds,
        on_epoch=on_epoch,
    )
    before, after = (agreement(network, to_check) for network in (fusion.network, polished))
    # The epochs were chosen among on what judged them; whether to keep is seen on other probes.
    kept = after > before if real is None else polished is not fusion.network
    record = {
        "agreement_before": before,
        "agreement_after": after,
        "judged_on": judged_on,
        "kept": kept,
        "epochs": epochs,
        "real_inputs": 0 if real is None else len(real.inputs),
        "probes": probes,
        "imitated": 0 if shown is None or not probes else len(shown),
        "input_range": range_told(input_range),
        "seconds": seconds,
        "seed": rng if isinstance(rng, int) else None if rng is not None else 0,
        "torch": version("torch"),
    }
    chosen = polished if kept else fusion.network
    share = max(0.0, after if kept else before)
    best_site = max(0.0, *site_agreements(sites, to_check))
    metadata = {
        **fusion.network.metadata,
        "agreement": share,
        "site_agreement": best_site,
        "polish": record,
    }
    network = replace(chosen, metadata=metadata)
    return replace(
        fusion,
        network=network,
        agreement=share,
        site_agreement=best_site,
        model=None if fusion.model is None else same_kind(network, fusion.model),
    )


def check_ready(
    networks: Sequence[Network], inputs: ArrayLike | None, like: ArrayLike | None
) -> None:
    """An error where `polish` could not begin: to be known before anything else is done."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise PFNMError("polish needs PyTorch; pip install 'pfnm[torch]'") from None
    for given, what in ((inputs, REAL), (like, LIKE)):
        if given is not None:
            rows_of(given, networks[0], what)
    if inputs is not None and len(np.asarray(inputs)) < LEAST_INPUTS:
        raise PFNMError(
            f"{len(np.asarray(inputs))} inputs to polish on are too few, expected at least "
            f"{LEAST_INPUTS}; let probes imitate them instead"
        )


def _check_belongs(fusion: Fusion, sites: Sites) -> None:
    """An error unless these are networks that the fusion can have been made from."""
    first, fused = sites.networks[0], fusion.network
    if tuple(network.name for network in sites.networks) != fusion.sites:
        raise PFNMError(
            f"the fusion was made of {', '.join(fusion.sites)}, not of "
            f"{', '.join(n.name for n in sites.networks)}; give the networks that were fused"
        )
    for what in (
        lambda n: (n.sizes[INPUT], n.sizes[OUTPUT]),
        lambda n: n.labels,
        lambda n: len(n.widths),
        lambda n: n.activation,
    ):
        if what(first) != what(fused):
            raise PFNMError(
                f"the fused network has {what(fused)}, {first.name} {what(first)}; give the "
                "networks that were fused, with the same labels and activation"
            )


def _known_range(fusion: Fusion, real: Tensor | None) -> Ends | None:
    """The inputs' range as the fusion was made with, or as real inputs have it."""
    told = fusion.network.metadata.get("options", {}).get("input_range")
    if isinstance(told, list):
        return told[0], told[1]
    if real is None:
        return None
    low, high = real.min(axis=0), real.max(axis=0)
    if (low == high).all():
        raise PFNMError("the real inputs are all the same, so their range is not known; give it")
    return low, high


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
            raise PFNMError("there are targets but no inputs; give both")
        return None
    given = rows_of(inputs, network, REAL)
    if targets is None:
        return Real(given, _teacher(sites, given), "real inputs")
    return Real(given, wanted_outputs(network, given, np.asarray(targets)), "labels")


def rows_of(inputs: ArrayLike, network: Network, what: str) -> Tensor:
    """Inputs as the network takes them, or an error."""
    try:
        values = np.asarray(inputs, dtype=np.float32)
    except (TypeError, ValueError):
        values = np.empty(0, dtype=np.float32)
    if values.ndim != 2 or values.shape[1] != network.sizes[INPUT] or not len(values):
        raise PFNMError(
            f"{what} have shape {values.shape}, expected rows of {network.sizes[INPUT]} numbers, "
            f"as {network.name} takes them"
        )
    if not np.isfinite(values).all():
        raise PFNMError(f"{what} hold NaN or infinite values; leave such rows out")
    return values


def _probes(
    sites: Sites, rng: np.random.Generator, within: InputRange, like: Tensor | None
) -> Tensor:
    """Atom probes, mixtures of two of them, and some that climb towards a class.

    With inputs to imitate, a mixture is of an atom probe and one of those.
    """
    make_rng, seek_rng = rng.spawn(2)
    whole = ATOM_PROBES + MIXED_PROBES + SEEKING_PROBES
    part = min(1.0, MOST_NUMBERS / (whole * sites.networks[0].sizes[INPUT]))
    number, mixtures, climbing = (
        max(1, int(part * kind)) for kind in (ATOM_PROBES, MIXED_PROBES, SEEKING_PROBES)
    )
    atoms = atom_probes(sites.networks, number, make_rng, within)
    others = atoms if like is None else like
    share = make_rng.uniform(size=(mixtures, 1)).astype(np.float32)
    one = atoms[make_rng.integers(len(atoms), size=mixtures)]
    two = others[make_rng.integers(len(others), size=mixtures)]
    mixed = share * one + (1 - share) * two
    kinds = [atoms, mixed]
    if is_classifier(sites.networks[0]):
        starts = atoms if like is None else mixed
        kinds.append(seeking_probes(sites, starts[:climbing], seek_rng, within))
    return np.concatenate(kinds)


def _teacher(sites: Sites, inputs: Tensor) -> Tensor:
    """What the sites say together, (inputs, outputs), block by block."""
    said = [
        said_together(sites, [forward(network, block).T for network in sites.networks]).T
        for block in np.array_split(inputs, -(-len(inputs) // BLOCK))
    ]
    return np.concatenate(said, dtype=np.float32, casting="same_kind")


def _lessons(sites: Sites, made: Tensor | None, real: Real | None) -> Lessons:
    """An epoch goes through every probe once, and through real inputs as often as that takes."""
    if real is None:
        assert made is not None
        return Lessons(made, _teacher(sites, made), np.arange(len(made)))
    size = ATOM_PROBES + MIXED_PROBES + SEEKING_PROBES if made is None else len(made)
    repeated = np.resize(np.arange(len(real.inputs)), max(size, len(real.inputs)))
    if made is None:
        return Lessons(real.inputs, real.answers, repeated)
    return Lessons(
        np.concatenate([real.inputs, made]),
        np.concatenate([real.answers, _teacher(sites, made)]),
        np.concatenate([repeated, len(real.inputs) + np.arange(len(made))]),
    )
