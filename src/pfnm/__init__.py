"""Networks trained apart, on data that cannot be pooled, become one compact network."""

from pfnm.api import Check, check, fuse
from pfnm.core.errors import PFNMError, PFNMWarning
from pfnm.core.fusion import Fusion
from pfnm.core.matching import Matching, match
from pfnm.core.network import Axis, Network, UnitGraph
from pfnm.core.prior import Prior
from pfnm.formats import load, save
from pfnm.polishing import polish

__all__ = [
    "Axis",
    "Check",
    "Fusion",
    "Matching",
    "Network",
    "PFNMError",
    "PFNMWarning",
    "Prior",
    "UnitGraph",
    "check",
    "fuse",
    "load",
    "match",
    "polish",
    "save",
]
