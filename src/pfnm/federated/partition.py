"""Which site holds which examples."""

from __future__ import annotations

import numpy as np

from pfnm.core.errors import PFNMError
from pfnm.core.network import IntArray

MAX_DRAWS = 1000  # draws before giving up on every site having enough examples


def dirichlet(
    labels: IntArray, sites: int, alpha: float, rng: np.random.Generator, at_least: int = 1
) -> list[IntArray]:
    """For each class, proportions over the sites from Dir(alpha): the smaller, the more uneven.

    Drawn again until every site has `at_least` examples. Returns each site's positions.
    """
    for _ in range(MAX_DRAWS):
        parts: list[list[IntArray]] = [[] for _ in range(sites)]
        for label in np.unique(labels):
            members = rng.permutation(np.flatnonzero(labels == label))
            shares = rng.dirichlet(np.full(sites, alpha))
            cuts = np.round(np.cumsum(shares)[:-1] * members.size).astype(int)
            for part, piece in zip(parts, np.split(members, cuts), strict=True):
                part.append(piece)
        split = [np.sort(np.concatenate(part)) for part in parts]
        if min(part.size for part in split) >= at_least:
            return split
    raise PFNMError(
        f"no split of {labels.size} examples gave each of {sites} sites {at_least}; use fewer "
        "sites or a larger alpha"
    )


def homogeneous(labels: IntArray, sites: int, rng: np.random.Generator) -> list[IntArray]:
    """Every class split evenly over the sites. Returns each site's positions."""
    parts: list[list[IntArray]] = [[] for _ in range(sites)]
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        for part, piece in zip(parts, np.array_split(members, sites), strict=True):
            part.append(piece)
    return [np.sort(np.concatenate(part)) for part in parts]
