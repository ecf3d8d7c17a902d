"""What sites count for."""

import numpy as np
import pytest

from pfnm.fusing.sites import Sites, comparable, contrasted
from pfnm.networks.perceptron import mlp


def sites_with(counts: list[list[int]], weights: list[float] | None = None) -> Sites:
    classes = len(counts[0])
    networks = [mlp([np.ones((2, 3)), np.ones((3, classes))], [np.ones(3), np.ones(classes)])]
    return comparable(networks * len(counts), counts, weights)


def test_of_two_classes_the_rarer_one_decides_by_hand() -> None:
    # 10 * 10 / 20 = 5; 200 * 0 / 200 = 0; 30 * 10 / 40 = 7.5
    sites = contrasted(sites_with([[10, 10], [200, 0], [30, 10]]))
    expected = np.array([5, 0, 7.5]) / 12.5
    np.testing.assert_allclose(sites.output_weights, np.column_stack([expected, expected]))


def test_site_weights_multiply_the_counts() -> None:
    sites = contrasted(sites_with([[10, 10], [10, 10]], [1.0, 3.0]))
    np.testing.assert_allclose(sites.output_weights, [[0.25, 0.25], [0.75, 0.75]])


@pytest.mark.parametrize("counts", [[[9, 0], [0, 5]], [[1, 2, 3], [3, 2, 1]]])
def test_where_nobody_has_seen_both_or_classes_are_more_shares_stay(
    counts: list[list[int]],
) -> None:
    plain = sites_with(counts)
    np.testing.assert_array_equal(contrasted(plain).class_shares, plain.class_shares)
