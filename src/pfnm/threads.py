"""How many threads work at one product, and what a thread does while it waits.

The products of a fusion are small. Shared out between threads they gain little on a quiet machine;
beside other work they lose much, because each thread waits for the slowest, spinning as it waits.
So one thread does a product, two where it is large and PyTorch's, unless more are asked for; these
then spin only briefly, where that can be chosen (benchmarks/busy.py). What shares are larger pieces
of work that need nothing of each other (fusing/together.py): nobody waits before the end.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

from pfnm.errors import PFNMError

USUAL_THREADS = 1  # two are no faster on a fusion's products, and at polish's batches a tenth
PIECES = 2  # of work that are done at once
LARGE_THREADS = 2  # of PyTorch's, for products of a thousand rows: nearly twice as fast
# Tens of microseconds. To sleep at once doubles the time of polish's steps on a quiet machine; to
# spin as long as is usual (milliseconds) takes the processor from whoever is waited for.
BRIEF = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1"}  # GNU's OpenMP; Intel's and LLVM's
CHOSEN = (*BRIEF, "OMP_WAIT_POLICY")  # by the user, where one of these is set


@contextmanager
def waiting_briefly() -> Iterator[None]:
    """PyTorch's threads spin only briefly, if it is loaded within; what the user has set stays."""
    if any(name in os.environ for name in CHOSEN):
        yield
        return
    os.environ.update(BRIEF)
    try:
        yield
    finally:
        for name in BRIEF:
            os.environ.pop(name, None)


@contextmanager
def limited(
    number: int | None = None, *, torch: int | None = None, early: bool = False
) -> Iterator[None]:
    """Within, so many threads work at one product; afterwards, as many as before.

    number: None is as many as a `limited` around this one says, or one. torch: another number for
    PyTorch, which has to be loaded when this is entered, or goes on with its own. early: scipy need
    not be loaded for this, which takes a while; a `limited` within does that.

    >>> with limited(1):
    ...     print(in_use()["blas"])
    1
    """
    for one in (number, torch):
        if one is not None and one < 1:
            raise PFNMError(f"threads is {one}, expected at least 1")
    if not early:
        import scipy.linalg  # noqa: F401  (so that its library is there to be found)
    call = object()
    with _PRESENT.lock:
        blas_outside, torch_outside = _PRESENT.last
        _PRESENT.wanted[call] = (number or blas_outside, torch or number or torch_outside)
        _PRESENT.set()
    try:
        yield
    finally:
        with _PRESENT.lock:
            del _PRESENT.wanted[call]
            _PRESENT.set()


@contextmanager
def one_of_torch() -> Iterator[None]:
    """Within, one thread of PyTorch's works at a product, unless a `limited` around says more.

    A module has many small operations: beside other work, two threads wait at each of them.
    """
    with _of_torch(USUAL_THREADS):
        yield


@contextmanager
def for_large_products() -> Iterator[None]:
    """Within, two of PyTorch's threads share a product, unless a `limited` around says a number.

    Who has chosen one keeps it.
    """
    with _of_torch(LARGE_THREADS):
        yield


@contextmanager
def _of_torch(usual: int) -> Iterator[None]:
    _, told = _PRESENT.last
    with limited(torch=told or min(usual, _PRESENT.most_of_torch)):
        yield


def pieces_at_once() -> int:
    """As many as usual, or one if a number of threads was told: that is for each product."""
    told, _ = _PRESENT.last
    return PIECES if told is None else 1


def in_use() -> dict[str, int]:
    """How many threads work at one product now: "blas", and "torch" if it is loaded."""
    blas = {"blas": max((lib.num_threads for lib in _libraries()), default=1)}
    torch = sys.modules.get("torch")
    return blas if torch is None else {**blas, "torch": torch.get_num_threads()}


def _libraries() -> list[Any]:
    """The linear algebra of numpy and, once it is loaded, of scipy (one each)."""
    return _libraries_with("scipy.linalg" in sys.modules)


@cache
def _libraries_with(scipy: bool) -> list[Any]:
    found: list[Any] = ThreadpoolController().select(user_api="blas").lib_controllers
    return found


@dataclass
class _Present:
    """What holds for the whole process, as the libraries' numbers do.

    Threads of the user's may come and go in any order: what was there before the first is
    restored when the last has left.
    """

    lock: Lock = field(default_factory=Lock)
    wanted: dict[object, tuple[int | None, int | None]] = field(default_factory=dict)
    """By call, the last one last: threads of the linear algebra, and of PyTorch."""
    blas_before: dict[str, int] = field(default_factory=dict)
    """By file: as many as it had."""
    torch_before: int | None = None

    @property
    def last(self) -> tuple[int | None, int | None]:
        return next(reversed(self.wanted.values()), (None, None))

    @property
    def most_of_torch(self) -> int:
        """As many of PyTorch's as the user has chosen; one before it is loaded."""
        torch = sys.modules.get("torch")
        if self.torch_before is None and torch is not None:
            return int(torch.get_num_threads())
        return self.torch_before or 1

    def set(self) -> None:
        """As the last call wants it; as it was, if there is none."""
        blas, of_torch = self.last
        for library in _libraries():
            before = self.blas_before.setdefault(library.filepath, library.num_threads)
            library.set_num_threads((blas or USUAL_THREADS) if self.wanted else before)
        torch = sys.modules.get("torch")
        if torch is not None:
            if self.torch_before is None:
                self.torch_before = torch.get_num_threads()
            wanted = (of_torch or USUAL_THREADS) if self.wanted else self.torch_before
            torch.set_num_threads(wanted)
        if not self.wanted:
            self.blas_before, self.torch_before = {}, None


_PRESENT = _Present()
