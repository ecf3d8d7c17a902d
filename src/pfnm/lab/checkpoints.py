"""Where a run stands: files from which each method goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pfnm.errors import PFNMError
from pfnm.formats import told
from pfnm.formats.files import write_whole
from pfnm.lab.method import Local, State
from pfnm.lab.server import Server
from pfnm.networks.network import Network

LOCAL = "local"  # the checkpoint of what all sites have after training alone
NOTE = "pfnm"  # the one metadata key of a checkpoint: safetensors writes several in any order

Tensors = Mapping[str, NDArray[Any]]
N = TypeVar("N", bound="Note")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Note:
    """What a checkpoint says beside its tensors."""

    run: str
    """The digest of the run it belongs to."""


@dataclass(frozen=True, kw_only=True)
class LocalNote(Note):
    """Of what all sites have after training alone."""

    sites: list[str]
    left_out: dict[str, str]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class StateNote(Note):
    """Of where a method stands."""

    round: int
    network: bool
    objective: float | None
    groups: list[str]
    assigned: list[str]
    sent: list[str]
    counted: list[str] = field(default_factory=list)
    agreement: float | None = None
    averaging: bool = False


class Checkpoints:
    """Where each method of a run stands, as safetensors; a network has the tensors `like` has."""

    def __init__(self, folder: Path, like: Network, run: str) -> None:
        self.folder, self.like, self.run = folder, like, run

    def local(self) -> Local | None:
        """What all sites have after training alone; None before that."""
        return self._read(LOCAL, LocalNote, self._local)

    def keep_local(self, local: Local) -> None:
        """Write it."""
        tensors = {
            f"{name}/{key}": tensor
            for name, network in local.networks.items()
            for key, tensor in network.tensors.items()
        }
        note = LocalNote(
            run=self.run,
            sites=list(local.networks),
            left_out=dict(local.left_out),
            seconds=local.seconds,
        )
        self._write(LOCAL, note, tensors)

    def _local(self, note: LocalNote, tensors: Tensors) -> Local:
        networks = {name: self._network(tensors, name) for name in note.sites}
        return Local(networks, note.left_out, note.seconds)

    def round(self, name: str) -> int:
        """The last round of a method that is kept."""
        return self.state(name)[0]

    def forget(self, name: str) -> None:
        """Remove where a method stands, so that it begins again."""
        (self.folder / f"method-{name}.safetensors").unlink()

    def state(self, name: str) -> tuple[int, State]:
        """The last round of a method, and what it carries on."""
        return self._read(f"method-{name}", StateNote, self._state) or (0, State())

    def keep_state(self, name: str, number: int, state: State) -> None:
        """Write it."""
        server = state.server
        tensors: dict[str, NDArray[Any]] = {}
        if server.network is not None:
            tensors |= {f"global/{key}": tensor for key, tensor in server.network.tensors.items()}
        for site, network in server.sent.items():
            tensors |= {f"sent/{site}/{key}": tensor for key, tensor in network.tensors.items()}
        for group, sites in server.assignments.items():
            tensors |= {f"assignment/{group}/{site}": own for site, own in sites.items()}
        tensors |= {f"counts/{site}": numbers for site, numbers in server.counts.items()}
        tensors |= {f"m/{key}": value for key, value in state.moments.items()}
        note = StateNote(
            run=self.run,
            round=number,
            network=server.network is not None,
            objective=server.objective,
            groups=list(server.assignments),
            assigned=list(next(iter(server.assignments.values()), {})),
            sent=list(server.sent),
            counted=list(server.counts),
            agreement=server.agreement,
            averaging=server.averaging,
        )
        self._write(f"method-{name}", note, tensors)

    def _state(self, note: StateNote, tensors: Tensors) -> tuple[int, State]:
        if note.round < 1:
            raise ValueError(f"round {note.round}")
        network = self._network(tensors, "global") if note.network else None
        assignments = {
            group: {site: tensors[f"assignment/{group}/{site}"] for site in note.assigned}
            for group in note.groups
        }
        for group, sites in assignments.items():
            for units in sites.values():
                width = 0 if network is None else network.sizes[group]
                if units.dtype != np.intp or not ((units >= 0) & (units < width)).all():
                    raise ValueError(f"units of {group} that are not there")
        sent = {site: self._network(tensors, f"sent/{site}") for site in note.sent}
        moments = {key.removeprefix("m/"): t for key, t in tensors.items() if key.startswith("m/")}
        counts = {site: tensors[f"counts/{site}"] for site in note.counted}
        server = Server(
            network, assignments, sent, note.objective, counts, note.agreement, note.averaging
        )
        return note.round, State(server, moments)

    def _network(self, tensors: Tensors, name: str) -> Network:
        own = {key: tensors[f"{name}/{key}"] for key in self.like.tensors}
        return replace(self.like, tensors=own, name=name.removeprefix("sent/"))

    def _read(self, name: str, kind: type[N], made: Callable[[N, Tensors], T]) -> T | None:
        """What is made of a checkpoint; None where there is none."""
        from msgspec.json import decode
        from safetensors import safe_open

        path = self.folder / f"{name}.safetensors"
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="numpy") as file:
                note = decode(file.metadata()[NOTE], type=kind)
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            content = made(note, tensors) if note.run == self.run else None
        except Exception as error:  # whatever safetensors raises on a damaged file
            raise PFNMError(f"{path}: damaged ({told(error)}); begin the run again") from None
        if content is None:
            raise PFNMError(
                f"{path}: it is of a run with other settings; choose another folder, or the "
                "settings with which that was begun"
            )
        return content

    def _write(self, name: str, note: Note, tensors: Tensors) -> None:
        from safetensors.numpy import save as to_bytes

        plain = {key: np.ascontiguousarray(tensor) for key, tensor in tensors.items()}
        text = json.dumps(asdict(note))
        write_whole(self.folder / f"{name}.safetensors", to_bytes(plain, {NOTE: text}))
