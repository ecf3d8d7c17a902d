"""The commands and snippets of docs/deploy.md, as they stand there: a deployment of their own."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from doc_blocks import ROOT, Block, blocks, command_lines
from local_grid import LocalGrid

import pfnm
from pfnm.flower import client_app

EXAMPLE = ROOT / "examples" / "flower-hospital"
sys.path.insert(0, str(EXAMPLE))

from deploy import HOST, Deployment, free_port  # noqa: E402
from hospital.data import write_files  # noqa: E402

HERE = "run by tests/flower/test_deploy_page.py"
PAGE = ROOT / "docs" / "deploy.md"
SITES = ("north", "south")
SECONDS = 600.0  # for anything that takes seconds: the machine may be busy


def own_blocks(language: str) -> list[Block]:
    return [own for own in blocks(PAGE) if own.language == language]


def test_the_servers_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's network, as a module at the sites and at the server."""
    monkeypatch.chdir(tmp_path)
    files = write_files(tmp_path, ["north", "south", "west"])
    namespace: dict[str, object] = {"pfnm": pfnm}
    before, main = own_blocks("python")[:2]
    assert main.note == HERE
    exec(before.text, namespace)
    app = namespace["app"]
    assert isinstance(app, type(client_app()))
    nodes = {j: {"name": name, "data": str(path)} for j, (name, path) in enumerate(files.items())}
    namespace["grid"] = LocalGrid(app, nodes)
    exec(main.text.replace('{"epochs": 10}', '{"epochs": 1}'), namespace)
    make_network = namespace["make_network"]
    assert callable(make_network)
    model = pfnm.load("global.safetensors", model=make_network())
    assert isinstance(model, torch.nn.Module)
    with np.load(files["north"]) as data:
        assert model(torch.from_numpy(data["x"]).float()).shape == (len(data["y"]), 10)


class Told:
    """The page's lines with this machine's address and folders in them."""

    def __init__(self, deployment: Deployment, folder: Path) -> None:
        self.deployment, self.folder = deployment, folder
        self.data = write_files(folder, list(SITES))
        self.lines = [
            line for own in own_blocks("sh") if own.note == HERE for line in command_lines(own.text)
        ]

    def one(self, beginning: str, site: str = SITES[0]) -> list[str]:
        """The words of the line that begins so, for a site."""
        (line,) = (line for line in self.lines if line.startswith(beginning))
        return shlex.split(self.here(line, site))

    def here(self, text: str, site: str = SITES[0]) -> str:
        for old, new in {
            "/data/north-test.csv": self.data[site],
            "/data/north.csv": self.data[site],
            "north": site,
            "/path/to": self.folder,
            "pfnm.example.org:9092": f"localhost:{self.deployment.port}",
            "pfnm.example.org": "localhost",
            "--port 9092": f"--port {self.deployment.port}",
            "0.0.0.0": HOST,
        }.items():
            text = text.replace(old, str(new))
        return text


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    with Deployment(tmp_path, []) as deployment:
        folder = tmp_path / "page"
        folder.mkdir()
        monkeypatch.chdir(folder)
        yield Told(deployment, folder)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="Deployment looks into /proc")
def test_step_by_step(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = told.deployment
    for line in told.lines:
        if line.startswith(("openssl", "printf")):
            subprocess.run(["bash", "-euc", told.here(line)], check=True, capture_output=True)
    for site in SITES:
        subprocess.run(told.one("ssh-keygen", site), check=True)
    (config,) = own_blocks("toml")
    (deployment.folder / "flwr" / "config.toml").write_text(told.here(config.text))
    deployment.launch("superlink", told.one("flower-superlink"))
    deployment.wait_for_superlink(told.folder / "ca.pem")
    for site in SITES:
        done = deployment.launch("register", told.one("flwr supernode", site)).wait(SECONDS)
        assert done == 0, deployment.log_of("register")
        own = ["--host", HOST, "--port", str(free_port())]  # two on one machine
        deployment.launch(site, [*told.one("flower-supernode", site), *own])
        deployment.wait_for_supernode(site)
    settings = f'folder="{told.folder}" rounds=1 epochs=3 evaluate=false'
    monkeypatch.chdir(EXAMPLE)
    run = deployment.launch("run", [*told.one("flwr run"), "--run-config", settings])
    assert run.wait(SECONDS) == 0, deployment.log_of("run")
    assert pfnm.load(told.folder / "global.safetensors").sizes["input"] == 64
