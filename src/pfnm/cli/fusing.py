"""Commands that fuse networks from files, and judge what came of it: fuse, check, frontier."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

import pfnm
from pfnm.api import doubts
from pfnm.cli.console import JsonOption, SeedOption, app, epochs, out, print_json, progress, warn
from pfnm.cli.models import ExampleOption, ModelArgsOption, ModelOption, made_model
from pfnm.cli.options import (
    RESULT,
    ActivationOption,
    CountsOption,
    FilesArgument,
    HeadOption,
    InputLikeOption,
    InputRangeOption,
    InputsOption,
    LabelOption,
    SiteLabelsOption,
    SiteWeightsOption,
    ThreadsOption,
    gathered,
    parsed_range,
    read_site_labels,
)
from pfnm.conversion import with_range_of
from pfnm.errors import PFNMError
from pfnm.formats.files import check_output
from pfnm.fusing.assumptions import assumed_told, assumptions
from pfnm.fusing.budget import parsed_or_auto
from pfnm.matching.prior import RULES
from pfnm.pages.page import check_page
from pfnm.report.text import (
    assumed_lines,
    frontier_table,
    fusion_summary,
    fusion_table,
    likeness_told,
    polish_told,
)
from pfnm.threads import limited
from pfnm.verdicts import verdict

PRIOR, POLISH = "The prior", "Polish, and choosing on data"
MOST_SWEEPS = 10_000  # a matching settles in some tens
REPLACE = "Replace an existing output; of a symbolic link what it points to."


@app.command(
    epilog="Example: pfnm fuse sites/ -o global.pt --class-counts counts.json --polish",
)
def fuse(
    files: FilesArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the result goes.", rich_help_panel=RESULT)
    ],
    class_counts: CountsOption = None,
    site_weights: SiteWeightsOption = None,
    labels: SiteLabelsOption = None,
    activation: ActivationOption = None,
    head: HeadOption = None,
    inputs: InputsOption = None,
    input_range: InputRangeOption = None,
    input_like: InputLikeOption = None,
    model: ModelOption = None,
    model_args: ModelArgsOption = None,
    example: ExampleOption = None,
    method: Annotated[
        str,
        typer.Option(
            help="joint (all layers together) or topdown (the paper's).", rich_help_panel=RESULT
        ),
    ] = "joint",
    budget: Annotated[
        str | None,
        typer.Option(
            help="How wide a layer may become: a factor of the widest site's (1.5, 2x), a number "
            "of units (300), none, or auto (by evidence and likeness, of several sizes). Default: "
            "2x; none for topdown.",
            rich_help_panel=RESULT,
        ),
    ] = None,
    max_params: Annotated[
        int | None,
        typer.Option(
            min=1, help="At most so many parameters, instead of a budget.", rich_help_panel=RESULT
        ),
    ] = None,
    seed: SeedOption = 0,
    threads: ThreadsOption = None,
    force: Annotated[
        bool,
        typer.Option("--force", help=REPLACE, rich_help_panel=RESULT),
    ] = False,
    report: Annotated[
        bool,
        typer.Option(
            "--report",
            help="Write a page that shows the fusion too, beside the output (.html).",
            rich_help_panel=RESULT,
        ),
    ] = False,
    as_json: JsonOption = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing.", rich_help_panel=RESULT)
    ] = False,
    polish: Annotated[
        bool,
        typer.Option(
            "--polish",
            help="Let the sites' networks teach the fused one; no data.",
            rich_help_panel=POLISH,
        ),
    ] = False,
    polish_seconds: Annotated[
        float | None,
        typer.Option(
            min=0, help="Be done with polishing after so many seconds.", rich_help_panel=POLISH
        ),
    ] = None,
    polish_data: Annotated[
        Path | None,
        typer.Option(
            help="Polish on real inputs too (.csv, .parquet, .npz): the sites say what they are, "
            "or their labels do.",
            rich_help_panel=POLISH,
        ),
    ] = None,
    probes: Annotated[
        bool,
        typer.Option(
            help="Whether to polish on made-up inputs, beside data.", rich_help_panel=POLISH
        ),
    ] = True,
    calibrate: Annotated[
        Path | None,
        typer.Option(
            help="Choose variances, mass and budget on labelled data (.csv, .parquet, .npz).",
            rich_help_panel=POLISH,
        ),
    ] = None,
    label: LabelOption = None,
    rules: Annotated[
        str | None,
        typer.Option(
            help=f"Whose scores and precisions: {', '.join(RULES)} (default: recommended).",
            rich_help_panel=PRIOR,
        ),
    ] = None,
    site_variance: Annotated[
        float | None,
        typer.Option(
            help="Variance of a site's weights about the global ones (default: fitted).",
            rich_help_panel=PRIOR,
        ),
    ] = None,
    prior_variance: Annotated[
        float | None,
        typer.Option(
            help="Prior variance of global weights (default: fitted).", rich_help_panel=PRIOR
        ),
    ] = None,
    mass: Annotated[
        float | None,
        typer.Option(
            help="How readily new global units appear (default: 1).", rich_help_panel=PRIOR
        ),
    ] = None,
    prior_mean: Annotated[
        float | None,
        typer.Option(
            help="Prior mean of global weights; with given variances only.", rich_help_panel=PRIOR
        ),
    ] = None,
    sweeps: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MOST_SWEEPS,
            help="Exactly so many sweeps, for topdown (else until settled).",
            rich_help_panel=PRIOR,
        ),
    ] = None,
) -> None:
    """Fuse trained networks from files into one network. No data, no retraining."""
    from pfnm.formats import format_of
    from pfnm.formats.data import read_examples, read_inputs
    from pfnm.formats.folders import expanded

    format_of(output)
    site_files = expanded(files)
    tables = (class_counts, site_weights, labels, input_like, polish_data, calibrate)
    read = [*site_files, *(table for table in tables if table is not None)]
    check_outputs(output, report, force, read)
    chosen_by_hand = {
        "--site-variance": site_variance,
        "--prior-variance": prior_variance,
        "--mass": mass,
        "--prior-mean": prior_mean,
        "--budget": budget,
        "--max-params": max_params,
        "--sweeps": sweeps,
    }
    refuse_ignored(
        chosen_by_hand, calibrate, polish, {
            "--polish-seconds": polish_seconds is not None,
            "--polish-data": polish_data is not None,
            "--no-probes": not probes,
        },
    )  # fmt: skip
    if not probes and polish_data is None:
        raise PFNMError("--no-probes needs --polish-data to polish on")
    if label is not None and polish_data is None and calibrate is None and input_like is None:
        raise PFNMError(
            "--label names a column of --polish-data, --calibrate or --input-like; give one of them"
        )
    sites = gathered(
        site_files, class_counts, site_weights, labels, activation, head, inputs, input_range,
        input_like, label=label, model=made_model(model, model_args, example),
    )  # fmt: skip
    features = sites.networks[0].features
    real: tuple[Any, Any] = (None, None)
    if polish_data is not None:
        real = read_inputs(polish_data, label=label, features=features)
    if polish:
        from pfnm.polishing import check_ready

        check_ready(sites, real[0])
        if real[0] is not None:  # so that fusing knows it too
            sites = with_range_of(sites, real[0])
    prior = given_prior(site_variance, prior_variance, mass, prior_mean, rules)
    settings: dict[str, Any] = {
        "prior": prior,
        "mass": mass if prior is None else None,
        "rules": rules if prior is None else None,
        "budget": "default" if budget is None else parsed_or_auto(budget),
    }
    calibration = None
    if calibrate is not None:
        from pfnm.frontier import calibrate as calibrated

        examples = read_examples(calibrate, label=label, features=features)
        with limited(threads), progress("calibrating", hidden=quiet or as_json) as advance:
            calibration = calibrated(
                sites, *examples, method=method, rules=rules, seed=seed, on_step=advance
            )
        settings |= {
            "spread": calibration.spread,
            "mass": calibration.mass,
            "budget": calibration.budget,
        }
    with limited(threads), progress("fusing", hidden=quiet or as_json) as advance:
        fusion = pfnm.fuse(
            sites,
            method=method,
            max_params=max_params,
            sweeps=sweeps,
            seed=seed,
            on_step=advance,
            **settings,
        )
    if polish:
        from pfnm.teaching import EPOCHS

        what = "likeness" if real[1] is None else "rightness on held-out labels"
        shown = epochs(f"polishing, {what}", EPOCHS, hidden=quiet or as_json)
        with limited(threads), shown as on_epoch:
            fusion = fusion.polish(
                *real, probes=probes, seconds=polish_seconds, seed=seed, on_epoch=on_epoch
            )
    page = write(fusion, output, report=report, force=force)
    if as_json:
        summary = fusion_summary(fusion, str(output))
        chosen = None if calibration is None else asdict(calibration)
        print_json({**summary, "calibration": chosen, "report": page and str(page)})
    elif not quiet:
        show(fusion, output, calibration, page)


def check_outputs(output: Path, report: bool, force: bool, read: list[Path]) -> None:
    """An error if what is fused cannot be written there, or its report beside it."""
    check_output(output, force=force, inputs=read)
    if report:
        check_page(output.with_suffix(".html"), force=force, inputs=read)


def write(fusion: pfnm.Fusion, output: Path, *, report: bool, force: bool) -> Path | None:
    """Write the fused network, and the report beside it where one is wanted: its path."""
    fusion.save(output, force=force)
    if not report:
        return None
    page = output.with_suffix(".html")
    fusion.report(page, force=force)
    return page


def show(fusion: pfnm.Fusion, output: Path, calibration: Any, page: Path | None) -> None:
    """Print what came of a fusion: widths, size, likeness, what was assumed; then warn."""
    out.print(fusion_table(fusion))
    unsettled = fusion.options["method"] == "topdown" and not fusion.settled
    out.print(
        f"{output}: {fusion.network.parameters:,} parameters from {len(fusion.sites.names)} "
        "networks" + (" (stopped before the matching settled)" if unsettled else "")
    )
    if fusion.agreement is not None:
        out.print(likeness_told(fusion.agreement, fusion.site_agreement))
    if fusion.polish_record is not None:
        out.print(polish_told(fusion))
    if calibration is not None:
        width = "no limit" if calibration.budget is None else f"budget {calibration.budget:g}x"
        out.print(
            f"calibrated: spread {calibration.spread:g}, mass {calibration.mass:g}, {width} "
            f"(accuracy {calibration.accuracy:.1%} on the data it was chosen on)"
        )
    for line in assumed_lines(fusion.assumed):
        out.print(line)
    if page is not None:
        out.print(f"{page}: the same to look at; open it in a browser")
    for text in fusion.warnings:
        warn(text)
    out.print(next_step(fusion, output))


def next_step(fusion: pfnm.Fusion, output: Path) -> str:
    """What one does with the file that was written."""
    if fusion.network.program.examples is not None:
        return f"next: pfnm.load({str(output)!r}, model=...) gives the module"
    return f"next: measure it where there are labelled data: pfnm evaluate {output} --data FILE"


def refuse_ignored(
    chosen_by_hand: dict[str, Any], calibrate: Path | None, polish: bool, of_polish: dict[str, bool]
) -> None:
    """An error for an option that would be ignored."""
    for option, told in of_polish.items():
        if told and not polish:
            raise PFNMError(f"{option} belongs to --polish; give that too, or leave it out")
    for option, value in chosen_by_hand.items():
        if value is not None and calibrate is not None:
            raise PFNMError(
                f"--calibrate chooses variances, mass and budget itself; leave {option} out"
            )


@app.command(epilog="Example: pfnm check global.pt site_a.pt site_b.pt")
def check(
    fused: Annotated[Path, typer.Argument(help="The file of a fused network.")],
    files: Annotated[list[str], typer.Argument(help="The files of the sites' networks.")],
    class_counts: CountsOption = None,
    site_weights: SiteWeightsOption = None,
    labels: SiteLabelsOption = None,
    activation: ActivationOption = None,
    head: HeadOption = None,
    inputs: InputsOption = None,
    input_range: InputRangeOption = None,
    input_like: InputLikeOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Say how like its sites together a fused network answers, on made-up inputs. No data."""
    from pfnm.formats import site_names
    from pfnm.formats.data import read_inputs
    from pfnm.formats.folders import expanded
    from pfnm.formats.tables import read_site_weights

    like = None
    if input_like is not None:
        network = pfnm.load(fused)
        like, _ = read_inputs(input_like, features=network.features, inputs=network.numbers)
    paths = expanded(files)
    result = pfnm.check(
        fused,
        paths,
        class_counts=class_counts,
        site_weights=None
        if site_weights is None
        else read_site_weights(site_weights, site_names(paths)),
        labels=read_site_labels(labels, paths),
        activation=activation,
        head=head,
        inputs=inputs,
        input_range=parsed_range(input_range),
        input_like=like,
        seed=seed,
    )
    warning = verdict(result.agreement, result.site_agreement)
    if as_json:
        told = {**vars(result), "assumed": assumed_told(result.assumed)}
        print_json({"file": str(fused), **told, "warning": warning})
        return
    out.print(f"{fused}: {likeness_told(result.agreement, None)}")
    out.print(f"the best single site, {result.best_site}: {result.site_agreement:.0%}")
    for line in assumed_lines(result.assumed):
        out.print(line)
    if warning is not None:
        warn(warning)


