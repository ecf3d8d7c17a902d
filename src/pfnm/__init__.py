"""Networks trained apart, on data that cannot be pooled, become one compact network."""

from importlib.metadata import version

from pfnm.api import check, fuse, load, shuffled, trace
from pfnm.conversion import as_sites
from pfnm.errors import PFNMError, PFNMWarning
from pfnm.formats import save
from pfnm.fusing.kinds import Pictures, Signals, Table
from pfnm.fusing.sites import Sites
from pfnm.fusing.tokens import Tokens
from pfnm.fusion import Check, Fusion
from pfnm.many import ManyFusion, fuse_many
from pfnm.matching.matching import Matching, match
from pfnm.matching.prior import Prior
from pfnm.networks.graph import Axis, UnitGraph
from pfnm.networks.network import Network

__version__ = version("pfnm")

__all__ = [
    "Axis",
    "Check",
    "Fusion",
    "ManyFusion",
    "Matching",
    "Network",
    "PFNMError",
    "PFNMWarning",
    "Pictures",
    "Prior",
    "Signals",
    "Sites",
    "Table",
    "Tokens",
    "UnitGraph",
    "as_sites",
    "check",
    "fuse",
    "fuse_many",
    "load",
    "match",
    "save",
    "shuffled",
    "trace",
]
