"""Build the docs: the pages of docs/ and of the repository's root as one site.

On the site README is the first page, and what lies beside docs/ lies beside its pages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
OF_ROOT = {
    "README.md": "index.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "CITATION.cff": "CITATION.cff",
    "examples": "examples",
}
FIGURES = "results/**/*.png"
SHIM = "https://unpkg.com/iframe-worker/shim"  # what pages would ask for to search in a folder
WORKER = "worker.js"  # ours, in its place
UNREAD = "griffe:"  # begins what is said of docstrings, which --strict does not count


def stage(pages: Path) -> None:
    """Everything the site shows, in one folder, with the links as they are there."""
    shutil.rmtree(pages, ignore_errors=True)
    unwanted = shutil.ignore_patterns("*.py", "*.yml", "__pycache__")
    shutil.copytree(ROOT / "docs", pages, ignore=unwanted)
    for path in ROOT.glob(FIGURES):
        place = pages / path.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    for name, place_name in OF_ROOT.items():
        source, place = ROOT / name, pages / place_name
        if source.is_dir():
            shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, place)
    for page in pages.rglob("*.md"):
        page.write_text(relinked(page.read_text(), of_root=page.parent == pages))


def relinked(text: str, *, of_root: bool) -> str:
    """A page with the links it has on the site; `of_root`: it lies at the root there."""
    text = re.sub(r"\]\(((?:\.\./)*)docs/", r"](\1", text)
    if of_root:
        text = text.replace("](../", "](").replace("](README.md", "](index.md")
    return text


def build(folder: Path) -> int:
    """Lay the pages out and build them into `folder`/site; a warning is an error."""
    stage(folder / "docs")
    shutil.copy(ROOT / "docs" / "mkdocs.yml", folder)
    built = subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build", "--clean", "--strict"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    print(built.stderr, end="", file=sys.stderr)
    if built.returncode or UNREAD in built.stderr:
        return 1
    site = folder / "site"
    for page in site.rglob("*.html"):
        worker = os.path.relpath(site / WORKER, page.parent)
        page.write_text(page.read_text().replace(SHIM, worker))
    print(f"The docs: {site / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()))