@app.command(epilog="Example: pfnm frontier sites/ --data val.csv --label outcome -o frontier.png")
def frontier(
    files: FilesArgument,
    data: Annotated[
        Path | None,
        typer.Option(help="Labelled data (.csv, .parquet, .npz), to measure accuracy."),
    ] = None,
    label: LabelOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A picture of it (.png or .svg).")
    ] = None,
    budgets: Annotated[
        str, typer.Option(help="Budgets to try, with commas.")
    ] = "1x,1.3x,2x,4x,none",
    class_counts: CountsOption = None,
    site_weights: SiteWeightsOption = None,
    labels: SiteLabelsOption = None,
    activation: ActivationOption = None,
    head: HeadOption = None,
    inputs: InputsOption = None,
    input_range: InputRangeOption = None,
    input_like: InputLikeOption = None,
    polish: Annotated[
        bool, typer.Option("--polish", help="Polish each fusion too, a row of its own.")
    ] = False,
    seed: SeedOption = 0,
    threads: ThreadsOption = None,
    force: Annotated[bool, typer.Option("--force", help=REPLACE)] = False,
    as_json: JsonOption = False,
) -> None:
    """Fuse at several budgets and show size against accuracy (or likeness, without data)."""
    from pfnm.formats.data import read_examples
    from pfnm.frontier import frontier as measure
    from pfnm.report.frontier import check_picture, draw_frontier

    if output is not None:
        check_picture(output, force=force)
    chosen = [parsed_or_auto(text) for text in budgets.split(",")]
    sites = gathered(
        files, class_counts, site_weights, labels, activation, head, inputs, input_range, input_like
    )
    examples = None
    if data is not None:
        examples = read_examples(data, label=label, features=sites.networks[0].features)
    with limited(threads), progress("fusing", hidden=as_json) as advance:
        points = measure(
            sites, budgets=chosen, examples=examples, polished=polish, seed=seed, on_step=advance
        )
    if output is not None:
        draw_frontier(points, output, force=force)
    assumed, doubtful = assumptions(sites), doubts(sites, seed)
    if as_json:
        told = {"assumed": assumed_told(assumed), "warnings": doubtful}
        print_json({"points": [vars(point) for point in points], **told})
        return
    out.print(frontier_table(points))
    if output is not None:
        out.print(str(output))
    for line in assumed_lines(assumed):
        out.print(line)
    for text in doubtful:
        warn(text)


def given_prior(
    site_variance: float | None,
    prior_variance: float | None,
    mass: float | None,
    prior_mean: float | None,
    rules: str | None,
) -> pfnm.Prior | None:
    """The prior with variances given on the command line, or None where it is to be fitted."""
    if site_variance is None and prior_variance is None:
        if prior_mean is not None:
            raise PFNMError("--prior-mean needs --site-variance or --prior-variance beside it")
        return None
    return pfnm.Prior(
        site_variance=_told(site_variance, pfnm.Prior.site_variance),
        prior_variance=_told(prior_variance, pfnm.Prior.prior_variance),
        mass=_told(mass, pfnm.Prior.mass),
        prior_mean=_told(prior_mean, pfnm.Prior.prior_mean),
        rules=_told(rules, pfnm.Prior.rules),
    )


def _told(value: Any, default: Any) -> Any:
    return default if value is None else value
