"""Cases: a seed makes a folder of good and damaged files, and a command to run in it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from fuzz_mutations import NASTY_TEXT, any_checkpoint, mutated

from pfnm.formats import FORMATS, save
from pfnm.networks.perceptron import mlp

REPOSITORY = Path(__file__).parents[2]
ENDINGS = (".safetensors", ".npz", ".pt", ".onnx", ".skops")
RUN_FILES = ("run.json", "metrics.jsonl", "table.md", "checkpoints/local.safetensors",
             "checkpoints/method-pfnm-joint.safetensors")  # fmt: skip
SMALL_RUN = ["--sites", "2", "--hidden", "3", "--epochs", "1", "--rounds", "1",
             "--methods", "ensemble,pfnm-joint"]  # fmt: skip
NUMBERS = ("0", "-1", "1", "2", "1e308", "-1e308", "1e-308", "nan", "inf", "-inf", "9" * 400, "",
           "2x", "1e39", "0x10", "\uff11", "1_0", "none", "a,b", ",", "0,1", "1,0", "nan,nan",
           "-1e308,1e308", "pictures:1x2x3", "signals:2x3", "table", "pictures:0x0x0",
           f"signals:1x{'9' * 30}", *NASTY_TEXT)  # fmt: skip
FUSE_OPTIONS = ("--budget", "--max-params", "--site-variance", "--prior-variance", "--mass",
                "--prior-mean", "--sweeps", "--seed", "--threads", "--input-range", "--inputs",
                "--activation", "--head", "--method", "--rules", "--class-counts",
                "--site-weights", "--labels", "--input-like")  # fmt: skip
# Rounds and epochs are left out: who asks for many waits for them.
SIMULATE_OPTIONS = ("--sites", "--alpha", "--split", "--hidden", "--batch-size", "--learning-rate",
                    "--weight-decay", "--sgd-rate", "--proximal", "--budget", "--fraction",
                    "--failures", "--join", "--seed", "--data", "--methods",
                    "--threads")  # fmt: skip

Command = list[str]


def called(arguments: Command, folder: Path) -> int:
    """A command run in a folder; its status."""
    from pfnm.cli import main

    before, sys.argv = sys.argv, ["pfnm", *arguments]
    try:
        with contextlib.chdir(folder):
            main()
    except SystemExit as stop:
        return int(stop.code or 0)
    finally:
        sys.argv = before
    return 0


def make_base(folder: Path) -> None:
    """Good files of every kind, from which all cases are made."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for j in range(2):
        shapes = ((6, 5 + j), (5 + j, 4))
        weights = [rng.normal(size=shape) for shape in shapes]
        biases = [rng.normal(size=shape[1]) for shape in shapes]
        network = mlp(weights, biases, labels=["a", "b", "c", "d"], output="softmax")
        for ending in ENDINGS:
            save(network, folder / f"site{j}{ending}")
    (folder / "counts.json").write_text(json.dumps({f"site{j}": [1, 2, 3, 4] for j in range(2)}))
    (folder / "counts.csv").write_text("site,a,b,c,d\nsite0,1,2,3,4\nsite1,4,3,2,1\n")
    (folder / "weights.json").write_text('{"site0": 1.0, "site1": 2.5}')
    (folder / "labels.json").write_text('{"site0": ["a", "b", "c", "d"], "site1": null}')
    x, y = rng.normal(size=(12, 6)), np.array(["a", "b", "c", "d"] * 3)
    np.savez(folder / "data.npz", x=x, y=y)
    rows = [
        ",".join([*(f"{value:.3f}" for value in row), own]) for row, own in zip(x, y, strict=True)
    ]
    (folder / "data.csv").write_text("\n".join(["f1,f2,f3,f4,f5,f6,y", *rows]) + "\n")
    import pyarrow
    from pyarrow import parquet

    columns = {f"f{k}": x[:, k] for k in range(6)} | {"y": y.tolist()}
    parquet.write_table(pyarrow.table(columns), folder / "data.parquet")
    with contextlib.redirect_stdout(io.StringIO()):
        assert called(["simulate", *SMALL_RUN, "-o", "run"], folder) == 0
        fused = ["fuse", "site0.npz", "site1.npz", "-o", "fused.safetensors"]
        assert called(fused, folder) == 0
    kept = folder / "results" / "timing"
    kept.mkdir(parents=True)
    for name in ("rows.csv", "experiment.json"):
        shutil.copy(REPOSITORY / "results" / "timing" / name, kept / name)


