"""Small networks of every family, each by width (a multiple of 4, at least 8) and seed.

    model = FAMILIES["resnet"].make(8, 0)
    outputs = model(*FAMILIES["resnet"].inputs(0))

All are in eval mode, with scales, biases and running statistics that are not the usual ones and
zeros, so that a mistake in any of them shows. An example batch has two rows.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import sequences
import torch
import vision
from parts import FusedAttention, LayerAttention, NumberedAttention
from torch import Tensor, nn

from pfnm.tracing import remembering, running

Inputs = tuple[Tensor, ...]
ROWS = 2
SERIES = 16  # places in a series
CUBE = 6  # side of an example in 3-D
SPREAD = 0.3  # of the values added to scales and biases
FEW_STEPS = 2  # in which made-up inputs are fitted to batch normalisation
GAIN = 2.0  # of weights: as PyTorch starts them, deep networks hardly look at their inputs


@dataclass(frozen=True)
class Family:
    """How to make a network of a width, and inputs for it."""

    name: str
    make: Callable[[int, int], nn.Module]
    inputs: Callable[[int], Inputs]
    rigid: bool = False  # a norm or a softmax runs over some group of units
    recurrent: bool = False
    numbered: bool = False  # the code holds a width in a number, so no copy can be resized


@contextmanager
def few_probes() -> Iterator[None]:
    """As few made-up inputs as there may be, hardly fitted; and one seed."""
    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng(devices=[]):
        patch.setattr(running, "WORK", 1.0)
        patch.setattr(remembering, "STEPS", FEW_STEPS)
        torch.manual_seed(0)
        yield


def disturbed(module: nn.Module, generator: torch.Generator) -> nn.Module:
    """The module with larger weights; scales, biases and running statistics moved at random."""

    def noise(tensor: Tensor) -> Tensor:
        return SPREAD * torch.randn(tensor.shape, generator=generator)

    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim < 2 or not parameter.any():
                parameter.add_(noise(parameter))
            else:
                parameter.mul_(GAIN)
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.add_(noise(buffer))
            elif name.endswith("running_var"):
                buffer.mul_(noise(buffer).exp())
    return module


def seeded(build: Callable[[int], nn.Module]) -> Callable[[int, int], nn.Module]:
    """How to make a module from a width and a seed, from how to make it from a width."""

    def make(width: int, seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = build(width)
        return disturbed(module, torch.Generator().manual_seed(seed)).eval()

    return make


def normal(*shapes: tuple[int, ...]) -> Callable[[int], Inputs]:
    """Inputs of these shapes (without the rows), from a seed."""

    def inputs(seed: int) -> Inputs:
        generator = torch.Generator().manual_seed(seed)
        return tuple(torch.randn(ROWS, *shape, generator=generator) for shape in shapes)

    return inputs


def tokens(seed: int) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    shape = (ROWS, sequences.LENGTH)
    return (torch.randint(0, sequences.VOCABULARY, shape, generator=generator),)


VECTOR = (vision.FEATURES,)
IMAGE = (vision.CHANNELS, vision.SIDE, vision.SIDE)
TIMES = (vision.CHANNELS, SERIES)

Build = Callable[[int], nn.Module]

VECTORS: dict[str, Build] = {
    "mlp_relu": lambda w: vision.perceptron(w, nn.ReLU, None),
    "mlp_tanh": lambda w: vision.perceptron(w, nn.Tanh, None),
    "mlp_batchnorm": lambda w: vision.perceptron(w, nn.ReLU, nn.BatchNorm1d),
    "mlp_layernorm": lambda w: vision.perceptron(w, nn.GELU, nn.LayerNorm),
    "gated": sequences.Gated,
    "generator": vision.generator,
}
IMAGES: dict[str, Build] = {
    "lenet": vision.lenet,
    "lenet_numbered": vision.NumberedLeNet,
    "vgg": lambda w: vision.vgg(w, None),
    "vgg_batchnorm": lambda w: vision.vgg(w, nn.BatchNorm2d),
    "resnet": lambda w: vision.resnet(w, nn.BatchNorm2d),
    "resnet_groupnorm": lambda w: vision.resnet(w, lambda channels: nn.GroupNorm(4, channels)),
    "resnet_preactivated": vision.resnet_preactivated,
    "resnet_bottleneck": lambda w: vision.bottlenecks(w, 1),
    "resnext": lambda w: vision.bottlenecks(w, 4),
    "mobilenet": vision.separable,
    "inverted_residual": lambda w: vision.inverted(w, squeezed=False),
    "squeeze_excite": lambda w: vision.inverted(w, squeezed=True),
    "densenet": vision.densenet,
    "convnext": vision.convnext,
    "autoencoder": vision.autoencoder,
    "weight_norm": vision.weight_normed,
    "mixer": sequences.Mixer,
    "vit": lambda w: sequences.ViT(w, LayerAttention),
    "vit_fused": lambda w: sequences.ViT(w, FusedAttention),
    "vit_numbered": lambda w: sequences.ViT(w, NumberedAttention),
}
TOKENS: dict[str, Build] = {
    "encoder": sequences.Encoder,
    "decoder": sequences.Decoder,
    "llama": sequences.Llama,
    "rnn": sequences.plain_recurrent,
    "lstm": sequences.lstm,
    "lstm_two_layers": lambda w: sequences.lstm(w, 2),
    "lstm_bidirectional": lambda w: sequences.lstm(w, 2, both=True),
    "lstm_projected": lambda w: sequences.lstm(w, 2, projected=True),
    "gru": sequences.gru,
    "gru_bidirectional": lambda w: sequences.gru(w, 2, both=True),
}
OTHERS: dict[str, tuple[Build, Callable[[int], Inputs]]] = {
    "unet": (vision.UNet, normal((1, vision.SIDE, vision.SIDE))),
    "cnn_1d": (vision.cnn_1d, normal(TIMES)),
    "cnn_3d": (vision.cnn_3d, normal((1, CUBE, CUBE, CUBE))),
    "cnn_lstm": (sequences.ConvolvedRecurrent, normal(TIMES)),
    "two_branches": (sequences.TwoBranches, normal(VECTOR, TIMES)),
    "diffusion": (vision.Diffusion, normal(IMAGE, VECTOR)),
    "siamese": (sequences.Siamese, normal(VECTOR, VECTOR)),
}
RIGID = {
    *("mlp_layernorm", "resnet_groupnorm", "convnext", "mixer", "encoder", "decoder", "llama"),
    *("vit", "vit_fused", "vit_numbered", "diffusion"),
}
NUMBERED = {"lenet_numbered", "vit_numbered", "generator"}

BUILDS: dict[str, tuple[Build, Callable[[int], Inputs]]] = {
    **{name: (build, normal(VECTOR)) for name, build in VECTORS.items()},
    **{name: (build, normal(IMAGE)) for name, build in IMAGES.items()},
    **{name: (build, tokens) for name, build in TOKENS.items()},
    **OTHERS,
}
FAMILIES: dict[str, Family] = {
    name: Family(
        name,
        seeded(build),
        inputs,
        rigid=name in RIGID,
        recurrent=any(kind in name for kind in ("rnn", "lstm", "gru")),
        numbered=name in NUMBERED,
    )
    for name, (build, inputs) in BUILDS.items()
}
