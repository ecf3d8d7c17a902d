"""Made-up text: tokens at random, or as the sites' own language models write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from pfnm.errors import PFNMError
from pfnm.fusing.inputs import InputRange, Inputs
from pfnm.networks.graph import OUTPUT, IntArray
from pfnm.networks.network import Network, Tensor

WRITTEN = 288  # sequences that the sites write together, and that are drawn from for every purpose
JUDGES = 3  # one in so many judges, and does nothing else
MOST_TOKENS = 40_000  # in all of them
TRIED = 4  # sequences by which it is seen whether a network writes
SEED = 0


@dataclass(frozen=True)
class Tokens:
    """Whole numbers below `vocabulary`, each as likely as any other.

    Examples
    --------
    >>> Tokens(96).within.high
    95
    """

    vocabulary: int

    def __post_init__(self) -> None:
        if isinstance(self.vocabulary, bool) or not isinstance(self.vocabulary, int | np.integer):
            raise PFNMError(f"Tokens of {self.vocabulary!r}: expected how many there are")
        if self.vocabulary < 2:
            raise PFNMError(f"Tokens of {self.vocabulary}: expected at least 2")

    @property
    def within(self) -> InputRange:
        """From 0 to the last."""
        return InputRange(0, self.vocabulary - 1)

    def make(self, networks: Sequence[Network], count: int, rng: np.random.Generator) -> Tensor:
        """Inputs (count, length)."""
        drawn = rng.integers(self.vocabulary, size=(count, networks[0].numbers))
        return drawn.astype(np.float32)

    def __str__(self) -> str:
        return f"tokens of {self.vocabulary}"


@dataclass(frozen=True, eq=False)
class Written:
    """Text that the sites' language models write, token by token: like what they were trained on.

    It is written once, and drawn from for every purpose: at most as many sequences as there are.
    Some of it does nothing but judge: to what it was fitted or taught on, a network answers too
    well.
    """

    kind: Inputs
    sites: Sequence[Network]

    @property
    def within(self) -> InputRange:
        """Between which values tokens lie."""
        return self.kind.within

    def make(self, networks: Sequence[Network], count: int, rng: np.random.Generator) -> Tensor:
        """Inputs (at most count, length)."""
        taught = np.delete(self.pool, np.s_[::JUDGES], axis=0)
        return np.asarray(taught[rng.permutation(len(taught))[:count]])

    def make_to_judge(
        self, networks: Sequence[Network], count: int, rng: np.random.Generator
    ) -> Tensor:
        """Of those that do nothing else."""
        judges = self.pool[::JUDGES]
        return judges[rng.permutation(len(judges))[:count]]

    @cached_property
    def pool(self) -> Tensor:
        """All that was written."""
        rng = np.random.default_rng(SEED)
        count = int(np.clip(MOST_TOKENS // self.sites[0].numbers, len(self.sites), WRITTEN))
        each = -(-count // len(self.sites))
        return np.concatenate([self._written(network, each, rng) for network in self.sites])

    def _written(self, network: Network, count: int, rng: np.random.Generator) -> Tensor:
        """Sequences of one site: each token by what the site says of it after those before it."""
        text = self.kind.make([network], count, rng)
        length, tokens = text.shape[1], int(np.max(self.within.high)) + 1
        for place in range(1, length):
            outputs = network.run(text).reshape(count, length, -1)[:, place - 1, :tokens]
            text[:, place] = _drawn(outputs, rng)
        return text

    def __str__(self) -> str:
        return f"written by the sites, {self.kind}"


def _drawn(outputs: Tensor, rng: np.random.Generator) -> IntArray:
    """One class for each row of outputs, by its probability."""
    likely = scipy.special.softmax(outputs.astype(float), axis=1)
    passed = likely.cumsum(axis=1) < rng.uniform(size=(len(outputs), 1))
    found: IntArray = np.minimum(passed.sum(axis=1), outputs.shape[1] - 1)
    return found


def writes(network: Network, kind: Inputs) -> bool:
    """Whether it is a language model: outputs for every place, from what stands before it alone.

    Seen by trying: a class for each token at each place, which what comes later does not change.
    """
    rng = np.random.default_rng(SEED)
    text = kind.make([network], TRIED, rng)
    vocabulary, length = int(np.max(kind.within.high)) + 1, text.shape[1]
    if network.sizes[OUTPUT] < vocabulary or length < 2:
        return False
    outputs = network.run(text)
    if len(outputs) != text.size:
        return False
    text[:, -1] = (text[:, -1] + 1) % vocabulary
    before, after = (o.reshape(TRIED, length, -1) for o in (outputs, network.run(text)))
    return np.allclose(before[:, :-1], after[:, :-1], atol=1e-5)
