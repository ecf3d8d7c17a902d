"""Rounds of modules: ours beside FedAvg, on part of the data so that it takes minutes.

    python studies/module_rounds.py lenet-mnist [--methods pfnm-joint fedavg] [--seeds 0]
    python studies/module_rounds.py --table

Rows go to results/modules/rounds.jsonl as they come; a method that has all of its rounds is passed
over. `pfnm simulate` runs the same on whole data sets.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pfnm.lab.data import Data, load_data
from pfnm.lab.method import State, train_local
from pfnm.lab.methods import METHODS, combined_once
from pfnm.lab.setting import Setting, federation, usual_training

RESULTS = Path(__file__).parents[1] / "results" / "modules" / "rounds.jsonl"
PART_SEED = 0
ONCE = ("local", "ensemble", "weighted")


def _setting(data: str, model: str, **own: Any) -> Setting:
    return Setting(data=data, model=model, **{**usual_training(data, model), **own})


# Epochs before the first round's end and after it: few, and as many as in the paper.
FEW_EPOCHS = {"sites": 10, "rounds": 10, "epochs": 5, "later_epochs": 2}
PAPER_EPOCHS = {"sites": 10, "rounds": 10, "epochs": 10, "later_epochs": 5}
SMALL_VGG = {"filters": (8, 8, 16, 16, 32), "hidden": (32,)}
TEXT = {"sites": 3, "split": "even", "epochs": 12, "later_epochs": 6, "rounds": 5}
# What is run, and how many training and test examples of the data are used.
SETTINGS = {
    "lenet-mnist": (_setting("mnist", "lenet", **FEW_EPOCHS), 6000, 4000),
    "lenet-mnist-paper": (_setting("mnist", "lenet", **PAPER_EPOCHS), 6000, 4000),
    "vgg-cifar10": (
        _setting("cifar10", "vgg", **FEW_EPOCHS, model_args=SMALL_VGG), 10_000, 4000
    ),
    "vgg-cifar10-paper": (
        _setting("cifar10", "vgg", **PAPER_EPOCHS, model_args=SMALL_VGG), 10_000, 4000
    ),
    "lstm-pydoc": (_setting("pydoc", "lstm", **TEXT), 6538, 400),
    "transformer-pydoc": (_setting("pydoc", "transformer", **TEXT), 6538, 400),
}  # fmt: skip


def part(data: Data, train: int, test: int) -> Data:
    """So many examples, drawn at random."""
    rng = np.random.default_rng(PART_SEED)
    a, b = rng.permutation(len(data.train_labels))[:train], rng.permutation(len(data.test_labels))
    b = b[:test]
    return replace(
        data,
        train_inputs=data.train_inputs[a],
        train_labels=data.train_labels[a],
        test_inputs=data.test_inputs[b],
        test_labels=data.test_labels[b],
        strata=None if data.strata is None else data.strata[a],
    )


def run(name: str, methods: list[str], seed: int, budget: float | None) -> None:
    """Measure what is not measured yet."""
    setting, train, test = SETTINGS[name]
    setting = replace(setting, seed=seed, budget=budget)
    done = [row for row in rows() if row["setting"] == name and row["seed"] == seed]
    federated = federation(setting, part(load_data(setting.data), train, test))
    local = train_local(federated)

    def record(method: str, number: int, info: Any, seconds: float) -> None:
        told = {key: value for key, value in asdict(info).items() if not key.startswith("seconds")}
        sent = sum(told.pop("bytes_up").values()), sum(told.pop("bytes_down").values())
        row = {
            "setting": name,
            "seed": seed,
            "method": method,
            "budget": budget if METHODS[method].round and method.startswith("pfnm") else None,
            "round": number,
            **{key: told[key] for key in ("accuracy", "bits", "parameters", "widths")},
            "bytes": sum(sent),
            "seconds": round(seconds, 1),
        }
        with RESULTS.open("a") as file:
            file.write(json.dumps(row) + "\n")

    for method in (*ONCE, *methods):
        own = METHODS[method]
        there = [r for r in done if r["method"] == method and r["budget"] in (None, budget)]
        if own.round is None and not there:
            record(method, 1, combined_once(method, federated, local)[1], 0.0)
        if own.round is None or len(there) >= setting.rounds:
            continue
        state = State()
        for number in range(1, setting.rounds + 1):
            begin = time.process_time()
            state, info = own.round(federated, state, local, number)
            if number > len(there):
                record(method, number, info, time.process_time() - begin)


def rows() -> list[dict[str, Any]]:
    """What was measured."""
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def table() -> str:
    """A line for each method: accuracy (of text, bits per character) by round."""
    lines = []
    found = rows()
    for name, seed in dict.fromkeys((row["setting"], row["seed"]) for row in found):
        most = max(row["round"] for row in found if row["setting"] == name)
        heads = " | ".join(map(str, range(1, most + 1)))
        lines += ["", f"{name}, seed {seed}", "", f"| method | {heads} | MB |"]
        lines.append("|---" * (most + 2) + "|")
        own = [row for row in found if (row["setting"], row["seed"]) == (name, seed)]
        for method, budget in dict.fromkeys((row["method"], row["budget"]) for row in own):
            mine = [r for r in own if (r["method"], r["budget"]) == (method, budget)]
            cells = [
                f"{r['bits']:.3f}" if "pydoc" in name else f"{100 * r['accuracy']:.1f}"
                for r in mine
            ]
            label = method if budget is None else f"{method} {budget:g}x"
            sent = f"{sum(r['bytes'] for r in mine) / 1e6:.0f}"
            cells = [label, *cells, *[""] * (most - len(cells)), sent]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines).strip()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="*", choices=[[], *SETTINGS])
    parser.add_argument("--methods", nargs="+", default=["pfnm-joint", "fedavg"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--budget", type=float, default=1.0)
    parser.add_argument("--table", action="store_true")
    told = parser.parse_args()
    if told.table:
        print(table())
    else:
        torch.set_num_threads(1)
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        for one in told.settings:
            for number in told.seeds:
                run(one, told.methods, number, told.budget)
