"""A run is a folder: what was to be done, what came of it, and where it stands.

run.json holds the setting and versions, metrics.jsonl a row for each method and round as it ends,
checkpoints/ where each method stands, global/ the last global networks, table.md the end. A row is
written before its checkpoint; on resuming, rows without a checkpoint are done again, with the same
randomness and so with the same result.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from pfnm import threads as working
from pfnm.core.budget import width_limits
from pfnm.core.errors import PFNMError
from pfnm.core.network import Network
from pfnm.federated.checkpoints import Checkpoints
from pfnm.federated.data import Data, load_data
from pfnm.federated.method import train_local
from pfnm.federated.methods import METHODS, chosen_methods, combined_once
from pfnm.federated.setting import Federation, Setting, federation
from pfnm.federated.training import LocalTraining, stacked
from pfnm.formats import save, told
from pfnm.formats.files import make_folder, write_whole

RUN, METRICS, TABLE, LOCK = "run.json", "metrics.jsonl", "table.md", "lock"
PARTS = ("setting", "data_sha256", "data_dir", "threads", "training", "class_counts")  # of run.json
NEEDED = ("torch", "sklearn", "filelock")  # by every simulation
LIBRARIES = ("pfnm", "numpy", "scipy", "torch", "scikit-learn", "safetensors")

Row = dict[str, Any]
OnRow = Callable[[Row], None]


def simulate(
    setting: Setting,
    folder: Path,
    *,
    data_dir: Path | None = None,
    train: LocalTraining = stacked,
    threads: int | None = None,
    on_row: OnRow = lambda row: None,
) -> list[Row]:
    """Run a federation into a new folder; the rows of all methods and rounds.

    threads: how many work at a product of PyTorch's (default: as many as it has).
    """
    check_installed()
    if threads is None:
        threads = _torch_threads()
    chosen_methods(setting)
    data = load_data(setting.data, data_dir)
    federated = federation(setting, data, train)
    width_limits([federated.start(0)], setting.budget)
    if (folder / RUN).exists():
        raise PFNMError(f"{folder}: there is a run already; resume it, or choose another folder")
    for part in ("checkpoints", "global"):
        make_folder(folder / part)
    description = {
        "setting": asdict(setting),
        "data_sha256": sha256(data),
        "data_dir": None if data_dir is None else str(data_dir),
        "threads": threads,
        "training": _name_of(train),
        "versions": versions(),
        "class_counts": {name: found.tolist() for name, found in federated.counts.items()},
    }
    write_whole(folder / RUN, json.dumps(description, indent=2).encode())
    return _run(federated, folder, threads, on_row)


def resume(
    folder: Path,
    *,
    data_dir: Path | None = None,
    train: LocalTraining = stacked,
    on_row: OnRow = lambda row: None,
) -> list[Row]:
    """Go on with an interrupted run; the result is that of a run without interruption."""
    check_installed()
    description = read_run(folder)
    setting = setting_of(description, folder)
    place = description.get("data_dir")
    data = load_data(setting.data, data_dir or (None if place is None else Path(place)))
    if sha256(data) != description["data_sha256"]:
        raise PFNMError(f"{folder}: the data {setting.data} is not what the run began with")
    if _name_of(train) != description["training"]:
        raise PFNMError(
            f"{folder}: the run began with the training {description['training']}, not "
            f"{_name_of(train)}; resume it with the same"
        )
    return _run(federation(setting, data, train), folder, int(description["threads"]), on_row)


def check_installed(*more: str) -> None:
    """An error where a library of the lab's is missing: to be known before anything is written."""
    for library in (*NEEDED, *more):
        if find_spec(library) is None:
            raise PFNMError(
                f"the lab needs {library}, which is not installed; pip install 'pfnm[lab]'"
            )


def _torch_threads() -> int:
    with working.waiting_briefly():
        import torch

    return torch.get_num_threads()


def read_run(folder: Path) -> dict[str, Any]:
    """What run.json says."""
    path = folder / RUN
    if not path.is_file():
        raise PFNMError(f"{folder}: there is no run in it ({RUN} is missing); check the path")
    try:
        description: dict[str, Any] = json.loads(path.read_text())
        missing = {*PARTS} - {*description}
        if missing:
            raise ValueError(f"{min(missing)} is missing")
        if not int(description["threads"]) > 0:
            raise ValueError("threads is not positive")
    except (ValueError, TypeError, OSError) as error:
        raise PFNMError(f"{path}: cannot be read ({told(error)})") from None
    return description


def setting_of(description: Mapping[str, Any], folder: Path) -> Setting:
    """The setting a run was begun with."""
    given = description["setting"]
    known = {field.name for field in fields(Setting)}
    if not isinstance(given, dict) or set(given) != known:
        raise PFNMError(f"{folder}: the run was made by another version of pfnm; begin it again")
    plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
    try:
        return Setting(**plain)
    except (TypeError, ValueError, AttributeError) as error:
        raise PFNMError(f"{folder / RUN}: the setting is damaged ({told(error)})") from None


