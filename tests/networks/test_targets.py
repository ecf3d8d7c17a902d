"""Targets in whatever form people have them, and what they mean to a network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pfnm.errors import PFNMError
from pfnm.networks.network import Network
from pfnm.networks.outputs import with_head
from pfnm.networks.perceptron import mlp
from pfnm.networks.targets import are_classes, classes_of, plain


def network(outputs: int, **options: Any) -> Network:
    return mlp([np.ones((2, outputs))], name="north", **options)


@pytest.mark.parametrize("labels", [None, [0, 1, 2], ["0", "1", "2"], [0.0, 1.0, 2.0]])
@pytest.mark.parametrize(
    "targets",
    [
        np.array([2, 0, 1]),
        np.array([2.0, 0.0, 1.0]),
        np.array(["2", "0", "1"]),
        np.array(["2.0", " 0", "1."]),
        np.array([b"2", b"0", b"1"]),
        np.array([2, "0", 1.0], dtype=object),
        np.array([2, 0, 1], dtype=np.uint8),
    ],
    ids=lambda targets: str(targets.dtype),
)
def test_a_number_is_one_label_in_all_its_forms(labels: Any, targets: np.ndarray) -> None:
    found = classes_of(network(3, labels=labels), targets)
    assert (found.places.tolist(), found.note, found.unknown) == ([2, 0, 1], None, ())


@pytest.mark.parametrize("labels", [[False, True], ["false", "true"], ["False", "True"], [0, 1]])
@pytest.mark.parametrize("targets", [[True, False], ["TRUE", "false"], [1, 0], ["1", "0"]])
def test_true_is_one(labels: Any, targets: Any) -> None:
    assert classes_of(network(2, labels=labels), np.array(targets)).places.tolist() == [1, 0]


def test_a_network_that_tells_texts_from_numbers() -> None:
    found = classes_of(network(3, labels=[1, "1", "x"]), np.array(["1", 1, "x"], dtype=object))
    assert found.places.tolist() == [1, 0, 2]


@given(st.lists(st.integers(0, 4), min_size=1))
def test_labels_from_one_are_understood_only_where_they_can_be_nothing_else(
    labels: list[int],
) -> None:
    targets = np.array(labels)
    if 4 in labels and 0 not in labels:
        found = classes_of(network(4), targets)
        assert found.places.tolist() == (targets - 1).tolist()
        assert found.note == "labels 1 to 4 were taken as outputs 0 to 3"
        if set(labels) != {4}:  # stated labels are not read otherwise, only named
            stated = classes_of(network(4, labels=range(4)), targets)
            assert stated.places[targets < 4].tolist() == targets[targets < 4].tolist()
            assert "look one higher" in str(stated.note)
    elif set(labels) != {4}:
        found = classes_of(network(4), targets)
        assert found.places.tolist() == [-1 if label == 4 else label for label in labels]
        assert found.note is None


def test_labels_it_does_not_know_have_numbers_of_their_own() -> None:
    found = classes_of(network(2, labels=["a", "b"]), np.array(["z", "b", "c", "a", "c"]))
    assert found.places.tolist() == [-2, 1, -1, 0, -1]
    assert found.unknown == ("c", "z")
    assert found.known.tolist() == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("targets", "places", "note"),
    [
        ([0, 1, 1], [0, 1, 1], None),
        (["1", "0"], [1, 0], None),
        ([True, False], [1, 0], None),
        ([1, 1], [1, 1], None),
        ([1, 2], [0, 1], "1 is taken as no, 2 as yes"),
        ([-1.0, 1.0], [0, 1], "-1 is taken as no, 1 as yes"),
        ([[1, 0], [0, 1]], [0, 1], None),
    ],
)
def test_one_sigmoid_says_yes_or_no(targets: Any, places: list[int], note: str | None) -> None:
    found = classes_of(network(1, output="sigmoid"), np.array(targets))
    assert (found.places.tolist(), found.note) == (places, note)


def test_one_sigmoid_with_a_name() -> None:
    named = network(1, output="sigmoid", labels=["ill"])
    assert classes_of(named, np.array(["ill", "well"])).places.tolist() == [1, 0]
    for targets in (["ill", "well", "dead"], ["well", "dead"], [0, 1, 2], [0.5, 1]):
        with pytest.raises(PFNMError, match="north has one output that says yes or no"):
            classes_of(named, np.array(targets))


@pytest.mark.parametrize("targets", [[0, 1], [True, False], ["0", "1"], [1.0, 2.0], [-1, 1], "ab"])
def test_a_probability_or_a_value_is_not_guessed(targets: Any) -> None:
    array = np.array(list(targets))
    with pytest.raises(PFNMError, match=r"north has 1 output, .* --head sigmoid or --head values"):
        are_classes(network(1), array)
    assert are_classes(with_head(network(1), "sigmoid"), array)
    assert not are_classes(with_head(network(1), "values"), array)


def test_several_outputs_that_nobody_explained() -> None:
    assert are_classes(network(3), np.array([0.0, 2.0]))
    assert are_classes(network(3), np.array([[1, 0, 0], [0, 0, 1]]))
    assert not are_classes(network(3), np.array([0.5, 2.0]))
    assert not are_classes(network(3), np.array([[1.0, 2, 3]]))
    with pytest.raises(PFNMError, match="north has 3 outputs, not known whether a probability"):
        are_classes(network(3), np.array([[1, 0, 1], [0, 0, 0]]))
    assert not are_classes(network(1), np.array([3, 5, 7]))
    assert not are_classes(network(1), np.ones(3))


def test_texts_for_outputs_without_names() -> None:
    words = r"north has 3 outputs without names, the data 2 different labels \(cat, dog\).*--labels"
    with pytest.raises(PFNMError, match=words):
        classes_of(network(3), np.array(["dog", "cat", "dog"]))


def test_heads() -> None:
    plain_network = network(2)
    assert with_head(plain_network, None) is plain_network
    for head in ("sigmoid", "softmax", "values"):
        told = with_head(plain_network, head)
        assert told.output == head
        assert with_head(told, head) is told
    with pytest.raises(PFNMError, match="its output is 'softmax', the head given 'sigmoid'"):
        with_head(network(2, output="softmax"), "sigmoid")
    with pytest.raises(PFNMError, match="unknown head 'logits'; choose one of sigmoid, softmax"):
        with_head(plain_network, "logits")
    with pytest.raises(PFNMError, match="one output alone cannot be a softmax"):
        with_head(network(1), "softmax")


def test_plain_forms() -> None:
    given_forms = ["007", "x ", b"\xff", 2.5, "2.5", None, 10**30, "9" * 30, float("nan")]
    found = [plain(label) for label in given_forms]
    expected = ["007", "x", "\\xff", 2.5, "2.5", "None", 10**30, "9" * 30]
    assert found[:-1] == expected
    assert found[-1] != found[-1]
