"""One group of whole networks matched, and the groups within it.

Units that hold others (heads their coordinates, a grouped convolution's groups their filters) are
matched by what the order within them does not change: the products of the matrices on both sides of
the inner coordinates. Then the inner ones are put in order, unit by unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import scipy

from pfnm.errors import PFNMError
from pfnm.fusing.atoms import Assignments, Side, group_atoms, sides_of, width_of, widths_of
from pfnm.fusing.sites import Sites
from pfnm.matching.prior import Prior
from pfnm.networks.graph import IntArray, UnitGraph
from pfnm.networks.network import Array, Network, Tensor

SKETCH = 64  # columns that stand for a wider side in a product; sums of all, with random signs
SKETCH_SEED = 0
INNER_SWEEPS = 2  # over the sites, when inner units are put in order


def next_group(graph: UnitGraph, left: Iterable[str], matched: Iterable[str]) -> str:
    """The first of these groups that shares a weight with what is known, or at least a tensor."""
    left, known = list(left), set(matched)
    for group in left:
        inner = set(graph.inner_of(group))
        sides = sides_of(graph, group, known | inner)
        if any(graph.role(side.name) == "weight" for side in sides):
            return group
    for group in left:
        if sides_of(graph, group, known | set(graph.inner_of(group))):
            return group
    raise PFNMError(f"unit group {left[0]!r} has no tensor to be matched on")


def atoms_of(
    sites: Sites,
    group: str,
    matched: Assignments,
    prior: Prior,
    extra: Sequence[Tensor] | None = None,
) -> tuple[list[Array], list[Array], Array]:
    """What the units of a group are matched on: atoms, precisions and prior mean; see `match`.

    extra: what the units do, where that is known.
    """
    graph = sites.networks[0].graph
    if not graph.inner_of(group):
        return group_atoms(sites, group, matched, prior, extra)
    matched = _without_mixed(graph, group, matched)
    columns: list[list[Array]] = [[] for _ in sites.networks]
    for side in sides_of(graph, group, set(matched) - {group}):
        for own, rows in zip(columns, _rows(sites, side, group, matched), strict=True):
            own.append(rows)
    for inner in graph.inner_of(group):
        for own, product in zip(columns, _products(sites, group, inner, matched), strict=True):
            own.extend(product)
    if not columns[0]:
        raise PFNMError(f"unit group {group!r} has no tensor to be matched on")
    atoms = [np.concatenate(own, axis=1) for own in columns]
    precisions = sites.weights / prior.site_variances(len(sites.networks))
    seen = [np.full(atoms[0].shape[1], precision) for precision in precisions]
    return atoms, seen, np.zeros(atoms[0].shape[1])


def _rows(sites: Sites, side: Side, group: str, matched: Assignments) -> list[Array]:
    widths = widths_of(sites.networks[0].graph, matched)
    return [
        side.rows(network, group, {done: own[j] for done, own in matched.items()}, widths)
        for j, network in enumerate(sites.networks)
    ]


def _inner_sides(sites: Sites, group: str, inner: str, matched: Assignments) -> list[list[Array]]:
    """For each side of an inner group, a site's (units, inner units, D)."""
    graph = sites.networks[0].graph
    known = {done: own for done, own in matched.items() if done not in (group, inner)}
    widths = widths_of(graph, known)
    found = []
    for side in sides_of(graph, inner, {*known, group}):
        if group not in graph.axes[side.name][side.dimension].spaces:
            continue
        rows = []
        for j, network in enumerate(sites.networks):
            units = {done: own[j] for done, own in known.items()}
            rows.append(_inner_rows(network, side, group, inner, units, widths))
        found.append(rows)
    return found


def _inner_rows(
    network: Network,
    side: Side,
    group: str,
    inner: str,
    units: dict[str, IntArray],
    widths: dict[str, int],
) -> Array:
    """(units, inner units, D): what each inner unit of each unit has on a side."""
    wide = side.spread(network, inner, units, widths)
    axis = network.graph.axes[side.name][side.dimension]
    sizes = {**network.sizes, **widths}
    outer_of, inner_of = axis.coordinates(group, sizes), axis.coordinates(inner, sizes)
    here = np.flatnonzero(inner_of >= 0)
    order = here[np.lexsort((here, inner_of[here], outer_of[here]))]
    rows = np.moveaxis(wide, side.dimension, 0)[order]
    return rows.reshape(network.sizes[group], network.sizes[inner], -1)


def _without_mixed(graph: UnitGraph, group: str, matched: Assignments) -> Assignments:
    """What is matched, but for inner groups that lie along no axis without another of the same.

    (Channels that two group norms divide differently: groups of blocks of channels.) How those of
    an earlier sweep are ordered says nothing where their units are matched anew.
    """
    inner = graph.inner_of(group)
    alone = {
        own
        for own in inner
        if any(
            not side.needs(graph, own) & set(inner)
            for side in sides_of(graph, own, set(graph.groups))
        )
    }
    return {done: own for done, own in matched.items() if done not in inner or done in alone}


