"""Small networks for tokens, patches and series, and networks with several inputs."""

from collections.abc import Callable

import torch
from parts import HEAD, CausalAttention, Residual, RotaryAttention, SwiGLU, Transposed
from torch import Tensor, nn
from vision import CHANNELS, CLASSES, FEATURES, SIDE

VOCABULARY, LENGTH = 20, 10
PATCH = 4
PATCHES = (SIDE // PATCH) ** 2

Attention = Callable[[int], nn.Module]


def patches(width: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(CHANNELS, width, PATCH, PATCH), nn.Flatten(2))


class Mixer(nn.Module):
    """Patches mixed across places, then across channels; the mean of all places."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.patches = patches(width)
        self.blocks = nn.Sequential(self.block(width), self.block(width))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    @staticmethod
    def block(width: int) -> nn.Module:
        hidden = width + 4
        across = (nn.Linear(PATCHES, hidden), nn.GELU(), nn.Linear(hidden, PATCHES))
        within = (nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        return nn.Sequential(
            Residual(nn.Sequential(nn.LayerNorm(width), Transposed(nn.Sequential(*across)))),
            Residual(nn.Sequential(nn.LayerNorm(width), *within)),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.patches(x).transpose(1, 2))
        out: Tensor = self.head(self.norm(x).mean(1))
        return out


class ViT(nn.Module):
    """Patches, a token for the class, positions, two blocks."""

    def __init__(self, width: int, attention: Attention) -> None:
        super().__init__()
        self.patches = patches(width)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, PATCHES + 1, width))
        self.blocks = nn.Sequential(self.block(width, attention), self.block(width, attention))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    @staticmethod
    def block(width: int, attention: Attention) -> nn.Module:
        layers = (nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        return nn.Sequential(
            Residual(nn.Sequential(nn.LayerNorm(width), attention(width))),
            Residual(nn.Sequential(nn.LayerNorm(width), *layers)),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        out: Tensor = self.head(self.norm(self.blocks(x))[:, 0])
        return out


class Encoder(nn.Module):
    """nn.TransformerEncoder over embedded tokens; the mean of all places."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Parameter(torch.randn(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, width // HEAD, 2 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(width), False)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.head(self.encoder(self.embedding(tokens) + self.positions).mean(1))
        return out


class Decoder(nn.Module):
    """Two causal blocks; the embedding of tokens is also the last layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(self.block(width), self.block(width))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight

    @staticmethod
    def block(width: int) -> nn.Module:
        layers = (nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        return nn.Sequential(
            Residual(nn.Sequential(nn.LayerNorm(width), CausalAttention(width))),
            Residual(nn.Sequential(nn.LayerNorm(width), *layers)),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.blocks(self.embedding(tokens) + self.positions(places))
        out: Tensor = self.head(self.norm(x))
        return out


class Llama(nn.Module):
    """RMSNorm, rotary positions, grouped queries, SwiGLU; tied embeddings."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.Sequential(self.block(width), self.block(width))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight

    @staticmethod
    def block(width: int) -> nn.Module:
        return nn.Sequential(
            Residual(nn.Sequential(nn.RMSNorm(width), RotaryAttention(width))),
            Residual(nn.Sequential(nn.RMSNorm(width), SwiGLU(width, 2 * width))),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(self.blocks(self.embedding(tokens))))
        return out


class Recurrent(nn.Module):
    """Embedded tokens, a recurrent network, a linear layer on its last place."""

    def __init__(self, width: int, body: nn.RNNBase) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.body = body
        directions = 2 if body.bidirectional else 1
        self.head = nn.Linear(directions * (body.proj_size or body.hidden_size), CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(self.embedding(tokens))[0][:, -1])
        return out


def lstm(width: int, layers: int = 1, *, both: bool = False, projected: bool = False) -> nn.Module:
    body = nn.LSTM(
        width,
        width + 4,
        layers,
        batch_first=True,
        bidirectional=both,
        proj_size=width // 2 if projected else 0,
    )
    return Recurrent(width, body)


def gru(width: int, layers: int = 1, *, both: bool = False) -> nn.Module:
    body = nn.GRU(width, width + 4, layers, batch_first=True, bidirectional=both)
    return Recurrent(width, body)


def plain_recurrent(width: int) -> nn.Module:
    return Recurrent(width, nn.RNN(width, width + 4, 2, batch_first=True, nonlinearity="relu"))


class ConvolvedRecurrent(nn.Module):
    """A convolution over a series, then an LSTM, of which the last state is used."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(CHANNELS, width, 3, padding=1)
        self.norm = nn.BatchNorm1d(width)
        self.lstm = nn.LSTM(width, width + 4, batch_first=True)
        self.head = nn.Linear(width + 4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(x))).transpose(1, 2)
        out: Tensor = self.head(self.lstm(x)[1][0][-1])
        return out


class Gated(nn.Module):
    """Half of a layer's values gate the other half."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, 2 * width)
        self.second = nn.Linear(width, 2 * width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.glu(self.first(x))
        value, gate = self.second(x).chunk(2, -1)
        out: Tensor = self.head(x + value * torch.tanh(gate))
        return out


class TwoBranches(nn.Module):
    """Features and a series, each with a branch of its own; concatenated."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU())
        self.series = nn.Sequential(nn.Conv1d(CHANNELS, width + 4, 3), nn.ReLU())
        self.joint = nn.Sequential(nn.Linear(2 * width + 4, width), nn.Sigmoid())
        self.head = nn.Linear(width, CLASSES)

    def forward(self, features: Tensor, series: Tensor) -> Tensor:
        both = torch.cat([self.features(features), self.series(series).mean(-1)], -1)
        out: Tensor = self.head(self.joint(both))
        return out


class Siamese(nn.Module):
    """One encoder for two inputs; what it says of both is compared, unit by unit."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width + 4), nn.Tanh()
        )
        self.together = nn.Bilinear(width + 4, width + 4, width)
        self.head = nn.Linear(2 * width + 4, CLASSES)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        one, two = self.encoder(first), self.encoder(second)
        both = torch.cat([(one - two).abs(), self.together(one, two)], -1)
        out: Tensor = self.head(both)
        return out