def take(base: Path, folder: Path, *names: str) -> None:
    """Copies of good files."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(base / name, folder / name)


def damage(path: Path, rng: random.Random) -> None:
    """The file changed."""
    path.write_bytes(mutated(path.suffix, path.read_bytes(), rng))


def network_case(base: Path, folder: Path, rng: random.Random) -> Command:
    """A damaged network."""
    ending = rng.choice(ENDINGS)
    bad, good = f"site0{ending}", "site1.npz"
    take(base, folder, bad, good, "data.npz", "fused.safetensors")
    damage(folder / bad, rng)
    out = f"out{rng.choice(ENDINGS)}"
    return rng.choice(
        (
            ["inspect", bad],
            ["inspect", bad, "--json"],
            ["evaluate", bad, "--data", "data.npz", "--json"],
            ["fuse", bad, good, "-o", out],
            ["fuse", good, bad, "-o", out, "--json"],
            ["check", bad, good, "--json"],
            ["check", "fused.safetensors", bad, good],
        )
    )


def table_case(base: Path, folder: Path, rng: random.Random) -> Command:
    """A damaged table beside good networks."""
    option, name = rng.choice(
        (
            ("--class-counts", "counts.json"),
            ("--class-counts", "counts.csv"),
            ("--site-weights", "weights.json"),
            ("--labels", "labels.json"),
            *(
                (option, f"data.{ending}")
                for option in ("--input-like", "--calibrate", "--data", "--data")
                for ending in ("csv", "npz", "parquet")
            ),
        )
    )
    take(base, folder, "site0.npz", "site1.npz", name)
    damage(folder / name, rng)
    if option == "--data":
        extras = [
            [],
            ["--json"],
            ["--label", "y"],
            ["--per-class", "--confusion"],
            ["--label", "0"],
        ]
        return ["evaluate", "site0.npz", option, name, *rng.choice(extras)]
    return ["fuse", "site0.npz", "site1.npz", "-o", "out.npz", option, name]


def option_case(base: Path, folder: Path, rng: random.Random) -> Command:
    """Options with values nobody means."""
    take(base, folder, "site0.npz", "site1.npz", "data.csv")
    simulate = rng.random() < 0.2
    known = SIMULATE_OPTIONS if simulate else FUSE_OPTIONS
    options = []
    for option in rng.sample(known, rng.choice((1, 1, 2))):
        value = rng.choice(NUMBERS).replace("\ud800", "?")
        options += [f"{option}={value}"]
    if simulate:
        return ["simulate", *SMALL_RUN, "-o", "run", *options]
    kind = rng.random()
    if kind < 0.1:
        return ["frontier", "site0.npz", "site1.npz", f"--budgets={rng.choice(NUMBERS[:-2])}"]
    out = rng.choice(
        ("out.npz", "out.pt", "", ".", "no/out.npz", "site0.npz", "out.txt", "x" * 300)
    )
    out = "out.npz" if rng.random() < 0.7 else out
    return ["fuse", "site0.npz", "site1.npz", "-o", out, *rng.choice(([], ["--force"])), *options]


def run_case(base: Path, folder: Path, rng: random.Random) -> Command:
    """A damaged folder of a simulation, resumed."""
    shutil.copytree(base / "run", folder / "run")
    path = folder / "run" / rng.choice(RUN_FILES)
    kind = rng.random()
    if kind < 0.05:
        path.unlink()
    elif kind < 0.1:
        path.unlink()
        path.mkdir()
    else:
        damage(path, rng)
    return ["simulate", "--resume", "run", *rng.choice(([], ["--json"]))]


def rows_case(base: Path, folder: Path, rng: random.Random) -> Command:
    """Damaged rows of an experiment, drawn."""
    shutil.copytree(base / "results", folder / "results")
    name = "rows.csv" if rng.random() < 0.8 else "experiment.json"
    damage(folder / "results" / "timing" / name, rng)
    return ["reproduce", "timing", "--draw", "-o", "results"]


def special_case(base: Path, folder: Path, rng: random.Random) -> Command:
    """Pipes, devices, links and folders where files belong; names that command a terminal."""
    take(base, folder, "site0.npz", "site1.npz")
    odd = "odd" + rng.choice((*ENDINGS, ".csv", ".json"))
    make: Callable[[Path], None] = rng.choice(
        (
            os.mkfifo,
            Path.mkdir,
            lambda path: path.symlink_to("/dev/zero"),
            lambda path: path.symlink_to("/dev/null"),
            lambda path: path.symlink_to(path),
            lambda path: path.symlink_to("nowhere"),
            lambda path: path.write_bytes(any_checkpoint(rng)),
        )
    )
    make(folder / odd)
    name = "".join(rng.choice(NASTY_TEXT[:2]) for _ in range(2)) + "site.npz"
    shutil.copy(folder / "site0.npz", folder / name)
    return rng.choice(
        (
            ["inspect", odd],
            ["fuse", odd, "site1.npz", "-o", "out.npz"],
            ["fuse", "site0.npz", "site1.npz", "-o", odd, *rng.choice(([], ["--force"]))],
            ["fuse", "site0.npz", "site1.npz", "-o", "out.npz", "--class-counts", odd],
            ["fuse", "site0.npz", "site1.npz", "-o", "out.npz", "--calibrate", odd],
            ["evaluate", "site0.npz", "--data", odd],
            ["inspect", name],
            ["fuse", name, "site1.npz", "-o", "out.npz"],
            ["simulate", *SMALL_RUN, "-o", odd],
            ["frontier", "site0.npz", "site1.npz", "--budgets", "1x", "-o", f"{odd}.png"],
        )
    )


KINDS = (network_case, table_case, option_case, run_case, rows_case, special_case)
OFTEN = (60, 20, 20, 10, 2, 4)  # damaged networks are quick, and have most to find


def make_case(base: Path, folder: Path, seed: int) -> Command:
    """The files of a case in a new folder, and the command to run there."""
    rng = random.Random(seed)
    folder.mkdir(parents=True)
    (kind,) = rng.choices(KINDS, OFTEN)
    return kind(base, folder, rng)


assert set(ENDINGS) <= set(FORMATS)
