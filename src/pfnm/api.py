"""What people call: `fuse` and `check` on whatever they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pfnm import formats, threads
from pfnm.conversion import Counts, Ends, as_networks, as_sites, load_module
from pfnm.errors import PFNMError
from pfnm.formats.sites import duplicates
from pfnm.fusing.atoms import Assignments
from pfnm.fusing.budget import (
    AUTO,
    DEFAULT_BUDGET,
    limits_by_parameters,
    parsed_or_auto,
    width_limits,
)
from pfnm.fusing.doubts import class_doubts, range_doubt, told_doubts
from pfnm.fusing.inputs import InputRange, Inputs
from pfnm.fusing.joint import ALL, Effort, fuse_joint, in_one_frame
from pfnm.fusing.kinds import told_by_text
from pfnm.fusing.probes import probe
from pfnm.fusing.sites import Sites, comparable, contrasted
from pfnm.fusing.sizes import evident, fuse_auto
from pfnm.fusing.topdown import fuse_topdown
from pfnm.fusion import Check, Fusion, checked
from pfnm.matching.prior import MARGINAL, Prior
from pfnm.networks.graph import OUTPUT
from pfnm.networks.network import Label
from pfnm.networks.outputs import HEADS
from pfnm.verdicts import open_head, tell

if TYPE_CHECKING:
    from pfnm.tracing.trace import Trace

METHODS = ("joint", "topdown")
DOUBT_PROBES = 500  # by which sites are compared with each other

Budget = float | int | str | None


def fuse(
    networks: Iterable[Any] | str | PathLike[str] | Sites,
    *,
    class_counts: Counts = None,
    site_weights: Sequence[float] | None = None,
    labels: Sequence[Sequence[Label] | None] | None = None,
    activation: str | None = None,
    head: str | None = None,
    inputs: Inputs | str | ArrayLike | None = None,
    input_range: Ends | None = None,
    input_like: ArrayLike | None = None,
    example_inputs: Any = None,
    output: int | str | None = None,
    model: Any = None,
    axis_rules: Mapping[str, Any] | None = None,
    axis_groups: Sequence[Mapping[str, int]] | None = None,
    method: str = "joint",
    budget: Budget | Literal["default"] = "default",
    max_params: int | None = None,
    prior: Prior | None = None,
    spread: float | None = None,
    mass: float | None = None,
    rules: str | None = None,
    start: Assignments | None = None,
    sweeps: int | None = None,
    seed: int = 0,
    on_step: Callable[[], None] | None = None,
) -> Fusion:
    """Fuse networks trained apart into one.

    Parameters
    ----------
    networks
        Files, scikit-learn MLPs or pipelines, state dicts, PyTorch modules or `Network`s, at least
        two, in a list or by their sites' names in a mapping; a folder of files or a pattern
        ("sites/*.pt"); or `Sites` that were made of such (`pfnm.as_sites`), which then hold what
        the next thirteen tell.
    class_counts
        Examples of each class at each site: an array (J, K), a mapping from site name, or a file.
        "estimated": their shares, from what each network answers to made-up inputs.
    site_weights
        How much each site counts.
    labels, activation, head
        For networks that do not state theirs: the names of each site's outputs, the activation,
        and what the outputs are ("sigmoid", "softmax" or "values").
    inputs
        Of what kind the inputs are: `Pictures(3, 32, 32)`, `Signals(12, 1000)`, `Table()`, or a
        text such as "pictures:3x32x32". By default the kind the sites agree most on. Or real
        inputs without labels, tens or hundreds, in place of made-up ones: an array, a tensor or a
        DataLoader.
    input_range, input_like
        Between which values inputs lie (default 0 to 1), or a few real ones to imitate: made-up
        ones stand beside them.
    example_inputs, output, model, axis_rules, axis_groups
        For PyTorch modules: a batch as they take it (a tensor, a tuple of positional inputs, or a
        dict of keyword inputs), and which of several outputs counts (by number or key). With files
        of any architecture also a module of it, whose own weights do not matter. axis_rules: what
        custom operations do to axes; axis_groups: unit groups by hand, each the axis of every
        tensor along which its units lie: [{"first.weight": 0, "last.weight": 1}] (docs/modules.md).
    method
        "joint" (all layers together), or "topdown" (the paper's).
    budget, max_params
        How wide a layer may become: a factor of the widest site's (1.5, "2x"), a number of units
        (300), None for no limit, or "auto" for the smallest of several sizes, the evidence's own
        among them, that agrees with the sites about as well as the best (docs/sizes.md); by default
        2.0 for "joint", no limit for "topdown". Or how many parameters it may have.
    prior, spread, mass, rules
        A prior of one's own, or what `Prior.fit` makes it from; with rules="marginal" and no spread
        it is the one with the most evidence, group by group.
    start
        The assignments of an earlier fusion of the same sites, for rounds.
    sweeps
        Exactly so many (topdown).
    seed
        Of everything random.

    Examples
    --------
    >>> from pfnm import Network, fuse
    >>> from pfnm.networks.perceptron import mlp
    >>> rng = np.random.default_rng(0)
    >>> sites = [mlp([rng.normal(size=(4, 5)), rng.normal(size=(5, 3))]) for _ in range(3)]
    >>> fuse(sites, budget="1x", seed=1).widths
    {'hidden1': 5}
    """
    told: tuple[Any, ...] = (class_counts, site_weights, labels, activation, head, inputs)
    told += (input_range, input_like, example_inputs, output, model, axis_rules, axis_groups)
    if isinstance(networks, Iterator):
        networks = list(networks)  # they are looked at more than once
    if not isinstance(networks, Sites):
        sites = as_sites(
            networks,
            class_counts=class_counts,
            site_weights=site_weights,
            labels=labels,
            activation=activation,
            head=head,
            inputs=inputs,
            input_range=input_range,
            input_like=input_like,
            example_inputs=example_inputs,
            output=output,
            model=model,
            axis_rules=axis_rules,
            axis_groups=axis_groups,
        )
    elif any(value is not None for value in told):
        raise PFNMError("the sites hold all that is told of them; tell it to as_sites")
    else:
        sites = networks
    fusion = fuse_sites(
        sites,
        method=method,
        budget=budget,
        max_params=max_params,
        prior=prior_of(sites, prior, spread, mass, rules),
        start=start,
        sweeps=sweeps,
        rng=np.random.default_rng(seed),
        on_step=on_step,
    )
    fusion = replace(
        fusion,
        options={**fusion.options, "seed": int(seed)},
        template=_template(networks, model),
        doubts=doubts(sites, seed),
    )
    tell(fusion.warnings)
    return fusion


def _template(networks: Iterable[Any] | str | PathLike[str] | Sites, model: Any) -> Any:
    """What the global network is given back as."""
    if model is not None or isinstance(networks, str | PathLike | Sites):
        return model
    return next(iter(networks.values() if isinstance(networks, Mapping) else networks))


def load(
    path: str | PathLike[str],
    *,
    model: Any = None,
    activation: str | None = None,
    output: str | None = None,
    labels: Sequence[Label] | None = None,
    name: str | None = None,
) -> Any:
    """Read a network from a file. Nothing in the file is ever executed.

    model: a PyTorch module of the architecture whose weights the file holds; what is given back is
    a copy of it with these weights, of whatever widths. Without one the file holds a multilayer
    perceptron, and a `Network` is given back; for the other arguments see `pfnm.formats.load`.
    """
    if model is None:
        return formats.load(path, activation=activation, output=output, labels=labels, name=name)
    if any(told is not None for told in (activation, output, labels, name)):
        raise PFNMError("a model says itself what it computes; leave what is told beside it out")
    return load_module(path, model)


def trace(
    module: Any,
    *example_inputs: Any,
    output: int | str | None = None,
    rules: Mapping[str, Any] | None = None,
    groups: Sequence[Mapping[str, int]] = (),
    **kwargs: Any,
) -> Trace:
    """The unit groups of a PyTorch module, found from its operations and proved on an example.

    `print` shows them. output: which of several outputs counts. rules: what custom operations do to
    axes; groups: some stated by hand, as `fuse` takes them (docs/modules.md).
    """
    from pfnm.tracing.trace import trace as traced

    with threads.one_of_torch():
        told: dict[str, Any] = {"output": output, "rules": rules, "groups": groups}
        return traced(module, *example_inputs, **told, **kwargs)


def shuffled(
    module: Any,
    example_inputs: Any,
    seed: int = 0,
    *,
    output: int | str | None = None,
) -> Any:
    """A copy of a PyTorch module with its hidden units renamed: other tensors, the same function.

    example_inputs as `fuse` takes them.
    """
    from pfnm.tracing.modules import given_inputs
    from pfnm.tracing.shuffling import shuffled as renamed

    args, kwargs = given_inputs(example_inputs)
    with threads.one_of_torch():
        return renamed(module, args, seed, example_kwargs=kwargs, output=output)


@threads.limited()
def fuse_sites(
    sites: Sites,
    *,
    method: str = "joint",
    budget: Budget | Literal["default"] = "default",
    max_params: int | None = None,
    prior: Prior | None = None,
    start: Assignments | None = None,
    sweeps: int | None = None,
    measured: bool = True,
    effort: Effort = ALL,
    rng: np.random.Generator,
    on_step: Callable[[], None] | None = None,
) -> Fusion:
    """The same of sites in one form, without a word; for rounds and studies.

    measured: whether a top-down fusion's agreement is measured (a joint one's always is). effort:
    how many matchings the joint method tries.
    """
    if method not in METHODS:
        raise PFNMError(f"unknown method {method!r}; choose one of {', '.join(METHODS)}")
    sites.check_unchanged()
    if method == "joint" and start is None:  # those that start from assignments share their frame
        sites = in_one_frame(sites)
    prior = Prior.fit(sites.networks) if prior is None else prior
    if sites.class_counts is not None and not prior.choices.class_share:
        raise PFNMError(
            f"the {prior.rules!r} rules make no use of class counts; leave them out, or choose "
            "other rules"
        )
    if prior.choices.contrast:
        sites = contrasted(sites)
    budget, limits = _limited(sites, method, budget, max_params)
    pieces = threads.pieces_at_once()
    if method == "joint" and sweeps is not None:
        raise PFNMError("sweeps belong to the method 'topdown'; leave them out")
    if budget == AUTO:
        if method != "joint" or start is not None:
            raise PFNMError(
                "the budget 'auto' is for the method 'joint', from scratch; give a factor (2.0), a "
                "number of units or None"
            )
        solution = fuse_auto(sites, prior=prior, rng=rng, on_step=on_step, pieces=pieces)
    elif method == "joint":
        solution = fuse_joint(
            sites,
            prior=prior,
            rng=rng,
            limits=limits,
            start=start,
            on_step=on_step,
            effort=effort,
            pieces=pieces,
        )
    else:
        solution = fuse_topdown(
            sites, prior=prior, rng=rng, limits=limits, start=start, sweeps=sweeps, on_step=on_step
        )
        if measured:
            found = checked(sites.plain(solution.network), sites, rng)
            solution = replace(
                solution, agreement=found.agreement, site_agreement=found.site_agreement
            )
    options = {
        "method": method,
        "prior": asdict(prior),
        "budget": budget,
        "max_params": max_params,
        "sweeps": sweeps,
        "class_counts": None if sites.class_counts is None else sites.class_counts.tolist(),
        "site_weights": sites.weights.tolist(),
        "inputs": str(sites.inputs),
        "input_range": range_told(sites.inputs.within),
        "told_of_inputs": sorted(
            sites.told if told_by_text(sites.inputs) else sites.told - {"inputs"}
        ),
        "started_from_assignments": start is not None,
        "threads": threads.in_use(),
    }
    solution = replace(solution, network=sites.plain(solution.network))
    return Fusion(**vars(solution), sites=sites, prior=prior, options=options)


def _limited(
    sites: Sites, method: str, budget: Budget | Literal["default"], max_params: int | None
) -> tuple[Budget, dict[str, int] | None]:
    """The budget as a number, None or "auto", and the most global units of each group."""
    if budget == "default":
        budget = DEFAULT_BUDGET if method == "joint" and max_params is None else None
    elif isinstance(budget, str):
        budget = parsed_or_auto(budget)
    elif isinstance(budget, np.generic):
        budget = budget.item()
    limits = None if isinstance(budget, str) else width_limits(sites.networks, budget)
    if max_params is None:
        return budget, limits
    if limits is not None or budget == AUTO:
        raise PFNMError("give a budget or a number of parameters, not both")
    return budget, limits_by_parameters(sites.networks, max_params)


def range_told(within: InputRange) -> Any:
    """The range for the record; one of each input may be taken from real ones, and tell of them."""
    ends = within.ends
    return [float(end) for end in ends] if ends[0].ndim == ends[1].ndim == 0 else "of each input"


def prior_of(
    sites: Sites,
    prior: Prior | None,
    spread: float | None,
    mass: float | None,
    rules: str | None,
) -> Prior:
    """The prior as given, or fitted to the weights."""
    parts = {"spread": spread, "mass": mass, "rules": rules}
    told = {name: value for name, value in parts.items() if value is not None}
    if prior is None and rules == MARGINAL.name and spread is None:
        found = evident(sites, np.random.default_rng(0)).prior
        if mass is None:
            return found
        own = {group: replace(prior, mass=mass) for group, prior in found.groups.items()}
        return replace(found, mass=mass, groups=own)
    if prior is None:
        return Prior.fit(sites.networks, **told)  # type: ignore[arg-type]
    if told:
        raise PFNMError(
            f"a prior is given, so {next(iter(told))} would be ignored; set it in the prior"
        )
    return prior


def doubts(sites: Sites, seed: int) -> tuple[str, ...]:
    """Where what the sites know may differ in ways that nobody told."""
    head = open_head(sites)
    found = duplicates(sites.networks) + ([] if head is None else [head]) + told_doubts(sites)
    probing = probe(sites, DOUBT_PROBES, np.random.default_rng(seed))
    found += range_doubt(sites, probing)
    for doubt in class_doubts(sites, probing):
        told = {"shares": sites.class_counts, "labels": sites.networks[0].labels}
        if told[doubt.kind] is None:
            found.append(doubt.message)
    return tuple(found)


def check(
    network: Any,
    networks: Sequence[Any] | str | PathLike[str] | Sites,
    *,
    class_counts: Counts = None,
    site_weights: Sequence[float] | None = None,
    labels: Sequence[Sequence[Label] | None] | None = None,
    activation: str | None = None,
    head: str | None = None,
    inputs: Inputs | str | ArrayLike | None = None,
    input_range: Ends | None = None,
    input_like: ArrayLike | None = None,
    seed: int = 0,
) -> Check:
    """How like the sites together any network answers, on made-up inputs.

    Networks and what is told of them as `fuse` takes it. What the record of a fused file holds of
    it (class counts, site weights, kind and range of inputs) counts where nothing is told.
    """
    (fused,) = as_networks([network], activation=activation, head=head)
    told = (class_counts, site_weights, labels, inputs, input_range, input_like)
    if isinstance(networks, Sites):
        if any(value is not None for value in told):
            raise PFNMError("the sites hold all that is told of them; tell it to as_sites")
        sites = networks
    else:
        if activation is None and fused.activation_told:
            activation = fused.activation
        if head is None and fused.output in HEADS:
            head = fused.output
        sites = as_sites(
            networks,
            class_counts=class_counts,
            site_weights=site_weights,
            labels=labels,
            activation=activation,
            head=head,
            inputs=inputs,
            input_range=input_range,
            input_like=input_like,
            record=fused.metadata,
        )
    aligned = comparable([*sites.networks, sites.scaled(fused)]).networks[-1]
    if aligned.sizes[OUTPUT] != sites.networks[0].sizes[OUTPUT]:
        raise PFNMError(f"{fused.name} knows classes that none of the sites does")
    return checked(sites.plain(aligned), sites, np.random.default_rng(seed))
