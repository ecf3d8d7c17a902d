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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from pfnm.core.errors import PFNMError
from pfnm.experiments.definition import Experiment, Job
from pfnm.experiments.trials import Row, run_job, setting_of
from pfnm.federated.data import load_data
from pfnm.federated.runs import locked, sha256, versions
from pfnm.formats import told
from pfnm.formats.files import write_whole

ROWS, RECORD = "rows.csv", "experiment.json"
TEXTS = ("data", "split", "method", "widths")
WHOLE = ("sites", "depth", "trial", "round", "communications", "units", "parameters", "left_out")
NUMBERS = (
    *("epochs", "prior_variance", "site_variance", "mass"),
    *("accuracy", "train_accuracy", "log_ratio", "seconds", "job_seconds"),
)
COLUMNS = (*TEXTS, *WHOLE, *NUMBERS)
ENGINES = ("local", "ray", "dask")
LIBRARIES = {"ray": "ray", "dask": "distributed"}
ADDRESSES = {"ray": "RAY_ADDRESS", "dask": "DASK_SCHEDULER_ADDRESS"}  # of a cluster to join
VARIED = ("data", "sites", "split", "hidden", "rounds", "seed", "methods")  # said by rows


def run(
    experiment: Experiment,
    folder: Path,
    *,
    workers: int = 1,
    engine: str = "local",
    data_dir: Path | None = None,
    on_job: Callable[[int, int], None] | None = None,
) -> list[Row]:
    """All rows of an experiment, those from earlier included. on_job: told jobs done and all.

    A job that cannot be done does not keep the others from being done; an error names it then.
    """
    from joblib import delayed

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PFNMError(f"{folder}: no folder can be made there ({error.strerror})") from None
    with locked(folder):
        conditions = _conditions(experiment) | {
            f"{name}, sha256": sha256(load_data(name, data_dir)) for name in experiment.data
        }
        rows, before = check_rows(experiment, folder, conditions), _record(folder)
        jobs = experiment.jobs()
        there = {_key(row, experiment.kind) for row in rows}
        todo = [job for job in jobs if job.key not in there]
        if experiment.kind == "timing":
            engine, workers = "local", 1  # what is timed is here, and alone
        if on_job is not None:
            on_job(len(jobs) - len(todo), len(jobs))
        begin = time.perf_counter()
        failed: list[str] = []
        with _engine(engine, workers):
            work = [delayed(_tried)(job, data_dir) for job in todo]
            for done, found in enumerate(_results(work, engine, workers), start=1):
                if isinstance(found, str):
                    failed.append(found)
                    continue
                whole = [{name: row.get(name) for name in COLUMNS} for row in found]
                rows = _sorted([*rows, *whole], jobs, experiment.kind)
                write_whole(folder / ROWS, _as_csv(rows).encode())
                record = {
                    "experiment": experiment.described(),
                    "conditions": before.get("conditions", {}) | conditions,
                    "versions": versions(),
                    "cores": os.cpu_count(),
                    "seconds": before.get("seconds", 0.0) + time.perf_counter() - begin,
                }
                write_whole(folder / RECORD, (json.dumps(record, indent=2) + "\n").encode())
                if on_job is not None:
                    on_job(len(jobs) - len(todo) + done - len(failed), len(jobs))
    if failed:
        number = f"{len(failed)} of {len(todo)} jobs of {experiment.name} failed"
        raise PFNMError(f"{number}, the first {failed[0]}; run it again to try them again")
    return rows


def _tried(job: Job, data_dir: Path | None) -> list[Row] | str:
    """A job's rows, or why it has none."""
    try:
        return run_job(job, data_dir)
    except PFNMError as error:
        return f"{' '.join(job.key)}: {error}"


def check_rows(
    experiment: Experiment, folder: Path, conditions: Mapping[str, Any] | None = None
) -> list[Row]:
    """The rows so far; an error if they were measured under other conditions than these."""
    there = _record(folder).get("conditions", {})
    # As JSON has them, which knows lists only.
    now = json.loads(json.dumps(_conditions(experiment) if conditions is None else conditions))
    for name in now:
        if name in there and now[name] != there[name]:
            raise PFNMError(
                f"{folder}: its rows have another {name} ({there[name]}, not {now[name]}); choose "
                "another folder"
            )
    return read_rows(folder)


def _conditions(experiment: Experiment) -> dict[str, Any]:
    """What rows depend on and do not say, by name; more of what they do say can be added."""
    grids = ("heat_sites", "prior_variances", "masses", "site_variances")
    found = {"kind": experiment.kind} | {name: getattr(experiment, name) for name in grids}
    if experiment.kind != "rounds":
        found["methods"] = experiment.methods
    found |= {f"rounds, {split}": number for split, number in experiment.rounds.items()}
    for job in experiment.jobs():
        own = asdict(setting_of(job))
        found[f"training, {job.data}"] = {k: v for k, v in own.items() if k not in VARIED}
    return found


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
    return float(_record(folder).get("seconds", 0.0))


def _record(folder: Path) -> dict[str, Any]:
    """What is known of earlier runs."""
    path = folder / RECORD
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text())
        return {
            **found,
            "conditions": dict(found["conditions"]),
            "seconds": float(found["seconds"]),
        }
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise PFNMError(
            f"{path}: cannot be read ({told(error)}); remove it to begin anew"
        ) from None


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
    try:
        if name == "ray":
            if not address:
                options = {"num_cpus": workers, "include_dashboard": False}
            library.init(address=address, log_to_driver=False, **options)
            import_module("ray.util.joblib").register_ray()
            leave = library.shutdown
        else:
            options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
            leave = (library.Client(address) if address else library.Client(**options)).close
    except (OSError, ValueError, RuntimeError) as error:
        raise PFNMError(
            f"the engine {name} cannot be reached ({told(error)}); check {ADDRESSES[name]}"
        ) from None
    try:
        with parallel_config(backend=name):
            yield
    finally:
        leave()


def _results(work: Sequence[Any], engine: str, workers: int) -> Iterator[list[Row] | str]:
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
    parsed: Row = {name: row[name] or None for name in TEXTS}
    for names, kind in ((WHOLE, int), (NUMBERS, float)):
        for name in names:
            parsed[name] = kind(row[name]) if row[name] else None
    return parsed
