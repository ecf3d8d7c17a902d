"""Inputs like an example: rows of numbers and back, and made-up ones."""

import numpy as np
import pytest
import torch

from pfnm.errors import PFNMError
from pfnm.tracing.examples import DEVIATIONS, examples_of

COUNT = 50


def test_rows_become_the_inputs_they_were() -> None:
    x, tokens = torch.randn(2, 3, 4), torch.tensor([[1, 2], [3, 0]])
    mask = torch.ones(4, 4)  # no row an example
    examples = examples_of((x, mask), {"tokens": tokens, "scale": 0.5, "nothing": None})
    assert examples.numbers == 3 * 4 + 2
    assert examples.rows.shape == (2, 14)
    assert examples.rows[:, :12].tolist() == x.reshape(2, 12).tolist()
    args, kwargs = examples.placed(examples.tensors(examples.rows))
    assert torch.equal(args[0], x)
    assert args[1] is mask
    assert torch.equal(kwargs["tokens"], tokens)
    assert kwargs["tokens"].dtype == tokens.dtype
    assert (kwargs["scale"], kwargs["nothing"]) == (0.5, None)
    assert list(kwargs) == ["tokens", "scale", "nothing"]


def test_made_up_ones_are_like_the_example() -> None:
    example = (
        5 + 2 * torch.randn(4, 6),
        torch.tensor([[3, 9], [4, 4], [5, 8], [6, 3]]),
        torch.tensor([[True], [False], [True], [True]]),
    )
    examples = examples_of(example, {})
    rows = examples.make([], COUNT, np.random.default_rng(0))
    assert rows.shape == (COUNT, 9)
    assert rows.dtype == np.float32
    values, tokens, marks = examples.tensors(rows)
    mean, deviation = float(example[0].mean()), float(example[0].std(correction=0))
    assert abs(float(values.mean()) - mean) < deviation / 2
    assert float((values - mean).abs().max()) <= DEVIATIONS * deviation * 1.0001
    assert set(tokens.flatten().tolist()) == set(range(3, 10))
    assert marks.dtype == torch.bool
    assert marks.any()
    assert not marks.all()


def test_the_generator_says_what_is_made() -> None:
    examples = examples_of((torch.randn(2, 3, 8, 8),), {})
    one, same, other = (examples.make([], 4, np.random.default_rng(s)) for s in (0, 0, 1))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_pictures_are_smooth() -> None:
    examples = examples_of((torch.randn(2, 3, 16, 16),), {})
    (made,) = examples.tensors(examples.make([], COUNT, np.random.default_rng(0)))
    steps = float((made[..., 1:] - made[..., :-1]).square().mean())
    assert steps < float(made.var())  # of noise without neighbours it would be twice as much


def test_the_range_is_that_of_the_example() -> None:
    ends = examples_of((torch.tensor([[-1.0, 2.0], [0.0, 7.0]]),), {}).within
    assert (ends.low, ends.high) == (-1.0, 7.0)
    constant = examples_of((torch.zeros(2, 2),), {}).within
    assert (constant.low, constant.high) == (0.0, 1.0)


def test_an_example_needs_rows() -> None:
    with pytest.raises(PFNMError, match="no example input is a tensor with one row an example"):
        examples_of((0.5, torch.tensor(1.0)), {})
