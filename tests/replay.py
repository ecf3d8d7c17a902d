"""Visiting orders given beforehand, so that a test decides which site steps when."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from pfnm.networks.graph import IntArray


class Replay(np.random.Generator):
    """A generator whose permutations are the given orders, one after the other."""

    def __init__(self, orders: Iterable[IntArray | list[int]]) -> None:
        super().__init__(np.random.PCG64(0))
        self.orders = iter(orders)

    def permutation(self, x: Any, axis: int = 0) -> Any:
        return np.asarray(next(self.orders))
