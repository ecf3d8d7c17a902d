"""Networks trained apart, on data that cannot be pooled, become one compact network."""

from importlib.metadata import version

from pfnm.api import check, fuse
from pfnm.conversion import as_sites
from pfnm.core.errors import PFNMError, PFNMWarning
from pfnm.core.kinds import Pictures, Signals, Table
from pfnm.core.matching import Matching, match
from pfnm.core.network import Axis, Network, UnitGraph
from pfnm.core.prior import Prior
from pfnm.core.sites import Sites
from pfnm.formats import load, save
from pfnm.fusion import Check, Fusion

__version__ = version("pfnm")

__all__ = [
    "Axis",
    "Check",
    "Fusion",
    "Matching",
    "Network",
    "PFNMError",
    "PFNMWarning",
    "Pictures",
    "Prior",
    "Signals",
    "Sites",
    "Table",
    "UnitGraph",
    "as_sites",
    "check",
    "fuse",
    "load",
    "match",
    "save",
]
