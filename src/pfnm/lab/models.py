"""Architectures to simulate with, by name: small ones, and any class of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pfnm.errors import PFNMError
from pfnm.frameworks.classes import made
from pfnm.lab.data import Data
from pfnm.lab.modules import from_module, whole_network
from pfnm.networks.graph import OUTPUT
from pfnm.networks.network import Network

SMALL_PICTURE = 16  # pixels: pictures below this are padded, so that something of them is left
EXAMPLE_ROWS = 4  # on which a module is traced
EXAMPLE_SEED = 0

Shape = tuple[int, ...]


class LeNet(nn.Module):
    """Two convolutions of 5 x 5 (20 and 50 filters), each pooled, and 100 units."""

    def __init__(self, shape: Shape = (1, 28, 28), classes: int = 10) -> None:
        super().__init__()
        channels, *sides = shape
        padding = 0 if min(sides) >= SMALL_PICTURE else 2
        self.first = nn.Conv2d(channels, 20, 5, padding=padding)
        self.second = nn.Conv2d(20, 50, 5, padding=padding)
        for _ in range(2):
            sides = [(side - 4 + 2 * padding) // 2 for side in sides]
        self.hidden = nn.Linear(50 * sides[0] * sides[1], 100)
        self.head = nn.Linear(100, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (examples, classes)."""
        x = functional.max_pool2d(self.first(x).relu(), 2)
        x = functional.max_pool2d(self.second(x).relu(), 2)
        found: Tensor = self.head(self.hidden(x.flatten(1)).relu())
        return found


