"""Small networks for vectors and images: perceptrons and convolutional networks."""

from collections.abc import Callable

import torch
from parts import (
    Concatenated,
    Residual,
    SqueezeExcite,
)
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

FEATURES, CHANNELS, CLASSES = 6, 3, 5
SIDE = 12  # of an image

Layer = Callable[[int], nn.Module]


def perceptron(width: int, activation: Callable[[], nn.Module], norm: Layer | None) -> nn.Module:
    layers: list[nn.Module] = []
    for fan_in, fan_out in ((FEATURES, width), (width, width + 2)):
        layers += [nn.Linear(fan_in, fan_out), *([norm(fan_out)] if norm else []), activation()]
    return nn.Sequential(*layers, nn.Dropout(0.1), nn.Linear(width + 2, CLASSES))


def weight_normed(width: int) -> nn.Module:
    return nn.Sequential(
        weight_norm(nn.Conv2d(CHANNELS, width, 3, padding=1)),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        weight_norm(nn.Linear(4 * width, width)),
        nn.ReLU(),
        nn.Linear(width, CLASSES),
    )


def head(channels: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES)]


def lenet(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(CHANNELS, width, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 2),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * width * 4, 3 * width),
        nn.ReLU(),
        nn.Linear(3 * width, CLASSES),
    )


class NumberedLeNet(nn.Module):
    """Flattens to a number of features that stands in its code."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.flat = width * 25
        self.conv = nn.Conv2d(CHANNELS, width, 3)
        self.linear = nn.Linear(self.flat, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.max_pool2d(torch.relu(self.conv(x)), 2)
        out: Tensor = self.linear(x.view(-1, self.flat))
        return out


def vgg(width: int, norm: Layer | None) -> nn.Module:
    layers: list[nn.Module] = []
    before = CHANNELS
    for channels in (width, width, 2 * width):
        layers.append(nn.Conv2d(before, channels, 3, padding=1))
        layers += [norm(channels)] if norm else []
        layers += [nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        before = channels
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(before, width), nn.ReLU(), nn.Linear(width, CLASSES)
    )


def conv(fan_in: int, fan_out: int, size: int, stride: int = 1, groups: int = 1) -> nn.Module:
    return nn.Conv2d(fan_in, fan_out, size, stride, size // 2, groups=groups, bias=False)


def basic(fan_in: int, fan_out: int, stride: int, norm: Layer) -> nn.Module:
    body = nn.Sequential(
        conv(fan_in, fan_out, 3, stride),
        norm(fan_out),
        nn.ReLU(inplace=True),
        conv(fan_out, fan_out, 3),
        norm(fan_out),
    )
    shortcut = None
    if stride > 1 or fan_in != fan_out:
        shortcut = nn.Sequential(conv(fan_in, fan_out, 1, stride), norm(fan_out))
    return nn.Sequential(Residual(body, shortcut), nn.ReLU(inplace=True))


def resnet(width: int, norm: Layer) -> nn.Module:
    return nn.Sequential(
        conv(CHANNELS, width, 3),
        norm(width),
        nn.ReLU(inplace=True),
        basic(width, width, 1, norm),
        basic(width, 2 * width, 2, norm),
        *head(2 * width),
    )


def resnet_preactivated(width: int) -> nn.Module:
    def block(fan_in: int, fan_out: int, stride: int) -> nn.Module:
        body = nn.Sequential(
            nn.BatchNorm2d(fan_in),
            nn.ReLU(),
            conv(fan_in, fan_out, 3, stride),
            nn.BatchNorm2d(fan_out),
            nn.ReLU(),
            conv(fan_out, fan_out, 3),
        )
        return Residual(body, conv(fan_in, fan_out, 1, stride) if stride > 1 else None)

    return nn.Sequential(
        conv(CHANNELS, width, 3),
        block(width, width, 1),
        block(width, 2 * width, 2),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        *head(2 * width),
    )


def bottlenecks(width: int, groups: int) -> nn.Module:
    def block(fan_in: int, hidden: int, fan_out: int) -> nn.Module:
        body = nn.Sequential(
            conv(fan_in, hidden, 1),
            nn.BatchNorm2d(hidden),
            nn.ReLU(),
            conv(hidden, hidden, 3, groups=groups),
            nn.BatchNorm2d(hidden),
            nn.ReLU(),
            conv(hidden, fan_out, 1),
            nn.BatchNorm2d(fan_out),
        )
        shortcut = nn.Sequential(conv(fan_in, fan_out, 1), nn.BatchNorm2d(fan_out))
        return nn.Sequential(Residual(body, shortcut if fan_in != fan_out else None), nn.ReLU())

    return nn.Sequential(
        nn.Conv2d(CHANNELS, width, 3, stride=2, padding=1),
        nn.ReLU(),
        block(width, width, 2 * width),
        block(2 * width, width, 2 * width),
        *head(2 * width),
    )


def depthwise(channels: int, stride: int = 1) -> list[nn.Module]:
    layer = conv(channels, channels, 3, stride, groups=channels)
    return [layer, nn.BatchNorm2d(channels), nn.ReLU6()]


def separable(width: int) -> nn.Module:
    layers: list[nn.Module] = [conv(CHANNELS, width, 3, 2), nn.BatchNorm2d(width), nn.ReLU6()]
    for fan_in, fan_out in ((width, 2 * width), (2 * width, 2 * width)):
        layers += [
            *depthwise(fan_in),
            conv(fan_in, fan_out, 1),
            nn.BatchNorm2d(fan_out),
            nn.ReLU6(),
        ]
    return nn.Sequential(*layers, *head(2 * width))


def inverted(width: int, *, squeezed: bool) -> nn.Module:
    def block(fan_in: int, fan_out: int, stride: int) -> nn.Module:
        hidden = 2 * fan_in
        body = nn.Sequential(
            conv(fan_in, hidden, 1),
            nn.BatchNorm2d(hidden),
            nn.SiLU() if squeezed else nn.ReLU6(),
            *depthwise(hidden, stride),
            *([SqueezeExcite(hidden, fan_in // 2)] if squeezed else []),
            conv(hidden, fan_out, 1),
            nn.BatchNorm2d(fan_out),
        )
        return body if stride > 1 else Residual(body)

    return nn.Sequential(
        conv(CHANNELS, width, 3, 2),
        nn.BatchNorm2d(width),
        nn.SiLU(),
        block(width, width, 1),
        block(width, width + 4, 2),
        block(width + 4, width + 4, 1),
        *head(width + 4),
    )


class UNet(nn.Module):
    """One level down and up again, joined by concatenation; a class for each pixel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down = nn.Sequential(conv(1, width, 3), nn.BatchNorm2d(width), nn.ReLU())
        self.bottom = nn.Sequential(
            nn.MaxPool2d(2), conv(width, 2 * width, 3), nn.BatchNorm2d(2 * width), nn.ReLU()
        )
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.join = nn.Sequential(conv(2 * width, width, 3), nn.BatchNorm2d(width), nn.ReLU())
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = self.down(x)
        out: Tensor = self.head(self.join(torch.cat([skip, self.up(self.bottom(skip))], 1)))
        return out


