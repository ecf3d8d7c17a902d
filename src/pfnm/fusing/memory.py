"""Memory that large networks no longer need, given back while more is asked for."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

from pfnm.networks.network import Network


@cache
def _trim() -> Any:
    """The C library's own function, where it has one (GNU's)."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None


def give_back(network: Network) -> None:
    """Free memory goes back to the system; else arrays that are gone count beside their successors.

    Of modules only, which may be large. Half a millisecond, and it changes no number.
    """
    trim = _trim() if network.program.examples is not None else None
    if trim is not None:
        trim(0)
