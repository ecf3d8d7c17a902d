"""How sure a match is: by hand, and on noisy copies of which the truth is known."""

import numpy as np
import pytest
from scipy.stats import rankdata

from pfnm.matching.confidence import confidence
from pfnm.matching.matching import match
from pfnm.matching.prior import Prior
from pfnm.networks.network import Array


def found(atoms: list[Array], assignments: list[list[int]]) -> list[list[float]]:
    dimensions = atoms[0].shape[1]
    result = confidence(
        atoms,
        [np.array(a) for a in assignments],
        np.ones((len(atoms), dimensions)),
        np.zeros(dimensions),
        rng=np.random.default_rng(0),
    )
    return [own.tolist() for own in result]


def test_what_is_clear_is_sure() -> None:
    near = 30 * np.eye(3, 40) + 0.1 * np.random.default_rng(0).normal(size=(4, 3, 40))
    sites = list(near)
    assert found(sites, [[0, 1, 2]] * 4) == [[1.0] * 3] * 4
    sites[3] = sites[3][:2]
    sites.append(np.vstack([near[3][2], -near[0][0]]))
    assert found(sites, [[0, 1, 2]] * 3 + [[0, 1], [2, 3]])[4] == [1.0, 1.0]


def test_what_is_with_the_wrong_ones_is_not_sure() -> None:
    near = 30 * np.eye(3, 40) + 0.1 * np.random.default_rng(0).normal(size=(4, 3, 40))
    shares = found(list(near), [[0, 1, 2], [0, 1, 2], [0, 1, 2], [1, 0, 2]])
    assert max(shares[3][:2]) < 0.2
    assert min(shares[0]) > 0.5
    assert shares[3][2] == 1.0


@pytest.mark.parametrize("noise", [2.0, 2.5])
def test_mismatches_are_less_sure_than_matches(noise: float) -> None:
    rng = np.random.default_rng(0)
    true = rng.normal(size=(60, 200))
    orders = [rng.permutation(60)[:50] for _ in range(6)]
    atoms = [true[order] + noise * rng.normal(size=(50, 200)) for order in orders]
    prior = Prior(prior_variance=30.0, site_variance=3.0)
    matching = match(atoms, prior, sweeps=3, width_limit=60)
    sure = np.concatenate(found(atoms, [a.tolist() for a in matching.assignments]))
    truth, units = np.concatenate(orders), np.concatenate(matching.assignments)
    usual = np.array([np.bincount(truth[units == i]).argmax() for i in range(matching.width)])
    wrong = usual[units] != truth
    ranks = rankdata(sure)[wrong]
    pairs = wrong.sum() * (~wrong).sum()
    above = (ranks.sum() - wrong.sum() * (wrong.sum() + 1) / 2) / pairs
    assert wrong.sum() > 5
    assert above < 0.25
