"""Made-up inputs: their kinds, and how a kind is chosen."""

from collections.abc import Callable

import numpy as np
import pytest
from conftest import random_network
from hypothesis import given
from hypothesis import strategies as st

from pfnm import PFNMError, Pictures, Signals, Table
from pfnm.conversion import as_sites, with_inputs
from pfnm.fusing.choosing import guessed_grid, sites_agreement
from pfnm.fusing.inputs import InputRange, Inputs, Like, Units, WithUnits
from pfnm.fusing.kinds import parsed_kind
from pfnm.fusing.noise import falling_noise
from pfnm.fusing.sites import comparable
from pfnm.networks.network import Network
from pfnm.networks.perceptron import mlp


def of_inputs(inputs: int, features: tuple[str, ...] | None = None) -> list[Network]:
    weights = [np.eye(inputs), np.ones((inputs, 2))]
    return [mlp(weights, name="site", features=features)]


KINDS: list[Callable[[], Inputs]] = [
    lambda: Units(InputRange(-1, 2)),
    lambda: Pictures(3, 4, 4, range=(-1, 2)),
    lambda: Pictures(3, 4, 4, range=(-1, 2), channels_last=True),
    lambda: Signals(6, 8, range=(-1, 2)),
    lambda: Table(range=(-1, 2)),
    lambda: WithUnits(Table(range=(-1, 2))),
    lambda: Like(Table(range=(-1, 2)), np.zeros((2, 48), dtype=np.float32)),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2, 7, 1001])
def test_every_kind_keeps_to_its_range_and_to_its_seed(
    kind: Callable[[], Inputs], count: int
) -> None:
    networks = of_inputs(48)
    made = kind().make(networks, count, np.random.default_rng(3))
    assert made.shape == (count, 48)
    assert made.dtype == np.float32
    assert -1 <= made.min() <= made.max() <= 2
    np.testing.assert_array_equal(made, kind().make(networks, count, np.random.default_rng(3)))


def test_noise_falls_with_frequency_as_said() -> None:
    noise = falling_noise(400, (64,), np.random.default_rng(0), (1.0, 1.0))
    power = np.square(np.abs(np.fft.rfft(noise, axis=1))).mean(axis=0)
    # Amplitude 1 / f: the power at twice the frequency is a quarter.
    assert power[2] / power[4] == pytest.approx(4, rel=0.3)
    assert power[4] / power[16] == pytest.approx(16, rel=0.3)
    np.testing.assert_allclose(noise.std(axis=1), 1, rtol=1e-3)


def test_pictures_have_the_statistics_of_natural_ones() -> None:
    made = Pictures(3, 32, 32).make(of_inputs(3072), 500, np.random.default_rng(0))
    assert made.mean() == pytest.approx(0.47, abs=0.02)
    assert made.mean(axis=1).std() == pytest.approx(0.13, abs=0.02)
    assert made.std(axis=1).mean() == pytest.approx(0.2, abs=0.02)
    pixels = made.reshape(-1, 3, 32, 32)
    across = np.corrcoef(pixels[..., 1:].ravel(), pixels[..., :-1].ravel())[0, 1]
    far = np.corrcoef(pixels[..., 16:].ravel(), pixels[..., :-16].ravel())[0, 1]
    assert across > 0.8 > far


def test_told_mean_and_deviation_of_each_channel_hold() -> None:
    kind = Pictures(2, 16, 16, mean=(0, 5), deviation=(1, 2))
    made = kind.make(of_inputs(512), 2000, np.random.default_rng(0)).reshape(-1, 2, 256)
    np.testing.assert_allclose(made.mean(axis=(0, 2)), [0, 5], atol=0.15)
    np.testing.assert_allclose(made.std(axis=(0, 2)), [1, 2], rtol=0.15)
    last = Pictures(2, 16, 16, mean=(0, 5), deviation=(1, 2), channels_last=True)
    made = last.make(of_inputs(512), 2000, np.random.default_rng(0)).reshape(-1, 256, 2)
    np.testing.assert_allclose(made.mean(axis=(0, 1)), [0, 5], atol=0.15)


def test_a_table_has_whole_numbers_and_one_hot_columns_where_told() -> None:
    names = ("age", "sex", "a", "b", "c")
    kind = Table(range=(0, 9), whole=["age", 1], one_hot=[["a", "b", "c"]])
    made = kind.make(of_inputs(5, names), 300, np.random.default_rng(0))
    np.testing.assert_array_equal(made[:, :2], np.round(made[:, :2]))
    assert set(np.unique(made[:, 2:])) == {0, 1}
    np.testing.assert_array_equal(made[:, 2:].sum(axis=1), 1)
    assert set(made[:, 2:].argmax(axis=1)) == {0, 1, 2}
    assert len(np.unique(made[:, 0])) == 10


def test_columns_of_a_table_have_their_own_mean_and_deviation() -> None:
    made = Table(mean=[0, 100], deviation=[1, 5]).make(of_inputs(2), 5000, np.random.default_rng(0))
    np.testing.assert_allclose(made.mean(axis=0), [0, 100], atol=0.3)
    np.testing.assert_allclose(made.std(axis=0), [1, 5], rtol=0.05)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pictures:3x32x32", "pictures of 3x32x32, between 0 and 1"),
        ("pictures:32x32x3", "pictures of 32x32x3, between 0 and 1"),
        ("Pictures:28x28", "pictures of 1x28x28, between 0 and 1"),
        ("signals:12x1000", "signals of 12x1000, between -3 and 3"),
        ("signals:1000", "signals of 1x1000, between -3 and 3"),
        ("table", "table, between -3 and 3"),
    ],
)
def test_kinds_are_read_from_texts(text: str, told: str) -> None:
    kind = parsed_kind(text)
    assert f"{kind}, {kind.within}" == told


