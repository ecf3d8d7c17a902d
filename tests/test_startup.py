"""What the program loads before it has anything to compute."""

import subprocess
import sys

import pytest

LATER = ("scipy.linalg", "scipy.optimize", "scipy.special", "torch", "onnx", "sklearn")
PROGRAM = """
import sys
from pfnm_command import main
try:
    main()
finally:
    print(*(name for name in {later!r} if name in sys.modules), "end", file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["--help"], ["fuse", "--help"], ["no-such-command"], ["fuse", "no-such-file"]],
)
def test_what_needs_no_computing_loads_no_libraries_for_it(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(later=LATER), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.splitlines()[-1].split() == ["end"]