def _mixed_sides(sites: Sites, group: str, inner: str, matched: Assignments) -> list[list[Array]]:
    """Sides of an inner group along which others lie too, none of them in order yet.

    For each a site's (units, inner units, entries of the others, D); all sides have these alike.
    """
    graph = sites.networks[0].graph
    known = {done: own for done, own in matched.items() if done not in (group, inner)}
    others, widths = set(graph.inner_of(group)) - {inner} - set(known), widths_of(graph, known)
    found: list[list[Array]] = []
    together: tuple[str | int, ...] | None = None
    for side in sides_of(graph, inner, {*known, group, *others}):
        parts = graph.axes[side.name][side.dimension].parts
        factors = parts[0].factors
        if len(parts) > 1 or not set(factors) <= {group, inner, *others}:
            continue
        together = factors if together is None else together
        if factors != together or group not in factors:
            continue
        order = [factors.index(group), factors.index(inner)]
        order += [place for place in range(len(factors)) if place not in order]
        rows = []
        for j, network in enumerate(sites.networks):
            units = {done: own[j] for done, own in known.items()}
            wide = np.moveaxis(side.spread(network, inner, units, widths), side.dimension, 0)
            shape = parts[0].shape(network.sizes)
            own = wide.reshape(*shape, -1).transpose(*order, len(shape))
            rows.append(own.reshape(*own.shape[:2], -1, own.shape[-1]))
        found.append(rows)
    return found


def _mixed_rows(sites: Sites, group: str, inner: str, matched: Assignments) -> list[list[Array]]:
    """For each site (units, inner units, D): what the order of the other inner groups leaves."""
    sides = _mixed_sides(sites, group, inner, matched)
    rng = np.random.default_rng(SKETCH_SEED)
    short = [_sketched(side, rng) for side in sides]
    pairs = [(short[0], other) for other in short[1:] or short] if short else []
    return [
        [
            np.einsum("hiea,hieb->hiab", a, b).reshape(*a.shape[:2], -1)
            for a, b in zip(one, two, strict=True)
        ]
        for one, two in pairs
    ]


def _products(sites: Sites, group: str, inner: str, matched: Assignments) -> list[list[Array]]:
    """What the order of inner units does not change, as large as the weights it is made of."""
    sides = _inner_sides(sites, group, inner, matched)
    if not sides:
        mixed = _mixed_sides(sites, group, inner, matched)
        sides = [[own.reshape(len(own), -1, own.shape[-1]) for own in rows] for rows in mixed]
    if not sides:
        return [[] for _ in sites.networks]
    rng = np.random.default_rng(SKETCH_SEED)
    short = [_sketched(side, rng) for side in sides]
    pairs = [(short[0], other) for other in short[1:]] or [(short[0], short[0])]
    result: list[list[Array]] = [[] for _ in sites.networks]
    for one, two in pairs:
        products = [np.einsum("hda,hdb->hab", a, b) for a, b in zip(one, two, strict=True)]
        size = np.mean([np.square(a).sum() / len(a) for a in (*one, *two)])
        norm = np.mean([np.square(p).sum() / len(p) for p in products])
        scale = np.sqrt(2 * size / norm) if norm > 0 else 0.0
        for own, product in zip(result, products, strict=True):
            own.append(scale * product.reshape(len(product), -1))
    return result


def _sketched(side: Sequence[Array], rng: np.random.Generator) -> list[Array]:
    """A side with at most so many columns, the same sums at every site."""
    columns = side[0].shape[-1]
    if columns <= SKETCH:
        return list(side)
    signs = rng.choice([-1.0, 1.0], size=(columns, SKETCH)) / np.sqrt(SKETCH)
    return [own @ signs for own in side]


def inner_assignments(
    sites: Sites, group: str, matched: Assignments
) -> dict[str, tuple[IntArray, ...]]:
    """The order of every group within a matched one: of each site (units, inner units)."""
    graph = sites.networks[0].graph
    known = dict(_without_mixed(graph, group, matched))
    found: dict[str, tuple[IntArray, ...]] = {}
    for inner in graph.inner_of(group):
        sides = _inner_sides(sites, group, inner, known)
        sides = sides or _mixed_rows(sites, group, inner, known)
        size = graph.constant[inner]
        if sides:
            columns = [np.concatenate(own, axis=2) for own in zip(*sides, strict=True)]
            found[inner] = _in_common_order(columns, matched[group])
        else:
            found[inner] = tuple(np.tile(np.arange(size), (len(own), 1)) for own in matched[group])
        known[inner] = found[inner]
    return found


def _in_common_order(
    columns: Sequence[Array], assignments: Sequence[IntArray]
) -> tuple[IntArray, ...]:
    """Inner units (units, inner, D) of every site, each beside those of the others it is like."""
    shape = (width_of(assignments), *columns[0].shape[1:])
    sums, counts = np.zeros(shape), np.zeros(shape[0], dtype=int)
    orders = [np.tile(np.arange(shape[1]), (len(own), 1)) for own in assignments]
    for sweep in range(INNER_SWEEPS):
        for own, places, order in zip(columns, assignments, orders, strict=True):
            for unit, place in enumerate(places):
                if sweep:
                    sums[place][order[unit]] -= own[unit]
                    counts[place] -= 1
                if counts[place]:
                    likeness = own[unit] @ sums[place].T
                    order[unit] = scipy.optimize.linear_sum_assignment(likeness, maximize=True)[1]
                sums[place][order[unit]] += own[unit]
                counts[place] += 1
    return tuple(orders)