@pytest.mark.parametrize(
    "text",
    ["", "pictures", "pictures:3", "pictures:3x3x3x3", "pictures:axb", "signals:", "table:3"],
)
def test_other_texts_are_no_kind(text: str) -> None:
    with pytest.raises(PFNMError, match="no kind pfnm knows"):
        parsed_kind(text)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Pictures(0, 3, 3), "positive whole numbers"),
        (lambda: Pictures(3, 3.5, 3), "positive whole numbers"),  # type: ignore[arg-type]
        (lambda: Pictures(3, 3, 3, mean=1), "both mean and deviation"),
        (lambda: Pictures(3, 3, 3, mean=(1, 2), deviation=1), "one for each of the 3 channels"),
        (lambda: Pictures(3, 3, 3, range=(1, 0)), "the smaller first"),
        (lambda: Signals(1, 3, range=(np.nan, 0)), "finite"),
        (lambda: Table(range=1), "expected two numbers"),  # type: ignore[arg-type]
        (lambda: Table(mean=0, deviation=-1), "negative"),
    ],
)
def test_a_kind_that_cannot_be_is_refused(make: Callable[[], Inputs], message: str) -> None:
    with pytest.raises(PFNMError, match=message):
        make()


@pytest.mark.parametrize(
    "kind", [Pictures(1, 2, 2), Signals(1, 4), Table(mean=[0] * 4, deviation=1)]
)
def test_a_kind_of_another_size_than_the_networks_take_is_refused(kind: Inputs) -> None:
    with pytest.raises(PFNMError, match="takes 3"):
        kind.make(of_inputs(3), 2, np.random.default_rng(0))


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(PFNMError, match="column 'height' is none"):
        Table(whole=["height"]).make(of_inputs(3), 2, np.random.default_rng(0))


@given(st.integers(0, 10**6))
def test_agreement_beyond_chance_is_one_for_equal_sites_and_about_zero_for_unlike_ones(
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(300, 6))
    same = comparable([random_network(seed, name="a"), random_network(seed, name="b")])
    assert sites_agreement(same, inputs) in (pytest.approx(1), 0.0)  # 0: one answer to everything


def test_sites_that_always_give_one_answer_do_not_count_as_agreeing() -> None:
    networks = [
        mlp([np.ones((3, 2)), 1e-9 * np.ones((2, 2))], [np.zeros(2), np.array([1.0, 0.0])], name=n)
        for n in "ab"
    ]
    assert sites_agreement(comparable(networks), np.random.default_rng(0).normal(size=(9, 3))) == 0


def smooth_networks(channels: int, side: int, *, last: bool = False) -> list[Network]:
    """Networks whose first-layer weights are smooth on a grid."""
    networks = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        maps = falling_noise(20 * channels, (side, side), rng, (1, 1)).reshape(
            20, channels, side, side
        )
        maps = np.moveaxis(maps, 1, -1) if last else maps
        networks.append(mlp([maps.reshape(20, -1).T, rng.normal(size=(20, 4))], name=f"site{seed}"))
    return networks


@pytest.mark.parametrize(
    ("channels", "side", "last"), [(1, 8, False), (1, 28, False), (3, 16, False), (3, 16, True)]
)
def test_the_grid_is_guessed_from_smooth_weights(channels: int, side: int, last: bool) -> None:
    grid = guessed_grid(smooth_networks(channels, side, last=last))
    assert grid is not None
    assert (grid.channels, grid.height, grid.width) == (channels, side, side)
    assert grid.channels_last == last


def test_weights_in_no_order_have_no_grid() -> None:
    networks = [random_network(j, (64, 20, 3), name=f"site{j}") for j in range(3)]
    assert guessed_grid(networks) is None
    assert isinstance(as_sites(networks).inputs, Units)


def test_what_is_told_of_inputs_counts() -> None:
    sites = comparable([random_network(j, (12, 5, 3), name=f"site{j}") for j in range(3)])
    told = with_inputs(sites, "pictures:3x2x2", (-1, 1))
    assert (str(told.inputs), str(told.inputs.within)) == (
        "pictures of 3x2x2",
        "between -1 and 1",
    )
    assert told.told == {"inputs", "input_range"}
    assert with_inputs(sites, "pictures:3x2x2").told == {"inputs"}
    assert with_inputs(sites, None, (-1, 1)).told == {"input_range"}
    assert with_inputs(sites).told == frozenset()
    rows = np.random.default_rng(0).uniform(-4, 9, size=(30, 12))
    imitated = with_inputs(sites, "table", input_like=rows)
    assert str(imitated.inputs) == "like the 30 given"
    np.testing.assert_allclose(imitated.inputs.within.low, rows.min(axis=0))
    with pytest.raises(PFNMError, match="told twice"):
        with_inputs(sites, Pictures(3, 2, 2, range=(0, 1)), (-1, 1))
    with pytest.raises(PFNMError, match="takes 12"):
        with_inputs(sites, "pictures:3x3x3")
