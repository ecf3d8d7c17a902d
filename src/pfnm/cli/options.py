"""Options about networks that several commands have, and how what stands behind them is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from pfnm.cli.console import MOST_THREADS
from pfnm.conversion import Ends, as_sites
from pfnm.errors import PFNMError
from pfnm.fusing.sites import Sites
from pfnm.networks.activations import ACTIVATIONS
from pfnm.networks.outputs import HEADS

KNOWN, RESULT = "What is known of the sites", "The result"

ActivationOption = Annotated[
    str | None,
    typer.Option(
        help=f"For files that do not state theirs (default relu): {', '.join(ACTIVATIONS)}.",
        rich_help_panel=KNOWN,
    ),
]
HeadOption = Annotated[
    str | None,
    typer.Option(
        help=f"What the outputs are, where a file does not say: {', '.join(HEADS)}.",
        rich_help_panel=KNOWN,
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
FilesArgument = Annotated[
    list[str],
    typer.Argument(help="Files of trained networks, two or more; or folders and patterns of such."),
]
CountsOption = Annotated[
    Path | None,
    typer.Option(
        help="JSON: site name to list of examples per class; or CSV, a row a site. Or the word "
        "estimated: their shares, from the networks' answers.",
        rich_help_panel=KNOWN,
    ),
]
SiteWeightsOption = Annotated[
    Path | None,
    typer.Option(help="JSON: site name to how much the site counts.", rich_help_panel=KNOWN),
]
SiteLabelsOption = Annotated[
    Path | None,
    typer.Option(
        help="JSON: the outputs' labels, one list for all, or site name to list.",
        rich_help_panel=KNOWN,
    ),
]
InputsOption = Annotated[
    str | None,
    typer.Option(
        help="Of what kind the inputs are: pictures:3x32x32, signals:12x1000, tokens:96 or table "
        "(default: what the sites seem to know).",
        rich_help_panel=KNOWN,
    ),
]
InputRangeOption = Annotated[
    str | None,
    typer.Option(
        help="Between which values the inputs lie: LOW,HIGH (default: 0,1; or -3,3 where the sites "
        "seem to know standardised ones).",
        rich_help_panel=KNOWN,
    ),
]
InputLikeOption = Annotated[
    Path | None,
    typer.Option(
        help="A few real inputs, without labels, for the made-up ones to imitate (.csv, "
        ".parquet, .npz).",
        rich_help_panel=KNOWN,
    ),
]

ThreadsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MOST_THREADS,
        help="Threads that work at one product (default: one, for large ones of polish two).",
        rich_help_panel=RESULT,
    ),
]


def gathered(
    arguments: Sequence[str | Path],
    class_counts: Path | None,
    site_weights: Path | None,
    labels: Path | None,
    activation: str | None,
    head: str | None,
    inputs: str | None,
    input_range: str | None,
    input_like: Path | None,
    *,
    label: str | None = None,
    model: tuple[Any, Any] = (None, None),
) -> Sites:
    """The sites of the files, and all that the options tell of them.

    label: the column of --input-like that is no input. model: a module of the architecture whose
    weights the files hold, and example inputs, where they hold no perceptrons.
    """
    from pfnm.formats import load, site_names
    from pfnm.formats.data import read_inputs
    from pfnm.formats.folders import expanded
    from pfnm.formats.tables import read_site_weights

    ends = parsed_range(input_range)
    files = expanded(arguments)
    names = site_names(files)
    like = None
    if input_like is not None and model[0] is not None:
        like, _ = read_inputs(input_like, label=label)
    elif input_like is not None:
        first = load(files[0])
        like, _ = read_inputs(
            input_like, label=label, features=first.features, inputs=first.numbers
        )
    return as_sites(
        files,
        class_counts=class_counts,
        site_weights=None if site_weights is None else read_site_weights(site_weights, names),
        labels=read_site_labels(labels, files),
        activation=activation,
        head=head,
        inputs=inputs,
        input_range=ends,
        input_like=like,
        model=model[0],
        example_inputs=model[1],
    )


def parsed_range(text: str | None) -> Ends | None:
    """The inputs' range from LOW,HIGH."""
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise PFNMError(
            f"--input-range is {text!r}, expected both ends in one word, with a comma: "
            "--input-range -3,3"
        ) from None
    return low, high


def read_site_labels(path: Path | None, files: Sequence[Path]) -> Any:
    """The sites' labels from their file, if there is one."""
    from pfnm.formats import site_names
    from pfnm.formats.tables import read_labels

    return None if path is None else read_labels(path, site_names(files))
