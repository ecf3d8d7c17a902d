"""The examples in docstrings run."""

import doctest
import importlib
import pkgutil
from types import ModuleType

import pytest

import pfnm

HEAVY = ("pfnm.__main__",)  # which runs the command
NAMES = [
    module.name
    for module in pkgutil.walk_packages(pfnm.__path__, "pfnm.")
    if module.name not in HEAVY
]


def examples(module: ModuleType) -> list[doctest.DocTest]:
    found = doctest.DocTestFinder(exclude_empty=True).find(module, globs=vars(module).copy())
    return [test for test in found if test.examples]


@pytest.mark.parametrize("name", NAMES)
def test_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    for test in examples(module):
        assert doctest.DocTestRunner(verbose=False).run(test).failed == 0, test.name


def test_what_people_call_has_examples() -> None:
    with_examples = {
        test.name for name in NAMES for test in examples(importlib.import_module(name))
    }
    assert {"pfnm.api.fuse", "pfnm.fusing.kinds.Pictures", "pfnm.fusion.Fusion"} <= with_examples
