"""Folders and patterns in place of the sites' files; data in place of a network."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pfnm.api import check, fuse
from pfnm.errors import PFNMError
from pfnm.formats import load, save
from pfnm.formats.folders import expanded
from pfnm.formats.sites import duplicates
from pfnm.networks.network import Network
from pfnm.networks.perceptron import mlp


def network(seed: int, **options: object) -> Network:
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=shape) for shape in ((3, 4), (4, 2))]
    return mlp(weights, [rng.normal(size=4), None], **options)  # type: ignore[arg-type]


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    """A folder of four sites, and of what else is often there."""
    folder = tmp_path / "sites"
    folder.mkdir()
    for seed, name in enumerate(("site1.npz", "site10.npz", "Site2.safetensors", "site3.PT")):
        save(network(seed), folder / name)
    save(network(9), folder / ".hidden.npz")
    (folder / "readme.txt").write_text("about")
    (folder / "counts.json").write_text("{}")
    np.savez(folder / "test.npz", x=np.ones((2, 3)), y=np.ones(2))
    np.savez(folder / "probes.npz", x=np.ones((2, 3)))
    (folder / "inner").mkdir()
    save(network(8), folder / "inner" / "deep.npz")
    (folder / "folder.npz").mkdir()
    return folder


ALL = ["site1.npz", "Site2.safetensors", "site3.PT", "site10.npz"]


def test_a_folder_stands_for_its_networks(sites: Path) -> None:
    assert expanded([sites]) == [sites / name for name in ALL]
    assert expanded([f"{sites}{os.sep}"]) == [sites / name for name in ALL]
    assert expanded([sites / "site10.npz", str(sites / "site1.npz")]) == [
        sites / "site10.npz",
        sites / "site1.npz",
    ]


def test_in_python_a_folder_or_a_pattern_stands_for_its_networks_too(sites: Path) -> None:
    told = fuse([sites / name for name in ALL])
    some = [f"{sites}/[sS]ite?.*", sites / "site10.npz"]
    for networks in (sites, str(sites), [sites], f"{sites}/*", some):
        found = fuse(networks)
        assert found.sites.names == told.sites.names
        assert found.network.widths == told.network.widths
    files = [sites / name for name in ALL]
    assert check(told.network, sites).agreement == check(told.network, files).agreement


@pytest.mark.parametrize(
    ("name", "way_out"),
    [("model.pkl", "skops.io.dump"), ("Model.JOBLIB", "skops.io.dump"), ("model.h5", "as ONNX")],
)
def test_files_that_are_not_for_us_are_told_a_way_out(
    tmp_path: Path, name: str, way_out: str
) -> None:
    (tmp_path / name).write_bytes(b"anything")
    for place in (tmp_path / name, tmp_path, tmp_path / "[mM]odel*"):
        with pytest.raises(PFNMError, match=way_out) as error:
            fuse([place, tmp_path / "other.npz"])
        assert str(tmp_path / name) in str(error.value)
    with pytest.raises(PFNMError, match=way_out):
        save(network(0), tmp_path / "new" / name)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*", ALL),
        ("*.npz", ["site1.npz", "site10.npz"]),
        ("site?.*", ["site1.npz", "site3.PT"]),
        ("site[13].*", ["site1.npz", "site3.PT"]),
        ("**/d*.npz", ["inner/deep.npz"]),
    ],
)
def test_a_pattern_stands_for_what_it_matches(
    sites: Path, pattern: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert expanded([sites / pattern]) == [sites / name for name in names]
    monkeypatch.chdir(sites.parent)
    assert expanded([f"sites/{pattern}"]) == [Path("sites") / name for name in names]


def test_a_file_whose_name_looks_like_a_pattern(tmp_path: Path) -> None:
    save(network(0), tmp_path / "site[1].npz")
    assert expanded([tmp_path / "site[1].npz"]) == [tmp_path / "site[1].npz"]


def test_nothing_found_is_an_error(sites: Path) -> None:
    (sites / "empty").mkdir()
    with pytest.raises(PFNMError, match=r"empty: no network in this folder.*\.safetensors"):
        expanded([sites, sites / "empty"])
    for pattern in ("*.onnx", "*.txt", "test*.npz", "missing/*"):
        with pytest.raises(PFNMError, match="no network matches this pattern"):
            expanded([sites / pattern])
    missing = sites / "missing.npz"  # left to `load`, which says what is wrong
    assert expanded([missing]) == [missing]


@pytest.mark.parametrize("extension", [".pt", ".npz", ".safetensors", ".onnx"])
def test_a_result_among_its_sites_is_named(sites: Path, extension: str) -> None:
    result = sites / f"global{extension}"
    fuse([network(0), network(1)]).save(result)
    for given in (sites, sites / "*"):
        with pytest.raises(PFNMError, match=rf"global\{extension}: the result of a fusion"):
            expanded([given])
    named = [result, sites / "site1.npz"]
    assert expanded(named) == named


def test_a_folder_of_results_can_be_fused_on(tmp_path: Path) -> None:
    for region in range(2):
        fuse([network(region), network(region + 5)]).save(tmp_path / f"{region}.npz")
    assert expanded([tmp_path]) == [tmp_path / "0.npz", tmp_path / "1.npz"]


def test_an_unreadable_file_is_left_to_load(sites: Path) -> None:
    (sites / "site4.npz").write_text("broken")
    assert sites / "site4.npz" in expanded([sites])


@pytest.mark.parametrize("name", ["test.npz", "probes.npz", "test.csv", "test.parquet"])
def test_data_is_no_network(sites: Path, name: str) -> None:
    (sites / "test.csv").write_text("a,b\n1,2\n")
    with pytest.raises(PFNMError, match=rf"{name}: .*looks like data.*pfnm evaluate .* --data"):
        load(sites / name)


def test_the_same_model_under_two_names() -> None:
    first, other = network(0, name="a"), network(1, name="b")
    stored_otherwise = network(0, name="c", transposed=False)
    assert duplicates([first, other]) == []
    (told,) = duplicates([first, other, stored_otherwise])
    assert told.startswith("c has the same weights as a")
    weight = {**first.tensors, "layers.0.weight": first.tensors["layers.0.weight"] + 1e-9}
    assert duplicates([first, replace(first, name="d", tensors=weight)]) == []
    assert len(duplicates([replace(first, name=name) for name in "xyz"])) == 2
