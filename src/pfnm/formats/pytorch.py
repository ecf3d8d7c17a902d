"""PyTorch checkpoints: a state dict, bare or beside whatever else a training loop saves."""

from __future__ import annotations

import io
import json
import re
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, ClassVar

from pfnm.errors import PFNMError
from pfnm.formats.content import Content, Stored, as_notes, notes_of, parsed_notes
from pfnm.formats.limits import Allowance
from pfnm.formats.naming import arrange
from pfnm.formats.pickles import hashes_too_much
from pfnm.formats.state_dicts import WAY_OUT, find_state_dict, to_numpy
from pfnm.networks.network import Network, Tensor

PICKLE_START = b"\x80"  # the first byte of a pickle
ZIP_START = b"PK\x03\x04"  # and how a checkpoint of today begins
NOTES = "pfnm.json"  # our notes, as one more member of the zip: torch.load does not look at it
BYTEARRAY = b"bytearray\n"  # the end of this name in a pickle
STAND_INS = threading.Lock()  # PyTorch keeps the names that it may read for the whole process


def read(path: Path, file: str) -> Content:
    """The layers of a checkpoint."""
    return arrange(file, *stored_tensors(path, file), in_order=True)


def stored_tensors(path: Path, file: str, *, others: bool = True) -> Stored:
    """What a checkpoint holds. Only tensors are read: no code in the file is ever run.

    others: what is no floating point is kept, or left out.
    """
    text = noted_text(path, file)
    stored = load(path, file)
    if isinstance(stored, Ignored):
        raise more_than_tensors(file, stored.stands_for)
    state_dict = find_state_dict(file, stored)
    if not others:
        state_dict = {n: v for n, v in state_dict.items() if v.dtype.is_floating_point}
    allowance = Allowance(file)
    for name, value in state_dict.items():
        # A tensor may be larger than what is stored: one number, expanded to any shape.
        allowance.take(f"tensor {name!r}", value.numel() * value.dtype.itemsize)
    tensors = {name: to_numpy(file, name, value) for name, value in state_dict.items()}
    if text is not None:
        notes = parsed_notes(file, text, Allowance(file))
    else:  # or where we wrote them once
        notes = as_notes(file, stored.get("pfnm", {}) if "state_dict" in stored else {})
    return Stored(tensors, notes)


def noted_text(path: Path, file: str) -> bytes | None:
    """Our notes in the file, if it has some; an error if PyTorch would take too much to read it.

    PyTorch makes a bytearray of any length that a checkpoint asks for; no network needs one.
    """
    allowance, notes = Allowance(file), None
    with path.open("rb") as opened:
        zipped = opened.read(len(ZIP_START)) == ZIP_START  # as PyTorch tells it
    if zipped:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            for member in members:
                allowance.take(f"{member.filename!r}", member.file_size)
            # Of a name that stands twice, or in capitals, PyTorch may read either.
            pickles = [archive.read(m) for m in members if m.filename.lower().endswith(".pkl")]
            for member in members:
                if member.filename.endswith(f"/{NOTES}") and member.filename.count("/") == 1:
                    notes = archive.read(member)
    else:
        allowance.take("its content", path.stat().st_size)
        pickles = [path.read_bytes()]
    if any(BYTEARRAY in pickled for pickled in pickles):
        raise more_than_tensors(file, "bytearray")
    if any(hashes_too_much(pickled) for pickled in pickles):
        raise PFNMError(
            f"{file}: a dict in it has keys that would take too long to look up (tuples of tuples, "
            f"the same many times), expected texts; {WAY_OUT}"
        )
    return notes


def load(path: Path, file: str) -> Any:
    """What the file holds: tensors, plain values and containers, and `Ignored` for all else."""
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (UnpicklingError, RuntimeError) as error:
        culprit = re.search(r"GLOBAL (\S+)|(TorchScript)", str(error))
        with path.open("rb") as opened:
            pickled = opened.read(len(PICKLE_START)) == PICKLE_START
        if culprit and culprit[1] and zipfile.is_zipfile(path):
            return load_ignoring(path, file, culprit[1])
        if culprit or (pickled and "Unsupported operand" in str(error)):
            raise more_than_tensors(file, culprit and (culprit[1] or culprit[2])) from error
        raise PFNMError(
            f"{file}: it is no PyTorch checkpoint, or it is damaged; {WAY_OUT}"
        ) from error


