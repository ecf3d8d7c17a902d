"""Commands in processes of their own, forked from one that has loaded the libraries.

Killed, limited and run beside each other like any process, but not three seconds later.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection

HEAVY = ["pfnm.cli", "matplotlib.figure", "sklearn.datasets", "torch"]  # loaded once
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(HEAVY)
PATIENCE = 200  # seconds without a word or an end


class Forked:
    """A function that runs in such a process.

    most: no file becomes larger, as on a full disk.
    """

    def __init__(
        self, function: Callable[..., None], *arguments: object, most: int | None = None
    ) -> None:
        self.errors, theirs = CONTEXT.Pipe(duplex=False)
        self.process = CONTEXT.Process(target=call, args=(theirs, most, function, *arguments))
        self.process.start()
        theirs.close()

    def kill(self) -> None:
        """As by SIGKILL."""
        self.process.kill()
        self.process.join()

    def ended(self) -> tuple[int, str]:
        """Its status and what it said of errors, once it has ended."""
        said = b""
        while self.errors.poll(PATIENCE) and (more := os.read(self.errors.fileno(), 2**16)):
            said += more
        self.process.join(PATIENCE)
        assert self.process.exitcode is not None, "it does not end"
        return self.process.exitcode, said.decode()


def call(
    errors: Connection, most: int | None, function: Callable[..., None], *arguments: object
) -> None:
    """What such a process does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(errors.fileno(), 2)
    errors.close()
    if most is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    function(*arguments)


def command(words: list[str]) -> None:
    """The command line."""
    sys.argv = ["pfnm", *words]
    from pfnm.cli import main

    main()


def started(*words: object, most: int | None = None) -> Forked:
    """A command that runs."""
    return Forked(command, [str(word) for word in words], most=most)
