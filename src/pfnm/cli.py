"""The command line: parse, call, print."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import pfnm
from pfnm.core.errors import PFNMError
from pfnm.core.fusion import Fusion
from pfnm.core.mlp import ACTIVATIONS
from pfnm.core.network import INPUT, OUTPUT
from pfnm.core.prior import RULES

BAD_INPUT = 2
INTERRUPTED = 130
TERMINATED = 143

app = typer.Typer(
    help="Networks trained apart, on data that cannot be pooled, become one compact network.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
errors = Console(stderr=True, highlight=False, soft_wrap=True)
out = Console(highlight=False)

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON, nothing else.")]
ActivationOption = Annotated[
    str | None,
    typer.Option(
        help=f"For files that do not state theirs (default relu): {', '.join(ACTIVATIONS)}."
    ),
]


@app.command()
def fuse(
    files: Annotated[list[Path], typer.Argument(help="Two or more files of trained networks.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the result goes.")],
    class_counts: Annotated[
        Path | None,
        typer.Option(help="JSON: site name to list of examples per class; or CSV, a row a site."),
    ] = None,
    site_weights: Annotated[
        Path | None, typer.Option(help="JSON: site name to how much the site counts.")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="JSON: the outputs' labels, one list for all, or site name to list."),
    ] = None,
    activation: ActivationOption = None,
    rules: Annotated[
        str, typer.Option(help=f"Whose scores and precisions: {', '.join(RULES)}.")
    ] = pfnm.Prior.rules,
    site_variance: Annotated[
        float, typer.Option(help="Variance of a site's weights about the global ones.")
    ] = pfnm.Prior.site_variance,  # type: ignore[assignment]  # the default is one number
    prior_variance: Annotated[
        float, typer.Option(help="Prior variance of global weights.")
    ] = pfnm.Prior.prior_variance,
    mass: Annotated[
        float, typer.Option(help="How readily new global units appear.")
    ] = pfnm.Prior.mass,
    prior_mean: Annotated[
        float, typer.Option(help="Prior mean of global weights.")
    ] = pfnm.Prior.prior_mean,
    sweeps: Annotated[
        int | None, typer.Option(min=0, help="At most so many sweeps (else until none changes).")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the visiting orders.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing output.")] = False,
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing.")] = False,
) -> None:
    """Fuse trained networks from files into one network. No data, no retraining."""
    from pfnm.formats import check_target, save, site_names
    from pfnm.formats.tables import read_labels, read_site_weights

    check_target(output, force=force)
    names = site_names(files)
    prior = pfnm.Prior(
        prior_variance=prior_variance,
        site_variance=site_variance,
        mass=mass,
        prior_mean=prior_mean,
        rules=rules,
    )
    with progress("fusing", hidden=quiet or as_json) as advance:
        fusion = pfnm.fuse(
            files,
            class_counts=class_counts,
            site_weights=None if site_weights is None else read_site_weights(site_weights, names),
            labels=None if labels is None else read_labels(labels, names),
            activation=activation,
            prior=prior,
            sweeps=sweeps,
            rng=seed,
            on_step=advance,
        )
    save(fusion.network, output, force=force)
    if as_json:
        print(json.dumps(fusion_summary(fusion, output), indent=2))
    elif not quiet:
        out.print(fusion_table(fusion))
        local = len(fusion.sites)
        out.print(
            f"{output}: {fusion.network.parameters:,} parameters from {local} networks"
            + ("" if fusion.settled else " (stopped before the matching settled)")
        )


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(help="A file of a network.")],
    activation: ActivationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what is in a network file: layers, labels, and where a fused network came from."""
    from pfnm.core.mlp import layers

    network = pfnm.load(file, activation=activation)
    if as_json:
        summary = {
            "file": str(file),
            "inputs": network.sizes[INPUT],
            "outputs": network.sizes[OUTPUT],
            "widths": network.widths,
            "parameters": network.parameters,
            "dtype": str(network.dtype),
            "activation": network.activation,
            "output": network.output,
            "labels": network.labels,
            "metadata": dict(network.metadata),
        }
        print(json.dumps(summary, indent=2))
        return
    table = Table("layer", "inputs", "units", "weight", "bias", title=str(file))
    for number, layer in enumerate(layers(network), start=1):
        inputs, units = layer.weight.shape
        table.add_row(
            str(number), str(inputs), str(units), layer.weight_name, layer.bias_name or ""
        )
    out.print(table)
    out.print(
        f"{network.parameters:,} parameters, {network.dtype}, activation {network.activation}, "
        f"output {network.output}"
    )
    if network.labels is not None:
        out.print("labels: " + ", ".join(map(str, network.labels)))
    sites = network.metadata.get("sites")
    if sites:
        out.print("fused from " + ", ".join(site["name"] for site in sites))


