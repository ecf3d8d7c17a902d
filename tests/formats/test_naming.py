"""Order, pairing and orientation of layers, where a file has only names and shapes to tell."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

from pfnm.errors import PFNMError
from pfnm.formats import load
from pfnm.networks.network import Network
from pfnm.networks.perceptron import layers

Shapes = Mapping[str, tuple[int, ...]]


def made(folder: Path, shapes: Shapes, extension: str = ".npz") -> Network:
    rng = np.random.default_rng(0)
    tensors = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    path = folder / f"site{extension}"
    if extension == ".npz":
        np.savez(path, **tensors)  # type: ignore[arg-type]
    elif extension == ".safetensors":
        save_file(tensors, path)
    else:
        torch.save({name: torch.tensor(tensor) for name, tensor in tensors.items()}, path)
    return load(path)


def order(network: Network) -> list[tuple[str, str | None]]:
    return [(layer.weight_name, layer.bias_name) for layer in layers(network)]


@pytest.mark.parametrize(
    ("weight", "bias"),
    [
        ("fc{}.weight", "fc{}.bias"),
        ("layers.{}.weights", "layers.{}.biases"),
        ("dense_{}/kernel:0", "dense_{}/bias:0"),
        ("W{}", "b{}"),
        ("w_{}", "b_{}"),
        ("coefs_{}", "intercepts_{}"),
        ("weight_{}", "bias_{}"),
        ("fc{}", "fc{}.bias"),
        ("b.{}.weight", "b.{}.bias"),
        ("w{}.weight", "w{}.bias"),
    ],
)
@pytest.mark.parametrize("transposed", [True, False])
def test_names_pair_and_numbers_order(
    tmp_path: Path, weight: str, bias: str, transposed: bool
) -> None:
    sizes = (3, 5, 5, 5, 2)
    numbers = (1, 2, 10, 11)  # in the order of letters, 10 comes before 2
    shapes: dict[str, tuple[int, ...]] = {}
    for number, below, above in zip(numbers, sizes, sizes[1:], strict=False):
        shapes[weight.format(number)] = (above, below) if transposed else (below, above)
        shapes[bias.format(number)] = (above,)
    found = made(tmp_path, dict(sorted(shapes.items())))
    assert order(found) == [(weight.format(n), bias.format(n)) for n in numbers]
    assert list(found.sizes.values()).count(5) == 3
    assert {layer.transposed for layer in layers(found)} == {transposed}


@pytest.mark.parametrize(("name", "transposed"), [("fc{}.weight", True), ("W{}", False)])
def test_orientation_of_square_layers_follows_names(
    tmp_path: Path, name: str, transposed: bool
) -> None:
    found = made(tmp_path, {name.format(1): (4, 4), name.format(2): (4, 4)})
    assert {layer.transposed for layer in layers(found)} == {transposed}


@pytest.mark.parametrize("extension", [".npz", ".safetensors"])
def test_shapes_order_what_names_do_not(tmp_path: Path, extension: str) -> None:
    shapes = {"top.weight": (2, 7), "bottom.weight": (5, 3), "mid.weight": (7, 5)}
    found = made(tmp_path, shapes, extension)
    assert [name for name, _ in order(found)] == ["bottom.weight", "mid.weight", "top.weight"]


def test_ambiguous_order_says_how_to_name_the_layers(tmp_path: Path) -> None:
    shapes = {"a.weight": (5, 3), "b.weight": (5, 5), "c.weight": (5, 5), "d.weight": (2, 5)}
    with pytest.raises(PFNMError, match=r"site\.npz.*ambiguous.*layer1\.weight, layer1\.bias"):
        made(tmp_path, shapes)


def test_a_checkpoint_keeps_its_own_order(tmp_path: Path) -> None:
    shapes = {"z.weight": (4, 4), "a.weight": (4, 4), "m.weight": (4, 4)}
    found = made(tmp_path, shapes, ".pt")
    assert [name for name, _ in order(found)] == list(shapes)


def test_a_checkpoint_whose_order_does_not_chain_is_sorted(tmp_path: Path) -> None:
    found = made(tmp_path, {"fc2.weight": (2, 5), "fc1.weight": (5, 3)}, ".pt")
    assert [name for name, _ in order(found)] == ["fc1.weight", "fc2.weight"]


def test_a_long_network_of_equal_layers_is_quick(tmp_path: Path) -> None:
    shapes = {f"{'abcdefghijklmnopqrstuvwxyz'[i]}.weight": (4, 4) for i in range(16)}
    with pytest.raises(PFNMError, match="ambiguous"):
        made(tmp_path, shapes)
    with pytest.raises(PFNMError, match="do not follow"):
        made(tmp_path, {**shapes, "odd.weight": (9, 8)})
    assert len(layers(made(tmp_path, {f"fc{i}.weight": (4, 4) for i in range(100)}))) == 100


@pytest.mark.parametrize(
    ("shapes", "tensor", "words"),
    [
        ({"fc.weight": (3, 2), "fc.scale": ()}, "fc.scale", r"shape \(\)"),
        ({"conv.weight": (8, 3, 3, 3)}, "conv.weight", "convolution"),
        ({"fc.weight": (3, 2), "bn.running_mean": (3,)}, "bn.running_mean", "normalisation"),
        ({"fc.weight": (3, 2), "ln.weight": (3,)}, "ln.weight", "LayerNorm .* take over"),
        ({"fc/kernel:0": (2, 3), "ln/gamma:0": (3,)}, "ln/gamma:0", "LayerNorm"),
        ({"bn.num_batches_tracked": ()}, "bn.num_batches_tracked", "normalisation"),
        ({"fc.weight": (3, 2), "other.bias": (3,)}, "other.bias", "no weight"),
        ({"fc.weight": (3, 2), "fc.bias": (7,)}, "fc.bias", r"\(7,\)"),
        ({"W1": (4, 5), "b1": (1, 5)}, "b1", r"\(1, 5\)"),
        ({"fc.weight": (3, 2), "fc.bias": (3,), "fc.b": (3,)}, "fc.b", "one bias for one weight"),
        ({"fc1.weight": (5, 3), "fc2.weight": (2, 4)}, "fc1.weight", "do not follow"),
        (
            {"a.weight": (5, 3), "a.bias": (5,), "c.weight": (5, 4), "c.bias": (4,)},
            "bias",
            "one way",
        ),
        ({}, "", "no tensors"),
    ],
)
def test_what_is_no_perceptron(tmp_path: Path, shapes: Shapes, tensor: str, words: str) -> None:
    with pytest.raises(PFNMError, match=words) as caught:
        made(tmp_path, shapes)
    assert "site.npz" in str(caught.value)
    assert tensor in str(caught.value)
    assert "\n" not in str(caught.value)


def torch_mlp(activation: type[torch.nn.Module]) -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 6),
        activation(),
        torch.nn.Linear(6, 6),
        activation(),
        torch.nn.Linear(6, 3),
    )


@pytest.mark.parametrize("key", [None, "state_dict", "model_state_dict", "model"])
@pytest.mark.parametrize(("module", "activation"), [(torch.nn.ReLU, None), (torch.nn.GELU, "gelu")])
def test_torch_checkpoints_predict_the_same(
    tmp_path: Path, key: str | None, module: type[torch.nn.Module], activation: str | None
) -> None:
    model, path = torch_mlp(module), tmp_path / "site.pth"
    state = model.state_dict()
    torch.save(state if key is None else {key: state, "epoch": 3}, path)
    found = load(path, activation=activation, output="softmax", labels=["a", "b", "c"])
    assert (found.name, found.labels, found.output) == ("site", ("a", "b", "c"), "softmax")
    assert list(found.tensors) == list(state)
    inputs = np.random.default_rng(0).normal(size=(5, 4))
    expected = model(torch.tensor(inputs, dtype=torch.float32)).detach().numpy()
    np.testing.assert_allclose(found.run(inputs), expected, atol=1e-6)


@pytest.mark.parametrize("extension", [".pt", ".safetensors"])
def test_bfloat16_becomes_float32(tmp_path: Path, extension: str) -> None:
    state = {"fc.weight": torch.randn(3, 2, dtype=torch.bfloat16)}
    path = tmp_path / f"site{extension}"
    torch.save(state, path) if extension == ".pt" else save_torch(state, path)
    found = load(path)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.tensors["fc.weight"], state["fc.weight"].float().numpy())
