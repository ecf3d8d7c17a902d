"""The folder of a run or an experiment: one that is ours, worked in by one process at a time.

A folder is ours if it holds the file that marks it (run.json, say); an empty one can become ours.
Nothing in any other folder is touched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pfnm.errors import PFNMError
from pfnm.formats.files import make_folder

LOCK = "lock"
TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")  # what `write_whole` leaves when it is killed


@contextmanager
def claimed(folder: Path, mark: str, *, parts: tuple[str, ...] = ()) -> Iterator[None]:
    """Work in a folder that holds `mark`, or is new or empty, alone.

    What a killed process left half-written there, or in the folders `parts` of it, is removed.
    """
    _check_ours(folder, mark)
    make_folder(folder)
    with locked(folder):
        _check_ours(folder, mark)  # nobody else can change that any more
        for place in (folder, *(folder / part for part in parts)):
            for left in place.iterdir() if place.is_dir() else ():
                if TEMPORARY.fullmatch(left.name) and left.is_file() and not left.is_symlink():
                    left.unlink()
        yield


def _check_ours(folder: Path, mark: str) -> None:
    """An error if there is something that is not ours."""
    if not folder.exists() and not folder.is_symlink():
        return
    if not folder.is_dir():
        raise PFNMError(f"{folder}: is no folder; choose another place")
    if (folder / mark).is_file():
        return
    for found in folder.iterdir():
        if not _is_lock(found) and not TEMPORARY.fullmatch(found.name):
            raise PFNMError(
                f"{folder}: is not empty and has no {mark}, so pfnm does not write in it; choose "
                "another folder"
            )


def _is_lock(path: Path) -> bool:
    """Whether this is our lock, which is empty."""
    return path.name == LOCK and path.is_file() and path.lstat().st_size == 0


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Two processes must not write one run, or one experiment."""
    from filelock import FileLock, Timeout

    path = folder / LOCK
    if (path.exists() or path.is_symlink()) and not _is_lock(path):
        raise PFNMError(f"{path}: is not the empty file that pfnm makes of that name; move it away")
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise PFNMError(f"{folder}: another process is at work in it; wait for it") from None
    except OSError as error:
        raise PFNMError(f"{path}: cannot be made ({error.strerror})") from None
    try:
        yield
    finally:
        lock.release()
