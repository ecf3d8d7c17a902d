"""Where a run stands: files from which each method goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfnm.core.errors import PFNMError
from pfnm.core.network import Network
from pfnm.federated.method import Local, State
from pfnm.federated.server import Server
from pfnm.formats import told
from pfnm.formats.files import write_whole

LOCAL = "local"  # the checkpoint of what all sites have after training alone
NOTE = "pfnm"  # the one metadata key of a checkpoint: safetensors writes several in any order


class Checkpoints:
    """Where each method stands, as safetensors; a network has the tensors `like` has."""

    def __init__(self, folder: Path, like: Network) -> None:
        self.folder, self.like = folder, like

    def local(self) -> Local | None:
        """What all sites have after training alone; None before that."""
        found = self._read(LOCAL)
        if found is None:
            return None
        note, tensors = found
        networks = {name: self._network(tensors, name) for name in note["sites"]}
        return Local(networks, note["left_out"], note["seconds"])

    def keep_local(self, local: Local) -> None:
        """Write it."""
        tensors = {
            f"{name}/{key}": tensor
            for name, network in local.networks.items()
            for key, tensor in network.tensors.items()
        }
        note = {
            "sites": list(local.networks),
            "left_out": dict(local.left_out),
            "seconds": local.seconds,
        }
        self._write(LOCAL, note, tensors)

    def round(self, name: str) -> int:
        """The last round of a method that is kept."""
        found = self._read(f"method-{name}")
        return 0 if found is None else int(found[0]["round"])

    def forget(self, name: str) -> None:
        """Remove where a method stands, so that it begins again."""
        (self.folder / f"method-{name}.safetensors").unlink()

    def state(self, name: str) -> tuple[int, State]:
        """The last round of a method, and what it carries on."""
        found = self._read(f"method-{name}")
        if found is None:
            return 0, State()
        note, tensors = found
        server = Server(
            self._network(tensors, "global") if note["network"] else None,
            {
                group: {site: tensors[f"assignment/{group}/{site}"] for site in note["assigned"]}
                for group in note["groups"]
            },
            {site: self._network(tensors, f"sent/{site}") for site in note["sent"]},
            note["objective"],
        )
        moments = {key.removeprefix("m/"): t for key, t in tensors.items() if key.startswith("m/")}
        return note["round"], State(server, moments)

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
        tensors |= {f"m/{key}": value for key, value in state.moments.items()}
        note = {
            "round": number,
            "network": server.network is not None,
            "objective": server.objective,
            "groups": list(server.assignments),
            "assigned": list(next(iter(server.assignments.values()), {})),
            "sent": list(server.sent),
        }
        self._write(f"method-{name}", note, tensors)

    def _network(self, tensors: Mapping[str, NDArray[Any]], name: str) -> Network:
        own = {key: tensors[f"{name}/{key}"] for key in self.like.tensors}
        return replace(self.like, tensors=own, name=name.removeprefix("sent/"))

    def _read(self, name: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
        from safetensors import safe_open

        path = self.folder / f"{name}.safetensors"
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="numpy") as file:
                note = json.loads(file.metadata()[NOTE])
                return note, {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except Exception as error:  # whatever safetensors raises on a damaged file
            raise PFNMError(f"{path}: damaged ({told(error)}); begin the run again") from None

    def _write(
        self, name: str, note: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]
    ) -> None:
        from safetensors.numpy import save as to_bytes

        plain = {key: np.ascontiguousarray(tensor) for key, tensor in tensors.items()}
        write_whole(self.folder / f"{name}.safetensors", to_bytes(plain, {NOTE: json.dumps(note)}))
