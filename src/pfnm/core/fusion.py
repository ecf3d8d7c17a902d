"""All groups: their order, the atoms of each, the fused network, and a site's part of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pfnm.core.errors import PFNMError
from pfnm.core.labels import align_labels
from pfnm.core.matching import Matching, Sweep, match
from pfnm.core.mlp import in_terms_of
from pfnm.core.network import OUTPUT, Array, Axis, BoolArray, IntArray, Network, Tensor
from pfnm.core.prior import Prior

Assignments = Mapping[str, Sequence[IntArray]]


@dataclass(frozen=True, eq=False)
class Fusion:
    """The global network, and which of its units every site's units became."""

    network: Network
    sites: tuple[str, ...]
    assignments: Mapping[str, tuple[IntArray, ...]]
    popularity: Mapping[str, IntArray]
    trace: Mapping[str, tuple[Sweep, ...]]
    prior: Prior
    settled: bool
    model: Any = None
    """The global network as what the sites were given as (a scikit-learn estimator, say)."""

    @property
    def widths(self) -> dict[str, int]:
        """Global units of each group, bottom to top."""
        return self.network.widths

    @property
    def objective(self) -> float:
        """The log posterior of the assignments, all groups together, up to a constant."""
        return sum(sweeps[-1].objective for sweeps in self.trace.values())

    def site_part(self, site: int) -> Network:
        """The global network cut down to the units of one site, in that site's order."""
        mine = {group: assignments[site] for group, assignments in self.assignments.items()}
        tensors = {
            name: np.ascontiguousarray(tensor[_index(self.network, name, mine)])
            for name, tensor in self.network.tensors.items()
        }
        return replace(self.network, tensors=tensors, name=self.sites[site], metadata={})


@dataclass(frozen=True, eq=False)
class Sites:
    """Comparable networks, and how much each site's tensors count."""

    networks: Sequence[Network]
    precision: Array
    """(J,): 1 / site_variance, times the site's weight."""
    output_precision: Array
    """(J, K): on what leads into output k; a class a site does not know counts nothing."""

    def precision_of(self, name: str, site: int) -> Array:
        """The precisions of a tensor's entries, in a shape that broadcasts to the tensor's."""
        axes = self.networks[site].graph.axes[name]
        for dimension, axis in enumerate(axes):
            if axis.space == OUTPUT:
                values = np.repeat(self.output_precision[site], axis.block)
                return values.reshape([-1 if d == dimension else 1 for d in range(len(axes))])
        return np.full([1] * len(axes), self.precision[site])


def fuse_networks(
    networks: Sequence[Network],
    *,
    class_counts: ArrayLike | None = None,
    site_weights: Sequence[float] | None = None,
    prior: Prior | None = None,
    start: Assignments | None = None,
    sweeps: int | None = None,
    rng: np.random.Generator | None = None,
    on_step: Callable[[], None] | None = None,
) -> Fusion:
    """Fuse networks trained apart into one (the paper's Algorithm 2; Algorithm 1 for one layer).

    class_counts: (J, K), how many examples of each class each site has seen, in the order of the
    labels' union. site_weights: how much each site counts (default: all the same). start: the
    assignments of an earlier fusion of the same sites. The other arguments are those of `match`.
    """
    prior = Prior() if prior is None else prior
    rng = np.random.default_rng(0) if rng is None else rng
    sites = comparable(networks, prior, class_counts, site_weights)
    matchings: dict[str, Matching] = {}
    for group in reversed(sites.networks[0].graph.groups):
        matched = {done: matching.assignments for done, matching in matchings.items()}
        atoms, precisions, prior_mean = group_atoms(sites, group, matched, prior)
        matchings[group] = match(
            atoms,
            prior,
            precisions=precisions,
            prior_mean=prior_mean,
            start=None if start is None else start[group],
            sweeps=sweeps,
            rng=rng,
            on_step=on_step,
        )
    order = sites.networks[0].graph.groups
    assignments = {group: matchings[group].assignments for group in order}
    return Fusion(
        network=average(sites, assignments, prior),
        sites=tuple(network.name for network in sites.networks),
        assignments=assignments,
        popularity={group: matchings[group].popularity for group in order},
        trace={group: matchings[group].trace for group in order},
        prior=prior,
        settled=all(matching.settled for matching in matchings.values()),
    )


