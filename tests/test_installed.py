"""With the core alone, every command works or says in one line what to install; that is enough.

The quick form hides libraries from the real commands; the long one has environments without them.
"""

import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import random_network

import pfnm

ROOT = Path(__file__).parents[1]
# What each extra brings, with what its libraries need themselves.
BRINGS = {
    "torch": {"torch", "filelock"},
    "onnx": {"onnx"},
    "sklearn": {"sklearn", "skops", "joblib"},
    "plot": {"matplotlib"},
}
BRINGS["lab"] = BRINGS["torch"] | BRINGS["sklearn"] | BRINGS["plot"] | {"pooch", "msgspec"}
OPTIONAL = {"pandas", "pyarrow", "ray", "distributed"}.union(*BRINGS.values())

WORKS = [
    "fuse {sites} -o new.npz --class-counts counts.json",
    "fuse {sites} -o new.safetensors --method topdown",
    "fuse {sites} -o new-calibrated.npz --calibrate test.npz",
    "check site0.npz {sites}",
    "frontier {sites} --budgets 1x",
    "inspect site0.npz",
    "simulate --methods list",
    "reproduce --list",
    "data list",
    "data get digits",
    "--help",
]
EITHER = ["evaluate site0.npz --data test.npz"]
ASKS = {
    "inspect site.pt": "torch",
    "fuse site0.npz site.pt -o new-mixed.npz": "torch",
    "fuse {sites} -o new.pt": "torch",
    "fuse {sites} -o new-polished.npz --polish --polish-seconds 1": "torch",
    "inspect site.onnx": "onnx",
    "fuse {sites} -o new.onnx": "onnx",
    "inspect site.skops": "sklearn",
    "fuse {sites} -o new.skops": "sklearn",
    "demo --folder new-demo": "sklearn",
    "frontier {sites} --budgets 1x -o new.png": "plot",
    "simulate --sites 2 --hidden 5 --epochs 1 --methods local,kmeans -o new-run": "lab",
    "reproduce timing --quick --trials 1 --jobs 1 -o new-results": "lab",
}
FETCHES = "data get mnist"  # which needs a network too

HIDE = """
import sys
from importlib.machinery import PathFinder

class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {hidden} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
"""
# One process for all commands, for importing numpy takes longer than most of them.
ALL = """
import sys
from pfnm.cli import main
for line in sys.argv[1:]:
    sys.argv = ["pfnm", *line.split()]
    try:
        main()
    except SystemExit as stop:
        print(f"\\n=== {stop.code or 0}", file=sys.stderr, flush=True)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with three sites, their class counts, data, and a file of every format."""
    for j in range(3):
        network = replace(random_network(j, (6, 5 + j, 4)), labels=(0, 1, 2, 3))
        pfnm.save(network, tmp_path / f"site{j}.npz")
    for ending in ("pt", "onnx", "skops"):
        pfnm.save(network, tmp_path / f"site.{ending}")
    counts = {f"site{j}": [j + 1, 2, 3, 4] for j in range(3)}
    (tmp_path / "counts.json").write_text(json.dumps(counts))
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "test.npz", x=rng.uniform(size=(40, 6)), y=np.arange(40) % 4)
    return tmp_path


def run(lines: Iterable[str], place: Path, python: str, path: str) -> list[tuple[int, list[str]]]:
    """Of each command its status, and what it says on standard error."""
    lines = [line.format(sites="site0.npz site1.npz site2.npz") for line in lines]
    environment = os.environ | {"PYTHONPATH": path, "PATH": "", "PFNM_DATA": str(place / "data")}
    done = subprocess.run(
        [python, "-c", ALL, *lines],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"(.*?)\n=== (\d+)\n", done.stderr, flags=re.DOTALL)
    assert len(found) == len(lines), done.stderr
    return [(int(status), said.splitlines()) for said, status in found]


def run_without(lines: Iterable[str], place: Path, hidden: set[str]) -> list[tuple[int, list[str]]]:
    """The commands where these libraries cannot be found."""
    (place / "sitecustomize.py").write_text(HIDE.format(hidden=sorted(hidden)))
    return run(lines, place, sys.executable, f"{place}{os.pathsep}{ROOT / 'src'}")


def extra_named(line: str, status: int, said: list[str]) -> str:
    """Which extra the command asks for, in one line."""
    found = re.search(r"pip install 'pfnm\[(\w+)\]'", said[0]) if said else None
    assert (status, len(said)) == (2, 1), (line, said)
    assert found is not None, (line, said)
    return found[1]


def test_the_core_alone_works_or_asks_for_an_extra(place: Path) -> None:
    results = run_without(WORKS, place, OPTIONAL)
    assert [(line, 0) for line in WORKS] == [
        (line, status) for line, (status, _) in zip(WORKS, results, strict=True)
    ], results
    before = sorted(place.rglob("*"))
    asking = {**ASKS, FETCHES: "lab"}
    results = run_without(asking, place, OPTIONAL)
    for (line, extra), (status, said) in zip(asking.items(), results, strict=True):
        assert extra_named(line, status, said) == extra, line
    assert sorted(place.rglob("*")) == before  # nothing is left behind


@pytest.mark.parametrize("extra", BRINGS)
def test_the_extra_that_is_asked_for_is_enough(extra: str, place: Path) -> None:
    lines = [line for line, own in ASKS.items() if own == extra]
    results = run_without(lines, place, OPTIONAL - BRINGS[extra])
    assert [status for status, _ in results] == [0] * len(lines), results


def test_evaluate_works_or_asks_for_an_extra_which_is_enough(place: Path) -> None:
    for line, (status, said) in zip(EITHER, run_without(EITHER, place, OPTIONAL), strict=True):
        if status != 0:
            brought = BRINGS[extra_named(line, status, said)]
            assert run_without([line], place, OPTIONAL - brought)[0][0] == 0


@pytest.mark.long
def test_new_environments(place: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The wheel and its dependencies, then what the commands ask for, installed as they say it."""
    folder = tmp_path_factory.mktemp("environments")
    pip = ["-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheel_command = [sys.executable, *pip, "wheel", "--no-deps", "-w", str(folder), str(ROOT)]
    # pip would take what lies on PYTHONPATH for installed.
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(wheel_command, check=True, env=outside)
    (wheel,) = folder.glob("pfnm-*.whl")
    lines = [*WORKS, *EITHER, *ASKS]
    asking: dict[str, list[str]] = {"": lines}
    for extra in ("", *BRINGS):
        venv.create(folder / f"venv-{extra}", with_pip=True)
        python = str(folder / f"venv-{extra}" / "bin" / "python")
        what = f"{wheel}[{extra}]" if extra else str(wheel)
        install = [python, *pip, "install", "-c", str(ROOT / "constraints.txt"), what]
        subprocess.run(install, check=True, env=outside)
        own = asking.get(extra, [])
        results = run(own, place, python, "")
        for line, (status, said) in zip(own, results, strict=True):
            if not extra and status != 0:
                asking.setdefault(extra_named(line, status, said), []).append(line)
            else:
                assert status == 0, (extra, line, said)
    assert set(ASKS) <= {line for extra in BRINGS for line in asking[extra]}
