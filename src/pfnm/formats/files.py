"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from pfnm.core.errors import PFNMError


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that, whatever happens, there is the old one or the new one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise PFNMError(
            f"{path}: cannot be written ({error.strerror}); choose another place"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)  # gone already, unless something went wrong


def make_folder(folder: Path) -> None:
    """A folder with all those above it, if it is not there; else one clear line."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PFNMError(f"{folder}: no folder can be made there ({error.strerror})") from None
