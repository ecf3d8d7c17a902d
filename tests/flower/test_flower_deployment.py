"""The example as a real deployment: TLS and keys on the loopback, programs killed and restarted."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from pfnm.formats import load
from pfnm.formats.data import read_examples
from pfnm.lab.checkpoints import StateNote

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-hospital"
sys.path.insert(0, str(EXAMPLE))

from deploy import HOSPITALS, HOST, Deployment, make_node_key  # noqa: E402
from hospital.data import HELD_BACK  # noqa: E402

SECONDS = 600.0  # for anything that takes seconds: the machine may be busy

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with Deployment(tmp_path) as deployment:
        yield deployment
    assert_nothing_is_left(tmp_path)


def assert_nothing_is_left(folder: Path) -> None:
    """No process has this folder in its environment, as all that Flower starts here have."""
    until(lambda: not left_of(folder), "everything to be stopped")


def left_of(folder: Path) -> list[str]:
    home, found = f"FLWR_HOME={folder}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if home in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:  # it ended meanwhile, or is another user's
            continue
    return found


def until(true: Callable[[], object], what: str, seconds: float = SECONDS) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def accuracy(deployment: Deployment, folder: str = "server") -> float:
    """Of the result, on what the hospitals held back."""
    network = load(deployment.folder / folder / "global.safetensors")
    right = []
    for path in deployment.data.values():
        inputs, labels = read_examples(path)
        answers = network.run(inputs[::HELD_BACK]).argmax(axis=1)
        right.append(answers == labels[::HELD_BACK])
    return float(np.concatenate(right).mean())


def state(deployment: Deployment) -> tuple[StateNote | None, dict[str, np.ndarray]]:
    """The server's checkpoint."""
    from msgspec.json import decode
    from safetensors import safe_open

    path = deployment.folder / "server" / "method-flower.safetensors"
    if not path.exists():
        return None, {}
    with safe_open(path, framework="numpy") as file:
        note = decode(file.metadata()["pfnm"], type=StateNote)
        return note, {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118


def rounds_done(deployment: Deployment) -> int:
    note, _ = state(deployment)
    return 0 if note is None else note.round


def test_three_hospitals_and_strangers(deployment: Deployment) -> None:
    """A whole run over TLS, once; an unknown key and a plaintext client get nowhere."""
    deployment.start()
    make_node_key(deployment.folder / "keys" / "stranger")
    deployment.start_supernode("stranger")
    with pytest.raises(OSError, match=r"(?i)disconnected|closed|reset"):  # TLS alone is spoken
        urllib.request.urlopen(f"http://{HOST}:{deployment.port}/health", timeout=SECONDS)
    run = deployment.run(rounds=1, epochs=5, evaluate=False, min_sites=3)
    assert run.wait(SECONDS) == 0, deployment.log_of("run")
    note, _ = state(deployment)
    assert note is not None
    assert sorted(note.assigned) == HOSPITALS
    assert accuracy(deployment) > 0.85
    assert_refused(deployment, "stranger")


def assert_refused(deployment: Deployment, stranger: str) -> None:
    until(lambda: deployment.processes[stranger].poll() is not None, f"{stranger} to be refused")
    assert deployment.processes[stranger].returncode != 0
    assert "Failed to initialize the connection" in deployment.log_of(stranger)
    assert "SuperNode ID" not in deployment.log_of(stranger)


@pytest.mark.long
def test_programs_killed_and_restarted_change_little(deployment: Deployment) -> None:
    """A SuperNode killed in round 2, the SuperLink in round 3: as good as without, nothing lost."""
    deployment.start()
    deployment.start_supernode("plain", plaintext=True)
    assert_refused(deployment, "plain")
    whole = deployment.run(rounds=3, folder=str(deployment.folder / "whole"))
    assert whole.wait(SECONDS) == 0, deployment.log_of("run")

    run = deployment.run(rounds=3)
    until(lambda: rounds_done(deployment) == 1, "round 1")
    wait_for_training(deployment, "north")
    deployment.kill("north")
    deployment.restart_supernode("north")
    until(lambda: rounds_done(deployment) == 2, "round 2")
    assert "round 2: north is left out" in deployment.log_of("run")
    wait_for_training(deployment, "south")
    deployment.kill("superlink")
    assert run.wait(SECONDS) != 0
    assert rounds_done(deployment) == 2
    deployment.start_superlink()
    again = deployment.run(rounds=3)
    until(lambda: "going on after round 2" in deployment.log_of("run"), "the run to go on")
    assert again.wait(SECONDS) == 0, deployment.log_of("run")

    note, tensors = state(deployment)
    assert note is not None
    assert note.round == 3
    for hospital in HOSPITALS:  # each has all its units, each another one
        units = tensors[f"assignment/hidden1/{hospital}"]
        assert len(set(units.tolist())) == 50
    assert abs(accuracy(deployment) - accuracy(deployment, "whole")) <= 0.01


@pytest.mark.long
def test_a_run_that_cannot_end_well_says_why_in_its_last_lines(tmp_path: Path) -> None:
    """All sites fail; then too few are there: no result, no traceback, and the log is whole."""
    with Deployment(tmp_path, ["north", "south"]) as deployment:
        deployment.start()
        for path in deployment.data.values():
            path.unlink()
        deployment.run(rounds=1).wait(SECONDS)
        log = deployment.log_of("run")
        assert "north is left out: error 2: " in log
        assert log.index("no round had enough sites") > log.index("nothing is combined: 0 sites")
        deployment.stop("south")
        deployment.run(rounds=1, connect_seconds=1).wait(SECONDS)
        assert "1 sites are connected after 1 seconds" in deployment.log_of("run")
        assert 'File "' not in log + deployment.log_of("run")


def wait_for_training(deployment: Deployment, hospital: str) -> None:
    """Until its next training begins."""
    before = deployment.log_of(hospital).count("Receiving: train")
    until(lambda: deployment.log_of(hospital).count("Receiving: train") > before, "a training")


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_script_stops_what_it_started(tmp_path: Path, number: int) -> None:
    command = [sys.executable, str(EXAMPLE / "deploy.py"), "--folder", str(tmp_path)]
    log = tmp_path / "logs" / "north.log"
    before = signal.signal(number, signal.SIG_DFL)  # a shell's background jobs ignore SIGINT
    script = subprocess.Popen(command, env=os.environ, stderr=subprocess.PIPE)
    signal.signal(number, before)
    with script:
        until(lambda: log.exists() and "SuperNode ID" in log.read_text(), "a SuperNode")
        script.send_signal(number)
        assert script.wait(SECONDS) == 130
    assert_nothing_is_left(tmp_path)


@pytest.mark.long
def test_the_example_runs_simulated(tmp_path: Path) -> None:
    with Deployment(tmp_path, simulated=True) as deployment:
        deployment.start()
        assert deployment.run(rounds=1).wait(SECONDS) == 0, deployment.log_of("run")
        assert accuracy(deployment) > 0.85
    assert_nothing_is_left(tmp_path)
