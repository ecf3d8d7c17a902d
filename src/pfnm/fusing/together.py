"""Pieces of work that need nothing of each other, done at once, each in a thread of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from threading import Lock
from typing import TypeVar

Result = TypeVar("Result")


@dataclass
class Steps:
    """What work that is done at once tells of its steps, one at a time."""

    on_step: Callable[[], None] | None = None
    over: bool = False
    """Nobody waits for the work any more: it ends where it next tells or asks."""
    lock: Lock = field(default_factory=Lock)

    def __call__(self) -> None:
        """One more step is done."""
        with self.lock:
            self.go_on()
            if self.on_step is not None:
                self.on_step()

    def go_on(self) -> None:
        """Ends the work that asks, if it is over."""
        if self.over:
            raise CancelledError


def at_once(work: Iterable[Callable[[], Result]], pieces: int, steps: Steps) -> Iterator[Result]:
    """What each piece of work gives, in their order, so many of them being done at once.

    With one, each is done when its result is asked for. A piece that fails, or Ctrl-C, ends the
    others where they next tell `steps` or ask it.

    >>> list(at_once([lambda: 1, lambda: 2], 2, Steps()))
    [1, 2]
    """
    if pieces == 1:
        for piece in work:
            yield piece()
        return

    def done(piece: Callable[[], Result]) -> Result:
        try:
            return piece()
        except BaseException:
            steps.over = True
            raise

    begun: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(pieces) as pool:
        try:
            # Each in a context of its own: what holds for the caller (numpy's errors) holds there.
            begun.extend(pool.submit(copy_context().run, done, piece) for piece in work)
            while begun:
                yield begun[0].result()
                begun.popleft()
        except BaseException as error:
            steps.over = True
            pool.shutdown(cancel_futures=True)
            raise _cause(begun) or error from None


def _cause(ended: Iterable[Future[Result]]) -> BaseException | None:
    """Why work ended: the first error that is not the end of the others."""
    errors = (future.exception() for future in ended if not future.cancelled())
    return next((own for own in errors if own and not isinstance(own, CancelledError)), None)
