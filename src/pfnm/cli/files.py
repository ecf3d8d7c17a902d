"""Commands on one file of a network: inspect, evaluate; and the demo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

import pfnm
from pfnm.cli.console import JsonOption, app, out, progress
from pfnm.cli.options import ActivationOption, LabelsOption
from pfnm.core.network import INPUT, OUTPUT, Network


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(help="A file of a network.")],
    activation: ActivationOption = None,
    labels: LabelsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what is in a network file: layers, labels, and where a fused network came from."""
    from pfnm.core.mlp import layers

    network = load_labelled(file, activation, labels)
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
    labels: LabelsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a network on labelled data: accuracy, or for a regression R2 and squared error."""
    from pfnm.evaluate import evaluate as measure
    from pfnm.formats.tables import read_examples

    inputs, targets = read_examples(data)
    result = measure(load_labelled(file, activation, labels), inputs, targets)
    if as_json:
        print(json.dumps({"file": str(file), "data": str(data), **result}, indent=2))
        return
    table = Table("measure", "value", title=f"{file} on {data}")
    for name, value in result.items():
        shown = f"{value:.4f}" if isinstance(value, float) else str(value)
        table.add_row(name.replace("_", " "), "-" if value is None else shown)
    out.print(table)


def load_labelled(file: Path, activation: str | None, labels: Path | None) -> Network:
    """The network of a file, with the labels of a file beside it where there is one."""
    from pfnm.formats.tables import read_labels

    own = None if labels is None else read_labels(labels, [file.stem])[0]
    return pfnm.load(file, activation=activation, labels=own)


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
