"""Kinds of inputs that people have: pictures, signals, tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from pfnm.errors import PFNMError
from pfnm.fusing.inputs import InputRange, Inputs
from pfnm.fusing.noise import channels_of_noise, patches, standardised
from pfnm.fusing.tokens import Tokens
from pfnm.networks.network import Array, Network, Tensor

# Natural pictures, in units of their range (CIFAR-10's test pictures: 0.48, 0.12, 0.21).
PICTURE_MEAN = 0.47
PICTURE_SHIFT = 0.13  # deviation of the pictures' means
PICTURE_CONTRAST = 0.2  # mean deviation within a picture
PICTURE_DEVIATION = float(np.hypot(PICTURE_SHIFT, PICTURE_CONTRAST))
PICTURE_LIKENESS = (0.6, 1.0)  # correlation of a picture's channels
NOISE_SLOPES = (0.8, 1.8)  # amplitude falls as 1 / frequency to such a power
PATCH_SLOPES, PATCH_LAYERS, PATCH_COLOUR = (1.5, 2.5), 2, 0.2
SIGNAL_SHIFT = 0.3  # deviation of the signals' means, in units of their deviation
SIGNAL_SLOPES = (0.3, 1.5)
SIGNAL_LIKENESS = (0.0, 0.9)  # correlation of a signal's channels
CONTRAST_SHAPE = 14.0  # of the gamma distribution of contrasts
BLOCK = 1000  # pictures or signals made at a time, for the processor's cache
LAST_CHANNELS = (1, 3, 4)  # a last length that is more likely a number of channels than of pixels
UNIT_ENDS = (0.0, 1.0)
STANDARD_ENDS = (-3.0, 3.0)  # of values with mean 0 and deviation 1
CENTRAL = (0.5, 1 / 6)  # the mean in the middle of the range, three deviations from its ends


@dataclass(frozen=True, eq=False)
class Pictures:
    """Natural pictures: noise that falls with frequency, and patches with sharp edges, half each.

    mean, deviation: of all values, or of each channel's; by default those of natural pictures.
    range: the lowest and the highest value, by default 0 and 1, or what mean and deviation make of
    these. channels_last: inputs run (height, width, channels), not (channels, height, width).

    Examples
    --------
    >>> print(Pictures(3, 32, 32))
    pictures of 3x32x32
    """

    channels: int
    height: int
    width: int
    mean: ArrayLike | None = None
    deviation: ArrayLike | None = None
    range: tuple[ArrayLike, ArrayLike] | None = None
    channels_last: bool = False

    def __post_init__(self) -> None:
        _check_lengths(self, (self.channels, self.height, self.width))
        self._scale()

    @property
    def size(self) -> int:
        """The number of values of one input."""
        return self.channels * self.height * self.width

    @property
    def within(self) -> InputRange:
        """Between which values they lie."""
        return self._scale().within

    def _scale(self) -> _Scale:
        per_channel = self.height * self.width

        def spread(values: Array) -> Array:
            over = np.tile if self.channels_last else np.repeat
            return np.asarray(over(values, per_channel))

        shares = PICTURE_MEAN, PICTURE_DEVIATION
        return _scale_of(self, self.channels, spread, shares, UNIT_ENDS)

    def make(self, networks: Sequence[Network], count: int, rng: np.random.Generator) -> Tensor:
        """Inputs (count, inputs)."""
        shape = self.height, self.width

        def shapes(number: int) -> Tensor:
            falling = channels_of_noise(
                number - number // 2, self.channels, shape, rng, NOISE_SLOPES, PICTURE_LIKENESS
            )
            sharp = patches(
                number // 2, self.channels, shape, rng,
                layers=PATCH_LAYERS, slopes=PATCH_SLOPES, colour=PATCH_COLOUR,
            )  # fmt: skip
            made = standardised(np.concatenate([falling, sharp]))
            return np.moveaxis(made, 1, -1) if self.channels_last else made

        shift = PICTURE_SHIFT / PICTURE_DEVIATION, PICTURE_CONTRAST / PICTURE_DEVIATION
        return _drawn(self, networks, self._scale(), count, rng, shapes, *shift)

    def __str__(self) -> str:
        lengths = (self.channels, self.height, self.width)
        if self.channels_last:
            lengths = (self.height, self.width, self.channels)
        return f"pictures of {'x'.join(map(str, lengths))}"


@dataclass(frozen=True, eq=False)
class Signals:
    """Signals in time, (channels, length): noise whose amplitude falls with frequency.

    mean, deviation: of all values, or of each channel's, by default 0 and 1. range: the lowest and
    the highest value, by default three deviations from the mean.

    Examples
    --------
    >>> print(Signals(12, 1000))
    signals of 12x1000
    """

    channels: int
    length: int
    mean: ArrayLike | None = None
    deviation: ArrayLike | None = None
    range: tuple[ArrayLike, ArrayLike] | None = None

    def __post_init__(self) -> None:
        _check_lengths(self, (self.channels, self.length))
        self._scale()

    @property
    def size(self) -> int:
        """The number of values of one input."""
        return self.channels * self.length

    @property
    def within(self) -> InputRange:
        """Between which values they lie."""
        return self._scale().within

    def _scale(self) -> _Scale:
        def spread(values: Array) -> Array:
            return np.repeat(values, self.length)

        return _scale_of(self, self.channels, spread, CENTRAL, STANDARD_ENDS)

    def make(self, networks: Sequence[Network], count: int, rng: np.random.Generator) -> Tensor:
        """Inputs (count, inputs)."""

        def shapes(number: int) -> Tensor:
            return standardised(
                channels_of_noise(
                    number, self.channels, (self.length,), rng, SIGNAL_SLOPES, SIGNAL_LIKENESS
                )
            )

        steady = float(np.sqrt(1 - SIGNAL_SHIFT**2))
        return _drawn(self, networks, self._scale(), count, rng, shapes, SIGNAL_SHIFT, steady)

    def __str__(self) -> str:
        return f"signals of {self.channels}x{self.length}"


@dataclass(frozen=True, eq=False)
class Table:
    """Columns that are drawn one by one: evenly from their range, or by mean and deviation.

    range, mean, deviation: one for all columns or one for each, by default mean 0 and deviation 1.
    whole: the columns (by number or name) of whole numbers. one_hot: groups of columns of which
    one is 1 and the others 0.

    Examples
    --------
    >>> print(Table(range=(0, 10), whole=[2], one_hot=[[3, 4, 5]]))
    table
    """

    mean: ArrayLike | None = None
    deviation: ArrayLike | None = None
    range: tuple[ArrayLike, ArrayLike] | None = None
    whole: Sequence[int | str] = ()
    one_hot: Sequence[Sequence[int | str]] = ()

    def __post_init__(self) -> None:
        self._scale()

    @property
    def size(self) -> None:
        """As many columns as the network takes."""
        return None

    @property
    def within(self) -> InputRange:
        """Between which values they lie."""
        return self._scale().within

    def _scale(self) -> _Scale:
        return _scale_of(self, None, np.asarray, CENTRAL, STANDARD_ENDS)

    def make(self, networks: Sequence[Network], count: int, rng: np.random.Generator) -> Tensor:
        """Inputs (count, inputs)."""
        scale, first = self._scale(), networks[0]
        columns = first.numbers
        _check_columns(self, first, scale)
        low, high = (np.broadcast_to(end, columns) for end in scale.within.ends)
        if self.mean is None and self.range is not None:
            drawn = rng.uniform(low, high, size=(count, columns))
        else:
            drawn = np.clip(rng.normal(scale.mean, scale.deviation, (count, columns)), low, high)
        whole = _places(self.whole, first)
        drawn[:, whole] = np.round(drawn[:, whole])
        for group in self.one_hot:
            places = _places(group, first)
            drawn[:, places] = np.eye(len(places))[rng.integers(len(places), size=count)]
        return drawn.astype(np.float32)

    def __str__(self) -> str:
        return "table"


def parsed_kind(text: str) -> Pictures | Signals | Table | Tokens:
    """A kind from a text: pictures:3x32x32 (or 32x32x3, 28x28), signals:12x1000, tokens:96, table.

    What a kind is printed as will do too.
    """
    name, _, shape = text.strip().lower().replace(" of ", ":").partition(":")
    try:
        lengths = tuple(int(length) for length in shape.split("x")) if shape else ()
        match name, lengths:
            case "pictures", (height, width):
                return Pictures(1, height, width)
            case "pictures", (height, width, channels) if (
                channels in LAST_CHANNELS and height not in LAST_CHANNELS
            ):
                return Pictures(channels, height, width, channels_last=True)
            case "pictures", (channels, height, width):
                return Pictures(channels, height, width)
            case "signals", ((length,) | (_, length)):
                return Signals(lengths[0] if len(lengths) > 1 else 1, length)
            case "table", ():
                return Table()
            case "tokens", (vocabulary,):
                return Tokens(vocabulary)
    except ValueError as error:
        if isinstance(error, PFNMError):
            raise
    raise PFNMError(
        f"inputs {text!r} is no kind pfnm knows; expected pictures:3x32x32 (channels, height, "
        "width), signals:12x1000 (channels, length), tokens:96 (how many there are) or table"
    )


def told_by_text(inputs: Inputs) -> bool:
    """Whether the text that a kind is printed as tells all of it, its range aside."""
    try:
        told = parsed_kind(str(inputs))
    except PFNMError:
        return False
    while not isinstance(inputs, Pictures | Signals | Table):
        if not hasattr(inputs, "kind"):
            return False
        inputs = inputs.kind
    return repr(replace(inputs, range=None)) == repr(told)


@dataclass(frozen=True, eq=False)
class _Scale:
    """Mean, deviation and range of inputs: one number for all, or one for each input."""

    mean: Array
    deviation: Array
    within: InputRange


def _scale_of(
    kind: Pictures | Signals | Table,
    channels: int | None,
    spread: Callable[[Array], Array],
    shares: tuple[float, float],
    default: tuple[float, float],
) -> _Scale:
    """What is known of a kind's values, with the rest filled in.

    shares: where in its range the mean lies, and how much of it a deviation is. default: the range
    where nothing is known.
    """

    def expanded(name: str, value: ArrayLike) -> Array:
        try:
            values = np.asarray(value, dtype=float)
        except (TypeError, ValueError):
            values = np.array(np.nan)
        if values.ndim > 1 or not np.isfinite(values).all():
            raise PFNMError(
                f"{name} of {type(kind).__name__} is {value!r}, expected finite numbers"
            )
        if name == "deviation" and (values < 0).any():
            raise PFNMError(f"deviation of {type(kind).__name__} is negative, expected above zero")
        if values.ndim == 0 or channels is None or values.size == kind.size:
            return values
        if values.size != channels:
            raise PFNMError(
                f"{name} of {type(kind).__name__} has {values.size} numbers, expected one, or "
                f"one for each of the {channels} channels"
            )
        return spread(values)

    ends = kind.range
    if ends is None and kind.mean is None and kind.deviation is None:
        ends = default
    if ends is None:
        if kind.mean is None or kind.deviation is None:
            raise PFNMError(
                f"{type(kind).__name__}: give both mean and deviation, or the range too"
            )
        mean, deviation = expanded("mean", kind.mean), expanded("deviation", kind.deviation)
        unit = deviation / shares[1]
        low = mean - shares[0] * unit
        high = low + unit
    else:
        try:
            first, last = ends
        except (TypeError, ValueError):
            raise PFNMError(
                f"the range of {type(kind).__name__} is {ends}, expected two numbers"
            ) from None
        low, high = expanded("range", first), expanded("range", last)
        mean = low + shares[0] * (high - low)
        deviation = shares[1] * (high - low)
        if kind.mean is not None:
            mean = expanded("mean", kind.mean)
        if kind.deviation is not None:
            deviation = expanded("deviation", kind.deviation)
    return _Scale(mean, deviation, InputRange(low, high))


def _drawn(
    kind: Pictures | Signals,
    networks: Sequence[Network],
    scale: _Scale,
    count: int,
    rng: np.random.Generator,
    shapes: Callable[[int], Tensor],
    shift: float,
    contrast: float,
) -> Tensor:
    """Inputs of these shapes (mean 0, deviation 1), brighter or darker, of some contrast."""
    first = networks[0]
    _check_columns(kind, first, scale)
    made = np.empty((count, first.numbers), dtype=np.float32)
    low, high = scale.within.ends
    mean, deviation = scale.mean.astype(np.float32), scale.deviation.astype(np.float32)
    for start in range(0, count, BLOCK):
        block = made[start : start + BLOCK]
        shifts = rng.normal(scale=shift, size=(len(block), 1)).astype(np.float32)
        contrasts = rng.gamma(CONTRAST_SHAPE, contrast / CONTRAST_SHAPE, size=(len(block), 1))
        z = shapes(len(block)).reshape(len(block), -1)
        values = mean + deviation * (shifts + contrasts.astype(np.float32) * z)
        block[:] = rng.permutation(np.clip(values, low, high))
    return made


def _check_lengths(kind: Pictures | Signals, lengths: Sequence[int]) -> None:
    for length in lengths:
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise PFNMError(
                f"{type(kind).__name__} of {'x'.join(map(str, lengths))}: expected positive whole "
                "numbers"
            )


def _check_columns(kind: Pictures | Signals | Table, network: Network, scale: _Scale) -> None:
    """An error unless inputs of this kind are as many as the network takes."""
    values = (scale.mean, scale.deviation, *scale.within.ends)
    sizes = {kind.size, *(np.size(value) for value in values if np.ndim(value))} - {None}
    odd = sizes - {network.numbers}
    if odd:
        raise PFNMError(
            f"inputs told to be {type(kind).__name__} of {odd.pop()} values, but {network.name} "
            f"takes {network.numbers}; give the shape that its inputs have"
        )


def _places(columns: Sequence[int | str], network: Network) -> list[int]:
    """The numbers of columns that are told by number or by name."""
    names = network.features or ()
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise PFNMError(
            f"a table's columns are told as lists, not {columns!r}; one_hot takes a list of lists"
        )
    places = []
    for column in columns:
        place = names.index(column) if column in names else column
        if not isinstance(place, int) or not 0 <= place < network.numbers:
            raise PFNMError(
                f"a table's column {column!r} is none that {network.name} has; give its number "
                f"(from 0 to {network.numbers - 1}), or its name where the network has names"
            )
        places.append(place)
    return places
