"""The report of whatever a path leads to: a fused file, a run, an experiment."""

from __future__ import annotations

from pathlib import Path

from pfnm import formats
from pfnm.errors import PFNMError
from pfnm.experiments.runner import RECORD
from pfnm.formats.states import read_state
from pfnm.lab.records import RUN
from pfnm.networks.network import Network
from pfnm.pages.account import account
from pfnm.pages.fusion import fusion_page
from pfnm.pages.page import Page
from pfnm.report.experiment_page import experiment_page
from pfnm.report.run_page import run_page


def report_of(path: Path) -> Page:
    """The page of a file that pfnm fused, or of a folder of a run or an experiment."""
    if not path.is_dir():
        return file_page(path)
    if (path / RUN).is_file():
        return run_page(path)
    if (path / RECORD).is_file():
        return experiment_page(path)
    raise PFNMError(
        f"{path}: there is no run in it ({RUN}) and no experiment ({RECORD}); check the path"
    )


def file_page(path: Path) -> Page:
    """The page of a fused file, from the record of its making."""
    try:
        network: Network | None = formats.load(path)
    except PFNMError:  # tensors of another architecture, perhaps
        if formats.format_of(path).stored is None:
            raise
        network = None
    if network is not None:
        return fusion_page(
            account(network.metadata, str(path)), network, network.parameters, origin=path.name
        )
    stored = read_state(path)
    parameters = sum(tensor.size for tensor in stored.tensors.values())
    return fusion_page(account(stored.notes, str(path)), None, parameters, origin=path.name)
