"""Files of a module's tensors by name, whatever its architecture."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pfnm.errors import PFNMError
from pfnm.formats import FORMATS, Format, check_readable, check_target, format_of, guarded
from pfnm.formats.content import Stored
from pfnm.formats.files import write_whole
from pfnm.networks.network import Tensor


def read_state(path: str | os.PathLike[str]) -> Stored:
    """The floating-point tensors of a file, and our notes. Nothing in the file is ever executed."""
    file, kind = os.fspath(path), _of_tensors(path)
    assert kind.stored is not None
    check_readable(file)
    with guarded(file, kind):
        return kind.stored(Path(path), file, others=False)


def save_state(
    tensors: Mapping[str, Tensor],
    notes: Mapping[str, Any],
    path: str | os.PathLike[str],
    *,
    force: bool = False,
) -> None:
    """Write tensors and notes to a file, whole or not at all."""
    check_target(path, force=force)
    kind = _of_tensors(path)
    assert kind.pack is not None
    data = kind.pack(tensors, dict(notes), os.fspath(path))
    write_whole(Path(path), data, force=force)


def _of_tensors(path: str | os.PathLike[str]) -> Format:
    kind = format_of(path)
    if kind.stored is None:
        endings = " ".join(ending for ending, own in FORMATS.items() if own.stored is not None)
        raise PFNMError(
            f"{os.fspath(path)}: a module's tensors cannot be kept in a {kind.title}; choose one "
            f"of {endings}"
        )
    return kind
