"""Checkpoints as training loops save them: read for their weights, and nothing in them is run."""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import zipfile
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pfnm.errors import PFNMError
from pfnm.formats import load


def model() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))


def assert_the_model(path: Path, prefix: str = "") -> None:
    found, state = load(path), model().state_dict()
    assert list(found.tensors) == [prefix + name for name in state]
    inputs = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")
    expected = model()(torch.tensor(inputs)).detach().numpy()
    np.testing.assert_allclose(found.run(inputs), expected, atol=1e-5)


class Settings(dict[str, Any]):
    """A dict with attributes, as many libraries of settings have it."""


class Slotted:
    __slots__ = ("rate",)

    def __init__(self) -> None:
        self.rate = 0.1


class Phase(Enum):
    WARM = 1


@dataclass
class Config:
    rate: float = 0.1
    layers: list[int] = field(default_factory=lambda: [4, 3])


def optimiser() -> dict[str, Any]:
    """What Adam's state_dict() holds: moments of the shapes of the weights."""
    moments = [
        {"step": torch.tensor(1.0), "exp_avg": 0 * weight, "exp_avg_sq": 0 * weight}
        for weight in model().state_dict().values()
    ]
    groups = [{"lr": 0.1, "betas": (0.9, 0.999), "params": list(range(len(moments)))}]
    return {"state": dict(enumerate(moments)), "param_groups": groups}


def settings() -> Settings:
    made = Settings(rate=0.1)
    made.note = "a"  # type: ignore[attr-defined]
    return made


def history() -> defaultdict[str, list[float]]:
    made: defaultdict[str, list[float]] = defaultdict(list)
    made["loss"].append(0.3)
    return made


BESIDE: dict[str, Callable[[], Any]] = {
    "epoch": lambda: 3,
    "loss": lambda: np.float64(0.3),
    "best": lambda: np.float32(0.3),
    "curve": lambda: np.arange(5.0),
    "names": lambda: np.array(["a", None], dtype=object),
    "args": lambda: argparse.Namespace(rate=0.1, hidden=[6]),
    "optimizer": optimiser,
    "config": Config,
    "slotted": Slotted,
    "settings": settings,
    "history": history,
    "last": lambda: deque([0.3, 0.2], maxlen=5),
    "counted": lambda: Counter("abc"),
    "seen": lambda: frozenset([1, 2]),
    "when": lambda: datetime(2026, 1, 1),
    "phase": lambda: Phase.WARM,
    "folder": lambda: Path("runs"),
    "function": lambda: model,
    "random": torch.get_rng_state,
}


@pytest.mark.parametrize("key", BESIDE)
def test_what_stands_beside_the_weights_is_ignored(tmp_path: Path, key: str) -> None:
    path = tmp_path / "site.pt"
    torch.save({key: BESIDE[key](), "state_dict": model().state_dict()}, path)
    assert_the_model(path)


def test_all_of_it_at_once_and_flat(tmp_path: Path) -> None:
    path = tmp_path / "site.ckpt"
    beside = {key: make() for key, make in BESIDE.items()}
    torch.save({**beside, "net": model().state_dict()}, path)
    assert_the_model(path)
    flat = {key: beside[key] for key in ("epoch", "loss", "args", "history")}
    torch.save({**model().state_dict(), **flat}, path)
    assert_the_model(path)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: {"net": state, "optimizer": optimiser(), "epoch": 3},
        lambda state: {"my_model": state, "optim_g": optimiser(), "adam": optimiser()},
        lambda state: {"checkpoint": {"weights": state}, "epoch": 3},
        lambda state: {"ema": {name: 0 * t for name, t in state.items()}, "model": state},
        lambda state: {"model": state, "ema": {"model": {n: 0 * t for n, t in state.items()}}},
        lambda state: {"state": Settings(state)},
    ],
)
def test_the_weights_are_found_under_any_key(tmp_path: Path, wrap: Callable[..., Any]) -> None:
    path = tmp_path / "site.pt"
    torch.save(wrap(model().state_dict()), path)
    assert_the_model(path)


@pytest.mark.parametrize("prefix", ["module.", "model.", "_orig_mod.", "module._orig_mod.net."])
def test_prefixes_of_wrappers_are_kept(tmp_path: Path, prefix: str) -> None:
    path = tmp_path / "site.pt"
    torch.save({prefix + name: tensor for name, tensor in model().state_dict().items()}, path)
    assert_the_model(path, prefix)


# Hostile files. Whatever is said of them, the mark must never appear.


class Calls:
    """What calls a function where it is unpickled."""

    def __init__(self, function: Any, *arguments: Any, state: Any = None) -> None:
        self.parts = (function, arguments) + (() if state is None else (state,))

    def __reduce__(self) -> Any:
        return self.parts


