"""Residual streams that only norms read are rotated into one frame before they are matched."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

import pfnm
from pfnm.networks.network import Network
from pfnm.tracing.modules import from_modules
from pfnm.tracing.streams import rotations

WIDTH, TOKENS, LENGTH = 8, 11, 6
Norm = Callable[[], nn.Module]


class Model(nn.Module):
    """Two perceptrons beside a stream, each after a norm; what a norm gives leads to outputs."""

    def __init__(self, norm: Norm, *, bias: bool = True, tied: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.norms = nn.ModuleList([norm() for _ in range(3)])
        self.ups = nn.ModuleList([nn.Linear(WIDTH, 12, bias=bias) for _ in range(2)])
        self.downs = nn.ModuleList([nn.Linear(12, WIDTH) for _ in range(2)])
        self.head = nn.Linear(WIDTH, TOKENS, bias=bias)
        if tied:
            self.head.weight = self.embedding.weight
        for own in self.norms:
            for parameter in own.parameters():
                nn.init.normal_(parameter, 0.7, 0.3)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for norm, up, down in zip(self.norms, self.ups, self.downs, strict=False):
            x = x + down(functional.gelu(up(norm(x))))
        found: Tensor = self.head(self.norms[2](x))
        return found


class Late(Model):
    """The norm stands in the stream itself: what it gives is added to."""

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for norm, up, down in zip(self.norms, self.ups, self.downs, strict=False):
            x = norm(x + down(functional.gelu(up(x))))
        found: Tensor = self.head(self.norms[2](x))
        return found


class Plain(Model):
    """A ReLU in the stream, which knows its coordinates."""

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens).relu()
        found: Tensor = self.head(self.norms[2](x))
        return found


def layer_norm() -> nn.Module:
    return nn.LayerNorm(WIDTH)


def rms_norm() -> nn.Module:
    return nn.RMSNorm(WIDTH)


def tokens(count: int) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    found = torch.randint(TOKENS, (count, LENGTH), generator=generator)
    found[0, :2] = torch.tensor([0, TOKENS - 1])
    return found


def networks(models: Sequence[nn.Module]) -> list[Network]:
    return from_modules([model.eval() for model in models], tokens(4))


def framed(found: Sequence[Network]) -> Sequence[Network] | None:
    """The networks in one frame; None where they stay as they are."""
    own = [network.tensors for network in found]
    result = found[0].program.in_one_frame(own, lambda: tokens(60).float().numpy())
    if result is own:
        return None
    return [replace(network, tensors=t) for network, t in zip(found, result, strict=True)]


def a_rotation(width: int, rng: np.random.Generator, *, centred: bool) -> np.ndarray:
    """One at random; centred: one that keeps the mean."""
    if not centred:
        return np.linalg.qr(rng.normal(size=(width, width)))[0]
    inner = np.eye(width)
    inner[1:, 1:] = a_rotation(width - 1, rng, centred=False)
    basis = np.linalg.qr(np.c_[np.ones(width), np.eye(width)[:, 1:]])[0]
    found: np.ndarray = basis @ inner @ basis.T
    return found


def rotated(model: Model, *, centred: bool) -> Model:
    """A model that does the same in a frame of its own: norms at rest, the stream rotated."""
    rng = np.random.default_rng(1)
    turn = torch.from_numpy(a_rotation(WIDTH, rng, centred=centred)).float()
    other = Model(layer_norm if centred else rms_norm)
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        readers = [cast(nn.Linear, own) for own in (*other.ups, other.head)]
        norms = [cast(nn.LayerNorm, own) for own in other.norms]
        for norm, reader in zip(norms, readers, strict=True):
            if centred:
                reader.bias.add_(reader.weight @ norm.bias)
                norm.bias.zero_()
            reader.weight.copy_((reader.weight * norm.weight) @ turn)
            norm.weight.fill_(1)
        take = torch.eye(WIDTH) - (1 / WIDTH if centred else 0)
        other.embedding.weight.copy_(other.embedding.weight @ take @ turn)
        for down in (cast(nn.Linear, own) for own in other.downs):
            down.weight.copy_(turn.T @ take @ down.weight)
            down.bias.copy_(turn.T @ take @ down.bias)
    return other


@pytest.mark.parametrize("norm", [layer_norm, rms_norm])
def test_networks_answer_as_before(norm: Norm) -> None:
    found = networks([Model(norm) for _ in range(3)])
    together = framed(found)
    assert together is not None
    x = tokens(20).float().numpy()
    for before, after in zip(found, together, strict=True):
        np.testing.assert_allclose(after.run(x), before.run(x), atol=1e-4)
    likeness = [
        np.corrcoef([n.tensors["embedding.weight"].ravel() for n in own])[0, 1:]
        for own in (found, together)
    ]
    assert (likeness[1] > likeness[0] + 0.1).all()


@pytest.mark.parametrize("centred", [True, False])
def test_rotated_twins_become_one_network(centred: bool) -> None:
    torch.manual_seed(3)
    model = Model(layer_norm if centred else rms_norm)
    twin = rotated(model, centred=centred)
    torch.testing.assert_close(twin(tokens(9)), model(tokens(9)), atol=1e-4, rtol=1e-4)
    found = networks([model, twin])
    together = framed(found)
    assert together is not None
    for name, tensor in together[0].tensors.items():
        np.testing.assert_allclose(together[1].tensors[name], tensor, atol=1e-4)
    fusion = pfnm.fuse([model, twin], example_inputs=tokens(4), budget=1.0)
    x = tokens(20)
    with torch.no_grad():
        torch.testing.assert_close(fusion.model(x), model(x), atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: Model(layer_norm, tied=True), id="the head is the embedding"),
        pytest.param(lambda: Model(layer_norm, bias=False), id="a shift has no bias to go to"),
        pytest.param(lambda: Late(layer_norm), id="the norm stands in the stream"),
        pytest.param(lambda: Plain(layer_norm), id="a ReLU stands in the stream"),
    ],
)
def test_streams_that_are_not_free_stay(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    assert framed(networks([make(), make()])) is None


@given(st.integers(0, 2**16), st.integers(2, 4), st.booleans())
def test_rotations_find_one_frame(seed: int, sites: int, centred: bool) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(40, 5))
    if centred:
        values -= values.mean(axis=1, keepdims=True)
    seen = [values @ a_rotation(5, rng, centred=centred) for _ in range(sites)]
    found = rotations(seen, centred=centred)
    first = seen[0] @ found[0]
    for own, turn in zip(seen, found, strict=True):
        np.testing.assert_allclose(turn @ turn.T, np.eye(5), atol=1e-9)
        np.testing.assert_allclose(own @ turn, first, atol=1e-8)
        if centred:
            np.testing.assert_allclose(turn.sum(axis=1), 1, atol=1e-9)