def comparable(
    networks: Sequence[Network],
    prior: Prior,
    class_counts: ArrayLike | None = None,
    site_weights: Sequence[float] | None = None,
) -> Sites:
    """The networks in one form: same tensor names, same axis order, same outputs; or an error."""
    if len(networks) < 2:
        raise PFNMError(f"{len(networks)} network(s) given; fusing needs at least two")
    first = networks[0]
    if not first.graph.groups:
        raise PFNMError(f"{first.name} has no hidden layer, so there are no units to match")
    aligned = [in_terms_of(network, first) for network in networks]
    for network in aligned:
        _check_same_kind(network, first)
        for space, size in network.sizes.items():
            if space not in (*first.graph.groups, OUTPUT) and size != first.sizes[space]:
                raise PFNMError(
                    f"{network.name} has {size} {space}s, {first.name} has {first.sizes[space]}; "
                    "the sites' networks must take the same inputs"
                )
    aligned, known = align_labels(aligned)
    precision = prior.site_precisions(len(aligned), site_weights)
    output = np.where(known, precision[:, None], 0.0)
    if class_counts is not None:
        if not prior.choices.class_share:
            raise PFNMError(
                f"the {prior.rules!r} rules make no use of class counts; leave them out, or choose "
                "other rules"
            )
        sigma2 = 1 / prior.site_precisions(len(aligned))
        output = class_shares(class_counts, aligned, known) / sigma2[:, None]
    return Sites(aligned, precision, output)


def _check_same_kind(network: Network, first: Network) -> None:
    """Same activation; same output function, a softmax being as good as the logits before it."""
    pairs = [(network.activation, first.activation)]
    if "sigmoid" in (network.output, first.output):
        pairs.append((network.output, first.output))
    for own, expected in pairs:
        if own != expected:
            raise PFNMError(
                f"{network.name} has activation {own!r}, {first.name} has {expected!r}; only "
                "networks with the same activations can be fused"
            )


def class_shares(class_counts: ArrayLike, networks: Sequence[Network], known: BoolArray) -> Array:
    """n_jk / sum over sites of n_jk: each site's share of the examples of each class, (J, K)."""
    counts = np.asarray(class_counts, dtype=float)
    if counts.shape != known.shape:
        raise PFNMError(
            f"class counts have shape {counts.shape}, expected {known.shape}: one row a site, one "
            "number a class"
        )
    if not (np.isfinite(counts).all() and (counts >= 0).all()):
        raise PFNMError("class counts must be finite and not negative")
    label = networks[0].labels or tuple(range(known.shape[1]))
    stray = np.argwhere((counts > 0) & ~known)
    if stray.size:
        j, k = stray[0]
        raise PFNMError(
            f"{networks[j].name} counts examples of class {label[k]!r}, which its network does not "
            "know"
        )
    unseen = np.flatnonzero(counts.sum(axis=0) == 0)
    if unseen.size:
        raise PFNMError(
            f"class {label[unseen[0]]!r} has been seen by no site; give counts in which every "
            "class occurs, or none at all"
        )
    result: Array = counts / counts.sum(axis=0)
    return result


