"""What all commands share: the app, where they print, how they show progress."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text
from typer.core import TyperArgument

from pfnm.pages.text import finite

UNWRAPPED = 100_000  # characters: what a pipe reads is not wrapped
LARGEST_SEED = 2**31 - 1  # which every library takes
MOST_THREADS = 1024  # with many more a library may fail to start them, and end the process

# What would move the cursor, colour, ring, break a line, or turn the direction of what follows; and
# halves of characters, which cannot be written.
COMMANDING = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


class Explained(TyperArgument):
    """An argument that keeps what it is for: click 8.5 empties it in typer's own, whose constructor
    sets it before it calls click's.
    """

    def __init__(self, *, help: str | None = None, **more: Any) -> None:
        super().__init__(help=help, **more)
        self.help = help


typer.main.TyperArgument = Explained  # type: ignore[attr-defined]  # commands are made of it


app = typer.Typer(
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"pfnm {version('pfnm')}")
        raise typer.Exit


@app.callback()
def everywhere(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version, and stop."
        ),
    ] = False,
) -> None:
    """Networks trained apart, on data that cannot be pooled, become one compact network."""


def escaped(text: str) -> str:
    """The text with what commands a terminal in Python's notation: it may come out of a file."""
    return COMMANDING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class Escaping(Console):
    """A console that escapes every string, be it printed alone or in a table's cell."""

    def render_str(self, text: str, **how: Any) -> Text:
        """What rich makes of a string, wherever it stands."""
        return super().render_str(escaped(text), **how)


# Names and labels are printed as they are: brackets in them are no markup, colons no emoji.
errors = Escaping(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)
out = Escaping(highlight=False, markup=False, emoji=False)
if not out.is_terminal:
    out.width = UNWRAPPED

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON, nothing else.")]
SeedOption = Annotated[
    int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of everything random.")
]


def print_json(value: object) -> None:
    """The one way in which results are printed for machines."""
    print(json.dumps(finite(value), indent=2, allow_nan=False))


def warn(text: str) -> None:
    """A warning, in one line on standard error."""
    errors.print(f"pfnm: warning: {text}")


def bar(*, hidden: bool) -> Progress:
    """A bar on the terminal, with what is done of how much; nothing where there is no terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=errors,
        transient=True,
        disable=hidden or not errors.is_terminal,
    )


@contextmanager
def epochs(title: str, total: int, *, hidden: bool) -> Iterator[Callable[[int, float], None]]:
    """A bar of epochs, with the share reached of what the title names last."""
    with bar(hidden=hidden) as shown:
        task = shown.add_task(title, total=total)
        yield lambda done, share: shown.update(
            task, completed=done, description=f"{title} {share:.1%}"
        )


@contextmanager
def progress(title: str, *, hidden: bool) -> Iterator[Any]:
    """A line on the terminal that tells how far the work is; nothing where there is no terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}: {task.completed} steps"))
    with Progress(
        *columns,
        TimeElapsedColumn(),
        console=errors,
        transient=True,
        disable=hidden or not errors.is_terminal,
    ) as bar:
        task = bar.add_task(title, total=None)
        yield lambda: bar.advance(task)
