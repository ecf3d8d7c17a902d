"""What reaches the terminal: nothing out of a file raw, one line for whatever goes wrong."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import Run, random_network

import pfnm
from pfnm.networks.perceptron import perceptron
from pfnm.pages.text import COMMANDING, escaped

HOSTILE = "\x1b[31m\x9b2J\x07\u202e\u2028[b]\nend"  # colours, clears, rings, turns, breaks
ROOT = Path(__file__).parents[1]


def test_escapes_are_pythons() -> None:
    assert escaped("a\x1b[1m\x9b\u202e\n[b]é") == "a\\x1b[1m\\x9b\\u202e\\n[b]é"


def test_nothing_out_of_a_file_is_printed_raw(run: Run, tmp_path: Path) -> None:
    file_name = HOSTILE.replace("\n", "")
    labels = [f"{HOSTILE}{k}" for k in range(3)]
    files = []
    for j in range(2):
        network = random_network(j, (4, 5, 3))
        first, second = (f"{HOSTILE}{n}" for n in (1, 2))
        tensors = dict(zip((first, "1", second, "2"), network.tensors.values(), strict=True))
        axes = dict(zip(tensors, network.graph.axes.values(), strict=True))
        names = ((first, "1"), (second, "2"))
        maps = tuple(
            replace(at, weight=weight, bias=bias)
            for at, (weight, bias) in zip(network.program.maps, names, strict=True)
        )
        network = replace(
            network,
            tensors=tensors,
            graph=pfnm.UnitGraph(axes, network.graph.groups),
            program=replace(perceptron(network), maps=maps),
            labels=tuple(labels),
            features=tuple(f"{HOSTILE}{k}" for k in range(4)),
            metadata={"sites": [{"name": HOSTILE}]},
        )
        files.append(tmp_path / f"{file_name}{j}.safetensors")
        pfnm.save(network, files[-1])
    data = tmp_path / f"{file_name}.npz"
    np.savez(data, x=np.eye(4), y=[*labels, labels[0]])
    fused = tmp_path / f"{file_name}fused.pt"
    commands: list[list[object]] = [
        ["inspect", files[0]],
        ["evaluate", files[0], "--data", data, "--per-class", "--confusion"],
        ["evaluate", *files, "--data", data],
        ["fuse", *files, "-o", fused],
        ["check", fused, *files],
        ["frontier", *files, "--budgets", "1x"],
        ["fuse", *files, "-o", fused],
        ["evaluate", *files, "--data", tmp_path / f"{file_name}.csv"],
        ["fuse", *files, f"--{file_name}"],
        ["data", "list", "--data-dir", tmp_path / file_name],
    ]
    for command in commands:
        _, text, err = run(*command)
        for line in (text + err).split("\n"):
            assert COMMANDING.sub("", line) == line, (command[0], line)
    status, text, _ = run("inspect", files[0], "--json")
    assert (status, json.loads(text)["labels"]) == (0, labels)
    assert text.isascii()


def test_json_knows_no_nan(run: Run, tmp_path: Path) -> None:
    odd = {"sites": [{"name": "a"}], "agreement": float("nan"), "more": [float("inf"), {"x": 1.5}]}
    pfnm.save(replace(random_network(0), metadata=odd), tmp_path / "site.safetensors")
    status, text, _ = run("inspect", tmp_path / "site.safetensors", "--json")
    assert status == 0
    assert not re.search(r"NaN|Infinity", text)
    assert json.loads(text)["metadata"] | {"sites": 0} == {
        "sites": 0,
        "agreement": None,
        "more": [None, {"x": 1.5}],
    }


def python(code: str, *arguments: object, **options: str) -> subprocess.CompletedProcess[str]:
    """A Python process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | options,
    )


# The signal comes at the moment a library is looked for.
INTERRUPTED_AT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupting:
    def find_spec(name, path=None, target=None):
        if name == "{library}":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting)
{start}
"""
COMMAND = "from pfnm_command import main; main()"
MODULE = "import runpy; runpy.run_module('pfnm', run_name='__main__')"


@pytest.mark.parametrize("library", ["numpy", "click", "typer", "pfnm.cli.lab"])
def test_an_interrupt_while_importing_is_one_line(library: str) -> None:
    done = python(INTERRUPTED_AT.format(library=library, start=COMMAND), "--version")
    assert (done.returncode, done.stderr) == (130, "pfnm: interrupted\n")


@pytest.mark.parametrize("library", ["typer", "pfnm.cli.lab"])
def test_so_is_one_of_the_module(library: str) -> None:
    done = python(INTERRUPTED_AT.format(library=library, start=MODULE), "--version")
    assert (done.returncode, done.stderr) == (130, "pfnm: interrupted\n")


ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
LITTLE_MEMORY = """
import resource, sys
import numpy, scipy.special, scipy.optimize, pfnm.api
from pfnm.cli import main
{more}
used = 4096 * int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (used + 200_000_000,) * 2)
main()
"""


def test_too_little_memory_is_one_line(tmp_path: Path) -> None:
    for j in range(2):
        np.savez(tmp_path / f"site{j}.npz", w1=np.ones((3000, 3000)), w2=np.ones((3000, 2)))
    files = [tmp_path / f"site{j}.npz" for j in range(2)]
    target = tmp_path / "out.npz"
    done = python(LITTLE_MEMORY.format(more=""), "fuse", *files, "-o", target, **ONE_THREAD)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "memory" in done.stderr.lower()
    assert not target.exists()


def test_too_little_memory_to_train_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    wide = ("--sites", 10, "--hidden", 20_000, "--epochs", 1, "--rounds", 1)
    code = LITTLE_MEMORY.format(more="import torch, sklearn.datasets")
    options = (*wide, "--methods", "ensemble", "-o", tmp_path / "run")
    done = python(code, "simulate", *options, **ONE_THREAD)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "not enough memory" in done.stderr


def test_a_file_that_cannot_be_used_is_status_2(run: Run, tmp_path: Path) -> None:
    status, _, err = run("data", "list", "--data-dir", tmp_path / ("long" * 100))
    assert (status, err.count("\n")) == (2, 1), err
    assert "File name too long" in err


def test_libraries_do_not_murmur_before_the_error(tmp_path: Path) -> None:
    files = []
    for j in range(2):
        files.append(tmp_path / f"site{j}.npz")
        np.savez(files[-1], w1=np.full((3, 4), 1e200 * (j + 1)), w2=np.full((4, 2), 1e200))
    code = "from pfnm.cli import main; main()"
    done = python(code, "fuse", *files, "-o", tmp_path / "out.npz")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
