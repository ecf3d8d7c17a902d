"""Options about networks that several commands have, and how what stands behind them is read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pfnm import api
from pfnm.core.errors import PFNMError
from pfnm.core.mlp import ACTIVATIONS, HEADS
from pfnm.core.network import Array

ActivationOption = Annotated[
    str | None,
    typer.Option(
        help=f"For files that do not state theirs (default relu): {', '.join(ACTIVATIONS)}."
    ),
]
LabelsOption = Annotated[
    Path | None,
    typer.Option(help="JSON: a list of the outputs' labels, for a file that does not state them."),
]
LabelOption = Annotated[
    str | None,
    typer.Option(
        help="The data's column (in .npz: array) of labels, by name or position; several targets "
        "with commas. Default: the one called y, label, target, class or outcome."
    ),
]
HeadOption = Annotated[
    str | None,
    typer.Option(help=f"What the outputs are, where a file does not say: {', '.join(HEADS)}."),
]
FilesArgument = Annotated[list[Path], typer.Argument(help="Two or more files of trained networks.")]
CountsOption = Annotated[
    Path | None,
    typer.Option(help="JSON: site name to list of examples per class; or CSV, a row a site."),
]
SiteWeightsOption = Annotated[
    Path | None, typer.Option(help="JSON: site name to how much the site counts.")
]
SiteLabelsOption = Annotated[
    Path | None,
    typer.Option(help="JSON: the outputs' labels, one list for all, or site name to list."),
]
InputRangeOption = Annotated[
    str | None,
    typer.Option(help="Between which values the networks' inputs lie: LOW,HIGH (default: 0,1)."),
]
InputLikeOption = Annotated[
    Path | None,
    typer.Option(help="A few real inputs (.npz, x), for the inputs made from the networks."),
]


def parsed_range(text: str | None, like: Array | None) -> api.Ends | None:
    """The inputs' range from LOW,HIGH, or from inputs to imitate."""
    if text is None:
        return None if like is None else (like.min(axis=0), like.max(axis=0))
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise PFNMError(f"--input-range is {text!r}, expected two numbers: LOW,HIGH") from None
    return low, high


def parsed_budget(text: str) -> float | int | None:
    """A factor (1.5, 2x), a number of units (300), or none."""
    word = text.strip().lower()
    if word == "none":
        return None
    try:
        return int(word) if word.isdigit() else float(word.removesuffix("x"))
    except ValueError:
        raise PFNMError(
            f"budget {text!r} is no factor (1.5 or 2x), number of units (300) or 'none'"
        ) from None


def read_weights(path: Path | None, files: list[Path]) -> list[float] | None:
    """The sites' weights from their file, if there is one."""
    from pfnm.formats import site_names
    from pfnm.formats.tables import read_site_weights

    return None if path is None else read_site_weights(path, site_names(files))


def read_site_labels(path: Path | None, files: list[Path]) -> Any:
    """The sites' labels from their file, if there is one."""
    from pfnm.formats import site_names
    from pfnm.formats.tables import read_labels

    return None if path is None else read_labels(path, site_names(files))