@app.command()
def evaluate(
    file: Annotated[Path, typer.Argument(help="A file of a network.")],
    data: Annotated[Path, typer.Option(help=".npz with inputs x and labels or targets y.")],
    activation: ActivationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a network on labelled data: accuracy, or for a regression R2 and squared error."""
    from pfnm.evaluate import evaluate as measure
    from pfnm.formats.tables import read_examples

    inputs, targets = read_examples(data)
    result = measure(pfnm.load(file, activation=activation), inputs, targets)
    if as_json:
        print(json.dumps({"file": str(file), "data": str(data), **result}, indent=2))
        return
    table = Table("measure", "value", title=f"{file} on {data}")
    for name, value in result.items():
        table.add_row(
            name.replace("_", " "), f"{value:.4f}" if isinstance(value, float) else str(value)
        )
    out.print(table)


@app.command()
def demo(
    folder: Annotated[Path, typer.Option(help="Where the site files and the result go.")] = Path(
        "pfnm-demo"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split and the training.")] = 0,
) -> None:
    """Ten sites with uneven shares of scikit-learn's digits: train, fuse from files, compare."""
    from pfnm.demo import run

    with progress("training ten sites", hidden=False) as advance:
        result = run(folder, seed=seed, on_step=advance)
    table = Table("", "test accuracy", "parameters", title="Digits, 10 sites, Dirichlet(0.5) split")
    for row in result.rows:
        table.add_row(row.name, f"{row.accuracy:.1%}", f"{row.parameters:,}")
    out.print(table)
    out.print("The same by hand:")
    print(f"  {result.command}")


def fusion_table(fusion: Fusion) -> Table:
    """Per layer: widths of the sites, global width, units shared by all, by some, by one."""
    table = Table("layer", "sites' widths", "global", "in all", "in some", "in one")
    for row in layer_rows(fusion):
        low, high = min(row["site_widths"]), max(row["site_widths"])
        widths = str(low) if low == high else f"{low} to {high}"
        cells = (row["width"], row["in_all"], row["in_some"], row["in_one"])
        table.add_row(row["layer"], widths, *map(str, cells))
    return table


def layer_rows(fusion: Fusion) -> list[dict[str, Any]]:
    """The same as data."""
    sites = len(fusion.sites)
    rows = []
    for group, popularity in fusion.popularity.items():
        in_all, in_one = int((popularity == sites).sum()), int((popularity == 1).sum())
        rows.append(
            {
                "layer": group,
                "site_widths": [assignment.size for assignment in fusion.assignments[group]],
                "width": popularity.size,
                "in_all": in_all,
                "in_some": popularity.size - in_all - in_one,
                "in_one": in_one,
            }
        )
    return rows


def fusion_summary(fusion: Fusion, output: Path) -> dict[str, Any]:
    """What `pfnm fuse --json` prints."""
    return {
        "output": str(output),
        "sites": list(fusion.sites),
        "parameters": fusion.network.parameters,
        "layers": layer_rows(fusion),
        "objective": fusion.objective,
        "settled": fusion.settled,
        "options": fusion.network.metadata["options"],
        "trace": {
            group: [vars(sweep) for sweep in sweeps] for group, sweeps in fusion.trace.items()
        },
    }


@contextmanager
def progress(title: str, *, hidden: bool) -> Iterator[Any]:
    """A line on the terminal that tells how far the work is; nothing where there is no terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}: {task.completed} steps"))
    with Progress(
        *columns,
        TimeElapsedColumn(),
        console=errors,
        transient=True,
        disable=hidden or not errors.is_terminal,
    ) as bar:
        task = bar.add_task(title, total=None)
        yield lambda: bar.advance(task)


def _terminate(signal_number: int, frame: FrameType | None) -> None:
    raise SystemExit(TERMINATED)


def main() -> None:
    """Run the command line: bad input is one line and exit status 2."""
    signal.signal(signal.SIGTERM, _terminate)
    # click's class, wherever this version of typer keeps it
    usage_error = cast(type[Exception], typer.BadParameter.__mro__[2])
    try:
        status = app(standalone_mode=False)
    except PFNMError as error:
        errors.print(f"pfnm: {error}", markup=False)
        status = BAD_INPUT
    except usage_error as error:
        message = " ".join(cast(Any, error).format_message().split())
        errors.print(f"pfnm: {message} (try --help)", markup=False)
        status = BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        errors.print("pfnm: interrupted; nothing was written")
        status = INTERRUPTED
    sys.exit(status)
