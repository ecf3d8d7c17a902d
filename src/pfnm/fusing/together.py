"""Pieces of work that need nothing of each other, done at once, each in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from threading import Lock
from typing import TypeVar

Result = TypeVar("Result")


@dataclass
class Steps:
    """Told of every step of work that is done at once, one step at a time."""

    on_step: Callable[[], None] | None
    over: bool = False
    """Nobody waits for the work any more: it ends at its next step."""
    lock: Lock = field(default_factory=Lock)

    def __call__(self) -> None:
        """One more step is done."""
        with self.lock:
            if self.over:
                raise CancelledError
            if self.on_step is not None:
                self.on_step()


def at_once(
    work: Iterable[Callable[[], Result]], pieces: int, steps: Steps | None = None
) -> Iterator[Result]:
    """What each piece of work gives, in their order, so many of them being done at once.

    With one, each is done when its result is asked for. steps: what the work tells of its steps,
    by which it ends early if its results are no longer asked for.

    >>> list(at_once([lambda: 1, lambda: 2], 2))
    [1, 2]
    """
    if pieces == 1:
        for piece in work:
            yield piece()
        return
    with ThreadPoolExecutor(pieces) as pool:
        # Each in a context of its own: what holds for the caller (numpy's errors) holds there too.
        begun = [pool.submit(copy_context().run, piece) for piece in work]
        try:
            for future in begun:
                yield future.result()
        except BaseException:  # the user's Ctrl-C too
            if steps is not None:
                steps.over = True
            pool.shutdown(wait=False, cancel_futures=True)
            raise
