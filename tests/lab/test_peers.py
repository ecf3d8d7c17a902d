"""Git Re-Basin and OT fusion: by brute force, and renamed copies become what they are copies of."""

from collections.abc import Callable, Sequence
from itertools import permutations

import numpy as np
import pytest
from conftest import random_network, renamed

from pfnm.errors import PFNMError
from pfnm.lab.peers import ot_fusion, rebasin
from pfnm.networks.network import Network
from pfnm.networks.perceptron import layers

pytest.importorskip("ot")
torch = pytest.importorskip("torch")

from pfnm.lab.models import LSTM, LeNet, ResNet20, Transformer  # noqa: E402
from pfnm.lab.modules import from_module, whole_network  # noqa: E402
from pfnm.tracing.shuffling import shuffled  # noqa: E402

Merge = Callable[[Sequence[Network]], Network]
MERGES: dict[str, Merge] = {
    "rebasin": lambda networks: rebasin(networks, np.random.default_rng(0)),
    "ot": ot_fusion,
}


@pytest.mark.parametrize("merge", MERGES.values(), ids=MERGES)
def test_renamed_copies_merge_to_what_they_are_copies_of(merge: Merge) -> None:
    network = random_network(0, (6, 9, 8, 3))
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(20, 6))
    merged = merge([network, renamed(network, rng), renamed(network, rng)])
    assert merged.widths == network.widths
    np.testing.assert_allclose(merged.run(inputs), network.run(inputs), atol=1e-6)


def units(network: Network, *, outgoing: bool) -> np.ndarray:
    below, above = layers(network)
    assert below.bias is not None
    parts = [below.weight, below.bias[None], *([above.weight.T] if outgoing else [])]
    return np.concatenate(parts).T


@pytest.mark.parametrize("seed", range(3))
def test_two_models_by_brute_force(seed: int) -> None:
    """The most alike on all weights; the nearest on those that lead in."""
    one, two = random_network(seed, (4, 5, 3)), random_network(seed + 10, (4, 5, 3))
    orders = [list(order) for order in permutations(range(5))]
    a, b = units(one, outgoing=True), units(two, outgoing=True)
    alike = max(orders, key=lambda order: float((a * b[order]).sum()))
    merged = units(MERGES["rebasin"]([one, two]), outgoing=True)
    expected = (a + b[alike]) / 2
    np.testing.assert_allclose(np.sort(merged[:, 0]), np.sort(expected[:, 0]))
    c, d = units(one, outgoing=False), units(two, outgoing=False)
    near = min(orders, key=lambda order: float(np.linalg.norm(c - d[order], axis=1).sum()))
    np.testing.assert_allclose(units(ot_fusion([one, two]), outgoing=False), (c + d[near]) / 2)


@pytest.mark.parametrize("merge", MERGES.values(), ids=MERGES)
@pytest.mark.parametrize("made", [LeNet, ResNet20, LSTM, Transformer])
def test_modules(made: type, merge: Merge) -> None:
    """Renamed copies again; coordinates within heads, which stay as they are, are not renamed."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if made in (LSTM, Transformer):
            module, x = made(shape=(8,), classes=11), torch.randint(11, (4, 8))
        else:
            module, x = made(shape=(1, 8, 8)), torch.rand(4, 1, 8, 8)
    like = whole_network(module.eval(), (x,))
    other = like if made is Transformer else from_module(shuffled(module, (x,), 1), like)
    rows = like.program.examples.rows
    np.testing.assert_allclose(merge([like, other]).run(rows), like.run(rows), atol=1e-4)


@pytest.mark.parametrize("merge", MERGES.values(), ids=MERGES)
def test_widths_must_be_equal(merge: Merge) -> None:
    with pytest.raises(PFNMError, match="widths must be equal"):
        merge([random_network(0, (6, 9, 3)), random_network(1, (6, 8, 3))])
