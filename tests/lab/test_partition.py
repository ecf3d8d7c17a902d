"""Who holds what: every example at one site, and what each split promises."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pfnm.errors import PFNMError
from pfnm.lab.partition import LEAST_EXAMPLES, PARTITIONS, dirichlet, split


@given(st.sampled_from(sorted(PARTITIONS)), st.integers(2, 6), st.integers(0, 1000))
@settings(deadline=None, max_examples=40)
def test_every_example_is_at_exactly_one_site(name: str, sites: int, seed: int) -> None:
    labels = np.random.default_rng(seed).integers(4, size=400)
    parts = split(name, labels, sites, np.random.default_rng(seed), alpha=1.0)
    assert len(parts) == sites
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(400))
    again = split(name, labels, sites, np.random.default_rng(seed), alpha=1.0)
    assert all(np.array_equal(one, two) for one, two in zip(parts, again, strict=True))


def table(parts: list[np.ndarray], labels: np.ndarray) -> np.ndarray:
    return np.array([np.bincount(labels[part], minlength=10) for part in parts])


def test_what_each_split_promises() -> None:
    labels = np.repeat(np.arange(10), 100)
    rng = np.random.default_rng(0)
    assert (table(split("even", labels, 5, rng), labels) == 20).all()
    uneven = table(split("dirichlet", labels, 5, rng, 0.5), labels)
    assert uneven.std(axis=0).min() > 3
    assert uneven.sum(axis=1).min() >= LEAST_EXAMPLES
    few = table(split("labels", labels, 5, rng), labels)
    assert ((few > 0).sum(axis=1) <= 4).all()
    sizes = table(split("sizes", labels, 5, rng, 0.5), labels)
    assert np.ptp(sizes, axis=1).max() <= 1  # all classes alike within a site
    assert sizes.sum(axis=1).std() > 20


def test_the_authors_split_gives_a_full_site_nothing_more() -> None:
    labels = np.repeat(np.arange(10), 100)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        counts = table(dirichlet(labels, 5, 0.5, rng, 10, capped=True), labels)
        before = np.cumsum(counts, axis=1) - counts
        assert (counts[before >= 200] == 0).all()


@pytest.mark.parametrize(
    ("name", "sites", "alpha", "message"),
    [
        ("odd", 3, 0.5, "unknown split 'odd'; choose one of even, dirichlet"),
        ("dirichlet", 3, 0.0, "alpha is 0.0"),
        ("dirichlet", 30, 0.5, "use fewer"),
        ("even", 200, 0.5, "too few for 200 sites"),
    ],
)
def test_what_cannot_be_is_told(name: str, sites: int, alpha: float, message: str) -> None:
    with pytest.raises(PFNMError, match=message):
        split(name, np.arange(100) % 2, sites, np.random.default_rng(0), alpha)


def test_a_seed_keeps_its_split() -> None:
    """Networks of committed studies hang on it: these numbers must not change."""
    labels = np.repeat(np.arange(3), 40)
    found = [part.size for part in split("dirichlet", labels, 4, np.random.default_rng(1))]
    assert found == [10, 26, 14, 70]
    assert split("even", labels, 4, np.random.default_rng(1))[0][:5].tolist() == [0, 6, 7, 9, 15]
