"""Commands that look at files of networks: inspect, evaluate; and the demo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from pfnm import formats
from pfnm.cli.console import LARGEST_SEED, JsonOption, app, out, print_json, progress
from pfnm.cli.options import (
    ActivationOption,
    HeadOption,
    LabelOption,
    LabelsOption,
    SiteLabelsOption,
    read_site_labels,
)
from pfnm.errors import PFNMError
from pfnm.measures import Measures
from pfnm.networks.graph import OUTPUT
from pfnm.networks.network import Network

if TYPE_CHECKING:
    from pfnm.formats.data import Examples

FEW = 6  # inputs whose names and scaling are shown


@app.command(epilog="Example: pfnm inspect global.pt")
def inspect(
    file: Annotated[Path, typer.Argument(help="A file of a network.")],
    activation: ActivationOption = None,
    labels: LabelsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what is in a network file: layers, labels, and where a fused network came from."""
    network = load_labelled(file, activation, labels)
    if as_json:
        scaling = network.scaling
        summary = {
            "file": str(file),
            "inputs": network.numbers,
            "outputs": network.sizes[OUTPUT],
            "widths": network.widths,
            "parameters": network.parameters,
            "dtype": str(network.dtype),
            "activation": network.activation,
            "activation_told": network.activation_told,
            "output": network.output,
            "labels": network.labels,
            "features": network.features,
            "scaling": scaling and {name: list(map(float, v)) for name, v in vars(scaling).items()},
            "metadata": dict(network.metadata),
        }
        print_json(summary)
        return
    out.print(parts_of(network, str(file)))
    if network.activation is None:
        out.print(
            "No multilayer perceptron: it is traced, and fused as any other file "
            f"(pfnm fuse {file.name} ..., or in Python pfnm.fuse([{file.name!r}, ...]); "
            "docs/modules.md)"
        )
    unsaid = "" if network.activation_told else " (not stated; --activation tells)"
    activation = "" if network.activation is None else f", activation {network.activation}{unsaid}"
    out.print(f"{network.parameters:,} parameters, {network.dtype}{activation}")
    out.print(f"output: {output_told(network)}")
    if network.labels is not None:
        out.print("labels: " + ", ".join(map(str, network.labels)))
    if network.features is not None:
        out.print("inputs: " + first_few(network.features))
    if network.scaling is not None:
        centre, scale = (
            first_few([f"{value:.4g}" for value in values])
            for values in (network.scaling.centre, network.scaling.scale)
        )
        out.print(f"inputs are scaled: centre {centre}; scale {scale}")
    sites = network.metadata.get("sites")
    if sites:
        out.print("fused from " + ", ".join(site["name"] for site in sites))


def parts_of(network: Network, title: str) -> Table:
    """The layers of a perceptron; of any other network its groups of units."""
    from pfnm.networks.perceptron import Perceptron, layers

    if isinstance(network.program, Perceptron):
        table = Table("layer", "inputs", "units", "weight", "bias", title=title)
        for number, layer in enumerate(layers(network), start=1):
            inputs, units = map(str, layer.weight.shape)
            table.add_row(str(number), inputs, units, layer.weight_name, layer.bias_name or "")
        return table
    graph = network.graph
    table = Table("group", "units", "tensors", "", title=title)
    for group in graph.groups:
        within = f"within {graph.inner[group]}" if group in graph.inner else ""
        rigid = f"not wider than at the sites: {graph.rigid[group]}" if group in graph.rigid else ""
        notes = "; ".join(filter(None, (within, rigid)))
        tensors = str(len(graph.tensors_of(group)))
        table.add_row(group, str(network.sizes[group]), tensors, notes)
    return table


def output_told(network: Network) -> str:
    """What the network's outputs are, in words."""
    count = network.sizes[OUTPUT]
    if count == 1:
        return {
            "sigmoid": "one probability, of yes (sigmoid)",
            "softmax": "one class",
            "values": "one value (a regression)",
            "identity": "one output, not known whether a probability or a value; --head tells",
        }[network.output]
    return {
        "sigmoid": f"{count} probabilities of their own (sigmoid)",
        "softmax": f"{count} classes that exclude each other (softmax)",
        "values": f"{count} values (a regression)",
        "identity": f"{count} outputs, taken for classes that exclude each other; --head tells "
        "otherwise",
    }[network.output]


def first_few(texts: Sequence[str]) -> str:
    """The first of many texts, and how many there are."""
    return ", ".join(texts[:FEW]) + (f", ... ({len(texts)})" if len(texts) > FEW else "")


