"""Noise with the statistics of nature: amplitude that falls with frequency, and patches.

Natural pictures and signals have both: slow changes are larger than quick ones, and regions of one
colour end in sharp edges. Patches are where falling noise is above a threshold.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pfnm.networks.network import Tensor

TINY = 1e-6  # added to a deviation that may be zero


def falling_noise(
    count: int, shape: Sequence[int], rng: np.random.Generator, slopes: tuple[float, float]
) -> Tensor:
    """Noise (count, *shape) of mean 0 and deviation 1 whose amplitude falls as 1 / f^a.

    a is drawn for each between the two slopes; f is the distance from frequency zero.
    """
    axes = tuple(range(1, 1 + len(shape)))
    spectrum = np.fft.rfftn(rng.standard_normal((count, *shape), dtype=np.float32), axes=axes)
    sides = [np.fft.fftfreq(length) for length in shape[:-1]] + [np.fft.rfftfreq(shape[-1])]
    frequency = np.sqrt(sum(np.square(side) for side in np.meshgrid(*sides, indexing="ij")))
    frequency.flat[0] = np.inf  # no constant part
    slope = rng.uniform(*slopes, size=(count, *(1,) * len(shape))).astype(np.float32)
    spectrum *= np.exp(-slope * np.log(frequency).astype(np.float32))
    noise = np.fft.irfftn(spectrum, s=shape, axes=axes).astype(np.float32)
    deviation: Tensor = noise.std(axis=axes, keepdims=True)
    return noise / (deviation + TINY)


def channels_of_noise(
    count: int,
    channels: int,
    shape: Sequence[int],
    rng: np.random.Generator,
    slopes: tuple[float, float],
    likeness: tuple[float, float],
) -> Tensor:
    """Falling noise (count, channels, *shape), the channels of each alike to some degree."""
    if channels == 1:
        return falling_noise(count, shape, rng, slopes)[:, None]
    like = rng.uniform(*likeness, size=(count, 1, *(1,) * len(shape))).astype(np.float32)
    shared = falling_noise(count, shape, rng, slopes)[:, None]
    apart = falling_noise(count * channels, shape, rng, slopes)
    return np.sqrt(like) * shared + np.sqrt(1 - like) * apart.reshape(count, channels, *shape)


def patches(
    count: int,
    channels: int,
    shape: Sequence[int],
    rng: np.random.Generator,
    *,
    layers: int,
    slopes: tuple[float, float],
    colour: float,
) -> Tensor:
    """Patches of one colour each (count, channels, *shape), `layers` of them over a background.

    colour: the deviation of a patch's channels about its brightness, which is 0 to 1.
    """
    ones = (1,) * len(shape)

    def colours() -> Tensor:
        grey = rng.uniform(size=(count, 1, *ones))
        return (grey + rng.normal(scale=colour, size=(count, channels, *ones))).astype(np.float32)

    picture = np.broadcast_to(colours(), (count, channels, *shape))
    for _ in range(layers):
        inside = falling_noise(count, shape, rng, slopes) > rng.normal(size=(count, *ones))
        picture = np.where(inside[:, None], colours(), picture)
    return picture


def standardised(values: Tensor) -> Tensor:
    """Each of (count, ...) with mean 0 and deviation 1 over all its values."""
    axes = tuple(range(1, values.ndim))
    centred = values - values.mean(axis=axes, keepdims=True)
    result: Tensor = centred / (centred.std(axis=axes, keepdims=True) + TINY)
    return result
