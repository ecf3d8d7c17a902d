"""How much a file may hold, by what it declares: known before it is read, however small it is.

`PFNM_MAX_BYTES` in the environment sets another limit, for networks and for data.
"""

from __future__ import annotations

import io
import math
import os
import stat
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from pfnm.errors import PFNMError

VARIABLE = "PFNM_MAX_BYTES"
NETWORK_BYTES = 2**30  # of tensors in a network's file: 270 million numbers of 32 bits
DATA_BYTES = 2**31  # of numbers in a data file, 8 bytes each: all of CIFAR-10 is 1.5 GB
JSON_BYTES = 32  # that a character of JSON may take in memory: "[]," makes a list
LONGEST_HEADER = 10_000  # bytes before an array's numbers; numpy's own limit
LONGEST_NAME = 1000  # characters of a tensor's name
NPY_START = b"\x93NUMPY"  # how an .npy file begins
BLOCK = 2**20  # bytes of an array that are read at a time
KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a directory",
}


class Allowance:
    """How many bytes a file may still declare."""

    def __init__(self, file: str | Path, most: int = NETWORK_BYTES) -> None:
        self.file = file
        told = os.environ.get(VARIABLE)
        if told is not None and not (told.isascii() and told.isdecimal()):
            raise PFNMError(f"{VARIABLE} is {told!r}, expected a number of bytes; correct it")
        self.most = self.left = most if told is None else int(told)

    def take(self, what: str, size: int) -> None:
        """An error if this many bytes more are too many."""
        self.left -= size
        if self.left < 0:
            raise PFNMError(
                f"{self.file}: {what} would take it beyond {self.most:,} bytes in memory; raise "
                f"the limit with {VARIABLE} in the environment if you trust the file"
            )


def check_regular(file: str | os.PathLike[str]) -> int:
    """The size of a file; an error, at once, for what is no file: opening a pipe may wait."""
    try:
        status = os.stat(file)
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        why = getattr(error, "strerror", error)
        raise PFNMError(f"{os.fspath(file)}: cannot be read ({why}); check the path") from error
    if not stat.S_ISREG(status.st_mode):
        kind = KINDS.get(stat.S_IFMT(status.st_mode), "no regular file")
        raise PFNMError(f"{os.fspath(file)}: it is {kind}, expected a file; check the path")
    return status.st_size


class Declared(NamedTuple):
    """What an .npy file says of its array."""

    shape: tuple[int, ...]
    by_columns: bool  # as Fortran stores it
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """The bytes that the array takes."""
        return math.prod(self.shape) * self.dtype.itemsize


def npy_declared(opened: IO[bytes]) -> Declared:
    """The array that an .npy file declares, before it is made; its numbers are what comes next."""
    version = np.lib.format.read_magic(opened)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"version {version} of the format")
    length = opened.read(2 if version == (1, 0) else 4)
    if int.from_bytes(length, "little") > LONGEST_HEADER:
        raise ValueError(f"a header of {int.from_bytes(length, 'little'):,} bytes")
    return parsed_header(version, length + opened.read(int.from_bytes(length, "little")))


@lru_cache  # a network has few shapes, and a header takes longer to read than a small array
def parsed_header(version: tuple[int, int], header: bytes) -> Declared:
    """What the header of an .npy file says, from the bytes of its length on."""
    if version == (1, 0):
        declared = Declared(*np.lib.format.read_array_header_1_0(io.BytesIO(header)))
    else:
        declared = Declared(*np.lib.format.read_array_header_2_0(io.BytesIO(header)))
    if min(declared.shape, default=0) < 0:
        raise ValueError(f"shape {declared.shape}")
    return declared


def npy_array(opened: IO[bytes], what: str, allowance: Allowance) -> np.ndarray[Any, Any]:
    """The array of an .npy file, if it is plain and not too large."""
    shape, by_columns, dtype = declared = npy_declared(opened)
    allowance.take(what, declared.size)
    if dtype.hasobject:
        raise ValueError("it holds objects")
    numbers, place = np.empty(declared.size, np.uint8), 0
    while place < declared.size:
        count = opened.readinto(numbers[place : place + BLOCK])  # type: ignore[attr-defined]
        if not count:
            raise ValueError(f"{place:,} bytes of {declared.size:,}")
        place += count
    return np.ndarray(shape, dtype, numbers, order="F" if by_columns else "C")


def check_name(file: str, name: str) -> None:
    """An error for a name too long to be one."""
    if len(name) > LONGEST_NAME:
        raise PFNMError(
            f"{file}: a tensor has a name of {len(name):,} characters ({name[:20]!r}...), expected "
            f"at most {LONGEST_NAME:,}; rename it"
        )
