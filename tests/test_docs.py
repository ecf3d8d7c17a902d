"""Every command and snippet of README and the docs runs, and prints what the page shows.

Of a page all `sh` and `python` blocks run, in order, in a folder with the examples and the demo's
files, the studies and the rows they made; the `text` block that follows one is what it prints,
numbers aside. A comment before a block says where it is otherwise: `<!-- long: why -->` for
`pytest -m long`, or `<!-- run by tests/NAME.py -->`.
"""

import contextlib
import glob
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from browsing import PATIENCE, browser
from doc_blocks import BLOCK, ROOT, blocks, command_lines

import pfnm
from pfnm import demo
from pfnm.cli import main
from pfnm.experiments.rows import means, read_rows
from pfnm.networks.perceptron import mlp

RUN = ("sh", "python")
LONG, RUN_BY = "long: ", "run by "
COMMANDS = ("pfnm", "make", "pip", "python", "$", "from", "import", "def")
CALL = re.compile(r"\bpfnm\.\w+\(")
BIN = ".venv/bin/"  # where the Makefile has everything
MOST_LINES = 120  # of README: a page
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pages() -> Iterator[Path]:
    """Those of the site, as its navigation has them."""

    def names(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        else:
            for value in entry.values() if isinstance(entry, dict) else entry:
                yield from names(value)

    for name in names(yaml.safe_load((ROOT / "docs" / "mkdocs.yml").read_text())["nav"]):
        if name == "index.md":
            yield ROOT / "README.md"
        else:
            yield ROOT / name if (ROOT / name).exists() else ROOT / "docs" / name


PAGES = list(pages())


def plain(text: str) -> str:
    """A line without its numbers, frames and surplus spaces."""
    return " ".join(re.sub(r"[\d.,]+", "#", re.sub(r"[^\x00-\x7f]", " ", text)).split())


def run_command(line: str, place: Path) -> str:
    """Runs one line of a shell block in this folder; what it prints."""
    words = shlex.split(line, comments=True)
    if words[0] == "pfnm":
        arguments = [name for word in words[1:] for name in (sorted(glob.glob(word)) or [word])]
        printed = io.StringIO()
        sys.argv = ["pfnm", *arguments]
        with contextlib.redirect_stdout(printed), pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code, f"{line}\n{printed.getvalue()}"
        return printed.getvalue()
    if words[0] == "pip":
        extras = re.findall(r"\[([\w,]+)\]", line)
        known = PROJECT["project"]["optional-dependencies"]
        assert {name for names in extras for name in names.split(",")} <= set(known), line
        return ""
    if words[0] == ".":  # the environment of `make demo`: this one
        return ""
    if words[0] == "make":  # what it installs is here; of the rest what calls pfnm is run
        steps = run_shell(shlex.join(["make", "--dry-run", *words[1:]]), ROOT).splitlines()
        own = [step.removeprefix(BIN) for step in steps if step.startswith(f"{BIN}pfnm")]
        return "".join(run_command(step, place) for step in own)
    return run_shell(line, place)


def run_shell(line: str, place: Path) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euc", line],
        cwd=place,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    return done.stdout


def run_page(page: Path, place: Path, *, long: bool) -> None:
    namespace: dict[str, Any] = {"__name__": "page"}
    printed = ""
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        if block.language in RUN:
            printed = ""
            later = block.note.startswith(LONG) and not long
            if later or block.note.startswith(RUN_BY):
                continue
        if block.language == "sh":
            for line in command_lines(block.text):
                printed += run_command(line, place)
        elif block.language == "python":
            output = io.StringIO()
            code = compile("\n" * block.line + block.text, str(page), "exec")
            with contextlib.redirect_stdout(output):
                exec(code, namespace)
            printed = output.getvalue()
        elif block.language == "text" and printed:
            found = [plain(line) for line in printed.splitlines()]
            for line in filter(str.strip, block.text.splitlines()):
                wanted = plain(line)
                assert any(wanted in one for one in found), f"{where}: {line}\n{printed}"


@pytest.fixture(scope="session")
def demo_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "pfnm-demo"
    demo.run(folder)
    return folder


@pytest.fixture
def place(tmp_path: Path, demo_files: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a page runs: the examples, the demo's files, a folder of sites; studies and rows."""
    shutil.copytree(demo_files, tmp_path / "pfnm-demo")
    (tmp_path / "sites").mkdir()
    rng = np.random.default_rng(0)
    for j in range(4):
        network = mlp([rng.normal(size=(5, 4)), rng.normal(size=(4, 3))])
        pfnm.save(network, tmp_path / "sites" / f"site{j}.safetensors")
    for name in ("examples", "studies"):
        shutil.copytree(ROOT / name, tmp_path / name)
    figures = shutil.ignore_patterns("*.png", "*.svg")
    shutil.copytree(ROOT / "results", tmp_path / "results", ignore=figures)
    (tmp_path / "docs").mkdir()
    for example in (ROOT / "examples").glob("*.py"):
        shutil.copy(example, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "argv", sys.argv)
    return tmp_path


def pages_with(note: str) -> list[Path]:
    """Those that have a block to run, of which the comment begins so."""
    return [
        page
        for page in PAGES
        if any(own.language in RUN and own.note.startswith(note) for own in blocks(page))
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", pages_with(""), ids=lambda page: page.name)
def test_what_a_page_shows_runs(page: Path, place: Path) -> None:
    run_page(page, place, long=False)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", pages_with(LONG), ids=lambda page: page.name)
def test_what_takes_long_runs(page: Path, place: Path) -> None:
    run_page(page, place, long=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_no_command_escapes(page: Path) -> None:
    """Commands stand in blocks that run: here, or in the test that the comment names."""
    for block in blocks(page):
        if block.language not in RUN:
            first = block.text.split(maxsplit=1)[:1]
            assert not set(first) & set(COMMANDS), f"{page.name}:{block.line}"
        elif block.note:
            found = re.fullmatch(f"({RUN_BY}|{LONG})(.+)", block.note)
            assert found is not None, f"{page.name}:{block.line}"
            if found[1] == RUN_BY:
                assert page.name in (ROOT / found[2]).read_text(), f"{page.name}:{block.line}"
    for line in BLOCK.sub("", page.read_text()).splitlines():
        indented = re.match(r"(?: {4}|\t)(\S+)", line)
        if indented is not None:
            assert indented[1] not in COMMANDS, f"{page.name}: {line}"
            assert CALL.search(line) is None, f"{page.name}: {line}"


def test_readme_is_a_page() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MOST_LINES


def test_readme_table_follows_from_the_rows() -> None:
    """Its figures are those of results/depth: MNIST, three hidden layers."""
    rows = read_rows(ROOT / "results" / "depth")
    rows = [row for row in rows if row["data"] == "mnist" and row["depth"] == 3]
    readme = (ROOT / "README.md").read_text()
    for method, name in (
        ("ensemble", "uniform ensemble"),
        ("fedavg", "FedAvg"),
        ("pfnm", "PFNM as published"),
        ("joint", r"\*\*pfnm\*\*"),
    ):
        line = re.search(rf"^\| {name}.*$", readme, re.M)
        assert line is not None, name
        told = re.findall(r"\d+\.\d+", line[0])
        of_method = [{"method": method, "split": split} for split in ("even", "authors")]
        assert told[:2] == [f"{100 * means(rows, 'accuracy', **w)[0]:.1f}" for w in of_method]
        sizes = {f"{means(rows, 'parameters', **where)[0] / 1e6:.2f}" for where in of_method}
        assert set(told[2:]) == sizes


def test_the_reference_has_every_public_name() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    assert [name for name in pfnm.__all__ if f"::: pfnm.{name}\n" not in page] == []


def test_the_site_builds(tmp_path: Path) -> None:
    """Without a warning; nothing on it asks another machine for anything; opened from the folder,
    its search finds the page of a word."""
    built = subprocess.run(
        [sys.executable, ROOT / "docs" / "build.py", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    asked = re.compile(r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=[\"']?https?:")
    for path in (tmp_path / "site").rglob("*.html"):
        assert asked.search(path.read_text()) is None, path.name
    with browser() as chromium:
        for name in ("faq.html", "examples/flower-hospital/index.html"):
            page = chromium.new_page()
            said: list[str] = []
            page.on("console", lambda message, said=said: said.append(message.text))
            page.goto((tmp_path / "site" / name).as_uri())
            page.keyboard.press("/")
            page.keyboard.type("budget")
            page.get_by_text("Choosing a budget").last.wait_for(timeout=PATIENCE)
            assert said == []
