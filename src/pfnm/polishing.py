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
from numpy.typing import ArrayLike, NDArray

from pfnm.api import Ends, as_networks, counts_table, input_range_of, same_kind
from pfnm.core.errors import PFNMError
from pfnm.core.fusion import Fusion
from pfnm.core.mlp import forward
from pfnm.core.network import INPUT, Network, Tensor
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
HELD_OUT = 5  # one in so many of the real inputs judges the network instead of teaching it
LEAST_INPUTS = 20  # real ones, to teach by: fewer say little, and can be imitated instead


def polish(
    fusion: Fusion,
    networks: Sequence[Any],
    *,
    class_counts: Any = None,
    site_weights: Sequence[float] | None = None,
    inputs: ArrayLike | None = None,
    targets: NDArray[Any] | None = None,
    probes: bool = True,
    like: ArrayLike | None = None,
    input_range: Ends | None = None,
    rng: np.random.Generator | int | None = None,
    seconds: float | None = None,
    on_epoch: OnEpoch | None = None,
) -> Fusion:
    """The fusion with its network taught by the sites' networks, on probes or real inputs.

    networks, class_counts and site_weights: what was fused, as `fuse` takes it. inputs: real ones
    (examples, inputs), of which the sites say what they are; with targets (labels or values), those
    are what is taught. Real inputs are half of what is taught, probes the other half, or all of it
    without probes. like: a few real inputs that probes are to imitate. input_range: between which
    values inputs lie (default: what the real inputs say, else 0 to 1). seconds: be done by then.

    The network is kept as it was where it does not get better: on other probes, or on the real
    inputs that were held out. Units stay where they are, so assignments and a site's part stay
    meaningful.
    """
    begin = time.monotonic()
    try:
        import torch  # noqa: F401
    except ImportError:
        raise PFNMError("polish needs PyTorch; pip install 'pfnm[torch]'") from None
    own = as_networks(networks)
    sites = comparable(own, counts_table(class_counts, own), site_weights)
    real = _real(sites, fusion.network, inputs, targets)
    if real is None and not probes:
        raise PFNMError("without probes there is nothing to teach by; give inputs")
    shown = None if like is None else _checked(like, fusion.network, "the inputs to imitate")
    known = shown if real is None else real.inputs
    if input_range is None and known is not None:
        input_range = known.min(axis=0), known.max(axis=0)
    within = input_range_of(input_range)
    probe_rng, hold_rng, check_rng, order_rng = np.random.default_rng(
        0 if rng is None else rng
    ).spawn(4)
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
    polished = taught(
        fusion.network,
        _lessons(sites, made, real_taught),
        order_rng,
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
        "real_inputs": 0 if real is None else len(real.inputs),
        "probes": probes,
        "imitated": 0 if shown is None else len(shown),
        "input_range": None
        if input_range is None
        else [np.asarray(end, dtype=float).tolist() for end in input_range],
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
        return tuple(  # type: ignore[return-value]
            replace(self, inputs=self.inputs[part], answers=self.answers[part])
            for part in (order[held:], order[:held])
        )


def _real(
    sites: Sites, network: Network, inputs: ArrayLike | None, targets: NDArray[Any] | None
) -> Real | None:
    if inputs is None:
        if targets is not None:
            raise PFNMError("there are targets but no inputs; give both")
        return None
    given = _checked(inputs, network, "the inputs to polish on")
    if len(given) < LEAST_INPUTS:
        raise PFNMError(
            f"{len(given)} inputs to polish on are too few, expected at least {LEAST_INPUTS}; let "
            "probes imitate them instead"
        )
    if targets is None:
        return Real(given, _teacher(sites, given), "real inputs")
    return Real(given, wanted_outputs(network, given, targets), "labels")


def _checked(inputs: ArrayLike, network: Network, what: str) -> Tensor:
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
    atoms = atom_probes(sites.networks, ATOM_PROBES, make_rng, within)
    others = atoms if like is None else like
    share = make_rng.uniform(size=(MIXED_PROBES, 1)).astype(np.float32)
    one = atoms[make_rng.integers(len(atoms), size=MIXED_PROBES)]
    two = others[make_rng.integers(len(others), size=MIXED_PROBES)]
    mixed = share * one + (1 - share) * two
    kinds = [atoms, mixed]
    if is_classifier(sites.networks[0]):
        starts = atoms if like is None else mixed
        kinds.append(seeking_probes(sites, starts[:SEEKING_PROBES], seek_rng, within))
    return np.concatenate(kinds)


def _teacher(sites: Sites, inputs: Tensor) -> Tensor:
    """What the sites say together, (inputs, outputs)."""
    outputs = [forward(network, inputs).T for network in sites.networks]
    return np.ascontiguousarray(said_together(sites, outputs).T, dtype=np.float32)


def _lessons(sites: Sites, made: Tensor | None, real: Real | None) -> Lessons:
    """An epoch goes through every probe once, and through real inputs as often as that takes."""
    size = ATOM_PROBES + MIXED_PROBES + SEEKING_PROBES
    if real is None:
        assert made is not None
        return Lessons(made, _teacher(sites, made), np.arange(len(made)))
    repeated = np.resize(np.arange(len(real.inputs)), max(size, len(real.inputs)))
    if made is None:
        return Lessons(real.inputs, real.answers, repeated)
    return Lessons(
        np.concatenate([real.inputs, made]),
        np.concatenate([real.answers, _teacher(sites, made)]),
        np.concatenate([repeated, len(real.inputs) + np.arange(len(made))]),
    )
