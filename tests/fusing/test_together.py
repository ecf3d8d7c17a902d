"""Pieces of work at once: the same as one after the other, and stopped when nobody waits."""

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from pfnm import threads
from pfnm.errors import PFNMError
from pfnm.fusing.activity import activities
from pfnm.fusing.joint import ALL, ROUND, fuse_joint, joint_states, pass_over
from pfnm.fusing.sites import Sites, comparable
from pfnm.fusing.together import Steps, at_once
from pfnm.matching.prior import Prior
from pfnm.networks.perceptron import mlp


def some_sites(hidden: int = 2) -> Sites:
    rng = np.random.default_rng(0)
    shapes = ((20, 9), *[(9, 9)] * (hidden - 1), (9, 4))
    own = [[rng.normal(size=shape) for shape in shapes] for _ in range(3)]
    return comparable([mlp(weights, transposed=False) for weights in own])


@pytest.mark.parametrize("limits", [None, {"hidden1": 14, "hidden2": 12}])
def test_a_fusion_is_the_same_to_the_last_bit(limits: dict[str, int] | None) -> None:
    def fused(pieces: int) -> tuple[Sequence[object], Sequence[np.ndarray]]:
        rng = np.random.default_rng(1)
        found = fuse_joint(some_sites(), prior=Prior(), rng=rng, limits=limits, pieces=pieces)
        return found.candidates, list(found.network.tensors.values())

    (one, one_tensors), (two, two_tensors) = fused(1), fused(2)
    assert one == two
    for tensor, other in zip(one_tensors, two_tensors, strict=True):
        np.testing.assert_array_equal(tensor, other)


def test_as_many_orders_are_passed_over_as_are_drawn() -> None:
    for sites, effort in ((some_sites(), ALL), (some_sites(hidden=1), ALL), (some_sites(), ROUND)):
        prior, active = Prior(), activities(sites, np.ones((5, 20)))
        drawn, passed = np.random.default_rng(2), np.random.default_rng(2)
        list(joint_states(sites, prior, None, active, 1.0, None, drawn, None, effort))
        pass_over(sites, passed, effort)
        assert drawn.random() == passed.random()


def test_a_number_of_threads_that_is_told_is_for_products() -> None:
    with threads.limited():
        assert threads.pieces_at_once() == 2
    with threads.limited(2):
        assert threads.pieces_at_once() == 1


def test_results_come_in_order_and_each_when_it_is_asked_for() -> None:
    done: list[int] = []

    def piece(number: int) -> Callable[[], int]:
        def work() -> int:
            done.append(number)
            return number

        return work

    results = at_once((piece(number) for number in range(4)), 1, Steps())
    assert next(results) == 0
    assert done == [0]
    assert list(at_once([piece(number) for number in range(9)], 2, Steps())) == list(range(9))


@pytest.mark.parametrize("first", [True, False])
def test_what_fails_ends_the_others_at_their_next_step(first: bool) -> None:
    steps, begun, ended = Steps(), threading.Event(), threading.Event()

    def fails() -> None:
        begun.wait()
        raise PFNMError("one")

    def goes_on() -> None:
        try:
            while True:
                begun.set()
                steps()
        finally:
            ended.set()

    with pytest.raises(PFNMError, match="one"):
        list(at_once([fails, goes_on] if first else [goes_on, fails], 2, steps))
    assert ended.is_set()


def test_numbers_out_of_range_are_an_error_in_every_thread() -> None:
    def product() -> float:
        return float(np.full(1, 1e300) @ np.full(1, 1e300))

    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        list(at_once([product, product], 2, Steps()))


def test_steps_are_told_one_at_a_time() -> None:
    inside = 0

    def told() -> None:
        nonlocal inside
        inside += 1
        time.sleep(0)  # so that the other thread may come in between
        assert inside == 1
        inside -= 1

    steps = Steps(told)

    def many() -> None:
        for _ in range(2000):
            steps()

    list(at_once([many, many], 2, steps))
