"""Which site holds which examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from pfnm.errors import PFNMError
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array

Shares = Callable[[IntArray], Array]
"""From what each site holds so far to the proportions of the next class, (J,)."""

MAX_DRAWS = 1000  # draws before giving up on every site having enough examples
LEAST_EXAMPLES = 10  # at every site, as the authors' code has it


def homogeneous(labels: IntArray, sites: int, rng: np.random.Generator) -> list[IntArray]:
    """Every class split evenly over the sites. Returns each site's positions."""
    parts: list[list[IntArray]] = [[] for _ in range(sites)]
    for members in _by_class(labels, rng):
        for part, piece in zip(parts, np.array_split(members, sites), strict=True):
            part.append(piece)
    return [np.sort(np.concatenate(part)) for part in parts]


def dirichlet(
    labels: IntArray,
    sites: int,
    alpha: float,
    rng: np.random.Generator,
    at_least: int = 1,
    *,
    capped: bool = False,
) -> list[IntArray]:
    """For each class, proportions over the sites from Dir(alpha): the smaller, the more uneven.

    Drawn again until every site has `at_least` examples. capped: as in the authors' code, a site
    that holds its even share (N / J examples) already gets nothing of the classes that follow.
    """

    def shares_of(held: IntArray) -> Array:
        shares: Array = rng.dirichlet(np.full(sites, alpha))
        return shares * (held < labels.size / sites) if capped else shares

    return _drawn(labels, sites, alpha, rng, at_least, lambda: shares_of)


def by_label(labels: IntArray, sites: int, rng: np.random.Generator) -> list[IntArray]:
    """Each site has few classes: examples in the order of their class, cut into two pieces a site.

    The pieces are dealt out at random.
    """
    ordered = np.concatenate(list(_by_class(labels, rng)))
    pieces = np.array_split(ordered, 2 * sites)
    dealt = rng.permutation(2 * sites)
    return [
        np.sort(np.concatenate([pieces[dealt[2 * j]], pieces[dealt[2 * j + 1]]]))
        for j in range(sites)
    ]


def by_size(
    labels: IntArray, sites: int, alpha: float, rng: np.random.Generator, at_least: int = 1
) -> list[IntArray]:
    """Sites of different size, Dir(alpha), each with all classes as everybody has them."""

    def drawing() -> Shares:
        shares: Array = rng.dirichlet(np.full(sites, alpha))
        return lambda held: shares

    return _drawn(labels, sites, alpha, rng, at_least, drawing)


def _drawn(
    labels: IntArray,
    sites: int,
    alpha: float,
    rng: np.random.Generator,
    at_least: int,
    drawing: Callable[[], Shares],
) -> list[IntArray]:
    """Class after class cut by its shares, drawn again until all sites have enough."""
    if not alpha > 0:
        raise PFNMError(f"alpha is {alpha}, expected a positive number")
    if sites * at_least > labels.size:
        raise PFNMError(f"{labels.size} examples are too few for {sites} sites; use fewer")
    for _ in range(MAX_DRAWS):
        shares_of = drawing()
        parts: list[list[IntArray]] = [[] for _ in range(sites)]
        for members in _by_class(labels, rng):
            shares = shares_of(np.array([sum(piece.size for piece in part) for part in parts]))
            cuts = np.round(np.cumsum(shares / shares.sum())[:-1] * members.size).astype(int)
            for part, piece in zip(parts, np.split(members, cuts), strict=True):
                part.append(piece)
        split = [np.sort(np.concatenate(part)) for part in parts]
        if min(part.size for part in split) >= at_least:
            return split
    raise PFNMError(
        f"no split of {labels.size} examples gave each of {sites} sites {at_least}; use fewer "
        "sites or a larger alpha"
    )


def _by_class(labels: IntArray, rng: np.random.Generator) -> Iterator[IntArray]:
    """The positions of each class in random order."""
    for label in np.unique(labels):
        yield rng.permutation(np.flatnonzero(labels == label))


def split(
    name: str, labels: IntArray, sites: int, rng: np.random.Generator, alpha: float = 0.5
) -> list[IntArray]:
    """A partition by its name, one of PARTITIONS; every site has some examples."""
    if name not in PARTITIONS:
        raise PFNMError(f"unknown split {name!r}; choose one of {', '.join(PARTITIONS)}")
    parts = PARTITIONS[name](labels, sites, alpha, rng)
    if min(part.size for part in parts) == 0:
        raise PFNMError(f"{labels.size} examples are too few for {sites} sites; use fewer")
    return parts


PARTITIONS: dict[str, Callable[[IntArray, int, float, np.random.Generator], list[IntArray]]] = {
    "even": lambda labels, sites, alpha, rng: homogeneous(labels, sites, rng),
    "dirichlet": lambda labels, sites, alpha, rng: dirichlet(
        labels, sites, alpha, rng, LEAST_EXAMPLES
    ),
    "authors": lambda labels, sites, alpha, rng: dirichlet(
        labels, sites, alpha, rng, LEAST_EXAMPLES, capped=True
    ),
    "labels": lambda labels, sites, alpha, rng: by_label(labels, sites, rng),
    "sizes": lambda labels, sites, alpha, rng: by_size(labels, sites, alpha, rng, LEAST_EXAMPLES),
}