def more_than_tensors(file: str, culprit: str | None) -> PFNMError:
    """The error for a file that cannot be read without making objects of its choice."""
    named = f" ({culprit})" if culprit else ""
    return PFNMError(
        f"{file}: it holds more than tensors{named}, which pfnm does not load because it could run "
        f"code; {WAY_OUT}"
    )


class Ignored:
    """Stands for an object of a checkpoint that is not read: takes anything, keeps nothing.

    PyTorch reads a checkpoint without running what it names, and stops at the first name that it
    does not know. Under every such name it is given a class of this kind instead.
    """

    stands_for: ClassVar[str] = ""
    filled_as: ClassVar[Callable[[], Any] | None] = None

    def __new__(cls, *_: Any) -> Any:
        """An empty container where the file fills one (PyTorch fills only its own kinds)."""
        return object.__new__(cls) if cls.filled_as is None else cls.filled_as()

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, _: Any) -> None: ...


def stand_in(name: str, filled_as: Callable[[], Any] | None = None) -> type[Ignored]:
    """A class that stands for the one of this name."""
    ours = {
        "stands_for": name,
        "filled_as": None if filled_as is None else staticmethod(filled_as),
        "__qualname__": name,
    }
    return type("Ignored", (Ignored,), ours)


def load_ignoring(path: Path, file: str, culprit: str) -> Any:
    """The checkpoint with an `Ignored` for every object that PyTorch does not read by itself.

    Dicts and lists of other classes (a defaultdict, a deque) are read as plain ones: PyTorch names
    the class when it meets one that is filled, so each costs one more attempt.
    """
    from torch import load, serialization

    if not hasattr(serialization, "get_unsafe_globals_in_checkpoint"):  # before PyTorch 2.6
        raise more_than_tensors(file, culprit)
    try:
        with STAND_INS:
            unknown = serialization.get_unsafe_globals_in_checkpoint(path)
            stand_ins = {name: stand_in(name) for name in unknown}
            while True:
                with serialization.safe_globals([(own, name) for name, own in stand_ins.items()]):
                    try:
                        return load(path, map_location="cpu", weights_only=True)
                    except UnpicklingError as error:
                        name, filled_as = filled(str(error))
                        if name not in stand_ins or stand_ins[name].filled_as is not None:
                            raise
                stand_ins[name] = stand_in(name, filled_as)
    except Exception as error:  # whatever PyTorch raises where a stand-in is not what it needs
        blocked = re.search(r"GLOBAL (\S+)", str(error))
        raise more_than_tensors(file, blocked[1] if blocked else culprit) from error


def filled(story: str) -> tuple[str, Callable[[], Any]]:
    """The class that PyTorch's error says is filled like a dict or a list, if it is such an error.

    An OrderedDict, because that one may have attributes too, as a dict of another class often has.
    """
    found = re.search(r"Can only (\w+) .*got <class '(.*)'>", story)
    if found is None:
        return "", dict
    name = found[2].removeprefix(f"{__name__}.")
    return name, OrderedDict if found[1].startswith("SETITEM") else list


def write(network: Network) -> bytes:
    """The network as a bare state dict, as load_state_dict takes it, with our notes beside it."""
    return pack(network.tensors, notes_of(network), network.name)


def pack(tensors: Mapping[str, Tensor], notes: dict[str, Any], _: str) -> bytes:
    """Tensors and notes as a checkpoint."""
    import torch

    state_dict = {name: torch.tensor(tensor) for name, tensor in tensors.items()}
    buffer = io.BytesIO()
    torch.save(state_dict, buffer)
    with zipfile.ZipFile(buffer, "a") as archive:
        root = archive.namelist()[0].partition("/")[0]
        # ZipInfo has a fixed date: equal networks are equal files.
        archive.writestr(zipfile.ZipInfo(f"{root}/{NOTES}"), json.dumps(notes))
    return buffer.getvalue()
