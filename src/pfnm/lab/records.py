"""What a run's files say, each read through the type it has: run.json and metrics.jsonl."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pfnm.errors import PFNMError
from pfnm.formats import told
from pfnm.formats.files import write_whole
from pfnm.lab.method import Info
from pfnm.lab.methods import METHODS
from pfnm.lab.setting import Setting

RUN, METRICS = "run.json", "metrics.jsonl"
LIBRARIES = ("pfnm", "numpy", "scipy", "torch", "scikit-learn", "safetensors")
DIGEST = "sha256"  # in run.json, of the rest of it

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Recorded(Info):
    """A row of metrics.jsonl."""

    method: str
    round: int


@dataclass(frozen=True, kw_only=True)
class Run:
    """What run.json holds: all that the numbers of a run hang on."""

    setting: Setting
    data_sha256: str
    data_dir: str | None
    threads: int
    """Of PyTorch; numpy's and scipy's work alone."""
    training: str
    versions: Mapping[str, str]
    processor: str
    class_counts: Mapping[str, list[int]]

    @property
    def digest(self) -> str:
        """By which what belongs to this run is known."""
        from msgspec import convert

        # As it is read again: a whole number in place of another number is that number.
        again = convert(json.loads(json.dumps(asdict(self))), Run)
        return hashlib.sha256(json.dumps(asdict(again), sort_keys=True).encode()).hexdigest()

    def write(self, folder: Path) -> None:
        """Put it down."""
        found = {**asdict(self), DIGEST: self.digest}
        write_whole(folder / RUN, json.dumps(found, indent=2).encode())

    def changed(self) -> list[str]:
        """Where this machine is not what the run began on, so that numbers may differ."""
        here = {**versions(), "processor": processor()}
        there = {**self.versions, "processor": self.processor}
        return [
            f"the run began with {name} {there[name]}, here is {here.get(name, 'none')}: what is "
            "done from now on may differ from what it would have been"
            for name in there
            if here.get(name) != there[name]
        ]


def read_run(folder: Path) -> Run:
    """What run.json says, unless it was changed since it was written."""
    from msgspec import MsgspecError, convert

    path = folder / RUN
    if not path.is_file():
        raise PFNMError(f"{folder}: there is no run in it ({RUN} is missing); check the path")
    try:
        found = json.loads(path.read_bytes())
        if not isinstance(found, dict):
            raise ValueError("no JSON object")
        digest, setting = found.pop(DIGEST, None), found.get("setting")
        same = all(
            isinstance(given, dict) and {*given} == {field.name for field in fields(kind)}
            for given, kind in ((found, Run), (setting, Setting))
        )
        if not same:
            raise PFNMError(
                f"{folder}: the run was made by another version of pfnm; begin it again"
            )
        run = convert(found, Run)
    except PFNMError:
        raise
    except (ValueError, TypeError, RecursionError, OSError, MsgspecError) as error:
        raise PFNMError(f"{path}: cannot be read ({told(error)}); begin the run again") from None
    if run.digest != digest or run.threads < 1:
        raise PFNMError(
            f"{path}: was changed since the run began; put it back as it was, or begin another run"
        )
    return run


def read_rows(folder: Path) -> list[Row]:
    """The rows of a run so far; a line that is none (one that was cut short, say) is left out."""
    from msgspec import MsgspecError, convert

    path, known = folder / METRICS, {field.name for field in fields(Recorded)}
    try:
        lines = path.read_bytes().splitlines() if path.exists() else []
    except OSError as error:
        raise PFNMError(f"{path}: cannot be read ({error.strerror})") from None
    rows: list[Row] = []
    for line in lines:
        try:
            row = json.loads(line)
            typed = convert(row, Recorded)
        except (ValueError, RecursionError, MsgspecError):
            continue
        if {*row} == known and typed.method in METHODS and typed.round > 0:
            rows.append(row)
    return rows


def versions() -> dict[str, str]:
    """Of Python and of the libraries that results hang on."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def processor() -> str:
    """How many cores there are, and of what kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    kind = names[0] if names else platform.processor() or platform.machine()
    return f"{os.cpu_count()} cores, {kind}"
