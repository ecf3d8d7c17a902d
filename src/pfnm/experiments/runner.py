"""Runs an experiment's jobs, here or on a cluster, and writes each result as it comes.

results/NAME/ holds rows.csv (every measurement), experiment.json (what was done, with which
versions, and how long it took) and, drawn from the rows, the figures. An interrupted experiment
goes on with the jobs, and the methods of a job, that have no rows yet.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from pfnm.errors import PFNMError
from pfnm.experiments.definition import OPTIONS, Experiment, Job
from pfnm.experiments.rows import COLUMNS, TRIED, Row, read_rows, write_rows
from pfnm.experiments.trials import run_job, setting_of
from pfnm.formats import told
from pfnm.formats.files import write_whole
from pfnm.lab.data import load_data
from pfnm.lab.folders import claimed
from pfnm.lab.records import processor, versions
from pfnm.lab.runs import check_installed, sha256
from pfnm.lab.setting import Setting

RECORD = "experiment.json"
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
    check_installed("joblib", "matplotlib")  # figures are drawn last: it would be late to know
    from joblib import delayed

    with claimed(folder, RECORD):
        conditions = _conditions(experiment) | {
            f"{name}, sha256": sha256(load_data(name, data_dir)) for name in experiment.data
        }
        rows, before = check_rows(experiment, folder, conditions), _record(folder)
        jobs = experiment.jobs()
        todo = experiment.missing(rows)
        if experiment.kind == "timing":
            engine, workers = "local", 1  # what is timed is here, and alone
        if on_job is not None:
            on_job(len(jobs) - len(todo), len(jobs))
        begin, circumstances = time.perf_counter(), _circumstances(engine, workers)
        failed: list[str] = []
        work = [delayed(_tried)(job, data_dir) for job in todo]
        for number, found in enumerate(_results(work, engine, workers), start=1):
            if isinstance(found, str):
                failed.append(found)
                continue
            whole = [{name: row.get(name) for name in COLUMNS} for row in found]
            rows = _sorted([*rows, *whole], experiment)
            done = number - len(failed)
            this = {"jobs": done, "seconds": time.perf_counter() - begin, **circumstances}
            record = {
                "experiment": asdict(experiment),
                "conditions": before.get("conditions", {}) | conditions,
                "runs": [*before.get("runs", []), this],
            }
            # First the record, by which the folder is known to be ours.
            write_whole(folder / RECORD, (json.dumps(record, indent=2) + "\n").encode())
            write_rows(folder, rows)
            if on_job is not None:
                on_job(len(jobs) - len(todo) + done, len(jobs))
    if failed:
        several = f"{len(failed)} of {len(todo)} jobs of {experiment.name} failed"
        raise PFNMError(f"{several}, the first {failed[0]}; run it again to try them again")
    return rows


def _circumstances(engine: str, workers: int) -> dict[str, Any]:
    """Of this run: what its times depend on, and by which code it was made."""
    return {
        "workers": workers,
        "engine": engine,
        "processor": processor(),
        "source_sha256": _source(),
        "versions": versions(),
    }


def _tried(job: Job, data_dir: Path | None) -> list[Row] | str:
    """A job's rows, or why it has none."""
    try:
        return run_job(job, data_dir)
    except (PFNMError, ArithmeticError, MemoryError, ValueError, RuntimeError) as error:
        reason = str(error) if isinstance(error, PFNMError) else told(error)
        where = f"{job.data}, {job.split}, {job.sites} sites, {job.depth} hidden, trial {job.trial}"
        return f"{where}: {reason}"


def _source() -> str:
    """A digest of pfnm's own code, so that rows can be told from those of another version."""
    digest = hashlib.sha256()
    package = Path(__file__).parents[1]
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def check_rows(
    experiment: Experiment, folder: Path, conditions: Mapping[str, Any] | None = None
) -> list[Row]:
    """The rows so far; an error if they were measured under other conditions than these."""
    there = _record(folder).get("conditions", {})
    # As JSON has them, which knows lists only.
    now = json.loads(json.dumps(_conditions(experiment) if conditions is None else conditions))
    for name in now:
        if name in there and now[name] != _completed(there[name], now[name]):
            raise PFNMError(
                f"{folder}: its rows have another {name} ({there[name]}, not {now[name]}); choose "
                "another folder"
            )
    return read_rows(folder)


def _completed(recorded: Any, now: Any) -> Any:
    """What was recorded, with the usual value of settings that there were not yet."""
    if not (isinstance(recorded, dict) and isinstance(now, dict)):
        return recorded
    usual = json.loads(json.dumps(asdict(Setting())))
    return {name: usual[name] for name in now if name in usual} | recorded


def _conditions(experiment: Experiment) -> dict[str, Any]:
    """What rows depend on and do not say, by name; more of what they do say can be added."""
    found = {"kind": experiment.kind} | {name: getattr(experiment, name) for name in OPTIONS}
    rates = found.pop("sgd_rates")  # each data set has its own
    found |= {f"sgd_rates, {data}": rates[data] for data in experiment.data if data in rates}
    found |= {f"rounds, {split}": number for split, number in experiment.rounds.items()}
    for job in experiment.jobs():
        own = asdict(setting_of(job))
        found[f"training, {job.data}"] = {k: v for k, v in own.items() if k not in VARIED}
    return found


def seconds_spent(folder: Path) -> float:
    """How long the experiment took, the time between its runs left out."""
    return sum(float(run["seconds"]) for run in _record(folder).get("runs", []))


def _record(folder: Path) -> dict[str, Any]:
    """What is known of earlier runs."""
    path = folder / RECORD
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text())
        runs = [{**run, "seconds": float(run["seconds"])} for run in found["runs"]]
        return {"conditions": dict(found["conditions"]), "runs": runs}
    except (ValueError, KeyError, TypeError, RecursionError, OSError) as error:
        raise PFNMError(f"{path}: cannot be read ({told(error)}); choose another folder") from None


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
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # Ray's tips on accelerators
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


def _lost(engine: str) -> tuple[type[Exception], ...]:
    """What is raised when a worker is gone."""
    if engine != "ray":
        return (RuntimeError,)
    return RuntimeError, import_module("ray.exceptions").RayError


def _results(work: Sequence[Any], engine: str, workers: int) -> Iterator[list[Row] | str]:
    """What the jobs come to, as they end; Ray's backend gives it only when a batch has ended."""
    from joblib import Parallel

    with _engine(engine, workers), warnings.catch_warnings():
        # joblib replaces a worker that has grown, as it does with another data set.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        try:
            if engine != "ray":
                yield from Parallel(workers, return_as="generator_unordered")(work)
                return
            with Parallel(workers) as parallel:  # which keeps its processes from batch to batch
                for first in range(0, len(work), workers):
                    yield from parallel(work[first : first + workers])
        except _lost(engine) as error:  # a job's own errors are among its results
            raise PFNMError(
                f"a worker ended before its job did, for want of memory perhaps ({told(error)}); "
                "use fewer --jobs, and run it again to go on"
            ) from None


def _sorted(rows: Sequence[Row], experiment: Experiment) -> list[Row]:
    """In the order of the jobs and their methods, whichever ended first; unknown ones last."""
    jobs = {job.key: number for number, job in enumerate(experiment.jobs())}
    methods = {method: number for number, method in enumerate(experiment.methods)}

    def place(row: Row) -> tuple[int, int]:
        job = jobs.get(experiment.key_of(row), len(jobs))
        return job, methods.get(row["method"].removesuffix(TRIED), len(methods))

    return sorted(rows, key=place)
