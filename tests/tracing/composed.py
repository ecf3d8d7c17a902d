"""Random networks composed of small parts: `networks()` is a strategy of plans to build them.

    @given(networks())
    def test(plan: Plan) -> None:
        module, inputs = plan.make(), plan.inputs()

A plan is a handful of words, so a failure reads easily; `make(growth)` gives the same network
with every hidden width larger by `growth` (a multiple of 4, as all widths are).
"""

from collections.abc import Callable
from dataclasses import dataclass

from families import Inputs, normal, seeded, tokens
from hypothesis import strategies
from parts import (
    HEAD,
    Concatenated,
    FusedAttention,
    LayerAttention,
    Residual,
    SqueezeExcite,
    SwiGLU,
    Transposed,
)
from sequences import VOCABULARY
from torch import Tensor, nn
from vision import CHANNELS, CLASSES, FEATURES

SIDE = 8  # of an image: pooled twice at most
GROUPS = 2  # fewer than channels, or nobody could tell groups from channels
LONGEST = 4  # blocks

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "leaky": lambda: nn.LeakyReLU(0.2),
}
NORMS: dict[str, dict[str, Callable[[int], nn.Module]]] = {
    "vector": {"none": lambda _: nn.Identity(), "batch": nn.BatchNorm1d, "layer": nn.LayerNorm},
    "image": {
        "none": lambda _: nn.Identity(),
        "batch": nn.BatchNorm2d,
        "instance": lambda c: nn.InstanceNorm2d(c, affine=True),
        "group": lambda c: nn.GroupNorm(GROUPS, c),
    },
    "sequence": {
        "none": lambda _: nn.Identity(),
        "batch": lambda c: Transposed(nn.BatchNorm1d(c)),
        "layer": nn.LayerNorm,
        "rms": nn.RMSNorm,
    },
}
PARTS = {
    "vector": ("layer", "residual", "shortcut", "concatenated", "gated"),
    "image": (
        *("layer", "residual", "shortcut", "concatenated", "gated"),
        *("depthwise", "grouped", "squeezed", "pooled", "averaged", "upsampled"),
    ),
    "sequence": (
        *("layer", "residual", "shortcut", "concatenated", "gated"),
        *("attention", "fused_attention", "swiglu", "lstm", "gru", "convolved"),
    ),
}
HEADS = {
    "vector": ("linear",),
    "image": ("pooled", "flat", "pixels"),
    "sequence": ("mean", "last", "places"),
}
RIGID = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, LayerAttention, FusedAttention)
SMALLER = {"pooled", "averaged"}


@dataclass(frozen=True)
class Block:
    """A part, its width, and the norm and activation in it."""

    part: str
    width: int
    norm: str
    activation: str


@dataclass(frozen=True)
class Plan:
    """What a network is made of."""

    kind: str  # of the inputs: vector, image or sequence
    blocks: tuple[Block, ...]
    head: str
    seed: int

    @property
    def rigid(self) -> bool:
        """Whether a norm or a softmax runs over some group of units."""
        return any(isinstance(module, RIGID) for module in self.make().modules())

    def make(self, growth: int = 0) -> nn.Module:
        """The network in eval mode, its hidden widths larger by `growth`."""
        return seeded(lambda growth: composed(self, growth))(growth, self.seed)

    def inputs(self) -> Inputs:
        """Two rows."""
        shapes = {"vector": (FEATURES,), "image": (CHANNELS, SIDE, SIDE)}
        return (
            tokens(self.seed) if self.kind == "sequence" else normal(shapes[self.kind])(self.seed)
        )


class First(nn.Module):
    """The outputs of a recurrent network, without its last states."""

    def __init__(self, body: nn.RNNBase) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)[0]
        return out


class Pooled(nn.Module):
    """The mean over the places of a sequence, or the last of them."""

    def __init__(self, *, last: bool) -> None:
        super().__init__()
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        return x[:, -1] if self.last else x.mean(1)


def linear(kind: str, fan_in: int, fan_out: int) -> nn.Module:
    """The linear map of a kind of inputs."""
    return (
        nn.Conv2d(fan_in, fan_out, 3, padding=1) if kind == "image" else nn.Linear(fan_in, fan_out)
    )


def layer(kind: str, block: Block, fan_in: int, fan_out: int) -> nn.Module:
    """A linear map, a norm and an activation."""
    return nn.Sequential(
        linear(kind, fan_in, fan_out),
        NORMS[kind][block.norm](fan_out),
        ACTIVATIONS[block.activation](),
    )


