"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pfnm.errors import PFNMError


def check_output(path: Path, *, force: bool, inputs: Iterable[Path] = ()) -> None:
    """An error if `write_whole` would refuse this path, or if it is one of the inputs.

    A symbolic link counts as a file that is there; with `force` what it points to is written.
    """
    try:
        if path.is_dir():
            raise PFNMError(f"{path}: it is a folder; give the name of a file")
        if os.path.lexists(path) and not force:
            raise _taken(path)
        target = _end_of_links(path)
        if any(target == Path(os.path.realpath(file)) for file in inputs):
            raise PFNMError(
                f"{path}: it is one of the inputs, which are never replaced; choose another name"
            )
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise PFNMError(f"{path}: cannot be written; the folder must exist and be writable")
    except ValueError as error:  # a path that no file can have
        if isinstance(error, PFNMError):
            raise
        raise PFNMError(f"{path}: cannot be written ({error}); choose another name") from None


def write_whole(path: Path, data: bytes, *, force: bool = True) -> None:
    """Write a file so that, whatever happens, there is the old one or the new one.

    Without `force`, a file of that name is never replaced, however late it appears.
    """
    target = _end_of_links(path) if force else path
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if force:
            os.replace(temporary, target)
        else:
            _place(temporary, target)
    except FileExistsError:
        raise _taken(path) from None
    except OSError as error:
        raise PFNMError(
            f"{path}: cannot be written ({error.strerror}); choose another place"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)  # gone already, unless something went wrong


def _place(temporary: Path, target: Path) -> None:
    """Give a file its name, or fail where the name is taken."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links: take the name first, then fill it
        target.open("xb").close()
        try:
            os.replace(temporary, target)
        except BaseException:
            target.unlink()
            raise


def _end_of_links(path: Path) -> Path:
    """Where a path leads: what may be replaced is a regular file, or not there yet."""
    target = Path(os.path.realpath(path))
    if os.path.lexists(target) and (target.is_symlink() or not target.is_file()):
        raise PFNMError(f"{path}: it is no plain file, and only those are replaced; choose another")
    return target


def _taken(path: Path) -> PFNMError:
    return PFNMError(
        f"{path}: it exists already; choose another name, or replace it with --force (in Python "
        "force=True)"
    )


def make_folder(folder: Path) -> None:
    """A folder with all those above it, if it is not there; else one clear line."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PFNMError(f"{folder}: no folder can be made there ({error.strerror})") from None