def read_rows(folder: Path) -> list[Row]:
    """The rows of a run so far; a line that was cut short is left out."""
    path = folder / METRICS
    rows: list[Row] = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
            if row["method"] in METHODS and row["round"] > 0:
                rows.append(row)
        except (ValueError, KeyError, TypeError):
            continue
    return rows


def _run(federated: Federation, folder: Path, threads: int, on_row: OnRow) -> list[Row]:
    setting = federated.setting
    _torch_threads()  # by which PyTorch is loaded: only then can its threads be limited
    # Sums are rounded differently by another number of threads.
    with locked(folder), working.limited(torch=threads):
        for left in folder.rglob(".*.tmp"):  # of a process that was killed while writing
            left.unlink()
        checkpoints = Checkpoints(folder / "checkpoints", federated.start(0))
        local = checkpoints.local()
        if local is None:
            checkpoints.keep_local(train_local(federated))
            local = checkpoints.local()
        assert local is not None
        if not local.networks:
            reason = next(iter(local.left_out.values()), "")
            raise PFNMError(f"no site could be trained ({reason}); lower the learning rate")
        names = chosen_methods(setting)
        rows = _settled_rows(folder, names, checkpoints)
        done = {(row["method"], row["round"]) for row in rows}
        for row in rows:
            on_row(row)
        with (folder / METRICS).open("a") as file:

            def record(name: str, number: int, info: Any) -> None:
                line = json.dumps({"method": name, "round": number, **asdict(info)})
                file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())
                row = json.loads(line)
                rows.append(row)
                on_row(row)

            for name in names:
                method = METHODS[name]
                if method.once is not None and (name, 1) not in done:
                    network, info = combined_once(name, federated, local)
                    _keep_global(folder, name, network)
                    record(name, 1, info)
                if method.round is None:
                    continue
                number, state = checkpoints.state(name)
                while number < setting.rounds:
                    number += 1
                    state, info = method.round(federated, state, local, number)
                    record(name, number, info)
                    checkpoints.keep_state(name, number, state)
                    # Read back, so that a resumed run goes on from the very same arrays.
                    _, state = checkpoints.state(name)
                _keep_global(folder, name, state.server.network)
        write_whole(folder / TABLE, table(rows, setting).encode())
    return rows


def table(rows: list[Row], setting: Setting) -> str:
    """The end of every method, as Markdown."""
    lines = [
        f"{setting.data}, {setting.sites} sites, {setting.split} split, hidden layers "
        f"{', '.join(map(str, setting.hidden))}, seed {setting.seed}",
        "",
        "| method | rounds | test accuracy | best | parameters | widths |",
        "|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == name]
        last = own[-1]
        found = [row["accuracy"] for row in own if row["accuracy"] is not None]
        shown = "-" if last["accuracy"] is None else f"{last['accuracy']:.2%}"
        best = f"{max(found):.2%}" if found else "-"
        widths = ", ".join(map(str, last["widths"]))
        cells = (METHODS[name].title, last["round"], shown, best, f"{last['parameters']:,}", widths)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def _settled_rows(folder: Path, names: Sequence[str], checkpoints: Checkpoints) -> list[Row]:
    """The rows whose result is kept, written back.

    Of a method with rounds: those up to its checkpoint. Where one of them is missing, the method
    is done again from its beginning.
    """
    kept: list[Row] = []
    found = read_rows(folder)
    for name in names:
        own = {row["round"]: row for row in found if row["method"] == name}
        if METHODS[name].round is not None:
            last = checkpoints.round(name)
            own = {number: row for number, row in own.items() if number <= last}
            if len(own) < last:
                checkpoints.forget(name)
                own = {}
        kept += own.values()
    text = "".join(json.dumps(row) + "\n" for row in kept)
    write_whole(folder / METRICS, text.encode())
    return kept


def _keep_global(folder: Path, name: str, network: Network | None) -> None:
    if network is not None:
        save(network, folder / "global" / f"{name}.safetensors", force=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Two processes must not write one run, or one experiment."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise PFNMError(f"{folder}: another process is at work in it; wait for it") from None
    try:
        yield
    finally:
        lock.release()


def sha256(data: Data) -> str:
    """Of all its examples."""
    digest = hashlib.sha256()
    for array in (data.train_inputs, data.train_labels, data.test_inputs, data.test_labels):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _name_of(train: LocalTraining) -> str:
    return f"{train.__module__}.{train.__qualname__}"


def versions() -> dict[str, str]:
    """Of Python and of the libraries that results hang on."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
