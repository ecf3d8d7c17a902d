"""The least squares of a refit: the same however many rows there are for each feature."""

import numpy as np
import pytest

from pfnm.fusing.refit import _least_squares


@pytest.mark.parametrize("rows", [5, 30, 31, 200])
@pytest.mark.parametrize("biased", [True, False])
def test_it_is_the_ridge_solution_by_its_formula(rows: int, biased: bool) -> None:
    rng = np.random.default_rng(0)
    values, missing = rng.normal(size=(30, rows)), rng.normal(size=(4, rows))
    weight, bias, ridge = rng.normal(size=(30, 4)), rng.normal(size=4), 0.1
    x = np.vstack([values, np.ones((1, rows))]) if biased else values
    start = np.vstack([weight, bias]) if biased else weight
    pull = ridge * (x**2).sum() / len(x)
    expected = start + np.linalg.solve(x @ x.T + pull * np.eye(len(x)), x @ missing.T)
    found, found_bias = _least_squares(values.T, missing, weight, bias if biased else None, ridge)
    np.testing.assert_allclose(found, expected[:30], atol=1e-10)
    if biased:
        assert found_bias is not None
        np.testing.assert_allclose(found_bias, expected[30], atol=1e-10)
