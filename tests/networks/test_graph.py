"""Axes made of parts, and what a unit graph says of shapes and positions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pfnm.errors import PFNMError
from pfnm.networks.graph import Axis, Part, UnitGraph

SIZES = {"a": 2, "b": 3, "c": 4}

factors = st.lists(
    st.one_of(st.sampled_from(sorted(SIZES)), st.integers(1, 3)), min_size=1, max_size=3
).filter(lambda own: len({f for f in own if isinstance(f, str)}) == len([*filter(_named, own)]))
axes = st.lists(factors.map(lambda own: Part(tuple(own))), min_size=1, max_size=3).map(
    lambda parts: Axis(tuple(parts))
)
seeds = st.integers(0, 2**16)


def _named(factor: str | int) -> bool:
    return isinstance(factor, str)


def orders(seed: int) -> dict[str, np.ndarray[tuple[int], np.dtype[np.intp]]]:
    rng = np.random.default_rng(seed)
    return {space: rng.permutation(size) for space, size in SIZES.items()}


# -- by hand -------------------------------------------------------------------------------------


def test_units_with_places() -> None:
    axis = Axis.of("a", after=3)
    assert axis.parts == (Part(("a", 3)),)
    assert axis.length(SIZES) == 6
    assert axis.positions({"a": np.array([1, 0])}, SIZES, {}).tolist() == [3, 4, 5, 0, 1, 2]
    assert axis.coordinates("a", SIZES).tolist() == [0, 0, 0, 1, 1, 1]
    assert axis.by_unit("a", SIZES).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert axis.space is None


def test_stacked_gates() -> None:
    axis = Axis.of("a", before=3)
    assert axis.parts == (Part((3, "a")),)
    assert axis.positions({"a": np.array([1, 0])}, SIZES, {}).tolist() == [1, 0, 3, 2, 5, 4]
    assert axis.coordinates("a", SIZES).tolist() == [0, 1, 0, 1, 0, 1]
    assert axis.by_unit("a", SIZES).tolist() == [[0, 2, 4], [1, 3, 5]]


def test_two_spaces_one_after_the_other() -> None:
    axis = Axis((Part(("a",)), Part(("b",))))
    assert axis.spaces == ("a", "b")
    assert axis.positions({"b": np.array([2, 0])}, SIZES, {}).tolist() == [0, 1, 4, 2]
    assert axis.coordinates("b", SIZES).tolist() == [-1, -1, 0, 1, 2]
    assert axis.by_unit("b", SIZES).tolist() == [[2], [3], [4]]


def test_an_inner_space_has_an_order_for_each_outer_unit() -> None:
    axis = Axis((Part(("a", "b")),))
    orders_within = np.array([[2, 1, 0], [1, 2, 0]])
    units = {"a": np.array([1, 0]), "b": orders_within}
    # the first row is the order within the unit that now stands first
    found = axis.positions(units, SIZES, {"b": "a"})
    assert found.tolist() == [5, 4, 3, 1, 2, 0]


def test_a_plain_axis() -> None:
    assert Axis.of("a").space == "a"
    assert Axis.fixed(5).length({}) == 5
    assert Axis.fixed(5).spaces == ()
    assert Axis.fixed(5).positions({}, {}, {}).tolist() == [0, 1, 2, 3, 4]


def graph() -> UnitGraph:
    """Queries and values of heads, a hidden layer, an output."""
    heads = Axis((Part(("heads", "q")), Part(("heads", "v"))))
    return UnitGraph(
        {
            "mixed": (heads, Axis.of("input")),
            "scale": (Axis((Part(("heads", "v")),)),),
            "out": (Axis.of("output"), Axis.of("hidden", after=4)),
        },
        ("heads", "q", "v", "hidden"),
        inner={"q": "heads", "v": "heads"},
        constant={"q": 2, "v": 3},
        roles={"scale": "scale"},
    )


def test_what_a_graph_says() -> None:
    own = graph()
    shapes = {"mixed": (10, 7), "scale": (6,), "out": (5, 12)}
    sizes = own.sizes(shapes)
    assert sizes == {"q": 2, "v": 3, "heads": 2, "input": 7, "output": 5, "hidden": 3}
    assert {name: own.shape(name, sizes) for name in own.axes} == shapes
    assert own.outer_groups == ("heads", "hidden")
    assert own.inner_of("heads") == ("q", "v")
    assert own.groups_of("mixed") == ("heads", "q", "v")
    assert own.tensors_of("v") == ("mixed", "scale")
    assert [own.role(name) for name in own.axes] == ["weight", "scale", "weight"]
    assert own.is_group("q")
    assert not own.is_group("output")


def test_sizes_follow_from_one_another() -> None:
    own = UnitGraph(
        {"sum": (Axis((Part(("a",)), Part(("b",)))),), "a": (Axis.of("a", before=2),)}, ("a", "b")
    )
    assert own.sizes({"sum": (7,), "a": (8,)}) == {"a": 4, "b": 3}
    alone = UnitGraph({"product": (Axis((Part(("a", "b")),)),)}, ("a", "b"))
    assert alone.sizes({"product": (6,)}) == {}  # 2 x 3 or 3 x 2


def test_some_units_of_a_tensor() -> None:
    own = graph()
    sizes = own.sizes({"mixed": (10, 7), "scale": (6,), "out": (5, 12)})
    tensor = np.arange(60).reshape(5, 12)
    found = tensor[own.index("out", {"hidden": np.array([2])}, sizes)]
    assert np.array_equal(found, tensor[:, 8:])


def test_groups_must_be_somewhere() -> None:
    with pytest.raises(PFNMError, match="unit group 'b' has no tensor axis; leave it out"):
        UnitGraph({"x": (Axis.of("a"),)}, ("a", "b"))
    with pytest.raises(PFNMError, match="'b' within 'a': both must be unit groups, and the size"):
        UnitGraph({"x": (Axis((Part(("a", "b")),)),)}, ("a", "b"), inner={"b": "a"})


# -- always --------------------------------------------------------------------------------------


@given(axes, seeds)
def test_positions_of_a_permutation_are_one(axis: Axis, seed: int) -> None:
    found = axis.positions(orders(seed), SIZES, {})
    assert sorted(found) == list(range(axis.length(SIZES)))


@given(axes, seeds)
def test_permuted_entries_carry_their_units(axis: Axis, seed: int) -> None:
    units = orders(seed)
    found = axis.positions(units, SIZES, {})
    for space in axis.spaces:
        before = axis.coordinates(space, SIZES)
        expected = np.where(before < 0, -1, units[space][before])
        assert np.array_equal(before[found], expected)


@given(axes)
def test_all_units_are_all_positions(axis: Axis) -> None:
    whole = {space: np.arange(size) for space, size in SIZES.items()}
    assert axis.positions(whole, SIZES, {}).tolist() == list(range(axis.length(SIZES)))
    assert axis.positions({}, SIZES, {}).tolist() == list(range(axis.length(SIZES)))


@given(axes)
def test_the_entries_of_units_are_those_with_their_coordinate(axis: Axis) -> None:
    for space in axis.spaces:
        coordinates = axis.coordinates(space, SIZES)
        for unit, entries in enumerate(axis.by_unit(space, SIZES)):
            assert sorted(entries) == np.flatnonzero(coordinates == unit).tolist()


@given(axes, seeds)
def test_an_inner_order_keeps_entries_with_their_outer_unit(axis: Axis, seed: int) -> None:
    nested = Axis((*axis.parts, Part(("a", 2, "inner"))))
    sizes = {**SIZES, "inner": 3}
    rng = np.random.default_rng(seed)
    units = {**orders(seed), "inner": np.stack([rng.permutation(3) for _ in range(SIZES["a"])])}
    found = nested.positions(units, sizes, {"inner": "a"})
    assert sorted(found) == list(range(nested.length(sizes)))
    outer = nested.coordinates("a", sizes)
    assert np.array_equal(outer[found], np.where(outer < 0, -1, units["a"][outer]))


@given(st.dictionaries(st.sampled_from("xyz"), axes, min_size=1))
def test_sizes_follow_from_shapes(tensors: dict[str, Axis]) -> None:
    every = {name: (axis,) for name, axis in tensors.items()}
    own = UnitGraph({**every, **{space: (Axis.of(space),) for space in SIZES}}, tuple(SIZES))
    shapes = {name: own.shape(name, SIZES) for name in own.axes}
    assert own.sizes(shapes) == SIZES