def shared_part(kind: str, block: Block, before: int, width: int) -> tuple[nn.Module, int] | None:
    """A part that every kind of inputs has, and the width after it."""
    narrowed = layer(kind, block, before, width)
    match block.part:
        case "layer":
            return narrowed, width
        case "residual":
            return Residual(nn.Sequential(narrowed, linear(kind, width, before))), before
        case "shortcut":
            return Residual(narrowed, linear(kind, before, width)), width
        case "concatenated":
            return Concatenated(narrowed, 1 if kind == "image" else -1), before + width
        case "gated":
            gates = nn.GLU(1 if kind == "image" else -1)
            return nn.Sequential(linear(kind, before, 2 * width), gates), width
    return None


def image_part(block: Block, before: int, width: int) -> tuple[nn.Module, int]:
    """A part that only images have."""
    match block.part:
        case "depthwise" | "grouped":
            groups = before if block.part == "depthwise" else GROUPS
            body = nn.Conv2d(before, before, 3, padding=1, groups=groups)
            return nn.Sequential(body, NORMS["image"][block.norm](before)), before
        case "squeezed":
            return SqueezeExcite(before, width), before
        case "pooled":
            return nn.MaxPool2d(2), before
        case "averaged":
            return nn.AvgPool2d(2), before
    up = nn.ConvTranspose2d(before, width, 2, stride=2)
    return nn.Sequential(up, ACTIVATIONS[block.activation](), nn.MaxPool2d(2)), width


def sequence_part(block: Block, before: int, width: int) -> tuple[nn.Module, int]:
    """A part that only sequences have."""
    norm = NORMS["sequence"][block.norm](before)
    match block.part:
        case "attention":
            return Residual(nn.Sequential(norm, LayerAttention(before))), before
        case "fused_attention":
            return Residual(nn.Sequential(norm, FusedAttention(before))), before
        case "swiglu":
            return Residual(nn.Sequential(norm, SwiGLU(before, width))), before
        case "lstm":
            return First(nn.LSTM(before, width, batch_first=True, bidirectional=True)), 2 * width
        case "gru":
            return First(nn.GRU(before, width, 2, batch_first=True)), width
    return Transposed(nn.Conv1d(before, width, 3, padding=1)), width


def head(plan: Plan, width: int) -> list[nn.Module]:
    """What makes outputs of the last hidden units."""
    match plan.head:
        case "pooled":
            return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES)]
        case "flat":
            side = SIDE >> sum(block.part in SMALLER for block in plan.blocks)
            return [nn.Flatten(), nn.Linear(width * side**2, CLASSES)]
        case "pixels":
            return [nn.Conv2d(width, CLASSES, 1)]
        case "mean" | "last":
            return [Pooled(last=plan.head == "last"), nn.Linear(width, CLASSES)]
    return [nn.Linear(width, CLASSES)]


def composed(plan: Plan, growth: int) -> nn.Module:
    """The network of a plan, as PyTorch starts it."""
    width = 2 * HEAD + growth
    stems: dict[str, Callable[[], nn.Module]] = {
        "vector": lambda: nn.Linear(FEATURES, width),
        "image": lambda: nn.Conv2d(CHANNELS, width, 3, padding=1),
        "sequence": lambda: nn.Embedding(VOCABULARY, width),
    }
    layers: list[nn.Module] = [stems[plan.kind]()]
    own_part = image_part if plan.kind == "image" else sequence_part
    for block in plan.blocks:
        hidden = block.width + growth
        part, width = shared_part(plan.kind, block, width, hidden) or own_part(block, width, hidden)
        layers.append(part)
    return nn.Sequential(*layers, *head(plan, width))


@strategies.composite
def networks(draw: strategies.DrawFn) -> Plan:
    """Plans of up to four blocks after a first layer."""
    kind = draw(strategies.sampled_from(tuple(PARTS)))
    blocks: list[Block] = []
    for _ in range(draw(strategies.integers(1, LONGEST))):
        shrunk = sum(block.part in SMALLER for block in blocks)
        parts = [part for part in PARTS[kind] if shrunk < 2 or part not in SMALLER]
        block = Block(
            draw(strategies.sampled_from(parts)),
            HEAD * draw(strategies.integers(1, 3)),
            draw(strategies.sampled_from(tuple(NORMS[kind]))),
            draw(strategies.sampled_from(tuple(ACTIVATIONS))),
        )
        blocks.append(block)
    seed = draw(strategies.integers(0, 100))
    return Plan(kind, tuple(blocks), draw(strategies.sampled_from(HEADS[kind])), seed)
