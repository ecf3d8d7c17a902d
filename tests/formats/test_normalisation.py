"""BatchNorm1d is folded into linear layers: the network answers as the module in eval mode does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from pfnm.errors import PFNMError
from pfnm.formats import load
from pfnm.frameworks.state_dict import from_state_dict
from pfnm.networks.network import Network

EXTENSIONS = (".pt", ".safetensors", ".npz", "live")


class Modules(nn.Module):
    """Modules defined in one order and run in another."""

    def __init__(self, modules: Mapping[str, nn.Module], order: str) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)
        self.order = order.split()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for name in self.order:
            x = torch.relu(x) if name == "relu" else self.get_submodule(name)(x)
        return x


def trained(module: nn.Module) -> nn.Module:
    """With weights and statistics as training leaves them."""
    torch.manual_seed(1)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d):
            assert part.running_mean is not None
            assert part.running_var is not None
            part.running_mean.normal_()
            part.running_var.uniform_(0.2, 3)
            if part.affine:
                nn.init.normal_(part.weight)
                nn.init.normal_(part.bias)
    return module.eval()


def read(module: nn.Module, folder: Path, extension: str) -> Network:
    state = module.state_dict()
    if extension == "live":
        return from_state_dict(state)
    path = folder / f"site{extension}"
    if extension == ".pt":
        torch.save(state, path)
    elif extension == ".safetensors":
        save_file(state, path)
    else:
        np.savez(path, **{name: tensor.numpy() for name, tensor in sorted(state.items())})
    return load(path)


def assert_same(network: Network, module: nn.Module) -> None:
    inputs = np.random.default_rng(0).normal(size=(9, network.sizes["input"])).astype("float32")
    expected = module(torch.tensor(inputs)).detach().numpy()
    np.testing.assert_allclose(network.run(inputs), expected, rtol=1e-4, atol=1e-4)
    assert network.dtype == np.float32


def linear(*sizes: int, bias: bool = True) -> nn.Linear:
    return nn.Linear(sizes[0], sizes[1], bias=bias)


def norm(units: int, affine: bool = True) -> nn.BatchNorm1d:
    return nn.BatchNorm1d(units, affine=affine)


def sequential(*parts: nn.Module) -> nn.Sequential:
    return nn.Sequential(*parts)


RELU, DROPOUT = nn.ReLU(), nn.Dropout(0.5)
SEQUENCES: dict[str, Callable[[], nn.Module]] = {
    "usual": lambda: sequential(
        *(linear(4, 6), norm(6), RELU), *(linear(6, 6), norm(6), RELU), linear(6, 3)
    ),
    "no bias": lambda: sequential(linear(4, 6, bias=False), norm(6), RELU, linear(6, 3)),
    "not affine": lambda: sequential(linear(4, 6), norm(6, affine=False), RELU, linear(6, 3)),
    "of the inputs": lambda: sequential(norm(4), linear(4, 6), RELU, linear(6, 3)),
    "of square inputs": lambda: sequential(norm(6), linear(6, 6), RELU, linear(6, 3)),
    "after the activation": lambda: sequential(linear(4, 6), RELU, norm(6), linear(6, 3)),
    "after it, with dropout": lambda: sequential(
        *(linear(6, 6), RELU, norm(6), DROPOUT), *(linear(6, 6), RELU, norm(6), linear(6, 3))
    ),
    "both sides": lambda: sequential(linear(6, 6), norm(6), RELU, norm(6), linear(6, 6)),
    "two in a row": lambda: sequential(norm(6), norm(6), linear(6, 6), norm(6), norm(6)),
    "of the outputs": lambda: sequential(linear(4, 6), RELU, linear(6, 6), norm(6)),
    "blocks": lambda: sequential(
        sequential(linear(4, 6), norm(6), RELU), sequential(linear(6, 6), RELU, norm(6)),
        linear(6, 3),
    ),
    "many layers": lambda: sequential(
        *(part for _ in range(12) for part in (linear(6, 6, bias=False), norm(6), RELU)),
        linear(6, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("extension", EXTENSIONS)
@pytest.mark.parametrize("case", SEQUENCES)
def test_in_a_sequence_the_numbers_tell(tmp_path: Path, case: str, extension: str) -> None:
    module = trained(SEQUENCES[case]())
    found = read(module, tmp_path, extension)
    assert_same(found, module)
    linears = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    assert {name for name in found.tensors if name.endswith("weight")} == {
        f"{name}.weight" for name in linears
    }
    assert all(name.endswith((".weight", ".bias")) for name in found.tensors)


MODULES: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "side by side": (
        {"fc1": (4, 6), "bn1": 6, "fc2": (6, 6), "bn2": 6, "fc3": (6, 3)},
        "fc1 bn1 relu fc2 bn2 relu fc3",
        EXTENSIONS,
    ),
    "defined later": (
        {"fc1": (6, 6), "fc2": (6, 6), "fc3": (6, 6), "bn1": 6, "bn2": 6},
        "fc1 bn1 relu fc2 bn2 relu fc3",
        EXTENSIONS,
    ),
    "before, by number": (
        {"bn1": 4, "fc1": (4, 6), "bn2": 6, "fc2": (6, 6), "fc3": (6, 3), "bn3": 6},
        "bn1 fc1 relu bn2 fc2 relu bn3 fc3",
        EXTENSIONS,
    ),
    "inputs without a number": (
        {"start": 4, "fc1": (4, 6), "bn1": 6, "fc2": (6, 3)},
        "start fc1 bn1 relu fc2",
        EXTENSIONS,
    ),
    "numbers off by one": (
        {"fc0": (4, 6), "bn1": 6, "fc1": (6, 6), "bn2": 6, "fc2": (6, 3)},
        "fc0 bn1 relu fc1 bn2 relu fc2",
        EXTENSIONS,
    ),
    "by width": (
        {"zeta": (4, 6), "eta": (6, 5), "alpha": (5, 3), "norm_a": 5, "norm_b": 6},
        "zeta norm_b relu eta norm_a relu alpha",
        EXTENSIONS,
    ),
    "by order": (
        {"a": (6, 6), "norm": 6, "b": (6, 6), "c": (6, 3)},
        "a norm relu b relu c",
        (".pt", "live"),
    ),
    "by order, the second": (
        {"a": (6, 6), "b": (6, 6), "norm": 6, "c": (6, 3)},
        "a relu b norm relu c",
        (".pt", "live"),
    ),
    "all that fit": (
        {"a": (4, 6), "b": (6, 6), "c": (6, 3), "norm_x": 6, "norm_y": 6},
        "a norm_x relu b norm_y relu c",
        (".pt", "live"),
    ),
}


def built(case: str) -> Modules:
    parts, order, _ = MODULES[case]
    torch.manual_seed(0)
    modules = {
        name: norm(sizes) if isinstance(sizes, int) else linear(*sizes)
        for name, sizes in parts.items()
    }
    module = Modules(modules, order)
    trained(module)
    return module


@pytest.mark.parametrize("extension", EXTENSIONS)
@pytest.mark.parametrize("case", MODULES)
def test_names_widths_and_order_tell(tmp_path: Path, case: str, extension: str) -> None:
    module = built(case)
    if extension in MODULES[case][2]:
        assert_same(read(module, tmp_path, extension), module)
    else:  # sorted by name: what order told is lost
        with pytest.raises(PFNMError, match=r"ambiguous|cannot be told where BatchNorm 'norm"):
            read(module, tmp_path, extension)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((linear(4, 6), norm(5), RELU, linear(6, 3)), "BatchNorm '1' has 5 units.*6 outputs"),
        ((linear(4, 6), RELU, linear(6, 3), RELU, norm(3)), "BatchNorm '4'.*last layer"),
        ((linear(4, 6), nn.LayerNorm(6), RELU, linear(6, 3)), r"'1\.weight'.*LayerNorm"),
        ((linear(4, 6), nn.PReLU(), linear(6, 3)), r"'1\.weight'"),
        ((nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), linear(8, 3)), r"'0\.weight'.*convolution"),
        ((nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8), linear(8, 3)), r"'0\.weight'.*convolution"),
        ((linear(4, 6), nn.BatchNorm1d(6, track_running_stats=False)), r"'1\.weight'"),
    ],
)
@pytest.mark.parametrize("extension", [".pt", ".safetensors"])
def test_what_cannot_be_folded(
    tmp_path: Path, parts: tuple[nn.Module, ...], words: str, extension: str
) -> None:
    with pytest.raises(PFNMError, match=words) as caught:
        read(sequential(*parts), tmp_path, extension)
    assert "\n" not in str(caught.value)
    assert "fold it into" not in str(caught.value)


def test_by_hand() -> None:
    weight = np.array([[1.0, 2.0]], dtype="float32")
    state = {
        "W1": weight.T,
        "bn1.running_mean": np.array([3.0, 5.0]),
        "bn1.running_var": np.array([4.0 - 1e-5, 1.0 - 1e-5]),
        "bn1.weight": np.array([2.0, 3.0]),
        "bn1.bias": np.array([1.0, 0.0]),
        "bn1.num_batches_tracked": np.array(7),
        "W2": np.ones((1, 1), dtype="float32"),
    }
    # The inputs' BatchNorm is x * (1, 3) + (1 - 3, -15): W1' = W1 * (1, 3), b1' = -2 - 2 * 15.
    found = from_state_dict(state)
    assert list(found.tensors) == ["W1", "b1", "W2"]
    np.testing.assert_allclose(found.tensors["W1"], [[1], [6]], rtol=1e-6)
    np.testing.assert_allclose(found.tensors["b1"], [-32], rtol=1e-6)


@settings(deadline=None, max_examples=30)
@given(
    widths=st.lists(st.integers(1, 4), min_size=2, max_size=5),
    having=st.lists(st.sampled_from(["", "before", "after"]), min_size=5, max_size=5),
    biased=st.booleans(),
)
def test_any_sequence(widths: list[int], having: list[str], biased: bool) -> None:
    parts: list[nn.Module] = []
    for layer, (below, above) in enumerate(pairwise(widths)):
        last = layer == len(widths) - 2
        parts += [linear(below, above, bias=biased)]
        parts += [norm(above)] if having[layer] == "before" else []
        parts += [] if last else [nn.ReLU()]
        parts += [norm(above)] if having[layer] == "after" and not last else []
    module = trained(sequential(*parts))
    assert_same(from_state_dict(module.state_dict()), module)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"1.running_var": -torch.ones(6)}, "below zero"),
        ({"1.running_mean": torch.full((6,), torch.nan)}, r"'1\.running_mean' holds NaN"),
        ({"1.running_var": torch.ones(5)}, r"'1\.running_var'.*\(5,\)"),
    ],
)
def test_statistics_that_are_none(change: dict[str, torch.Tensor], words: str) -> None:
    state = sequential(linear(4, 6), norm(6), RELU, linear(6, 3)).state_dict()
    with pytest.raises(PFNMError, match=words):
        from_state_dict({**state, **change})
