"""What is published: it builds, describes itself, and holds the package and nothing else."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
SOURCES = ("src", "pyproject.toml", "README.md", "LICENSE")
PACKAGE = ("pfnm/", "pfnm_command.py", "pfnm-")  # the last is what the wheel says of itself
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source archive."""
    tree, built = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("built")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("*.egg-info"))
        else:
            shutil.copy(ROOT / name, tree)
    run("build", "--no-isolation", "--outdir", built, tree)
    return built


def run(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"pfnm-{VERSION}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if not name.startswith(PACKAGE)] == []
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    definitions = {name for name in names if name.startswith("pfnm/experiments/definitions/")}
    assert modules <= set(names)
    assert "pfnm/py.typed" in names
    assert definitions


def test_the_archives_describe_themselves(built: Path) -> None:
    assert run("twine", "check", "--strict", *built.iterdir()).count("PASSED") == 2


def test_one_version_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == VERSION
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert f"## {VERSION}" in changes or "## Unreleased" in changes
