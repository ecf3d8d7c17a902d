"""The command that runs the paper's experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from pfnm.cli.console import MOST_THREADS, app, bar, out
from pfnm.cli.lab import DataDirOption
from pfnm.errors import PFNMError

if TYPE_CHECKING:
    from pfnm.experiments.definition import Experiment
    from pfnm.experiments.rows import Row


@contextmanager
def jobs_shown(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar of jobs."""
    with bar(hidden=False) as shown:
        task = shown.add_task(title, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


@contextmanager
def noted(problems: list[str]) -> Iterator[None]:
    """What goes wrong is told at the end: what else there is to do is done first."""
    try:
        yield
    except PFNMError as error:
        if str(error) not in problems:
            problems.append(str(error))


def show(experiment: Experiment, rows: Sequence[Row], folder: Path) -> None:
    """Draw an experiment's figures, and print its verdicts."""
    from pfnm.experiments.claims import claims
    from pfnm.report.experiments import draw

    paths = draw(experiment, rows, folder)
    table = Table(
        "claim", "data", "measured", "holds", title=experiment.title, title_justify="left"
    )
    for claim in claims(experiment, rows):
        table.add_row(claim.said, claim.marked, claim.measured, claim.verdict)
    out.print(table)
    out.print(f"{folder}: rows.csv, {', '.join(path.name for path in paths)}")


@app.command(epilog="Example: pfnm reproduce rounds --quick")
def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="An experiment that --list names, or all.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Name the experiments.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="On digits, 2 trials: a few minutes for all.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder of the results (default: results, or quick)."),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(min=1, help="At most so many of each setting; more can be added later."),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            min=1,
            max=MOST_THREADS,
            help="Trials at a time, here or on the cluster; in rounds, methods.",
        ),
    ] = 2,
    engine: Annotated[
        str,
        typer.Option(
            help="Where they work: local; ray or dask (the cluster at RAY_ADDRESS or "
            "DASK_SCHEDULER_ADDRESS, or a small one here; timing stays here)."
        ),
    ] = "local",
    draw: Annotated[
        bool, typer.Option("--draw", help="Run nothing: only draw the figures from the rows.")
    ] = False,
    page: Annotated[
        Path | None, typer.Option(help="Write a page of figures and verdicts (Markdown).")
    ] = None,
    data_dir: DataDirOption = None,
) -> None:
    """Run the paper's experiments, or go on with them: rows, figures, verdicts."""
    from pfnm.experiments.definition import NAMES, experiment
    from pfnm.experiments.runner import ENGINES, check_rows, run
    from pfnm.report.page import write_page

    if listed:
        for known in NAMES:
            out.print(f"{known:14}{experiment(known).title}", soft_wrap=True)
        return
    if name is None:
        raise PFNMError("say which experiment; --list names them, and all means all of them")
    if engine not in ENGINES:
        raise PFNMError(f"unknown engine {engine!r}; choose one of {', '.join(ENGINES)}")
    if page is not None and (page.is_dir() or not page.parent.is_dir()):
        raise PFNMError(f"{page}: give a file in a folder that is there")
    chosen = [
        experiment(one, quick=quick, most_trials=trials)
        for one in (NAMES if name == "all" else (name,))
    ]
    results = Path("quick" if quick else "results") if output is None else output
    problems: list[str] = []
    drawn = 0
    for own in chosen:
        folder = results / own.name
        if not draw:
            with noted(problems), jobs_shown(own.name) as on_job:
                run(own, folder, workers=jobs, engine=engine, data_dir=data_dir, on_job=on_job)
        with noted(problems):
            rows = check_rows(own, folder)
            if rows:
                show(own, rows, folder)
                drawn += 1
    if page is not None:
        with noted(problems):
            write_page([experiment(one, quick=quick) for one in NAMES], results, page)
            out.print(str(page))
    if problems:
        raise PFNMError("; ".join(problems))
    if not drawn:
        raise PFNMError(f"{results}: there are no rows to draw; run the experiment first")
