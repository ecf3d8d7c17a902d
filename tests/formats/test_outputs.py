"""Nothing that is there is lost: names taken, links, devices, inputs, full disks, two at once."""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from conftest import Run
from processes import started

import pfnm
from pfnm.errors import PFNMError
from pfnm.formats.files import write_whole

OLD, NEW = b"mine", b"the new one"
COMMAND = "from pfnm.cli import main; main()"


def test_of_many_writers_at_once_one_has_the_name(tmp_path: Path) -> None:
    target = tmp_path / "out"

    def outcome(number: int) -> str | None:
        try:
            write_whole(target, str(number).encode(), force=False)
        except PFNMError:
            return None
        return str(number)

    with ThreadPoolExecutor(8) as pool:
        done = [text for text in pool.map(outcome, range(40)) if text is not None]
    assert done == [target.read_text()]
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_link)
    write_whole(tmp_path / "out", NEW, force=False)
    with pytest.raises(PFNMError, match="exists already"):
        write_whole(tmp_path / "out", OLD, force=False)
    assert (tmp_path / "out").read_bytes() == NEW
    assert len(list(tmp_path.iterdir())) == 1


def fifo(path: Path) -> None:
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.symlink_to(path)


def to_device(path: Path) -> None:
    path.symlink_to("/dev/null")


def identity(path: Path) -> tuple[int, ...]:
    """What stays the same of something that is only looked at."""
    status = path.lstat()
    return status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns


@pytest.mark.parametrize("make", [fifo, loop, to_device, Path.mkdir])
@pytest.mark.parametrize("command", ["fuse", "frontier"])
def test_only_plain_files_are_replaced(
    make: Callable[[Path], None], command: str, run: Run, site_files: list[Path], tmp_path: Path
) -> None:
    target = tmp_path / {"fuse": "out.npz", "frontier": "out.png"}[command]
    make(target)
    before = identity(target)
    for option in ([], ["--force"]):
        status, text, err = run(command, *site_files, "-o", target, *option)
        assert (status, text, err.count("\n")) == (2, "", 1)
        assert "out" in err
    assert identity(target) == before
    with pytest.raises(PFNMError):
        write_whole(target, NEW)


def test_a_link_is_kept_and_what_it_points_to_replaced(
    run: Run, site_files: list[Path], tmp_path: Path
) -> None:
    link, place = tmp_path / "link.npz", tmp_path / "place"
    place.mkdir()
    link.symlink_to(place / "real.npz")
    status, _, err = run("fuse", *site_files, "-o", link)
    assert (status, list(place.iterdir())) == (2, [])  # it dangles, and is there all the same
    assert "exists already" in err
    for _ in range(2):  # it dangles, then it does not
        assert run("fuse", *site_files, "-o", link, "--force", "-q")[0] == 0
        assert link.is_symlink()
        assert pfnm.load(place / "real.npz").parameters > 0
    assert len(list(place.iterdir())) == 1


@pytest.mark.parametrize("through", ["itself", "a link", "a hard path"])
def test_an_input_is_never_the_output(
    through: str, run: Run, site_files: list[Path], tmp_path: Path
) -> None:
    target = site_files[0]
    if through == "a link":
        target = tmp_path / "link.safetensors"
        target.symlink_to(site_files[0])
    elif through == "a hard path":
        target = tmp_path / ".." / tmp_path.name / site_files[0].name
    before = site_files[0].read_bytes()
    status, _, err = run("fuse", *site_files, "-o", target, "--force")
    assert (status, err.count("\n")) == (2, 1)
    assert "one of the inputs" in err
    np.savez(tmp_path / "val.npz", x=np.ones((4, 6)), y=[0, 1, 2, 3])
    data = tmp_path / "val.npz"
    assert run("fuse", *site_files, "-o", data, "--calibrate", data, "--force")[0] == 2
    assert site_files[0].read_bytes() == before
    assert np.load(data)["y"].tolist() == [0, 1, 2, 3]


SMALL = 2000  # bytes: no file below is as small


@pytest.mark.parametrize("old", [None, OLD])
@pytest.mark.parametrize("command", ["fuse", "frontier"])
def test_a_full_disk_leaves_what_was_there(
    command: str, old: bytes | None, site_files: list[Path], tmp_path: Path
) -> None:
    target = tmp_path / {"fuse": "out.npz", "frontier": "out.png"}[command]
    if old is not None:
        target.write_bytes(old)
    before = sorted(tmp_path.iterdir())
    import_module("matplotlib.font_manager")  # its list of fonts, kept where there is room for it
    status, errors = started(command, *site_files, "-o", target, "--force", most=SMALL).ended()
    assert (status, errors.count("\n")) == (2, 1), errors
    assert "cannot be written (File too large)" in errors
    assert sorted(tmp_path.iterdir()) == before
    assert old is None or target.read_bytes() == old


def test_a_full_disk_leaves_no_half_picture_in_a_run(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    small = ("--sites", 2, "--hidden", 2, "--epochs", 1, "--methods", "ensemble", "--rounds", 1)
    assert run("simulate", *small, "-o", tmp_path / "run")[0] == 0
    picture = tmp_path / "run" / "split.png"
    picture.unlink()
    status, errors = started("simulate", "--resume", tmp_path / "run", most=SMALL).ended()
    assert (status, errors.count("\n")) == (2, 1), errors
    assert "split.png: cannot be written" in errors
    assert not picture.exists()
    assert not list(tmp_path.rglob(".*.tmp"))


# Both have found the name free and written all they have to write before either takes the name.
WAITING = """
import os, sys
from pfnm.cli import main
def waiting(file):
    print("ready", flush=True)
    sys.stdin.readline()
os.fsync = waiting
main()
"""


def test_of_two_fuses_to_one_output_the_later_is_told(
    site_files: list[Path], tmp_path: Path
) -> None:
    target = tmp_path / "out.npz"
    options = [*site_files, "-o", target, "-q"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WAITING, "fuse", *map(str, options), "--seed", seed],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    first, second = processes
    assert first.communicate("go\n", timeout=60)[1] == ""
    written = target.read_bytes()
    said = second.communicate("go\n", timeout=60)[1]
    assert (first.returncode, second.returncode) == (0, 2)
    assert "exists already" in said
    assert target.read_bytes() == written
    assert not list(tmp_path.glob(".*.tmp"))
