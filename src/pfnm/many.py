"""Thousands of sites: networks with one hidden layer, read from their files one at a time.

A first reading tells widths, variances and what the output biases are; then every site is matched
in one pass and in sweeps over all sites or some. Memory holds the global layer and the assignments.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pfnm import threads
from pfnm.errors import PFNMError
from pfnm.formats import load, save, site_names
from pfnm.formats.files import write_whole
from pfnm.formats.tables import read_class_counts
from pfnm.fusing.assumptions import LIKE_SHARES, assumed_told
from pfnm.fusing.budget import DEFAULT_BUDGET, width_limits
from pfnm.fusing.sites import checked_counts
from pfnm.fusion import versions
from pfnm.matching.matching import Matcher
from pfnm.matching.posterior import Part, PriorPart
from pfnm.matching.prior import SMALLEST, Prior, weight_variance
from pfnm.matching.stream import Stream, restore, run_visits, state_of, visiting_order
from pfnm.networks.graph import OUTPUT, IntArray
from pfnm.networks.network import Array, Network
from pfnm.networks.perceptron import in_terms_of, layers

CHECKPOINT_SECONDS = 20.0  # between two checkpoints
RULES = "marginal"  # under which a new global unit has to explain something
UNSEEN = 1e-9  # of the prior's precision: what additions and subtractions leave is nothing
RUN = "run"  # the entry of a checkpoint that says what it belongs to


@dataclass(frozen=True, eq=False)
class Survey:
    """What one reading of all files tells."""

    first: Network
    widths: list[int]
    norms: list[Array]
    """Of each site's units, the norm of their incoming weights."""
    scale: float
    """The mean variance, over sites, of the weights at the hidden layer."""
    output_bias: Array
    """The sites' mean, each counting by its share of the class."""


