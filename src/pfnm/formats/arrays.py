"""safetensors and .npz: files of named arrays."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from pfnm.errors import PFNMError
from pfnm.formats.content import (
    LOOKS_LIKE_DATA,
    Content,
    Stored,
    ill_formed_notes,
    notes_of,
    parsed_notes,
)
from pfnm.formats.limits import Allowance, npy_array
from pfnm.formats.naming import arrange
from pfnm.formats.normalisation import COUNTER
from pfnm.networks.network import Network, Tensor

NPZ_NOTES = "__pfnm__"  # the member of an .npz that holds our notes
HEADER_SIZE_BYTES = 8  # a safetensors file begins with the size of its header
FLOAT_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}


def read_safetensors(path: Path, file: str) -> Content:
    """The layers of a safetensors file."""
    return arrange(file, *stored_safetensors(path, file))


def stored_safetensors(path: Path, file: str, *, others: bool = True) -> Stored:
    """What a safetensors file holds. others: what is no floating point is an error, or left out."""
    allowance = Allowance(file)
    allowance.take("its content", path.stat().st_size)
    data = path.read_bytes()
    stored = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
    tensors = {
        name: array_of(file, name, parts)
        for name, parts in stored
        if not name.endswith(COUNTER) and (others or parts["dtype"] in (*FLOAT_TYPES, "BF16"))
    }
    # The library keeps the last of two tensors of one name without a word, so we look ourselves.
    end = HEADER_SIZE_BYTES + int.from_bytes(data[:HEADER_SIZE_BYTES], "little")
    header = json.loads(data[HEADER_SIZE_BYTES:end], object_pairs_hook=lambda pairs: pairs)
    refuse_duplicates(file, [name for name, _ in header])
    metadata = dict(dict(header).get("__metadata__", ()))
    return Stored(tensors, parsed_notes(file, metadata.get("pfnm", "{}"), allowance))


def array_of(file: str, name: str, stored: dict[str, Any]) -> np.ndarray[Any, Any]:
    """A tensor as safetensors hands it over: its type, its shape and its bytes."""
    if stored["dtype"] == "BF16":  # the upper half of a float32
        halves = np.frombuffer(stored["data"], dtype="<u2").astype(np.uint32)
        return (halves << 16).view(np.float32).reshape(stored["shape"])
    if stored["dtype"] not in FLOAT_TYPES:
        raise PFNMError(
            f"{file}: tensor {name!r} holds {stored['dtype']}, expected floating point; save the "
            "trained weights unquantised"
        )
    array = np.frombuffer(stored["data"], dtype=FLOAT_TYPES[stored["dtype"]])
    return array.reshape(stored["shape"]).copy()


def write_safetensors(network: Network) -> bytes:
    """The network as a safetensors file.

    Its metadata has one key: the library writes several in random order, and equal networks should
    be equal files.
    """
    return pack_safetensors(network.tensors, notes_of(network), network.name)


def pack_safetensors(tensors: Mapping[str, Tensor], notes: dict[str, Any], _: str) -> bytes:
    """Tensors and notes as a safetensors file."""
    own = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    return safetensors.numpy.save(own, metadata={"pfnm": json.dumps(notes)})


def read_npz(path: Path, file: str) -> Content:
    """The layers of an .npz file."""
    return arrange(file, *stored_npz(path, file))


def stored_npz(path: Path, file: str, *, others: bool = True) -> Stored:
    """What an .npz file holds; arrays of Python objects are refused, never unpickled."""
    allowance = Allowance(file)
    with zipfile.ZipFile(path) as archive:
        members = npz_members(file, archive)
        if holds_data(members):
            raise PFNMError(f"{file}: it holds the arrays {', '.join(members)}: {LOOKS_LIKE_DATA}")
        arrays = {name: npz_member(archive, file, name, allowance) for name in members}
    notes = arrays.pop(NPZ_NOTES, None)
    if notes is not None and (notes.ndim > 0 or notes.dtype.kind != "U"):
        raise ill_formed_notes(file, NPZ_NOTES)
    text = "{}" if notes is None else str(notes.item())
    if not others:
        arrays = {name: own for name, own in arrays.items() if own.dtype.kind == "f"}
    return Stored(arrays, parsed_notes(file, text, allowance))


def npz_members(file: str, archive: zipfile.ZipFile) -> list[str]:
    """The names of the arrays of an .npz file, each of which stands there once."""
    names = [name.removesuffix(".npy") for name in archive.namelist()]
    refuse_duplicates(file, names)
    return names


def holds_data(names: list[str]) -> bool:
    """Whether arrays of these names are examples, with or without labels, and no network's."""
    from pfnm.formats.data import INPUT_NAMES, LABEL_NAMES

    inputs, labels = set(names) & set(INPUT_NAMES), set(names) & set(LABEL_NAMES)
    return bool(inputs) and (bool(labels) or len(inputs) == len(names))


def npz_member(
    archive: zipfile.ZipFile, file: str, name: str, allowance: Allowance
) -> np.ndarray[Any, Any]:
    """One array of an .npz file, if it is plain and not too large."""
    try:
        with archive.open(f"{name}.npy") as member:
            return npy_array(member, f"array {name!r}", allowance)
    except KeyError:
        raise PFNMError(
            f"{file}: {name!r} in it is no array (.npy); save the file again with numpy.savez"
        ) from None
    except PFNMError:
        raise
    except ValueError as error:
        raise PFNMError(
            f"{file}: tensor {name!r} cannot be read as plain numbers ({error}); save it as a "
            "floating-point array"
        ) from error


def write_npz(network: Network) -> bytes:
    """The network as an .npz file."""
    return pack_npz(network.tensors, notes_of(network), network.name)


def pack_npz(tensors: Mapping[str, Tensor], notes: dict[str, Any], owner: str) -> bytes:
    """Tensors and notes as an .npz file."""
    for name in tensors:
        # An unpacker may take such a name for a place outside of its folder.
        if name == NPZ_NOTES or set(re.split(r"[/\\]", name)) & {"", ".", ".."} or "\0" in name:
            raise PFNMError(
                f"{owner}: tensor {name!r} cannot have this name in an .npz file; rename "
                "it, or save as .safetensors"
            )
    buffer = io.BytesIO()
    arrays = {**tensors, NPZ_NOTES: np.array(json.dumps(notes))}
    # numpy.savez takes names as keywords and so refuses some ("file"); the format is only a zip.
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    return buffer.getvalue()


def refuse_duplicates(file: str, names: list[str]) -> None:
    """An error if a name stands twice: which tensor is meant, nobody can tell."""
    for name, count in Counter(names).items():
        if count > 1:
            raise PFNMError(f"{file}: tensor {name!r} is there {count} times; save the file again")