def densenet(width: int) -> nn.Module:
    growth = width // 2

    def layer(channels: int) -> nn.Module:
        body = (nn.BatchNorm2d(channels), nn.ReLU(), conv(channels, growth, 3))
        return Concatenated(nn.Sequential(*body))

    wide = width + 2 * growth
    return nn.Sequential(
        conv(CHANNELS, width, 3, 2),
        layer(width),
        layer(width + growth),
        nn.BatchNorm2d(wide),
        nn.ReLU(),
        conv(wide, width, 1),
        nn.AvgPool2d(2),
        layer(width),
        nn.BatchNorm2d(width + growth),
        nn.ReLU(),
        *head(width + growth),
    )


def cnn_1d(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(CHANNELS, width, 5, padding=2),
        nn.BatchNorm1d(width),
        nn.GELU(),
        nn.MaxPool1d(2),
        nn.Conv1d(width, 2 * width, 3, dilation=2),
        nn.LeakyReLU(0.1),
        nn.AdaptiveMaxPool1d(1),
        nn.Flatten(),
        nn.Linear(2 * width, CLASSES),
    )


def cnn_3d(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(1, width, 3, padding=1),
        nn.BatchNorm3d(width),
        nn.ELU(),
        nn.AvgPool3d(2),
        nn.Conv3d(width, width, 3, padding=1),
        nn.InstanceNorm3d(width, affine=True),
        nn.PReLU(width),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(width, CLASSES),
    )


def convnext(width: int) -> nn.Module:
    def block() -> nn.Module:
        return Residual(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1, groups=width),
                nn.GroupNorm(1, width),
                nn.Conv2d(width, 2 * width, 1),
                nn.GELU(),
                nn.Conv2d(2 * width, width, 1),
            )
        )

    return nn.Sequential(nn.Conv2d(CHANNELS, width, 4, 4), block(), block(), *head(width))


class Diffusion(nn.Module):
    """What to take away from a picture, told how noisy it is.

    Its norms divide the same channels into two groups, and into four.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(CHANNELS, width, 3, padding=1)
        self.norm1, self.conv1 = nn.GroupNorm(2, width), nn.Conv2d(width, width, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(FEATURES, width), nn.SiLU(), nn.Linear(width, width))
        self.norm2, self.conv2 = nn.GroupNorm(4, width), nn.Conv2d(width, width, 3, padding=1)
        self.norm3, self.last = nn.GroupNorm(4, width), nn.Conv2d(width, CHANNELS, 3, padding=1)

    def forward(self, picture: Tensor, time: Tensor) -> Tensor:
        stream = self.stem(picture)
        values = self.conv1(functional.silu(self.norm1(stream)))
        values = values + self.time(time)[:, :, None, None]
        stream = stream + self.conv2(functional.silu(self.norm2(values)))
        result: Tensor = self.last(functional.silu(self.norm3(stream)))
        return result


def autoencoder(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(CHANNELS, width, 3, stride=2, padding=1),
        nn.PReLU(width),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
        nn.Softplus(),
        nn.ConvTranspose2d(2 * width, width, 2, stride=2),
        nn.InstanceNorm2d(width, affine=True, track_running_stats=True),
        nn.PReLU(),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Conv2d(width, CHANNELS, 3, padding=1),
    )


def generator(width: int) -> nn.Module:
    """An image from features, by way of channels whose number stands in `Unflatten`."""
    return nn.Sequential(
        nn.Linear(FEATURES, 2 * width * 4),
        nn.Unflatten(1, (2 * width, 2, 2)),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(width, CHANNELS, 3),
        nn.Tanh(),
    )
