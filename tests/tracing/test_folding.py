"""Batch normalisation folded into a scale and a shift, and unfolded again."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pfnm.networks.graph import Axis, UnitGraph
from pfnm.tracing.folding import Folding, Norm, Statistics

EPSILON = 0.0
AFTER = ("weight", "bias", 0)
TENSORS = {
    "weight": np.array([[1.0, 2.0], [3.0, 4.0]]),
    "bias": np.array([1.0, -1.0]),
    "gamma": np.array([2.0, 3.0]),
    "beta": np.array([0.5, 0.0]),
    "mean": np.array([1.0, 1.0]),
    "variance": np.array([4.0, 9.0]),
}
X = np.array([[1.0, 0.0], [0.5, -2.0], [3.0, 1.0]])


def folding(after: tuple[str, str | None, int] | None = AFTER) -> Folding:
    return Folding((Norm("gamma", "beta", "mean", "variance", EPSILON, after),))


def answer(tensors: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """A linear map and a batch normalisation at rest."""
    values = X @ tensors["weight"].T + tensors["bias"]
    scaled = (values - tensors["mean"]) / np.sqrt(tensors["variance"] + EPSILON)
    return np.asarray(scaled * tensors["gamma"] + tensors["beta"])


def test_by_hand_into_the_map_before_it() -> None:
    folded = folding().fold(TENSORS)
    assert folded.keys() == {"weight", "beta"}
    assert folded["weight"].tolist() == [[1.0, 2.0], [3.0, 4.0]]  # times 2/2 and 3/3
    assert folded["beta"].tolist() == [0.5, -2.0]  # (1 - 1) + 0.5, (-1 - 1) + 0
    assert np.allclose(X @ folded["weight"].T + folded["beta"], answer(TENSORS))


def test_by_hand_on_its_own() -> None:
    tensors = {**TENSORS, "gamma": np.array([4.0, 3.0])}
    folded = folding(None).fold(tensors)
    assert folded.keys() == {"weight", "bias", "gamma", "beta"}
    assert folded["gamma"].tolist() == [2.0, 1.0]
    assert folded["beta"].tolist() == [-1.5, -1.0]
    assert folded["weight"] is TENSORS["weight"]


def test_what_is_given_is_not_changed() -> None:
    before = {name: own.copy() for name, own in TENSORS.items()}
    folding().unfold(folding().fold(TENSORS))
    assert all(np.array_equal(own, before[name]) for name, own in TENSORS.items())


@pytest.mark.parametrize("after", [AFTER, None])
def test_unfolded_it_is_the_same_function(after: tuple[str, str | None, int] | None) -> None:
    own = folding(after)
    unfolded = own.unfold(own.fold(TENSORS))
    assert unfolded.keys() == TENSORS.keys()
    assert np.allclose(answer(unfolded), answer(TENSORS))


def test_statistics_are_remembered_and_change_nothing() -> None:
    found = {"mean": Statistics(np.array([3.0, -1.0]), np.array([0.25, 16.0]))}
    unfolded = folding().unfold(folding().fold(TENSORS), found)
    assert unfolded["mean"].tolist() == [3.0, -1.0]
    assert unfolded["variance"].tolist() == [0.25, 16.0]
    assert np.allclose(answer(unfolded), answer(TENSORS))


def test_without_a_scale_and_shift_the_statistics_hold_them() -> None:
    own = Folding((Norm(None, None, "mean", "variance", EPSILON, None),))
    tensors = {name: TENSORS[name] for name in ("weight", "bias", "mean", "variance")}
    folded = own.fold(tensors)
    assert folded["variance"].tolist() == [1 / 2, 1 / 3]
    assert folded["mean"].tolist() == [-1 / 2, -1 / 3]
    unfolded = own.unfold(folded, {"mean": Statistics(np.zeros(2), np.ones(2))})
    assert np.allclose(unfolded["variance"], [4.0, 9.0])
    assert np.allclose(unfolded["mean"], [1.0, 1.0])


def test_a_transposed_or_grouped_weight_is_scaled_along_its_outputs() -> None:
    tensors = {**TENSORS, "gamma": np.array([4.0, 3.0])}
    columns = folding(("weight", None, 1)).fold(tensors)
    assert columns["weight"].tolist() == [[2.0, 2.0], [6.0, 4.0]]
    grouped = {**tensors, "weight": np.ones((4, 1))}  # two entries for each output
    assert folding(("weight", None, 0)).fold(grouped)["weight"].ravel().tolist() == [2, 2, 1, 1]


@pytest.mark.parametrize("after", [AFTER, None])
def test_the_graph_follows(after: tuple[str, str | None, int] | None) -> None:
    units = (Axis.of("units"),)
    axes = dict.fromkeys(TENSORS, units) | {"weight": (*units, Axis.of("input"))}
    graph = folding(after).graph(UnitGraph(axes, ("units",), roles={"mean": "statistic"}))
    assert graph.axes.keys() == folding(after).fold(TENSORS).keys()
    assert graph.role("beta") == "bias"
    assert graph.roles.keys() <= graph.axes.keys()
    assert after is not None or graph.role("gamma") == "scale"
