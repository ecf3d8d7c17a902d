"""Runs an experiment's jobs, here or on a cluster, and writes each result as it comes.

results/NAME/ holds rows.csv (every measurement), experiment.json (what was done, with which
versions, and how long it took) and, drawn from the rows, the figures. An interrupted experiment
goes on with the jobs that have no rows yet.
"""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from pfnm.core.errors import PFNMError
from pfnm.experiments.definition import Experiment, Job
from pfnm.experiments.trials import Row, run_job
from pfnm.federated.runs import versions
from pfnm.formats import told
from pfnm.formats.files import write_whole

ROWS, RECORD = "rows.csv", "experiment.json"
WHOLE = ("sites", "depth", "trial", "round", "communications", "epochs", "units")
TEXTS = ("data", "split", "method")
NUMBERS = (
    *("prior_variance", "site_variance", "mass"),
    *("accuracy", "train_accuracy", "log_ratio", "seconds", "job_seconds"),
)
COLUMNS = (*TEXTS, *WHOLE, *NUMBERS)
ENGINES = ("local", "ray", "dask")
LIBRARIES = {"ray": "ray", "dask": "distributed"}
ADDRESSES = {"ray": "RAY_ADDRESS", "dask": "DASK_SCHEDULER_ADDRESS"}  # of a cluster to join


def run(
    experiment: Experiment,
    folder: Path,
    *,
    workers: int = 1,
    engine: str = "local",
    data_dir: Path | None = None,
    on_job: Callable[[int, int], None] | None = None,
) -> list[Row]:
    """All rows of an experiment, those from earlier included. on_job: told jobs done and all."""
    from joblib import delayed

    folder.mkdir(parents=True, exist_ok=True)
    before = _record(experiment, folder)
    rows = read_rows(folder)
    jobs = experiment.jobs()
    there = {_key(row, experiment.kind) for row in rows}
    todo = [job for job in jobs if job.key not in there]
    if experiment.kind == "timing":
        workers = 1  # what is timed is alone on the machine
    if on_job is not None:
        on_job(len(jobs) - len(todo), len(jobs))
    begin = time.perf_counter()
    with _engine(engine, workers):
        results = _results([delayed(run_job)(job, data_dir) for job in todo], engine, workers)
        for done, found in enumerate(results, start=1):
            whole = [{name: row.get(name) for name in COLUMNS} for row in found]
            rows = _sorted([*rows, *whole], jobs, experiment.kind)
            write_whole(folder / ROWS, _as_csv(rows).encode())
            spent = time.perf_counter() - begin
            record = {
                **before,
                "experiment": experiment.described(),
                "versions": versions(),
                "cores": os.cpu_count(),
                "seconds": before["seconds"] + spent,
            }
            write_whole(folder / RECORD, (json.dumps(record, indent=2) + "\n").encode())
            if on_job is not None:
                on_job(len(jobs) - len(todo) + done, len(jobs))
    return rows


def read_rows(folder: Path) -> list[Row]:
    """The measurements so far; empty cells are None."""
    path = folder / ROWS
    if not path.exists():
        return []
    try:
        with path.open(newline="") as file:
            return [_parsed(row) for row in csv.DictReader(file)]
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise PFNMError(
            f"{path}: cannot be read ({told(error)}); remove it to begin anew"
        ) from None


def seconds_spent(folder: Path) -> float:
    """How long the experiment took, interruptions left out."""
    path = folder / RECORD
    return float(json.loads(path.read_text())["seconds"]) if path.exists() else 0.0


def _record(experiment: Experiment, folder: Path) -> dict[str, Any]:
    """What is known of an earlier run; an error if that was another experiment."""
    path = folder / RECORD
    if not path.exists():
        return {"seconds": 0.0}
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        old = {**found["experiment"], "trials": None}
        found["seconds"] = float(found["seconds"])
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise PFNMError(
            f"{path}: cannot be read ({told(error)}); remove it to begin anew"
        ) from None
    new = json.loads(json.dumps({**experiment.described(), "trials": None}))
    if old != new:
        raise PFNMError(
            f"{folder}: holds results of another form of this experiment; choose another folder"
        )
    return found


@contextmanager
def _engine(name: str, workers: int) -> Iterator[None]:
    """joblib's own backend of that name: processes here, or a cluster.

    Ray joins the cluster at RAY_ADDRESS, Dask the scheduler at DASK_SCHEDULER_ADDRESS; without
    them, each starts a small one on this machine.
    """
    if name not in ENGINES:
        raise PFNMError(f"unknown engine {name!r}; choose one of {', '.join(ENGINES)}")
    from joblib import parallel_config

    if name == "local":
        with parallel_config(backend="loky"):
            yield
        return
    try:
        library: Any = import_module(LIBRARIES[name])
    except ImportError:
        raise PFNMError(f"the engine {name} is not there; pip install 'pfnm[{name}]'") from None
    address = os.environ.get(ADDRESSES[name])
    options: dict[str, Any] = {}
    if name == "ray":
        if not address:
            options = {"num_cpus": workers, "include_dashboard": False}
        library.init(address=address, log_to_driver=False, **options)
        import_module("ray.util.joblib").register_ray()
        leave = library.shutdown
    else:
        options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
        leave = (library.Client(address) if address else library.Client(**options)).close
    try:
        with parallel_config(backend=name):
            yield
    finally:
        leave()


def _results(work: Sequence[Any], engine: str, workers: int) -> Iterator[list[Row]]:
    """What the jobs come to, as they end; Ray's backend gives it only when a batch has ended."""
    from joblib import Parallel

    if engine != "ray":
        yield from Parallel(workers, return_as="generator_unordered")(work)
        return
    with Parallel(workers) as parallel:  # which keeps its processes from batch to batch
        for first in range(0, len(work), workers):
            yield from parallel(work[first : first + workers])


def _key(row: Row, kind: str) -> tuple[str, ...]:
    own = tuple(str(row[name]) for name in ("data", "split", "sites", "depth", "trial"))
    return own + ((row["method"],) if kind == "rounds" else ())


def _sorted(rows: Sequence[Row], jobs: Sequence[Job], kind: str) -> list[Row]:
    """In the order of the jobs, whichever ended first; unknown ones last."""
    place = {job.key: number for number, job in enumerate(jobs)}
    return sorted(rows, key=lambda row: place.get(_key(row, kind), len(place)))


def _as_csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _shown(value) for name, value in row.items()})
    return text.getvalue()


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return repr(float(value)) if isinstance(value, float) else str(value)


def _parsed(row: dict[str, str]) -> Row:
    parsed: Row = {name: row[name] for name in TEXTS}
    for names, kind in ((WHOLE, int), (NUMBERS, float)):
        for name in names:
            parsed[name] = kind(row[name]) if row[name] else None
    return parsed
