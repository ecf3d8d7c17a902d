"""Tensors of an ONNX model whose numbers stand in another file: which, and how much of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pfnm.errors import PFNMError
from pfnm.formats.limits import check_regular

EXTERNAL = 1  # as ONNX says that a tensor's numbers stand in another file


def external_tensors(graph: Any) -> Iterator[Any]:
    """The tensors of a graph or a function whose numbers stand in another file, however deep."""
    tensors = [*getattr(graph, "initializer", ())]
    for node in graph.node:
        for attribute in node.attribute:
            tensors += attribute.tensors
            if attribute.HasField("t"):
                tensors.append(attribute.t)
            for inner in attribute.graphs:
                yield from external_tensors(inner)
            if attribute.HasField("g"):
                yield from external_tensors(attribute.g)
    yield from (tensor for tensor in tensors if tensor.data_location == EXTERNAL)


def external_bytes(path: Path, file: str, tensor: Any) -> int:
    """How much of another file is read for a tensor."""
    told = {entry.key: entry.value for entry in tensor.external_data}
    try:
        whole = check_regular(path.parent / told.get("location", ""))
        length, offset = int(told.get("length", 0)), int(told.get("offset", 0))
    except ValueError as error:
        raise PFNMError(
            f"{file}: tensor {tensor.name!r} stands in another file ({error}); save it again"
        ) from error
    return length or whole - min(offset, whole)
