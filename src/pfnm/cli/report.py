"""The command that shows a result on a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pfnm.cli.console import app, out
from pfnm.errors import PFNMError

REPORT = "report.html"


@app.command(epilog="Example: pfnm report run -o report.html")
def report(
    path: Annotated[
        Path,
        typer.Argument(help="A fused file, or the folder of a simulation or an experiment."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The page (default: report.html in the folder, FILE.html)."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing page.")] = False,
) -> None:
    """Show a fusion, a run or an experiment on one HTML page that needs no network."""
    from pfnm.pages.page import check_page
    from pfnm.report.of import report_of

    target = output or (path / REPORT if path.is_dir() else path.with_suffix(".html"))
    if not path.exists():
        raise PFNMError(f"{path}: there is no such file or folder; check the path")
    check_page(target, force=force, inputs=[path])
    report_of(path).save(target, force=force)
    out.print(f"{target}: open it in a browser")
