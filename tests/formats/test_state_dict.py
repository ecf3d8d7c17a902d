"""State dicts in memory as sites, and one back."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pfnm
from pfnm.errors import PFNMError
from pfnm.frameworks.state_dict import from_state_dict, to_state_dict


def module(seed: int, width: int, *, norm: bool = False) -> nn.Sequential:
    torch.manual_seed(seed)
    parts = [nn.Linear(4, width), *([nn.BatchNorm1d(width)] if norm else []), nn.Tanh()]
    return nn.Sequential(*parts, nn.Linear(width, 3)).eval()


def as_kind(state: dict[str, torch.Tensor], kind: str) -> dict[str, Any]:
    if kind == "numpy":
        return {name: tensor.numpy() for name, tensor in state.items()}
    if kind == "bfloat16":
        return {name: tensor.bfloat16() for name, tensor in state.items()}
    if kind == "checkpoint":
        return {"epoch": 3, "args": object(), "state_dict": OrderedDict(state)}
    return {name: nn.Parameter(tensor) for name, tensor in state.items()}


@pytest.mark.parametrize("kind", ["parameters", "numpy", "bfloat16", "checkpoint"])
def test_fuse_gives_the_same_kind_back(kind: str) -> None:
    states = [as_kind(module(seed, 5 + seed).state_dict(), kind) for seed in range(2)]
    fusion = pfnm.fuse(states, activation="tanh", labels=[["a", "b", "c"], ["a", "b", "c"]])
    assert fusion.network.labels == ("a", "b", "c")
    assert fusion.network.activation == "tanh"
    assert [site["name"] for site in fusion.record()["sites"]] == ["site0", "site1"]
    model = fusion.model
    assert list(model) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    if kind == "numpy":
        assert {(type(value), value.dtype.name) for value in model.values()} == {
            (np.ndarray, "float32")
        }
    else:
        dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
        assert {(type(value), value.dtype) for value in model.values()} == {(torch.Tensor, dtype)}
        width = fusion.widths["hidden1"]
        whole = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3)).to(dtype)
        whole.load_state_dict(model)
        inputs = torch.randn(5, 4)
        found = whole(inputs.to(dtype)).detach().float().numpy()
        tolerance = 0.1 if kind == "bfloat16" else 1e-5
        np.testing.assert_allclose(found, fusion.network.run(inputs.numpy()), atol=tolerance)


def test_batch_norms_are_folded_and_gone() -> None:
    states = [module(seed, 5, norm=True).state_dict() for seed in range(2)]
    fusion = pfnm.fuse(states, activation="tanh")
    assert list(fusion.model) == ["0.weight", "0.bias", "3.weight", "3.bias"]


def test_a_network_and_back() -> None:
    own = module(0, 5)
    network = from_state_dict(own.state_dict(), name="a", activation="tanh", output="softmax")
    assert (network.name, network.activation, network.output) == ("a", "tanh", "softmax")
    assert network.activation_told
    assert not from_state_dict(own.state_dict()).activation_told
    back = to_state_dict(network, own.state_dict())
    assert all(torch.equal(back[name], tensor) for name, tensor in own.state_dict().items())
    # Training on changes the module, not the network.
    with torch.no_grad():
        own.get_parameter("0.weight").zero_()
    assert np.abs(network.tensors["0.weight"]).max() > 0


def test_its_own_order_counts() -> None:
    rng = np.random.default_rng(0)
    state = {name: rng.normal(size=(4, 4)) for name in ("z.weight", "a.weight", "m.weight")}
    assert list(from_state_dict(state).tensors) == list(state)


def test_what_is_no_state_dict_names_the_site() -> None:
    state = {name: tensor.numpy() for name, tensor in module(0, 5).state_dict().items()}
    with pytest.raises(PFNMError, match=r"site1: found a mapping with 'epoch' \(int\)"):
        pfnm.fuse([state, {"epoch": 3}])
    with pytest.raises(PFNMError, match=r"site1: entry '0\.bias' .* is list"):
        pfnm.fuse([state, {**state, "0.bias": [1.0] * 5}])
    with pytest.raises(PFNMError, match=r"site1: .*int64"):
        pfnm.fuse([state, {**state, "0.bias": np.ones(5, int)}])
    with pytest.raises(PFNMError, match="state dicts"):
        pfnm.fuse([state, 3])


def test_arrays_need_no_torch() -> None:
    code = (
        "import sys, numpy as np, pfnm\n"
        "rng = np.random.default_rng(0)\n"
        "states = [{'W1': rng.normal(size=(3, 4)), 'W2': rng.normal(size=(4, 2))} for _ in 'ab']\n"
        "print(type(pfnm.fuse(states).model).__name__, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["dict", "False"]
