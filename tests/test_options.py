"""Options with extreme values: an answer or one line, and soon."""

import json
from pathlib import Path

import pytest
from conftest import Run

import pfnm

BIG = "9" * 400
SMALL_RUN = ("--sites", 2, "--hidden", 3, "--epochs", 1, "--later-epochs", 1, "--rounds", 1)


@pytest.mark.parametrize(
    "options", [("--budget", "1e308"), ("--budget", BIG), ("--max-params", BIG)], ids=str
)
def test_limits_beyond_all_bounds_are_none(
    options: tuple[str, str], run: Run, site_files: list[Path], tmp_path: Path
) -> None:
    target = tmp_path / "out.npz"
    assert run("fuse", *site_files, "-o", target, *options)[0] == 0
    run("fuse", *site_files, "-o", tmp_path / "free.npz", "--budget", "none")
    assert pfnm.load(target).widths == pfnm.load(tmp_path / "free.npz").widths


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--threads", BIG), "--threads"),
        (("--seed", BIG), "--seed"),
        (("--method", "topdown", "--sweeps", BIG), "--sweeps"),
    ],
    ids=str,
)
def test_what_fuse_refuses(
    options: tuple[str, ...], said: str, run: Run, site_files: list[Path], tmp_path: Path
) -> None:
    status, _, err = run("fuse", *site_files, "-o", tmp_path / "out.npz", *options)
    assert (status, err.count("\n")) == (2, 1)
    assert said in err


@pytest.mark.parametrize("weights", [(1e100, 1e-100, 1), (1e100,) * 3, (1e-100,) * 3], ids=str)
def test_extreme_site_weights(
    weights: tuple[float, ...], run: Run, site_files: list[Path], tmp_path: Path
) -> None:
    given = {path.stem: weight for path, weight in zip(site_files, weights, strict=True)}
    (tmp_path / "weights.json").write_text(json.dumps(given))
    options = ("--site-weights", tmp_path / "weights.json")
    status, _, err = run("fuse", *site_files, "-o", tmp_path / "out.npz", "-q", *options)
    assert status in (0, 2)
    assert status == 0 or err.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--proximal", "1e308", "proximal is 1e+308, expected at most"),
        ("--sgd-rate", "1e308", "sgd_rate is 1e+308, expected at most"),
        ("--hidden", "1000000,1000000", "too large"),
        ("--hidden", "1000000000", "too large"),
        ("--hidden", BIG, "too large"),
        ("--sites", "1000000000", "sites is 1000000000, expected 1 to"),
        ("--sites", "3000", "too few for 3000 sites"),
        ("--batch-size", BIG, "batch_size is 999"),
        ("--epochs", BIG, "epochs is 999"),
        ("--threads", BIG, "--threads"),
        ("--seed", BIG, "--seed"),
    ],
)
def test_what_simulate_refuses(
    option: str, value: str, said: str, run: Run, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    folder = tmp_path / "run"
    status, text, err = run("simulate", *SMALL_RUN, "-o", folder, option, value)
    assert (status, text, err.count("\n")) == (2, "", 1)
    assert said in err
    assert not folder.exists()
