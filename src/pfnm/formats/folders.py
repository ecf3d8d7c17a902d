"""Folders and patterns in place of the sites' files."""

from __future__ import annotations

import glob
import os
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

from pfnm.errors import PFNMError
from pfnm.formats import FORMATS, WAYS_OUT, load
from pfnm.formats.arrays import holds_data


def expanded(paths: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The sites' files: a folder stands for the networks in it, a pattern ('sites/*.pt') for those
    it matches, in natural order (site2 before site10); a file stands for itself.

    Hidden files, files that hold no network and folders within are left out.
    """
    files: list[Path] = []
    for path in paths:
        text = os.fspath(path)
        if os.path.isdir(text):
            files += sites_among(list(Path(path).iterdir()), f"{text}: no network in this folder")
        elif glob.has_magic(text) and not os.path.lexists(text):
            matches = [Path(match) for match in glob.glob(text, recursive=True)]
            files += sites_among(matches, f"{text}: no network matches this pattern")
        else:
            files.append(Path(path))
    return files


def sites_among(paths: Sequence[Path], none: str) -> list[Path]:
    """Those of the files that are networks; an error if none is, or if some were fused before."""
    files = sorted((path for path in paths if is_network(path)), key=natural)
    if not files:
        for path in paths:
            if (way_out := WAYS_OUT.get(path.suffix.lower())) is not None:
                raise PFNMError(f"{path}: {way_out}")
        raise PFNMError(f"{none}; expected files that end in {' '.join(FORMATS)}")
    results = [path for path in files if is_result(path)]
    if results and len(results) < len(files):
        raise PFNMError(
            f"{results[0]}: the result of a fusion, among networks to be fused; move it elsewhere, "
            "or give the files one by one"
        )
    return files


def is_network(path: Path) -> bool:
    """Whether this is a file that should hold a network."""
    if path.name.startswith(".") or path.suffix.lower() not in FORMATS or not path.is_file():
        return False
    if path.suffix.lower() != ".npz":
        return True
    try:
        with zipfile.ZipFile(path) as archive:
            return not holds_data([name.removesuffix(".npy") for name in archive.namelist()])
    except Exception:  # whatever zipfile raises on a damaged file, which `load` will tell
        return True


def is_result(path: Path) -> bool:
    """Whether pfnm wrote this file after a fusion; one that cannot be read is left to `load`."""
    try:
        return load(path).metadata.get("kind") == "fusion"
    except PFNMError:
        return False


def natural(path: Path) -> list[tuple[str, int]]:
    """A key by which site2 comes before site10."""
    parts = re.split(r"(\d+)", os.fspath(path).casefold())
    return [(part, 0) if i % 2 == 0 else ("", int(part)) for i, part in enumerate(parts)]
