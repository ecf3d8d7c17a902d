"""What enters a convolution and what leaves it, as rows: the one is a matrix times the other."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

from pfnm.fusing.refit import matrix, unmatrix
from pfnm.networks.program import Map
from pfnm.tracing.seeing import Later, patches, places, plain_rows

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
KERNEL = Map("weight", "bias", "linear", reads=1, writes=0)


@settings(max_examples=30, deadline=None)
@given(
    rank=st.integers(1, 3),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 2),
    dilation=st.integers(1, 2),
    padding=st.sampled_from([0, 1, 2]),
    rows=st.integers(1, 60),
)
def test_patches_times_the_weight_are_the_values(
    rank: int, kernel: int, stride: int, dilation: int, padding: int, rows: int
) -> None:
    torch.manual_seed(0)
    told = {"stride": [stride], "padding": [padding], "dilation": [dilation] * rank}
    layer = CONVOLUTIONS[rank](3, 4, kernel, stride, padding, dilation)
    x = torch.randn(5, 3, *(7 + side for side in range(rank)))
    with torch.no_grad():
        entering = patches(x, layer(x).shape[2:], [kernel] * rank, told, rows)
        leaving = plain_rows(layer(x).movedim(1, -1), rows)
        assert layer.bias is not None
        weight, bias = layer.weight.numpy(), layer.bias.numpy()
    np.testing.assert_allclose(entering @ matrix(weight, KERNEL) + bias, leaving, atol=1e-5)
    assert len(leaving) % len(x) == 0
    assert rows <= len(leaving) < rows + len(x) or len(leaving) == len(x) * layer(x)[0, 0].numel()


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_padding_may_be_a_word(padding: str) -> None:
    layer = nn.Conv2d(2, 3, (3, 4), padding=padding, dilation=(1, 2))
    x = torch.randn(2, 2, 9, 11)
    told = {"padding": padding, "dilation": [1, 2]}
    with torch.no_grad():
        entering = patches(x, layer(x).shape[2:], [3, 4], told, 20)
        leaving = plain_rows(layer(x).movedim(1, -1), 20)
        assert layer.bias is not None
        weight, bias = layer.weight.numpy(), layer.bias.numpy()
    np.testing.assert_allclose(entering @ matrix(weight, KERNEL) + bias, leaving, atol=1e-5)


def test_a_matrix_is_the_weight_again() -> None:
    weight = np.random.default_rng(0).normal(size=(4, 3, 2, 5))
    np.testing.assert_array_equal(unmatrix(matrix(weight, KERNEL), weight, KERNEL), weight)


def test_positions_are_the_same_whatever_the_network_and_differ_between_examples() -> None:
    found = places(6, 100, 24)
    assert found.shape == (6, 4)
    assert len({tuple(sorted(own)) for own in found}) == 6
    values = torch.arange(600.0).reshape(6, 100, 1)
    np.testing.assert_array_equal(plain_rows(values, 24)[:4, 0], found[0])


def test_what_nobody_asks_for_is_not_made() -> None:
    made: list[slice] = []

    def make(part: slice) -> NDArray[np.float32]:
        made.append(part)
        return np.ones((100, 3), np.float32)[part]

    later = Later(make, 100)
    assert not made
    assert np.asarray(later, float).dtype == float
    assert len(made) == 1


@pytest.mark.parametrize("examples", [1, 5, 40])
def test_parts_are_the_whole(examples: int) -> None:
    x = torch.arange(examples * 60.0).reshape(examples, 3, 4, 5)
    told = {"padding": 1, "stride": 1, "dilation": 1}
    for make in (partial(plain_rows, x, 50), partial(patches, x, (4, 5), [3, 3], told, 50)):
        later = Later(make, examples)
        parts = list(later.parts())
        assert max(map(len, parts)) < 50 or examples == 1
        np.testing.assert_array_equal(np.concatenate(parts), np.asarray(later))
