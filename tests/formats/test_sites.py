"""What a site is called, from the path of its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfnm.errors import PFNMError
from pfnm.formats import site_names


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["a.pt"], ["a"]),
        (["x/a.pt", "y/b.pt"], ["a", "b"]),
        (["site_a/final.pt", "site_b/final.pt"], ["site_a", "site_b"]),
        (["a/x/final.pt", "b/x/final.pt"], ["a", "b"]),
        (["a/final.pt", "a/b/final.pt"], ["a", "b"]),
        (["x/a.pt", "x/a.onnx"], ["a.pt", "a.onnx"]),
        (["a/final.pt", "b/final.pt", "c.pt"], ["a", "b", "c"]),
        (["a/final.pt", "b/final.pt", "a.pt"], ["a/final.pt", "b", "a.pt"]),
    ],
)
def test_names(paths: list[str], names: list[str]) -> None:
    assert site_names(paths) == names


def test_names_are_different_even_where_no_single_folder_tells() -> None:
    paths = ["a/x/f.pt", "a/y/f.pt", "b/x/f.pt", "b/y/f.pt"]
    assert len(set(site_names(paths))) == len(paths)


def test_a_file_given_twice(tmp_path: Path) -> None:
    (tmp_path / "a.pt").touch()
    (tmp_path / "link.pt").symlink_to(tmp_path / "a.pt")
    for again in (tmp_path / "a.pt", tmp_path / "." / "a.pt", tmp_path / "link.pt"):
        with pytest.raises(PFNMError, match="the same file"):
            site_names([tmp_path / "a.pt", again])
