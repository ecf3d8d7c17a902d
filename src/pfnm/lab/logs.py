"""Rows of a run as logs of other tools: TensorBoard and MLflow."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pfnm.errors import PFNMError
from pfnm.lab.records import Row
from pfnm.lab.runs import OnRow
from pfnm.lab.setting import Setting

NEEDED = {
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow", "sqlalchemy", "alembic"),
}
LOGS = tuple(NEEDED)
PARTS = ("seconds_training", "seconds_combining", "seconds_evaluating")
EXPERIMENT = "pfnm"  # in MLflow
OF_RUN = "pfnm.run"  # the tag by which a resumed run finds what it logged before


def check_logs(names: Sequence[str]) -> None:
    """An error for a log that is unknown, or whose library is missing."""
    for name in names:
        if name not in LOGS:
            raise PFNMError(f"unknown log {name!r}; choose from {', '.join(LOGS)}")
        for library in NEEDED[name]:
            if find_spec(library) is None:
                raise PFNMError(
                    f"{name} logs need {library}, which is not installed; pip install "
                    f"'pfnm[{name}]'"
                )


@contextmanager
def logging_to(names: Sequence[str], folder: Path, setting: Setting) -> Iterator[OnRow]:
    """What is to be called with every row: it writes to these logs.

    TensorBoard's lie in the run's folder; MLflow's where MLFLOW_TRACKING_URI says, by default in
    mlflow.db in the run's folder. Rows that a resumed run repeats take the place of the earlier.
    """
    check_logs(names)
    with ExitStack() as stack:
        found: list[OnRow] = []
        if "tensorboard" in names:
            found.append(stack.enter_context(_tensorboard(folder / "tensorboard")))
        if "mlflow" in names:
            found.append(stack.enter_context(_mlflow(folder, setting)))

        def on_row(row: Row) -> None:
            for write in found:
                write(row)

        yield on_row


def mlflow_place(folder: Path) -> str:
    """Where MLflow's logs go."""
    own = f"sqlite:///{folder.resolve() / 'mlflow.db'}"
    return os.environ.get("MLFLOW_TRACKING_URI", own)


def measured(row: Row) -> dict[str, float]:
    """What curves are drawn of."""
    found = {name: row[name] for name in ("accuracy", "objective", "parameters", *PARTS)}
    found["megabytes_up"] = sum(row["bytes_up"].values()) / 1e6
    found["megabytes_down"] = sum(row["bytes_down"].values()) / 1e6
    return {name: float(value) for name, value in found.items() if value is not None}


@contextmanager
def _tensorboard(folder: Path) -> Iterator[OnRow]:
    """A folder for each method, so that their curves lie over each other."""
    from torch.utils.tensorboard import SummaryWriter

    writers: dict[str, Any] = {}

    def on_row(row: Row) -> None:
        method = row["method"]
        if method not in writers:  # what an earlier process wrote is hidden, for all rows come anew
            writers[method] = SummaryWriter(str(folder / method), purge_step=0)
        for name, value in measured(row).items():
            writers[method].add_scalar(name, value, row["round"])
        writers[method].flush()

    try:
        yield on_row
    finally:
        for writer in writers.values():
            writer.close()


@contextmanager
def _mlflow(folder: Path, setting: Setting) -> Iterator[OnRow]:
    """A run of MLflow's for each method."""
    from mlflow.tracking import MlflowClient

    for library in ("mlflow", "alembic"):
        logging.getLogger(library).setLevel(logging.WARNING)
    runs: dict[str, str] = {}
    client: Any = None

    def on_row(row: Row) -> None:
        nonlocal client
        if client is None:  # only now the folder is sure to be there
            client = MlflowClient(tracking_uri=mlflow_place(folder))
        method = row["method"]
        if method not in runs:
            runs[method] = _mlflow_run(client, folder, method, setting)
        for name, value in measured(row).items():
            client.log_metric(runs[method], name, value, step=row["round"])

    try:
        yield on_row
    finally:
        for identifier in runs.values():
            client.set_terminated(identifier)


def _mlflow_run(client: Any, folder: Path, method: str, setting: Setting) -> str:
    """A new run for a method, with the setting; an earlier one of that folder is removed."""
    known = client.get_experiment_by_name(EXPERIMENT)
    experiment = client.create_experiment(EXPERIMENT) if known is None else known.experiment_id
    tags = {OF_RUN: str(folder.resolve()), "method": method}
    where = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
    if "'" not in "".join(tags.values()):  # which such a question cannot hold
        for earlier in client.search_runs([experiment], where):
            client.delete_run(earlier.info.run_id)
    run = client.create_run(experiment, run_name=f"{folder.name}, {method}", tags=tags)
    for name, value in asdict(setting).items():
        client.log_param(run.info.run_id, name, str(value))
    identifier: str = run.info.run_id
    return identifier
