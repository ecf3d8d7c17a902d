"""The rounds of the lab across real sites, on Flower: a strategy, and a client that trains."""

from pfnm.errors import PFNMError

try:
    import flwr  # noqa: F401
except ImportError:
    raise PFNMError("Flower is not installed; install it with pip install 'pfnm[flower]'") from None

from pfnm.flower.client import client_app
from pfnm.flower.strategy import PFNMStrategy

__all__ = ["PFNMStrategy", "client_app"]
