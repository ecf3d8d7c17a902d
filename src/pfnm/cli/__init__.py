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

from pfnm.cli import fusing, many, files, lab, experiments, report  # noqa: F401  # isort: skip  (their commands, in help's order)
from pfnm.cli.console import app, errors
from pfnm.errors import PFNMError

CLOSED_PIPE = 1
BAD_INPUT = 2
INTERRUPTED = 130
TERMINATED = 143
TORCH_OUT_OF_MEMORY = "can't allocate memory"  # PyTorch has no class for it


def _terminate(signal_number: int, frame: FrameType | None) -> None:
    raise SystemExit(TERMINATED)


def main() -> None:
    """Run the command line: bad input is one line and exit status 2."""
    signal.signal(signal.SIGTERM, _terminate)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # the commands tell ours, in a line each
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for names that are no proper text
    # click's class, wherever this version of typer keeps it
    usage_error = cast(type[Exception], typer.BadParameter.__mro__[2])
    try:
        with threads.waiting_briefly(), threads.limited(early=True):
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
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and TORCH_OUT_OF_MEMORY not in str(error):
            raise
        say("there is not enough memory for this; give it smaller files, or fewer at a time")
        status = BAD_INPUT
    except OSError as error:
        status = failed(error)
    if status == INTERRUPTED:
        say("interrupted")
    sys.exit(status)


def say(message: str) -> None:
    """One line on standard error, whatever stands in the message."""
    errors.print("pfnm:", " ".join(message.split()))


def failed(error: OSError) -> int:
    """A file that cannot be used is told, as is a full disk behind standard output; a closed pipe
    ends quietly, for its reader has enough.
    """
    if error.filename is not None:
        say(f"{error.filename}: cannot be used ({error.strerror}); check the path")
        return BAD_INPUT
    # What is left unwritten would fail once more when the interpreter ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if isinstance(error, BrokenPipeError):
        return CLOSED_PIPE
    say(f"output: cannot be written ({error.strerror or error}); make room there")
    return BAD_INPUT
