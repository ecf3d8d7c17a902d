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
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from pfnm import threads as working
from pfnm.errors import PFNMError
from pfnm.formats import save
from pfnm.formats.files import make_folder, write_whole
from pfnm.formats.states import save_state
from pfnm.fusing.budget import width_limits
from pfnm.lab.checkpoints import Checkpoints
from pfnm.lab.data import Data, load_data
from pfnm.lab.folders import claimed
from pfnm.lab.method import train_local
from pfnm.lab.methods import METHODS, chosen_methods, combined_once
from pfnm.lab.records import (
    METRICS,
    RUN,
    Row,
    Run,
    processor,
    read_rows,
    read_run,
    versions,
)
from pfnm.lab.setting import PERCEPTRON, Federation, Setting, federation
from pfnm.lab.training import LocalTraining
from pfnm.networks.network import Network
from pfnm.verdicts import tell

TABLE, CHECKPOINTS, GLOBAL = "table.md", "checkpoints", "global"
NEEDED = ("torch", "sklearn", "filelock", "msgspec")  # by every simulation

OnRow = Callable[[Row], None]


def simulate(
    setting: Setting,
    folder: Path,
    *,
    data_dir: Path | None = None,
    train: LocalTraining | None = None,
    threads: int | None = None,
    on_row: OnRow = lambda row: None,
) -> list[Row]:
    """Run a federation into a new folder; the rows of all methods and rounds.

    train: how sites do, if not as the lab does. threads: how many work at a product of PyTorch's
    (default: as many as it has).
    """
    check_installed()
    if threads is None:
        threads = _torch_threads()
    chosen_methods(setting)
    data = load_data(setting.data, data_dir)
    federated = federation(setting, data, train)
    width_limits([federated.start(0)], setting.budget)
    run = Run(
        setting=setting,
        data_sha256=sha256(data),
        data_dir=None if data_dir is None else str(data_dir),
        threads=threads,
        training=_name_of(federated.train),
        versions=versions(),
        processor=processor(),
        class_counts={name: found.tolist() for name, found in federated.counts.items()},
    )
    with claimed(folder, RUN, parts=(CHECKPOINTS, GLOBAL)):
        if (folder / RUN).exists():
            raise PFNMError(
                f"{folder}: there is a run already; resume it, or choose another folder"
            )
        run.write(folder)
        return _run(run, federated, folder, on_row)


def resume(
    folder: Path,
    *,
    data_dir: Path | None = None,
    train: LocalTraining | None = None,
    on_row: OnRow = lambda row: None,
) -> list[Row]:
    """Go on with an interrupted run; the result is that of a run without interruption."""
    check_installed()
    run = read_run(folder)
    place = data_dir or (None if run.data_dir is None else Path(run.data_dir))
    data = load_data(run.setting.data, place)
    if sha256(data) != run.data_sha256:
        raise PFNMError(f"{folder}: the data {run.setting.data} is not what the run began with")
    federated = federation(run.setting, data, train)
    training = _name_of(federated.train)
    if training != run.training:
        raise PFNMError(
            f"{folder}: the run began with the training {run.training}, not {training}; resume it "
            "with the same"
        )
    tell(run.changed())
    with claimed(folder, RUN, parts=(CHECKPOINTS, GLOBAL)):
        return _run(run, federated, folder, on_row)


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


def _run(run: Run, federated: Federation, folder: Path, on_row: OnRow) -> list[Row]:
    setting = run.setting
    for part in (CHECKPOINTS, GLOBAL):
        make_folder(folder / part)
    _torch_threads()  # by which PyTorch is loaded: only then can its threads be limited
    # Sums are rounded differently by another number of threads.
    with working.limited(1, torch=run.threads):
        checkpoints = Checkpoints(folder / CHECKPOINTS, federated.start(0), run.digest)
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
    model = setting.model
    if model == PERCEPTRON:
        model = f"hidden layers {', '.join(map(str, setting.hidden))}"
    lines = [
        f"{setting.data}, {setting.sites} sites, {setting.split} split, {model}, seed "
        f"{setting.seed}",
        "",
        "| method | rounds | test accuracy | best | bits | parameters | widths |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == name]
        last = own[-1]
        found = [row["accuracy"] for row in own if row["accuracy"] is not None]
        shown = "-" if last["accuracy"] is None else f"{last['accuracy']:.2%}"
        best = f"{max(found):.2%}" if found else "-"
        widths = ", ".join(map(str, last["widths"]))
        bits = "-" if last["bits"] is None else f"{last['bits']:.3f}"
        parameters = f"{last['parameters']:,}"
        cells = (METHODS[name].title, last["round"], shown, best, bits, parameters, widths)
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
    path = folder / GLOBAL / f"{name}.safetensors"
    if network is not None and network.program.examples is None:
        save(network, path, force=True)
    elif network is not None:
        from pfnm.lab.modules import state_of

        state = {key: tensor.numpy() for key, tensor in state_of(network).items()}
        save_state(state, {}, path, force=True)


def sha256(data: Data) -> str:
    """Of all its examples."""
    digest = hashlib.sha256()
    for array in (data.train_inputs, data.train_labels, data.test_inputs, data.test_labels):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _name_of(train: LocalTraining) -> str:
    return f"{train.__module__}.{train.__qualname__}"
