"""The fuzzer's short form, and what it found once."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
FOLDER = Path(__file__).parent
KEPT = sorted((FOLDER / "kept").iterdir())
SHORT, LONG = 120, 600  # seconds
NICENESS = 5


def fuzzer(*options: object) -> subprocess.CompletedProcess[str]:
    """The fuzzer in a process of its own, for it limits its memory."""
    return subprocess.run(
        [sys.executable, str(FOLDER / "fuzz_engine.py"), *map(str, options)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )


def test_what_was_found_once_is_mended() -> None:
    done = fuzzer("--replay", *KEPT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("nothing wrong") == len(KEPT)


def test_the_short_form(tmp_path: Path) -> None:
    """By one worker, with what other tests beside it leave of the processor."""
    options = ("--workers", 1, "--niceness", NICENESS, "--failures", tmp_path / "failures")
    done = fuzzer("--seconds", SHORT, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.search(r"^(\d+) cases from seed 0 on, 0 failed$", done.stdout, re.M)
    assert told is not None
    assert int(told[1]) > 0


@pytest.mark.long
def test_the_long_form(tmp_path: Path) -> None:
    done = fuzzer("--seconds", LONG, "--seed", 10**6, "--failures", tmp_path / "failures")
    assert done.returncode == 0, done.stdout + done.stderr
