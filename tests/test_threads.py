"""How many threads work at a product: set within a call, restored after it."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from pfnm import threads
from pfnm.errors import PFNMError

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    """A user who has chosen three threads of each kind, whatever the machine has."""
    libraries = {library: library.num_threads for library in threads._libraries()}
    of_torch = torch.get_num_threads()
    for library in libraries:
        library.set_num_threads(3)
    torch.set_num_threads(3)
    yield
    for library, number in libraries.items():
        library.set_num_threads(number)
    torch.set_num_threads(of_torch)


def test_few_by_default_and_as_before_afterwards() -> None:
    assert threads.in_use() == {"blas": 3, "torch": 3}
    with threads.limited():
        assert threads.in_use() == {"blas": 1, "torch": 1}
    assert threads.in_use() == {"blas": 3, "torch": 3}


def test_a_number_holds_for_all_and_within() -> None:
    with threads.limited(2):
        assert threads.in_use() == {"blas": 2, "torch": 2}
        with threads.limited():
            assert threads.in_use() == {"blas": 2, "torch": 2}
        with threads.limited(1):
            assert threads.in_use() == {"blas": 1, "torch": 1}
        assert threads.in_use() == {"blas": 2, "torch": 2}


def test_large_products_are_shared_unless_a_number_is_told() -> None:
    with threads.limited():
        with threads.for_large_products():
            assert threads.in_use() == {"blas": 1, "torch": 2}
        assert threads.in_use() == {"blas": 1, "torch": 1}
    with threads.limited(1), threads.for_large_products():
        assert threads.in_use() == {"blas": 1, "torch": 1}


def test_who_has_chosen_one_keeps_it() -> None:
    torch.set_num_threads(1)
    with threads.limited(), threads.for_large_products():
        assert threads.in_use()["torch"] == 1
    with threads.for_large_products():
        assert threads.in_use()["torch"] == 1
    assert threads.in_use()["torch"] == 1


def test_restored_after_an_error() -> None:
    with pytest.raises(RuntimeError), threads.limited():
        raise RuntimeError
    assert threads.in_use() == {"blas": 3, "torch": 3}
    with pytest.raises(PFNMError, match="threads is 0, expected at least 1"), threads.limited(0):
        pass
    assert threads.in_use() == {"blas": 3, "torch": 3}


def test_two_calls_at_a_time_leave_what_was_before_the_first() -> None:
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with threads.limited():
            inside.set()
            leave.wait()

    other = threading.Thread(target=first)
    other.start()
    inside.wait()
    with threads.limited():
        leave.set()
        other.join()
        assert threads.in_use()["blas"] == 1
    assert threads.in_use()["blas"] == 3


def test_the_environment_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in threads.CHOSEN:
        monkeypatch.delenv(name, raising=False)
    with threads.waiting_briefly():
        assert os.environ["GOMP_SPINCOUNT"] == "1000"
    assert not set(threads.CHOSEN) & set(os.environ)
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    with threads.waiting_briefly():
        assert "GOMP_SPINCOUNT" not in os.environ
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"


def test_it_loads_no_torch() -> None:
    code = (
        "import sys\nfrom pfnm import threads\n"
        "with threads.limited(): print(threads.in_use(), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "{'blas': 1} False\n"