class SetsState:
    """A class of the user's that acts when its state is set."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __getstate__(self) -> dict[str, Any]:
        return {"mark": self.mark}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Path(state["mark"]).touch()


class Creates:
    """A class of the user's that acts when an object of it is made."""

    def __new__(cls, mark: str) -> Creates:
        Path(mark).touch()
        return super().__new__(cls)

    def __getnewargs__(self) -> tuple[str]:
        return (os.environ["PFNM_TEST_MARK"],)


class TensorOfSorts(torch.Tensor):
    """A tensor of a class that only its owner knows."""


def pickled_call(mark: Path) -> bytes:
    return pickle.dumps(Calls(os.system, f"touch {mark}"))


SCALAR = np.float64(0).__reduce__()[0]  # numpy's function that makes numbers when it loads
HOSTILE: dict[str, Callable[[Path], Any]] = {
    "system": lambda mark: Calls(os.system, f"touch {mark}"),
    "subprocess": lambda mark: Calls(subprocess.call, ["touch", str(mark)]),
    "eval": lambda mark: Calls(eval, f"__import__('pathlib').Path({str(mark)!r}).touch()"),
    "getattr": lambda mark: Calls(getattr, Path(mark), "touch"),
    "path": lambda mark: Calls(Path.touch, Path(mark)),
    "pickle": lambda mark: Calls(pickle.loads, pickled_call(mark)),
    "torch.load": lambda mark: Calls(torch.load, str(mark) + ".pkl", None, None),
    "torch.save": lambda mark: Calls(torch.save, {}, str(mark)),
    "torch.storage": lambda mark: Calls(torch.storage._load_from_bytes, pickled_call(mark)),
    "object scalar": lambda mark: Calls(
        SCALAR,
        np.dtype("O"),
        pickled_call(mark),
    ),
    "state": SetsState,
    "new": lambda mark: object.__new__(Creates),
    "state of a tensor": lambda mark: Calls(
        torch._tensor._rebuild_from_type_v2,
        torch.save,
        torch.Tensor,
        ({}, str(mark)),
        {},
    ),
    "call by a container": lambda mark: OrderedDict(a=Calls(exec, f"open({str(mark)!r}, 'w')")),
}


@pytest.mark.parametrize("how", HOSTILE)
@pytest.mark.parametrize("where", ["beside", "inside", "alone"])
def test_nothing_in_a_checkpoint_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, where: str
) -> None:
    path, mark = tmp_path / "site.pt", tmp_path / "mark"
    monkeypatch.setenv("PFNM_TEST_MARK", str(mark))
    Path(f"{mark}.pkl").write_bytes(pickled_call(mark))
    state: dict[str, Any] = dict(model().state_dict())
    hostile = HOSTILE[how](mark)
    stored = {
        "beside": {"state_dict": state, "extra": hostile},
        "inside": {**state, "extra": hostile},
        "alone": hostile,
    }[where]
    torch.save(stored, path)
    mark.unlink(missing_ok=True)  # torch.save itself may have run some of it
    told = ""
    try:
        assert_the_model(path)
    except PFNMError as error:
        told = str(error)
    assert not mark.exists()
    assert "\n" not in told
    assert not told or "more than tensors" in told or where == "alone"
    # The file is a danger to those who load it otherwise.
    if how in ("subprocess", "eval", "path", "pickle", "state", "new"):
        torch.load(path, weights_only=False)
        assert mark.exists()


def test_names_that_pfnm_stood_in_for_are_unknown_again(tmp_path: Path) -> None:
    path = tmp_path / "site.pt"
    torch.save({"state_dict": model().state_dict(), "args": argparse.Namespace()}, path)
    before = torch.serialization.get_safe_globals()
    assert_the_model(path)
    assert set(torch.serialization.get_safe_globals()) == set(before)
    with pytest.raises(pickle.UnpicklingError, match=r"argparse\.Namespace"):
        torch.load(path, weights_only=True)


def test_a_weight_that_is_not_read_is_not_left_out(tmp_path: Path) -> None:
    path = tmp_path / "site.pt"
    odd = torch.ones(6).as_subclass(TensorOfSorts)
    torch.save({**model().state_dict(), "0.bias": odd}, path)
    with pytest.raises(PFNMError, match=r"more than tensors.*TensorOfSorts"):
        load(path)
    torch.save({**model().state_dict(), "0.bias": np.ones(6)}, path)
    with pytest.raises(PFNMError, match=r"'0\.bias' of the state dict is numpy.*tensor"):
        load(path)


def test_whole_models_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "site.pt"
    for stored in (model(), [model()], {"model": model(), "epoch": 3}):
        torch.save(stored, path)
        with pytest.raises(PFNMError, match=r"save model\.state_dict\(\)"):
            load(path)
    torch.save(model(), path)
    with pytest.raises(PFNMError, match=r"more than tensors.*Sequential"):
        load(path)


def test_damaged_notes_in_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "site.pt"
    torch.save(model().state_dict(), path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("site/pfnm.json", '{"labels": "ab"}')
    with pytest.raises(PFNMError, match="notes under 'pfnm'"):
        load(path)
