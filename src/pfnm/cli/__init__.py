"""The command line: parse, call, print."""

from __future__ import annotations

import io
import os
import signal
import sys
import warnings
from types import FrameType
from typing import Any, cast

import typer

from pfnm import threads

from pfnm.cli import fusing, files, lab, experiments  # noqa: F401  # isort: skip  (their commands, in help's order)
from pfnm.cli.console import app, errors
from pfnm.core.errors import PFNMError, PFNMWarning

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
TERMINATED = 143


def _terminate(signal_number: int, frame: FrameType | None) -> None:
    raise SystemExit(TERMINATED)


def main() -> None:
    """Run the command line: bad input is one line and exit status 2."""
    signal.signal(signal.SIGTERM, _terminate)
    warnings.simplefilter("ignore", PFNMWarning)  # the commands tell them, in a line each
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for names that are no proper text
    # click's class, wherever this version of typer keeps it
    usage_error = cast(type[Exception], typer.BadParameter.__mro__[2])
    try:
        with threads.waiting_briefly(), threads.limited():
            status = app(args=sys.argv[1:] or ["--help"], standalone_mode=False)
        print(end="", flush=True)
    except PFNMError as error:
        say(str(error))
        status = BAD_INPUT
    except usage_error as error:
        say(f"{cast(Any, error).format_message()} (try --help)")
        status = BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except OSError as error:
        status = output_failed(error)
    if status == INTERRUPTED:
        say("interrupted")
    sys.exit(status)


def say(message: str) -> None:
    """One line on standard error, whatever stands in the message."""
    errors.print("pfnm:", " ".join(message.split()))


def output_failed(error: OSError) -> int:
    """A closed pipe ends quietly, for its reader has enough; a full disk is told."""
    # What is left unwritten would fail once more when the interpreter ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if not isinstance(error, BrokenPipeError):
        say(f"{error.filename or 'output'}: cannot be written ({error.strerror}); make room there")
    return FAILED
