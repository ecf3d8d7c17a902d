"""The fuzzer: damaged files and extreme options, run by the thousand.

    python tests/fuzz/fuzz_engine.py --seconds 600
    python tests/fuzz/fuzz_engine.py --cases 20000
    python tests/fuzz/fuzz_engine.py --replay fuzz-failures/seed-17

A case fails where it ends other than with status 0 or 2, takes too long or too much memory, says
more than a line about what is wrong, prints what commands a terminal, changes a file that was
there, or leaves a temporary or half a result behind.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import json
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fuzz_cases import Command, called, make_base, make_case

from pfnm.pages.text import COMMANDING

MOST_SECONDS = 20  # of the processor: others may be busy
MOST_WAITING = 180  # by the clock, for what only waits
MOST_BYTES = 2 * 10**9
DEAD_SECONDS = 240  # a worker in native code does not hear its alarm
RESULTS = ("out", "run", "results", "odd")  # what a command may have written, by their beginning
WORKERS = 2


class TooLongError(BaseException):
    """A case took too long; nobody catches this."""


def alarm(*_: object) -> None:
    """What the alarm clock does."""
    raise TooLongError


def digests(folder: Path) -> dict[str, str]:
    """All plain files of a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def peak() -> int:
    """The most memory in use since it was last asked for, in bytes."""
    status = Path("/proc/self/status").read_text()
    Path("/proc/self/clear_refs").write_text("5")
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


@contextlib.contextmanager
def captured(streams: dict[int, Path]) -> Iterator[None]:
    """Both streams into files, native libraries' words too."""
    kept = {number: os.dup(number) for number in streams}
    before = sys.stdout, sys.stderr
    files = [path.open("w", errors="surrogateescape") for path in streams.values()]
    for number, file in zip(streams, files, strict=True):
        os.dup2(file.fileno(), number)
    sys.stdout, sys.stderr = files
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for file in files:
            file.close()
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)


def problem(command: Command, folder: Path, scratch: Path) -> str | None:
    """Run a case; what is wrong with how it went, if anything."""
    before = digests(folder)
    streams = {1: scratch / "stdout", 2: scratch / "stderr"}
    gc.collect()
    peak()
    at_first = 4096 * int(Path("/proc/self/statm").read_text().split()[1])
    began = time.process_time()
    status: int | None = None
    found = None
    with captured(streams):
        signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
        signal.alarm(MOST_WAITING)
        try:
            status = called(command, folder)
        except TooLongError:
            found = f"over {MOST_SECONDS} s: " + place_of(sys.exc_info()[2])
        except BaseException as error:
            story = " ".join(str(error).split())[:120]
            found = f"{type(error).__name__} {place_of(error.__traceback__)}: {story}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
    used = peak() - at_first
    if found is None and used > MOST_BYTES:
        found = f"over {MOST_BYTES:,} bytes: {command[0]}"
    return (
        found
        or words_wrong(command, status, streams)
        or files_wrong(command, status, folder, before)
        or slow(began)
    )


def slow(began: float) -> str | None:
    """Whether it took too long though it did not hear the alarm."""
    return f"over {MOST_SECONDS} s" if time.process_time() - began > MOST_SECONDS + 5 else None


def place_of(trace: Any) -> str:
    """The last place of ours in a traceback."""
    ours = [f for f in traceback.extract_tb(trace) if "/pfnm/" in f.filename]
    if not ours:
        return "?"
    return f"{ours[-1].filename.split('/pfnm/')[-1]}:{ours[-1].lineno} {ours[-1].name}"


def words_wrong(command: Command, status: int | None, streams: dict[int, Path]) -> str | None:
    """What is wrong with a case's status and words."""
    out, err = (path.read_text(errors="surrogateescape") for path in streams.values())
    lines = err.splitlines()
    if status not in (0, 2):
        return f"status {status}: {err[-150:]}"
    if status == 2 and len(err.split("\n")) != 2:
        return f"{len(lines)} lines for status 2: {lines[:2]}"
    if status == 0 and not all(line.startswith("pfnm: warning: ") for line in lines):
        return f"more than warnings: {lines[:2]}"
    if any(COMMANDING.search(line) for line in (out + err).split("\n")):
        return "commands for the terminal in what is printed"
    if "--json" in command and status == 0:
        json.loads(out, parse_constant=lambda word: sys.exit(f"{word} in JSON"))
    return None


def files_wrong(
    command: Command, status: int | None, folder: Path, before: dict[str, str]
) -> str | None:
    """What is wrong with the files after a case."""
    after = digests(folder)
    left = [name for name in after if Path(name).name.startswith(".") and name.endswith(".tmp")]
    if left:
        return f"left behind: {left[0]}"
    changed = [name for name in before if after.get(name) != before[name]]
    if changed and not changed[0].startswith(RESULTS):
        return f"changed: {changed[0]}"
    if status == 2 and command[0] == "fuse" and set(after) != set(before):
        return f"written though it failed: {set(after) - set(before)}"
    return None


