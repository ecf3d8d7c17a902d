"""The one exception class of pfnm, and its one class of warnings."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


class PFNMError(ValueError):
    """Something pfnm was given cannot be used.

    The message is one line: the object (file, site, tensor), what was found, what was expected,
    and what to do.
    """


class PFNMWarning(UserWarning):
    """A result may be less than it seems. The message says why, and what to do."""


@contextmanager
def overflow_named() -> Iterator[None]:
    """An error instead of infinities where numbers leave the range of floating point."""
    try:
        with np.errstate(over="raise", invalid="raise"):
            yield
    except FloatingPointError:
        raise PFNMError(
            "the scores overflow: some weights, variances or site weights are far too large or "
            "small; look at the sites' files with `pfnm inspect`"
        ) from None
