"""A fusion, and what can be done with it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import Run, random_network

import pfnm
from pfnm import PFNMError
from pfnm.networks.perceptron import mlp


def sites(number: int = 3) -> list[pfnm.Network]:
    return [random_network(j, (6, 9, 4), name=f"site{j}") for j in range(number)]


def test_a_fusion_is_saved_and_predicts_as_its_file_does(tmp_path: Path) -> None:
    fusion = pfnm.fuse(sites(), class_counts=np.ones((3, 4)))
    inputs = np.random.default_rng(0).normal(size=(20, 6))
    fusion.save(tmp_path / "global.npz")
    loaded = pfnm.load(tmp_path / "global.npz")
    np.testing.assert_array_equal(loaded.predict(inputs), fusion.predict(inputs))
    assert loaded.metadata["options"]["class_counts"] == [[1] * 4] * 3
    assert loaded.metadata["sites"][2]["name"] == "site2"
    assert fusion.evaluate(inputs, fusion.predict(inputs))["accuracy"] == 1
    with pytest.raises(PFNMError, match="--force"):
        fusion.save(tmp_path / "global.npz")


def test_check_is_likeness_on_fresh_inputs() -> None:
    fusion = pfnm.fuse(sites())
    found = fusion.check(seed=3)
    assert found == fusion.check(seed=3)
    assert found.agreement == pytest.approx(fusion.agreement, abs=0.05)
    assert found.best_site in fusion.sites.names


@pytest.mark.parametrize("thing", [pfnm.fuse(sites()), sites()[0]])
def test_five_lines_say_what_it_is(thing: object) -> None:
    assert len(repr(thing).splitlines()) == 5
    assert thing._repr_html_().startswith("<p><b>")  # type: ignore[attr-defined]


def test_names_are_escaped_in_notebooks() -> None:
    network = mlp([np.eye(2)], labels=["<b>", "c"], name="<script>")
    assert "<script>" not in network._repr_html_()
    assert "&lt;b&gt;" in network._repr_html_()


def test_values_are_predicted_as_they_are() -> None:
    weights = [np.eye(2), np.array([[1.0], [2.0]])]
    assert mlp(weights, output="values").predict([[3, 4]]).tolist() == [11]
    assert mlp(weights).predict([[3, 4]]).tolist() == [11]
    assert mlp(weights, output="sigmoid").predict([[3, 4], [0, 0]]).tolist() == [1, 0]
    both = mlp([np.array([[1.0, -1.0]])], output="sigmoid")
    assert both.predict([[3]]).tolist() == [[1, 0]]


@pytest.mark.parametrize(
    ("budget", "width"), [("1x", 9), ("1.5x", 13), (1.5, 13), (12, 12), ("12", 12)]
)
def test_budgets_are_read_alike(budget: object, width: int) -> None:
    assert pfnm.fuse(sites(), budget=budget).widths["hidden1"] <= width  # type: ignore[arg-type]


def test_a_whole_number_is_told_both_readings() -> None:
    with pytest.raises(PFNMError, match=r"2 units, a whole number \(2x would be a factor\)"):
        pfnm.fuse(sites(), budget=2)


def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    for name in ("one.npz", "two.npz"):
        pfnm.fuse(sites(), seed=4).save(tmp_path / name)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


def test_sites_hold_what_is_told_of_them() -> None:
    gathered = pfnm.as_sites(sites(), class_counts=np.ones((3, 4)))
    told = pfnm.fuse(gathered)
    np.testing.assert_array_equal(
        told.network.tensors["layers.0.weight"],
        pfnm.fuse(sites(), class_counts=np.ones((3, 4))).network.tensors["layers.0.weight"],
    )
    with pytest.raises(PFNMError, match="tell it to as_sites"):
        pfnm.fuse(gathered, activation="tanh")


def test_the_command_says_its_version_and_more() -> None:
    for words in (["pfnm", "--version"], [sys.executable, "-m", "pfnm", "--version"]):
        path = Path(sys.executable).parent / words[0] if words[0] == "pfnm" else words[0]
        done = subprocess.run([path, *words[1:]], capture_output=True, text=True, check=True)
        assert done.stdout == f"pfnm {pfnm.__version__}\n"


def test_calibrate_says_what_it_chose_and_refuses_what_it_chooses(
    run: Run, site_files: list[Path], tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "val.npz", x=rng.normal(size=(60, 6)), y=rng.integers(4, size=60))
    fuse = ["fuse", *site_files, "-o", tmp_path / "g.npz", "--calibrate", tmp_path / "val.npz"]
    status, text, _ = run(*fuse)
    assert status == 0
    assert "calibrated: spread" in text
    status, text, _ = run(*fuse, "--force", "--json")
    assert set(json.loads(text)["calibration"]) == {"spread", "mass", "budget", "accuracy"}
    for option in ("--mass", "--prior-mean", "--budget"):
        status, text, error = run(*fuse, "--force", option, "2")
        assert (status, text) == (2, "")
        assert f"leave {option} out" in error


def test_a_range_in_two_words_is_told_apart(
    run: Run, site_files: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "g.npz"
    status, _, error = run("fuse", *site_files, "-o", out, "--input-range", "-3", "3")
    assert (status, "--input-range -3,3" in error) == (2, True)


def test_folders_and_patterns_are_sites(run: Run, site_files: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "sites"
    folder.mkdir()
    for path in site_files:
        path.rename(folder / path.name)
    for argument in (folder, f"{folder}/*.safetensors"):
        status, text, _ = run("fuse", argument, "-o", tmp_path / "g.npz", "--force", "--json")
        assert status == 0
        assert json.loads(text)["sites"] == ["site0", "site1", "site2"]