class VGG(nn.Module):
    """Convolutions of 3 x 3, pooled after those named in `pools`, then hidden layers."""

    def __init__(
        self,
        shape: Shape = (3, 32, 32),
        classes: int = 10,
        filters: Sequence[int] = (16, 16, 32, 32, 64),
        pools: Sequence[int] = (2, 4, 5),
        hidden: Sequence[int] = (64,),
        batch_norm: bool = True,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels, *sides = shape
        for number, (below, above) in enumerate(pairwise((channels, *filters)), start=1):
            layers.append(nn.Conv2d(below, above, 3, padding=1, bias=not batch_norm))
            if batch_norm:
                layers.append(nn.BatchNorm2d(above))
            layers.append(nn.ReLU())
            if number in pools:
                layers.append(nn.MaxPool2d(2))
                sides = [side // 2 for side in sides]
        layers.append(nn.Flatten())
        for below, above in pairwise((filters[-1] * sides[0] * sides[1], *hidden)):
            layers += [nn.Linear(below, above), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(hidden[-1], classes))

    def forward(self, x: Tensor) -> Tensor:
        """Logits (examples, classes)."""
        found: Tensor = self.layers(x)
        return found


class Block(nn.Module):
    """Two convolutions beside a residual stream."""

    def __init__(self, below: int, above: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(below, above, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(above)
        self.second = nn.Conv2d(above, above, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(above)
        self.stream: nn.Module = nn.Identity()
        if below != above:
            self.stream = nn.Sequential(
                nn.Conv2d(below, above, 1, stride, bias=False), nn.BatchNorm2d(above)
            )

    def forward(self, x: Tensor) -> Tensor:
        """The stream after this block."""
        own = self.first_norm(self.first(x)).relu()
        found: Tensor = (self.second_norm(self.second(own)) + self.stream(x)).relu()
        return found


class ResNet20(nn.Module):
    """Three stages of three blocks, of 16, 32 and 64 channels (`width`, and its doubles)."""

    def __init__(self, shape: Shape = (3, 32, 32), classes: int = 10, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Conv2d(shape[0], width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        blocks = [Block(width, width, 1) for _ in range(3)]
        for stage in (1, 2):
            above = width * 2**stage
            blocks += [Block(above // 2, above, 2), *(Block(above, above, 1) for _ in range(2))]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (examples, classes)."""
        x = self.blocks(self.norm(self.first(x)).relu())
        found: Tensor = self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))
        return found


class LSTM(nn.Module):
    """A language model of characters: an embedding, an LSTM, logits."""

    def __init__(
        self, shape: Shape = (64,), classes: int = 96, embedding: int = 32, hidden: int = 128
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, embedding)
        self.lstm = nn.LSTM(embedding, hidden, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (examples, length, characters) of the character that follows each."""
        found: Tensor = self.head(self.lstm(self.embedding(tokens))[0])
        return found


class Layer(nn.Module):
    """Attention to what came before, and a perceptron, each beside a residual stream."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.hidden_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.mixed = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """The stream after this layer."""
        own = self.attention_norm(x)
        query, key, value = (
            part(own).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.mixed(seen.transpose(1, 2).flatten(2))
        found: Tensor = x + self.down(functional.gelu(self.up(self.hidden_norm(x))))
        return found


class Transformer(nn.Module):
    """A language model of characters: two layers of attention over a stream of 64 numbers."""

    def __init__(
        self,
        shape: Shape = (64,),
        classes: int = 96,
        width: int = 64,
        heads: int = 4,
        layers: int = 2,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, width)
        self.places = nn.Embedding(shape[0], width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (examples, length, characters) of the character that follows each."""
        x = self.embedding(tokens) + self.places.weight[: tokens.shape[1]]
        found: Tensor = self.head(self.norm(self.layers(x)))
        return found


VGG9 = {
    "filters": (32, 64, 128, 128, 256, 256),
    "pools": (2, 4, 6),
    "hidden": (512, 512),
    "batch_norm": False,
}
MODELS: Mapping[str, tuple[Callable[..., nn.Module], Mapping[str, Any]]] = {
    "lenet": (LeNet, {}),
    "vgg": (VGG, {}),
    "vgg9": (VGG, VGG9),
    "resnet20": (ResNet20, {}),
    "lstm": (LSTM, {}),
    "transformer": (Transformer, {}),
}
TEXT = {"lstm", "transformer"}


class Architecture:
    """One of `MODELS`, or the user's class, for a data set; traced when it is first made."""

    def __init__(self, model: str, arguments: Mapping[str, Any], data: Data) -> None:
        self.model, self.arguments, self.data = model, arguments, data
        _check_fits(model, data)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(EXAMPLE_SEED)
            module = self._made().eval()
        self._like = whole_network(module, (_example(data),))
        outputs = self._like.sizes[OUTPUT]
        if outputs != len(data.classes):
            raise PFNMError(
                f"{model} has {outputs} outputs, and the data {len(data.classes)} classes; give it "
                "as many (--model-args)"
            )

    def start(self, rng: np.random.Generator) -> Network:
        """A network before training."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**31)))
            return from_module(self._made(), self._like)

    def _made(self) -> nn.Module:
        own, usual = MODELS.get(self.model, (None, {}))
        given = {"shape": self.data.shape, "classes": len(self.data.classes)} if own else {}
        module: nn.Module = made(self.model, {**given, **usual, **self.arguments}, own)
        return module


def _check_fits(model: str, data: Data) -> None:
    """An error where a model of ours is not for such data."""
    if model not in MODELS:
        return
    if (model in TEXT) != data.tokens:
        fitting = ", ".join(name for name in MODELS if (name in TEXT) == data.tokens)
        kind = "text" if data.tokens else "pictures"
        raise PFNMError(f"{model} is not for {kind}, which the data is; choose one of {fitting}")
    if model not in TEXT and len(data.shape) != 3:
        raise PFNMError(
            f"{model} takes pictures, and the data does not tell their channels, height and width; "
            "give x of an .npz as (examples, channels, height, width)"
        )


def _example(data: Data) -> Tensor:
    """Made-up inputs to trace a module on: values from one end of their range to the other."""
    rng = np.random.default_rng(EXAMPLE_SEED)
    shape = (EXAMPLE_ROWS, *(data.shape or data.test_inputs.shape[1:]))
    if data.tokens:
        tokens = rng.integers(len(data.classes), size=shape)
        tokens[0], tokens[1] = 0, len(data.classes) - 1  # all of them can occur anywhere
        return torch.from_numpy(tokens)
    low, high = float(data.test_inputs.min()), float(data.test_inputs.max())
    return torch.from_numpy(rng.uniform(low, high, size=shape).astype(np.float32))