def group_atoms(
    sites: Sites, group: str, matched: Assignments, prior: Prior
) -> tuple[list[Array], list[Array], Array]:
    """The atoms of a group: for each site (units, D), precisions (D,), and the prior mean (D,).

    A tensor of the group takes part if its other axes are fixed or matched already; entries of
    matched groups stand in global coordinates, zero where the site has no unit.
    """
    graph = sites.networks[0].graph
    widths = {done: _width(assignments) for done, assignments in matched.items()}
    names = [
        name
        for name in graph.tensors_of(group)
        if all(a.space in (group, *matched) or not graph.is_group(a) for a in graph.axes[name])
    ]
    if not names:
        raise PFNMError(f"unit group {group!r} has no tensor to be matched on")
    atoms, precisions = [], []
    for j, network in enumerate(sites.networks):
        mine = {done: assignments[j] for done, assignments in matched.items()}
        columns, seen = [], []
        for name in names:
            dimension = [axis.space for axis in graph.axes[name]].index(group)
            wide = _spread(network, name, mine, widths)
            precision = np.broadcast_to(sites.precision_of(name, j), wide.shape)
            width = network.sizes[group]
            columns.append(np.moveaxis(wide, dimension, 0).reshape(width, -1))
            seen.append(np.moveaxis(precision, dimension, 0).reshape(width, -1)[0])
        atoms.append(np.concatenate(columns, axis=1))
        precisions.append(np.concatenate(seen))
    prior_mean = np.concatenate(
        [
            np.full(c.shape[1], _prior_mean(graph.axes[n], prior))
            for n, c in zip(names, columns, strict=True)
        ]
    )
    return atoms, precisions, prior_mean


def average(sites: Sites, assignments: Assignments, prior: Prior) -> Network:
    """The global network: every entry the posterior mean over the sites that have its unit.

    As in the paper, an entry between two groups counts for the sites that have its lower unit, with
    zero where a site lacks the upper one.
    """
    first = sites.networks[0]
    widths = {group: _width(own) for group, own in assignments.items()}
    p_0 = 1 / prior.prior_variance
    tensors: dict[str, Tensor] = {}
    for name, axes in first.graph.axes.items():
        groups = [group for group in first.graph.groups if group in {a.space for a in axes}]
        shape = [widths.get(axis.space, first.sizes[axis.space]) * axis.block for axis in axes]
        total = np.full(shape, _prior_mean(axes, prior) * p_0)
        weight = np.full(shape, p_0)
        for j, network in enumerate(sites.networks):
            mine = {group: own[j] for group, own in assignments.items()}
            precision = sites.precision_of(name, j)
            total[_index(network, name, mine)] += precision * network.tensors[name]
            counted = {group: mine[group] for group in groups[:1]}
            weight[_index(first, name, counted, shape)] += precision
        tensors[name] = (total / weight).astype(np.result_type(*(n.dtype for n in sites.networks)))
    return replace(first, tensors=tensors, name="global", metadata={})


def _prior_mean(axes: Sequence[Axis], prior: Prior) -> float:
    return prior.bias_mean if len(axes) == 1 else prior.prior_mean


def _width(assignments: Sequence[IntArray]) -> int:
    return 1 + max(int(assignment.max()) for assignment in assignments)


def _index(
    network: Network, name: str, units: Mapping[str, IntArray], shape: Sequence[int] | None = None
) -> Any:
    """The index that picks the given units along a tensor's axes, and everything along others."""
    lengths = network.tensors[name].shape if shape is None else shape
    return np.ix_(
        *(
            axis.entries(units[axis.space]) if axis.space in units else np.arange(length)
            for axis, length in zip(network.graph.axes[name], lengths, strict=True)
        )
    )


def _spread(
    network: Network, name: str, units: Mapping[str, IntArray], widths: Mapping[str, int]
) -> Array:
    """A site's tensor with matched axes in global coordinates, zero where it has no unit."""
    axes, tensor = network.graph.axes[name], network.tensors[name]
    shape = [
        widths[axis.space] * axis.block if axis.space in units else length
        for axis, length in zip(axes, tensor.shape, strict=True)
    ]
    wide = np.zeros(shape)
    wide[_index(network, name, units)] = tensor
    return wide