@app.command(
    epilog="Example: pfnm evaluate site_a.pt site_b.pt global.pt --data test.csv --label outcome"
)
def evaluate(
    files: Annotated[list[Path], typer.Argument(help="One or more files of networks.")],
    data: Annotated[
        Path, typer.Option(help="Inputs with labels or targets: .csv, .parquet, or .npz (x, y).")
    ],
    label: LabelOption = None,
    labels: SiteLabelsOption = None,
    head: HeadOption = None,
    activation: ActivationOption = None,
    per_class: Annotated[
        bool, typer.Option("--per-class", help="Precision, recall, F1 and AUROC of each class too.")
    ] = False,
    confusion: Annotated[
        bool, typer.Option("--confusion", help="Which classes were taken for which too.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure networks on labelled data: accuracy and more, or for a regression R2 and errors."""
    from pfnm.evaluate import evaluate as measure
    from pfnm.formats import site_names
    from pfnm.formats.data import labels_in, read_data
    from pfnm.formats.folders import expanded

    files = expanded(files)
    networks = load_all(files, activation, labels, head)
    listed = [network for network in networks if network.features is not None]

    @cache  # most networks have the same inputs
    def examples(features: tuple[str, ...] | None, inputs: int) -> Examples:
        found = read_data(data, label=label, features=features, inputs=inputs)
        other = next((own for own in listed if own.features != listed[0].features), None)
        if found.features is None and other is not None:
            raise PFNMError(
                f"{data}: its columns have no names, and {listed[0].name} and {other.name} list "
                "theirs in different orders; give data with names, or measure them apart"
            )
        return found

    results: dict[str, Measures] = {}
    for name, network in zip(site_names(files), networks, strict=True):
        found = examples(network.features, network.numbers)
        result = measure(
            network,
            found.inputs,
            labels_in(found, data),
            per_class=per_class,
            confusion=confusion,
        )
        if found.features is None and network.features is not None:
            unnamed = "the data name no columns, which were taken in the network's own order"
            result["note"] = "; ".join(filter(None, (result.get("note"), unnamed)))
        results[name] = result
    if as_json:
        told = [
            {"file": str(path), "name": name, "data": str(data), **result}
            for path, (name, result) in zip(files, results.items(), strict=True)
        ]
        print_json(told if len(told) > 1 else told[0])
        return
    show_measures(results, str(files[0]), data)


def load_all(
    files: list[Path], activation: str | None, labels: Path | None, head: str | None
) -> list[Network]:
    """The networks of files that are to be measured on the same data, named as the files."""
    from pfnm.networks.outputs import with_head

    own = read_site_labels(labels, files) or [None] * len(files)
    networks = [
        with_head(formats.load(path, activation=activation, labels=mine, name=str(path)), head)
        for path, mine in zip(files, own, strict=True)
    ]
    unnamed = [network for network in networks if network.features is None]
    for network in unnamed:
        if network.numbers != unnamed[0].numbers:
            raise PFNMError(
                f"{network.name} takes {network.numbers} inputs, {unnamed[0].name} takes "
                f"{unnamed[0].numbers}; measure them apart, each on data of its own"
            )
    return networks


def show_measures(results: Mapping[str, Measures], file: str, data: Path) -> None:
    """The measures as tables, and below them what was taken for granted."""
    from pfnm.report.measures import (
        classes_table,
        confusion_table,
        in_words,
        one_table,
        wide_table,
    )

    first, *others = results.values()
    if others:
        out.print(f"{data}, {first['examples']:,} examples")
        out.print(wide_table(results))
    else:
        out.print(f"{file} on {data}")
        out.print(one_table(first))
    for name, result in results.items():
        for part, table in (("classes", classes_table), ("confusion", confusion_table)):
            if part in result:
                out.print(f"{name}: {in_words(part)}")
                out.print(table(result[part]))
    notes = {name: result["note"] for name, result in results.items() if "note" in result}
    if len(set(notes.values())) == 1 and len(notes) == len(results):
        notes = {"note": next(iter(notes.values()))}
    for name, note in notes.items():
        out.print(f"{name}: {note}")


def load_labelled(file: Path, activation: str | None, labels: Path | None) -> Network:
    """The network of a file, with the labels of a file beside it where there is one."""
    from pfnm.formats.tables import read_labels

    own = None if labels is None else read_labels(labels, [file.stem])[0]
    return formats.load(file, activation=activation, labels=own)


@app.command(epilog="Example: pfnm demo --folder digits")
def demo(
    folder: Annotated[Path, typer.Option(help="Where the site files and the result go.")] = Path(
        "pfnm-demo"
    ),
    seed: Annotated[
        int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the split and the training.")
    ] = 0,
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
    out.print(f"  {result.command}", soft_wrap=True)
    if result.report is None:
        out.print("To see it in a browser: pip install 'pfnm[report]', then the demo again")
    else:
        out.print("To see which site gave which unit, open this in a browser:")
        out.print(f"  {result.report}", soft_wrap=True)
