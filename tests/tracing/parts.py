"""Parts that small networks are made of: residuals, gates, concatenations, attention."""

import torch
from torch import Tensor, nn
from torch.nn import functional

HEAD = 4  # coordinates of an attention head


class Residual(nn.Module):
    """What comes in (through `shortcut`), plus what `body` makes of it."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x) + self.shortcut(x)
        return out


class Concatenated(nn.Module):
    """What comes in, and behind it on the same axis what `body` makes of it."""

    def __init__(self, body: nn.Module, axis: int = 1) -> None:
        super().__init__()
        self.body = body
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.body(x)], self.axis)


class Transposed(nn.Module):
    """A body that works along the other of the two last axes."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x.transpose(1, 2)).transpose(1, 2)
        return out


class SqueezeExcite(nn.Module):
    """Every channel times a gate made of the means of all channels."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeezed, 1)
        self.excite = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = functional.silu(self.squeeze(functional.adaptive_avg_pool2d(x, 1)))
        return x * torch.sigmoid(self.excite(gate))


class SwiGLU(nn.Module):
    """A gated layer: three matrices, no biases."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(functional.silu(self.gate(x)) * self.up(x))
        return out


class LayerAttention(nn.Module):
    """nn.MultiheadAttention of a sequence with itself; as many heads as fit."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, width // HEAD, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return out


class FusedAttention(nn.Module):
    """Queries, keys and values from one matrix; as many heads as its rows give."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(x).unflatten(-1, (3, -1, HEAD)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(heads[0], heads[1], heads[2])
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class NumberedAttention(nn.Module):
    """The same, with the number of heads and their size held in numbers, as much code does."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads, self.size = width // HEAD, HEAD
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        heads = self.qkv(x).reshape(rows, length, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        scores = heads[0] @ heads[1].transpose(-2, -1) * self.size**-0.5
        mixed = (scores.softmax(-1) @ heads[2]).transpose(1, 2)
        out: Tensor = self.out(mixed.reshape(rows, length, self.heads * self.size))
        return out


class CausalAttention(nn.Module):
    """Two heads, each half as wide as what comes in; nobody looks ahead (as in GPT-2)."""

    def __init__(self, width: int, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        q, k, v = (
            part.view(rows, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, 2)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.out(mixed.transpose(1, 2).contiguous().view(rows, length, width))
        return out


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """Pairs of coordinates (one from each half) turned by angles that grow with the position."""
    first, second = x.chunk(2, -1)
    turned = torch.cat([-second, first], -1)
    out: Tensor = x * angles.cos() + turned * angles.sin()
    return out


class RotaryAttention(nn.Module):
    """Rotary positions and grouped queries: two heads of queries share one of keys and values."""

    frequencies: Tensor
    SHARING = 2

    def __init__(self, width: int) -> None:
        super().__init__()
        pairs = width // HEAD  # heads of keys and values
        self.q = nn.Linear(width, self.SHARING * pairs * HEAD, bias=False)
        self.k = nn.Linear(width, pairs * HEAD, bias=False)
        self.v = nn.Linear(width, pairs * HEAD, bias=False)
        self.out = nn.Linear(self.SHARING * pairs * HEAD, width, bias=False)
        frequencies = 100.0 ** (-torch.arange(0, HEAD, 2) / HEAD)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        positions = torch.arange(x.shape[1], device=x.device, dtype=self.frequencies.dtype)
        angles = (positions[:, None] * self.frequencies).repeat(1, 2)
        q, k, v = (
            layer(x).unflatten(-1, (-1, HEAD)).transpose(1, 2) for layer in (self.q, self.k, self.v)
        )
        k, v = (part.repeat_interleave(self.SHARING, 1) for part in (rotated(k, angles), v))
        mixed = functional.scaled_dot_product_attention(rotated(q, angles), k, v, is_causal=True)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out