@dataclass(frozen=True, eq=False)
class ManyFusion:
    """The global network of many sites, and which of its units each site's unit is."""

    network: Network
    assignments: tuple[IntArray, ...]
    names: tuple[str, ...]
    reassigned: tuple[int, ...]
    """Units that moved in the first pass and in each sweep."""
    options: Mapping[str, Any]
    checkpoint: Path | None = None
    """Where the work stands written until its result is."""

    def save(self, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write the global network, and how it was made; then the checkpoint can go."""
        ((group, width),) = self.network.widths.items()
        members = np.bincount(np.concatenate(self.assignments), minlength=width)
        assumed = () if self.options["class_counts"] else (LIKE_SHARES,)
        record = {
            "kind": "fusion",
            "versions": dict(versions()),
            "options": dict(self.options),
            "assumed": assumed_told(assumed),
            "widths": self.network.widths,
            "shared": {group: np.bincount(members)[1:].tolist()},
        }
        save(replace(self.network, metadata=record), path, force=force)
        if self.checkpoint is not None:
            self.checkpoint.unlink(missing_ok=True)


@threads.limited()
def fuse_many(
    files: Sequence[str | PathLike[str]],
    *,
    class_counts: ArrayLike | Mapping[str, Any] | str | PathLike[str] | None = None,
    budget: float | int | None = DEFAULT_BUDGET,
    rules: str = RULES,
    sweeps: int = 1,
    sample: int | None = None,
    seed: int = 0,
    checkpoint: Path | None = None,
    on_step: Callable[[str, int, int], None] | None = None,
) -> ManyFusion:
    """Fuse the networks of many sites, which are never all in memory.

    Parameters
    ----------
    files
        Of perceptrons with one hidden layer and the same inputs and outputs; at least two.
    class_counts
        Examples of each class at each site: an array (J, K), a mapping from site name, or a file.
    budget
        How wide the hidden layer may become: a factor of the widest site's, a number of units, or
        None for no limit.
    rules
        As `Prior` has them.
    sweeps, sample
        How often sites are matched again after the first pass, and how many of them (default: all).
    seed
        Of the order in which sites are visited.
    checkpoint
        A file that is written now and then, and at the end; a call with the same arguments goes on
        from it. `save` removes it, once the result is written.
    on_step
        Told what is being done, how much of it is done and how much there is.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from pfnm.networks.perceptron import mlp
    >>> rng = np.random.default_rng(0)
    >>> with TemporaryDirectory() as folder:
    ...     files = [Path(folder) / f"site{j}.npz" for j in range(5)]
    ...     for file in files:
    ...         save(mlp([rng.normal(size=(4, 5)), rng.normal(size=(5, 3))]), file)
    ...     fuse_many(files, budget=1.0).network.widths
    {'hidden1': 5}
    """
    say = on_step or (lambda what, done, total: None)
    names = site_names(files)
    if len(names) < 2:
        raise PFNMError(f"{len(names)} network(s) given; fusing needs at least two")
    if sweeps < 0 or (sample is not None and sample < 1):
        raise PFNMError(f"sweeps is {sweeps} and sample {sample}; expected 0 and 1, or more")
    shares = _shares(class_counts, names, files)
    survey = _survey(files, shares, lambda done: say("reading", done, len(names)))
    options = {
        "method": "many",
        "rules": rules,
        "budget": budget.item() if isinstance(budget, np.generic) else budget,
        "sweeps": int(sweeps),
        "sample": None if sample is None else int(sample),
        "seed": int(seed),
        "sites": len(names),
        "class_counts": shares is not None,
    }
    matcher = _matcher(files, survey, shares, rules, budget)
    visits = visiting_order(survey.widths, sweeps, sample, np.random.default_rng(seed))
    moved = np.zeros(1 + sweeps, dtype=np.intp)
    run = json.dumps({**options, "names": names, "made_of": _made_of(survey, shares)})
    done = _resumed(checkpoint, run, matcher, moved)
    in_sweep = min(sample or len(names), len(names))
    last = time.monotonic()

    def on_visit(number: int, changed: int) -> None:
        nonlocal last
        moved[max(0, 1 + (number - 1 - len(names)) // in_sweep)] += changed
        say("matching", number, visits.size)
        if checkpoint is not None and time.monotonic() - last > CHECKPOINT_SECONDS:
            _keep(checkpoint, run, matcher, moved, number)
            last = time.monotonic()

    run_visits(matcher, visits, done, on_visit)
    if checkpoint is not None:
        _keep(checkpoint, run, matcher, moved, visits.size)
    return ManyFusion(
        _network(survey, matcher),
        matcher.numbered(),
        tuple(names),
        tuple(moved.tolist()),
        options,
        checkpoint,
    )


def _survey(
    files: Sequence[str | PathLike[str]], shares: Array | None, on_file: Callable[[int], None]
) -> Survey:
    first = _read(files[0], None)
    widths, norms, variances = [], [], []
    (group,) = first.graph.groups
    biases, counted = np.zeros(first.sizes[OUTPUT]), np.zeros(first.sizes[OUTPUT])
    for j, file in enumerate(files):
        network = _read(file, first)
        hidden, outgoing = layers(network)
        widths.append(network.sizes[group])
        norms.append(np.linalg.norm(hidden.weight.astype(float), axis=0))
        variances.append(weight_variance(network, group))
        share = np.ones(biases.size) if shares is None else shares[j]
        biases += share * (0.0 if outgoing.bias is None else outgoing.bias)
        counted += share
        on_file(j + 1)
    scale = max(float(np.mean(variances)), SMALLEST)
    return Survey(first, widths, norms, scale, biases / counted)


def _read(file: str | PathLike[str], first: Network | None) -> Network:
    """A site's network, or an error that says in what it differs from the first."""
    network = load(file)
    depth = len(layers(network)) - 1
    if depth != 1 or network.scaling is not None:
        what = f"has {depth} hidden layers" if depth != 1 else "has a scaler before its network"
        raise PFNMError(
            f"{network.name} {what}; many sites are fused one at a time only if each is a "
            "network with one hidden layer (others: pfnm fuse)"
        )
    if first is None:
        return network
    network = in_terms_of(network, first)
    for name in ("activation", "output", "labels", "features"):
        if getattr(network, name) != getattr(first, name):
            raise PFNMError(
                f"{network.name} has other {name} than {first.name}; many sites are fused one at a "
                "time only if these are the same"
            )
    own, others = (
        {space: size for space, size in one.sizes.items() if space not in first.graph.groups}
        for one in (network, first)
    )
    if own != others:
        raise PFNMError(f"{network.name} has {own}, {first.name} has {others}; they must be equal")
    return network


def _shares(
    class_counts: Any, names: Sequence[str], files: Sequence[str | PathLike[str]]
) -> Array | None:
    """How much each site counts for each class, (J, K), summing to 1 over the sites."""
    if class_counts is None:
        return None
    if isinstance(class_counts, str | PathLike):
        class_counts = read_class_counts(Path(class_counts))
    first = load(files[0])
    labels = [str(label) for label in first.labels or range(first.sizes[OUTPUT])]
    if isinstance(class_counts, Mapping):
        missing = [name for name in names if name not in class_counts]
        if missing:
            raise PFNMError(f"class counts: site {missing[0]!r} is missing; add it")
        rows = [class_counts[name] for name in names]
        class_counts = [
            [row.get(label, 0) for label in labels] if isinstance(row, Mapping) else row
            for row in rows
        ]
    known = np.ones((len(names), len(labels)), dtype=bool)
    counts = checked_counts(class_counts, [first], known)
    shares: Array = counts / counts.sum(axis=0)
    return shares


def _widest(survey: Survey) -> Network:
    """The first network as wide as the widest site, for its widths alone."""
    (group,) = survey.first.graph.groups
    units = np.zeros(max(survey.widths), dtype=np.intp)
    graph = survey.first.graph
    tensors = {
        name: tensor[graph.index(name, {group: units}, survey.first.sizes)]
        for name, tensor in survey.first.tensors.items()
    }
    return replace(survey.first, tensors=tensors)


def _matcher(
    files: Sequence[str | PathLike[str]],
    survey: Survey,
    shares: Array | None,
    rules: str,
    budget: float | int | None,
) -> Matcher:
    (group,) = survey.first.graph.groups
    prior = Prior.fit([survey.first], rules=rules)
    prior = replace(prior, scales={group: survey.scale}).for_group(group)
    limits = width_limits([_widest(survey)], budget)
    precision = float(1 / prior.site_variances(1).item())
    inward = survey.first.numbers + 1

    def read(j: int) -> list[Part]:
        hidden, outgoing = layers(_read(files[j], survey.first))
        bias = np.zeros(hidden.weight.shape[1]) if hidden.bias is None else hidden.bias
        atoms = np.column_stack([hidden.weight.T, bias, outgoing.weight]).astype(float)
        atoms *= precision
        if shares is None:
            return [Part(atoms, np.array([precision]))]
        outward = Part(atoms[:, inward:] * shares[j], precision * shares[j])
        return [Part(np.ascontiguousarray(atoms[:, :inward]), np.array([precision])), outward]

    stream = Stream(read, len(files))
    sizes = [part.weighted.shape[1] for part in stream[0]]
    means = [np.full(size, prior.prior_mean) for size in sizes]
    means[0][inward - 1] = prior.bias_mean
    priors = [PriorPart(mean, 1 / prior.prior_variance) for mean in means]
    limit = None if limits is None else limits[group]
    return Matcher(stream, survey.widths, priors, prior, limit, 0, None)


def _network(survey: Survey, matcher: Matcher) -> Network:
    """Every weight the mean of what was observed, units as strong as their members on average."""
    slots = matcher.posterior.occupied()
    means = []
    for sums in matcher.posterior.parts:
        weight = np.broadcast_to(
            sums.precisions[slots] - sums.prior.precision, (slots.size, sums.start.size)
        )
        nothing = np.zeros(weight.shape)  # of a class that no member has seen
        means.append(
            np.divide(
                sums.sums[slots] - sums.start,
                weight,
                out=nothing,
                where=weight > UNSEEN * sums.prior.precision,
            )
        )
    atoms = np.concatenate(means, axis=1)
    inputs = survey.first.numbers
    norms = np.zeros(slots.size)
    for own, norm in zip(matcher.numbered(), survey.norms, strict=True):
        norms[own] += norm
    norms /= matcher.posterior.popularity[slots]
    inward = atoms[:, :inputs]
    length = np.linalg.norm(inward, axis=1)
    inward *= (norms / np.where(length > 0, length, 1))[:, None]
    hidden, outgoing = layers(survey.first)
    values = {
        hidden.weight_name: inward if hidden.transposed else inward.T,
        outgoing.weight_name: atoms[:, inputs + 1 :].T
        if outgoing.transposed
        else atoms[:, inputs + 1 :],
    }
    if hidden.bias_name is not None:
        values[hidden.bias_name] = atoms[:, inputs]
    if outgoing.bias_name is not None:
        values[outgoing.bias_name] = survey.output_bias
    dtype = survey.first.dtype
    tensors = {name: np.ascontiguousarray(value, dtype) for name, value in values.items()}
    return replace(survey.first, tensors=tensors, name="global", metadata={})


def _made_of(survey: Survey, shares: Array | None) -> str:
    """A hash of what sums are made of: other counts or other weights are another run."""
    parts = [*survey.norms, survey.output_bias, np.array(survey.scale), np.array(survey.widths)]
    digest = hashlib.sha256()
    for part in [*parts, *([] if shares is None else [shares])]:
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


def _keep(checkpoint: Path, run: str, matcher: Matcher, moved: IntArray, done: int) -> None:
    data = io.BytesIO()
    state: dict[str, Any] = {**state_of(matcher), RUN: run, "done": done, "moved": moved}
    np.savez(data, **state)
    write_whole(checkpoint, data.getvalue())


def _resumed(checkpoint: Path | None, run: str, matcher: Matcher, moved: IntArray) -> int:
    """How many visits a checkpoint has behind it, which are then taken up."""
    if checkpoint is None or not checkpoint.exists():
        return 0
    try:
        with checkpoint.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            state = dict(kept)
        if str(state.pop(RUN)) != run:
            raise PFNMError(
                f"{checkpoint}: the checkpoint of another run; remove it, or run that one again"
            )
        moved[:] = state.pop("moved")
        done = int(state.pop("done"))
        restore(matcher, state)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, PFNMError):
            raise
        raise PFNMError(f"{checkpoint}: cannot be gone on from; remove it") from None
    return done
