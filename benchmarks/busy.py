"""How long `pfnm fuse` takes beside two busy processes, against a quiet machine.

The commands as people run them, on ten networks of 784-100-100-100-10 trained on MNIST (even data),
each in turn on the machine as it is and beside two processes that never rest; medians. `--against`
a checkout of another version measures that in turn with this one. Run it on a machine that is
otherwise quiet. Results are printed and written to benchmarks/busy.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from engine import machine, table
from rich.console import Console

import pfnm
from pfnm.lab.data import load_data
from pfnm.lab.method import train_local
from pfnm.lab.setting import Setting, federation

OUT = Path(__file__).with_suffix(".json")
HERE = Path(__file__).parents[1]
MAIN = "from pfnm.cli import main; main()"
SITES, HIDDEN = 10, (100, 100, 100)
BUSY_PROCESSES = 2
MOST_SECONDS = 600  # of one command: what takes longer is told as that
COMMANDS: dict[str, list[str]] = {"fuse": [], "fuse --polish": ["--polish"]}


def main() -> None:
    options = arguments()
    trees = {"this tree": HERE}
    if options.against is not None:
        trees["against"] = options.against
    with TemporaryDirectory() as place:
        files = site_files(options.networks, Path(place))
        times: dict[tuple[str, str, bool], list[float]] = {}
        for _ in range(options.repeats):
            for command, more in COMMANDS.items():
                for name, tree in trees.items():
                    for busy in (False, True):
                        spent = seconds(tree, [*files, *more, *options.more], Path(place), busy)
                        times.setdefault((command, name, busy), []).append(spent)
    rows = [
        row(command, name, times, before="against" if name != "against" and options.against else "")
        for command in COMMANDS
        for name in trees
    ]
    Console(width=160).print(table("Fusing beside two busy processes (seconds, medians)", rows))
    OUT.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="a checkout of another version")
    parser.add_argument("--networks", type=Path, help="a folder of site*.safetensors, as trained")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("more", nargs="*", help="further options of pfnm fuse, after --")
    return parser.parse_args()


def site_files(folder: Path | None, place: Path) -> list[str]:
    """The networks to fuse: those in the folder, or trained now."""
    if folder is None:
        sites = federation(Setting(sites=SITES, split="even", hidden=HIDDEN), load_data("mnist"))
        for name, network in train_local(sites).networks.items():
            pfnm.save(network, place / f"{name}.safetensors")
        folder = place
    return [str(path) for path in sorted(folder.glob("site*.safetensors"))]


def seconds(tree: Path, given: list[str], place: Path, busy: bool) -> float:
    """How long the command takes, from its start to its end."""
    command = [sys.executable, "-c", MAIN, "fuse", *given, "--quiet", "--force"]
    command += ["-o", str(place / "global.safetensors")]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    with others_at_work(BUSY_PROCESSES if busy else 0):
        begin = time.perf_counter()
        try:
            subprocess.run(command, env=environment, check=True, timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            return float(MOST_SECONDS)
        return time.perf_counter() - begin


@contextmanager
def others_at_work(number: int) -> Iterator[None]:
    """So many processes that never rest."""
    working = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in working:
            process.kill()
            process.wait()


def row(
    command: str, name: str, times: dict[tuple[str, str, bool], list[float]], before: str
) -> dict[str, Any]:
    quiet, busy = (median(times[command, name, whether]) for whether in (False, True))
    result = {
        "command": command,
        "": name,
        "quiet": quiet,
        "busy": busy,
        "busy/quiet": busy / quiet,
    }
    if before:
        result["quiet/before"] = quiet / median(times[command, before, False])
    return result


if __name__ == "__main__":
    main()
