"""ONNX files of convolutional networks: modules of PyTorch, and traced as such."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pfnm.errors import PFNMError
from pfnm.formats.limits import check_regular
from pfnm.networks.network import Network

CONVOLUTIONS = ("Conv", "ConvTranspose")  # what no perceptron has
OPERATOR_FIELD = 0x22  # how protobuf marks a node's operator, before its length and its name
BLOCK = 2**24  # bytes that are looked through at a time

PathText = str | os.PathLike[str]


def holds_convolutions(path: PathText) -> bool:
    """Whether an ONNX file has a convolution; quick, for every file of a perceptron is asked."""
    check_regular(path)
    marks = [bytes([OPERATOR_FIELD, len(name)]) + name.encode() for name in CONVOLUTIONS]
    overlap = max(map(len, marks))
    try:
        with open(path, "rb") as file:
            last = b""
            while block := file.read(BLOCK):
                if any(mark in last + block for mark in marks):
                    return _really(Path(path))
                last = block[-overlap:]
    except OSError:  # which is told of where the file is read
        pass
    return False


def _really(path: Path) -> bool:
    try:
        import onnx

        graph = onnx.load(path, load_external_data=False).graph
    except Exception:  # no ONNX, or none to be read: told where the file is read
        return False
    return any(node.op_type in CONVOLUTIONS for node in graph.node)


def read_graphs(
    paths: Sequence[PathText], example_inputs: Any = None, **told: Any
) -> list[Network]:
    """The networks of ONNX files of one architecture; what is told as `from_modules` takes it."""
    from pfnm.formats import ONNX, check_readable, guarded

    if find_spec("torch") is None:
        raise PFNMError(
            f"{os.fspath(paths[0])}: a convolutional network needs PyTorch, which is not "
            "installed; pip install 'pfnm[torch]'"
        )
    from pfnm.tracing.modules import from_modules
    from pfnm.tracing.onnx_module import OnnxModule, read_module

    modules: list[OnnxModule] = []
    for path in paths:
        check_readable(os.fspath(path))
        with guarded(os.fspath(path), ONNX):
            modules.append(read_module(Path(path), modules[0] if modules else None))
    inputs = modules[0].example() if example_inputs is None else example_inputs
    return from_modules(modules, inputs, **told)