def ready() -> None:
    """Import what is heavy, and set the limits."""
    import matplotlib.figure
    import onnx
    import pyarrow.parquet
    import sklearn.datasets
    import skops.io
    import torch

    for module in (matplotlib.figure, onnx, pyarrow.parquet, sklearn.datasets, skops.io):
        assert module
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # so that collecting between the cases is quick
    in_use = 4096 * int(Path("/proc/self/statm").read_text().split()[0])
    most = in_use + 2 * MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for clock in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(clock, alarm)


def work(channel: Connection, base: Path, failures: Path) -> None:
    """A worker: seeds in, what is wrong out."""
    ready()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        while (seed := channel.recv()) is not None:
            folder = scratch / "case"
            command = make_case(base, folder, seed)
            try:
                found = problem(command, folder, scratch)
            except BaseException as error:
                found = f"the fuzzer itself: {error!r}"
            shutil.rmtree(folder, ignore_errors=True)
            if found is not None:
                keep(base, failures / f"seed-{seed}", seed, found)
            channel.send(found)


def keep(base: Path, folder: Path, seed: int, found: str) -> None:
    """Write a failure down, as it was before it ran."""
    shutil.rmtree(folder, ignore_errors=True)
    command = make_case(base, folder / "files", seed)
    (folder / "command.json").write_text(json.dumps(command))
    (folder / "found.txt").write_text(found + "\n", errors="backslashreplace")


def replay(folder: Path) -> str | None:
    """A kept failure run again, on a copy of its files; what is wrong, if anything."""
    with tempfile.TemporaryDirectory() as name:
        files = Path(name) / "case"
        subprocess.run(["cp", "-a", folder / "files", files], check=True)  # pipes and links too
        command = json.loads((folder / "command.json").read_text())
        return problem(command, files, Path(name))


class Worker:
    """A process, and the seed it is at."""

    def __init__(self, base: Path, failures: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self.channel, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, base, failures), daemon=True)
        self.process.start()
        theirs.close()
        self.seed: int | None = None
        self.since = time.monotonic()

    def give(self, seed: int) -> None:
        """The next case."""
        self.seed, self.since = seed, time.monotonic()
        self.channel.send(seed)

    def end(self) -> None:
        """No more."""
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


def fuzz(first: int, cases: int, seconds: float, failures: Path, workers: int) -> dict[int, str]:
    """Run cases from a first seed on, until there are so many or time is up; what failed."""
    base = failures / "base"
    shutil.rmtree(base, ignore_errors=True)
    make_base(base)
    until, seed, done = time.monotonic() + seconds, first, 0
    crew = [Worker(base, failures) for _ in range(workers)]
    failed: dict[int, str] = {}
    for worker in crew:
        worker.give(seed)
        seed += 1
    while any(worker.seed is not None for worker in crew):
        wait([worker.channel for worker in crew if worker.seed is not None], timeout=1)
        for place, worker in enumerate(crew):
            if worker.seed is None:
                continue
            found: str | None = None
            try:
                if worker.channel.poll():
                    found = worker.channel.recv()
                elif time.monotonic() - worker.since < DEAD_SECONDS:
                    continue
                else:
                    raise EOFError("too long in native code")
            except (EOFError, OSError) as error:
                found = f"the process died: {error}"
                keep(base, failures / f"seed-{worker.seed}", worker.seed, found)
                worker.end()
                crew[place] = Worker(base, failures)
            done += 1
            if found is not None:
                failed[worker.seed] = found
                print(f"seed {worker.seed}: {found}".encode("ascii", "backslashreplace").decode())
            more = seed < first + cases and time.monotonic() < until
            worker.seed = None
            if more:
                crew[place].give(seed)
                seed += 1
    for worker in crew:
        worker.end()
    print(f"{done} cases from seed {first} on, {len(failed)} failed")
    return failed


def main() -> None:
    """Parse, fuzz or replay."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--cases", type=int, help="so many, however long it takes")
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--niceness", type=int, default=0, help="how far others go before")
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"))
    parser.add_argument("--replay", type=Path, nargs="+", help="folders of failures")
    options = parser.parse_args()
    os.nice(options.niceness)
    if options.replay:
        ready()
        found = {folder: replay(folder) for folder in options.replay}
        for folder, said in found.items():
            print(f"{folder}: {said or 'nothing wrong'}")
        sys.exit(any(found.values()))
    cases, seconds = options.cases, options.seconds
    if cases is not None:
        seconds = float("inf")
    failures = options.failures.absolute()
    failed = fuzz(options.seed, cases or sys.maxsize, seconds, failures, options.workers)
    for said, number in Counter(text.split(": ")[0] for text in failed.values()).most_common():
        print(f"{number:6} {said}".encode("ascii", "backslashreplace").decode())
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
