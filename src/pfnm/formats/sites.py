"""What sites are called, and whether one of them is there twice."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pfnm.errors import PFNMError
from pfnm.networks.network import Network, Tensor
from pfnm.networks.perceptron import Perceptron, layers


def site_names(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Each site's name: its file's stem or, where stems repeat, the shortest telling part of paths.

    site_a/final.pt and site_b/final.pt are site_a and site_b; a.pt and a.onnx keep their extension.
    """
    seen: dict[Path, str] = {}
    for path in paths:
        real = Path(os.path.realpath(path))
        if real in seen:
            raise PFNMError(
                f"{os.fspath(path)}: the same file as {seen[real]}; give each site's file once"
            )
        seen[real] = os.fspath(path)
    by_stem: dict[str, list[int]] = {}
    for index, path in enumerate(paths):
        by_stem.setdefault(Path(path).stem, []).append(index)
    names = [Path(path).stem for path in paths]
    for alike in by_stem.values():
        found = telling_parts([Path(os.path.abspath(paths[index])) for index in alike])
        for index, name in zip(alike, found, strict=True):
            names[index] = name
    # A folder may be called like another site's file; the path as given is then the plain name.
    times = Counter(names)
    return [
        os.fspath(path) if times[name] > 1 else name
        for path, name in zip(paths, names, strict=True)
    ]


def telling_parts(paths: Sequence[Path]) -> list[str]:
    """The shortest part of each of these paths of one stem by which they differ."""
    folders = [path.parts[-2::-1] for path in paths]
    candidates = [[path.stem for path in paths], [path.name for path in paths]]
    candidates += [list(level) for level in zip(*folders, strict=False)]
    for names in candidates:
        if len(set(names)) == len(paths):
            return names
    return [os.fspath(path) for path in paths]


def duplicates(networks: Sequence[Network]) -> list[str]:
    """A warning for each site that holds the very numbers of another one, under another name.

    Names and types of tensors make no difference, nor which way a perceptron's weights are stored.
    """
    first: dict[str, str] = {}
    warnings = []
    for network in networks:
        numbers = hashlib.sha256()
        for tensor in _in_one_form(network):
            values = np.array((), float) if tensor is None else tensor.astype(float)
            numbers.update(repr(values.shape).encode())
            numbers.update(np.ascontiguousarray(values).data)
        same = first.setdefault(numbers.hexdigest(), network.name)
        if same != network.name:
            warnings.append(
                f"{network.name} has the same weights as {same}: the same model counts twice; "
                "leave one of them out, unless two sites really share it"
            )
    return warnings


def _in_one_form(network: Network) -> list[Tensor | None]:
    """The tensors, a perceptron's all stored one way."""
    if isinstance(network.program, Perceptron):
        return [tensor for layer in layers(network) for tensor in (layer.weight, layer.bias)]
    return [network.tensors[name] for name in network.graph.axes]
