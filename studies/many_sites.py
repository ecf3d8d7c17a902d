"""How the server's time and memory grow with the number of sites: one round of a small network.

Each number of sites is a process of its own, so that its memory is its own. Writes
results/flower/sites.csv, and docs/sites.svg with --draw.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pfnm.lab.data import load_data
from pfnm.lab.method import train_local
from pfnm.lab.server import Server, combine
from pfnm.lab.setting import SERVER, Setting, federation

RESULTS = Path("results/flower/sites.csv")
FIGURE = Path("docs/sites.svg")
NUMBERS = (100, 250, 500, 750, 1000)
METHODS = ("joint", "topdown")
PEAK = Path("/proc/self/clear_refs")
COLUMNS = ("method", "sites", "first", "seconds", "megabytes", "width")


def one(method: str, sites: int) -> list[object]:
    """Two rounds: processor time of the server in each, and the most memory it took for both."""
    setting = Setting(
        data="mnist", sites=sites, split="even", hidden=(20,), epochs=5, batch_size=16
    )
    split = federation(setting, load_data("mnist"))
    sent = train_local(split).networks
    counts, within = split.counts, split.input_range
    del split
    PEAK.write_text("5")  # Linux forgets what was the most until now
    before = most_memory()
    server, seconds = Server(), []
    for number in (1, 2):
        begin = time.process_time()
        server = combine(
            server,
            sent if number == 1 else {name: server.part(name) for name in sent},
            counts=counts,
            method=method,
            budget=setting.budget,
            input_range=within,
            rng=setting.rng(SERVER, number),
        )
        seconds.append(time.process_time() - begin)
    memory = most_memory() - before
    assert server.network is not None
    width = server.network.widths["hidden1"]
    return [method, sites, round(seconds[0], 2), round(seconds[1], 2), memory // 1024, width]


def most_memory() -> int:
    """The most memory this process had, in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=2)
    parser.add_argument("--draw", action="store_true")
    told = parser.parse_args(arguments)
    if told.one:
        print(*one(told.one[0], int(told.one[1])), sep=",")
    elif told.draw:
        draw()
    else:
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        with RESULTS.open("w") as file:
            print(*COLUMNS, sep=",", file=file)
            for method in METHODS:
                for sites in NUMBERS:
                    command = [sys.executable, __file__, "--one", method, str(sites)]
                    done = subprocess.run(command, check=True, capture_output=True, text=True)
                    print(done.stdout.strip())
                    print(done.stdout.strip(), file=file, flush=True)


def draw() -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "pfnm"
    import matplotlib.pyplot as plt

    with RESULTS.open() as file:
        rows = list(csv.DictReader(file))
    titles = {"first": "first round, seconds", "seconds": "later round", "megabytes": "megabytes"}
    figure, axes = plt.subplots(1, len(titles), figsize=(9, 3), layout="constrained")
    for axis, (column, title) in zip(axes, titles.items(), strict=True):
        for method in METHODS:
            own = [row for row in rows if row["method"] == method]
            x = np.array([float(row["sites"]) for row in own])
            y = np.array([float(row[column]) for row in own])
            (line,) = axis.plot(x, y, "o", label=method)
            slope, start = np.polyfit(x, y, 1)
            axis.plot(x, slope * x + start, color=line.get_color(), linewidth=1)
        axis.set(xlabel="sites", title=title, xlim=(0, None), ylim=(0, None))
    axes[0].legend()
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURE, metadata={"Date": None})


if __name__ == "__main__":
    main(sys.argv[1:])
