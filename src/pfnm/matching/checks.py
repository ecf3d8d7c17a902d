"""What `match` is given, in the form it works with, or an error that names what is wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from pfnm.errors import PFNMError
from pfnm.matching.prior import Prior
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Array


def checked_atoms(atoms: Sequence[ArrayLike], dtype: DTypeLike = float) -> list[Array]:
    """Each site's atoms as (units, D)."""
    if len(atoms) == 0:
        raise PFNMError("no sites: give at least one array (units, dimensions)")
    vectors = [np.asarray(v, dtype=dtype) for v in atoms]
    for j, v in enumerate(vectors):
        if v.ndim != 2 or 0 in v.shape:
            raise PFNMError(f"site {j}: atoms have shape {v.shape}, expected (units, dimensions)")
        if v.shape[1] != vectors[0].shape[1]:
            raise PFNMError(
                f"site {j}: atoms have {v.shape[1]} dimensions, site 0 has {vectors[0].shape[1]}"
            )
        if not np.isfinite(v).all():
            raise PFNMError(f"site {j}: atoms hold NaN or infinite values")
    return vectors


def checked_precisions(
    precisions: Sequence[ArrayLike] | None, vectors: Sequence[Array], prior: Prior
) -> Array:
    """The precisions of all sites as (J, D); by default the prior's."""
    shape = (len(vectors), vectors[0].shape[1])
    if precisions is None:
        return np.broadcast_to(1 / prior.site_variances(shape[0])[:, None], shape)
    if len(precisions) != shape[0]:
        raise PFNMError(f"precisions of {len(precisions)} sites for {shape[0]} sites")
    seen = np.empty(shape)
    for j, p in enumerate(precisions):
        try:
            seen[j] = p
        except ValueError:
            raise PFNMError(
                f"site {j}: precisions of shape {np.shape(p)}, expected one number or ({shape[1]},)"
            ) from None
    if not (np.isfinite(seen).all() and (seen >= 0).all()):
        raise PFNMError("a precision is negative or not finite; 1 / variance is expected")
    return seen


def checked_mean(prior_mean: ArrayLike, dimensions: int) -> Array:
    """The prior mean of every dimension: (D,)."""
    mean = np.empty(dimensions)
    try:
        mean[:] = prior_mean
    except ValueError:
        raise PFNMError(
            f"prior_mean has shape {np.shape(prior_mean)}, expected a number or ({dimensions},)"
        ) from None
    return mean


def checked_start(start: Sequence[ArrayLike], widths: Sequence[int]) -> list[IntArray]:
    """Assignments to start from, one array a site."""
    if len(start) != len(widths):
        raise PFNMError(f"assignments of {len(start)} sites to start from, for {len(widths)} sites")
    assignments = [np.asarray(a, dtype=np.intp) for a in start]
    for j, (assignment, width) in enumerate(zip(assignments, widths, strict=True)):
        if assignment.shape != (width,):
            raise PFNMError(
                f"site {j}: {assignment.size} assignments to start from, for {width} units"
            )
        if assignment.min() < 0 or np.unique(assignment).size < assignment.size:
            raise PFNMError(
                f"site {j}: assignments to start from must be distinct and not negative"
            )
    return assignments
