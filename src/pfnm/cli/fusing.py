"""Commands that fuse networks from files, and judge what came of it: fuse, check, frontier."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

import pfnm
from pfnm import api
from pfnm.cli.console import JsonOption, SeedOption, app, epochs, errors, out, progress
from pfnm.cli.options import (
    ActivationOption,
    CountsOption,
    FilesArgument,
    InputLikeOption,
    InputRangeOption,
    SiteLabelsOption,
    SiteWeightsOption,
    parsed_budget,
    parsed_range,
    read_site_labels,
    read_weights,
)
from pfnm.core.errors import PFNMError
from pfnm.core.prior import RULES
from pfnm.report.text import (
    frontier_table,
    fusion_summary,
    fusion_table,
    fusion_verdict,
    polish_told,
    verdict,
)


@app.command()
def fuse(
    files: FilesArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the result goes.")],
    class_counts: CountsOption = None,
    site_weights: SiteWeightsOption = None,
    labels: SiteLabelsOption = None,
    activation: ActivationOption = None,
    method: Annotated[
        str, typer.Option(help="joint (all layers together) or topdown (the paper's).")
    ] = "joint",
    budget: Annotated[
        str | None,
        typer.Option(
            help="How wide a layer may become: a factor of the widest site's (1.5, 2x), a number "
            "of units (300), or none. Default: 2x; none for topdown."
        ),
    ] = None,
    max_params: Annotated[
        int | None, typer.Option(min=1, help="At most so many parameters, instead of a budget.")
    ] = None,
    rules: Annotated[
        str, typer.Option(help=f"Whose scores and precisions: {', '.join(RULES)}.")
    ] = pfnm.Prior.rules,
    site_variance: Annotated[
        float | None,
        typer.Option(help="Variance of a site's weights about the global ones (default: fitted)."),
    ] = None,
    prior_variance: Annotated[
        float | None, typer.Option(help="Prior variance of global weights (default: fitted).")
    ] = None,
    mass: Annotated[
        float, typer.Option(help="How readily new global units appear.")
    ] = pfnm.Prior.mass,
    prior_mean: Annotated[
        float, typer.Option(help="Prior mean of global weights; with given variances only.")
    ] = pfnm.Prior.prior_mean,
    sweeps: Annotated[
        int | None,
        typer.Option(min=0, help="Exactly so many sweeps, for topdown (else until settled)."),
    ] = None,
    calibrate: Annotated[
        Path | None,
        typer.Option(help="Choose variances, mass and budget on labelled data (.npz, x and y)."),
    ] = None,
    polish: Annotated[
        bool,
        typer.Option("--polish", help="Let the sites' networks teach the fused one; no data."),
    ] = False,
    polish_seconds: Annotated[
        float | None, typer.Option(min=0, help="Be done with polishing after so many seconds.")
    ] = None,
    polish_data: Annotated[
        Path | None,
        typer.Option(
            help="Polish on real inputs too (.npz, x): the sites say what they are, or their "
            "labels do (y)."
        ),
    ] = None,
    probes: Annotated[
        bool, typer.Option(help="Whether to polish on inputs made from the networks, beside data.")
    ] = True,
    input_range: InputRangeOption = None,
    input_like: InputLikeOption = None,
    seed: SeedOption = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing output.")] = False,
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing.")] = False,
) -> None:
    """Fuse trained networks from files into one network. No data, no retraining."""
    from pfnm import frontier
    from pfnm.formats import check_target, save
    from pfnm.formats.data import read_examples, read_inputs

    check_target(output, force=force)
    for option, given in (
        ("--polish-seconds", polish_seconds is not None),
        ("--polish-data", polish_data is not None),
        ("--no-probes", not probes),
    ):
        if given and not polish:
            raise PFNMError(f"{option} belongs to --polish; give that too, or leave it out")
    if not probes and polish_data is None:
        raise PFNMError("--no-probes needs --polish-data to polish on")
    real = (None, None) if polish_data is None else read_inputs(polish_data)
    like = None if input_like is None else read_inputs(input_like)[0]
    own_labels = read_site_labels(labels, files)
    networks = api.as_networks(files, labels=own_labels, activation=activation)
    if polish:
        from pfnm.polishing import check_ready

        check_ready(networks, real[0], like)
    options: dict[str, Any] = {
        "method": method,
        "site_weights": read_weights(site_weights, files),
        "activation": activation,
        "rules": rules,
        "input_range": parsed_range(input_range, real[0] if like is None else like),
        "rng": seed,
    }
    if calibrate is not None:
        if (site_variance, prior_variance, budget, max_params, sweeps) != (None,) * 5:
            raise PFNMError("--calibrate chooses variances and budget itself; leave them out")
        inputs, targets = read_examples(calibrate)
        with progress("calibrating", hidden=quiet or as_json) as advance:
            fusion = frontier.calibrate(
                networks, inputs, targets, class_counts=class_counts, on_step=advance, **options
            )
    else:
        with progress("fusing", hidden=quiet or as_json) as advance:
            fusion = pfnm.fuse(
                networks,
                class_counts=class_counts,
                labels=own_labels,
                prior=given_prior(site_variance, prior_variance, mass, prior_mean, rules),
                mass=mass,
                budget="default" if budget is None else parsed_budget(budget),
                max_params=max_params,
                sweeps=sweeps,
                on_step=advance,
                **options,
            )
    if polish:
        from pfnm import teaching
        from pfnm.polishing import polish as polished

        what = "agreement" if real[1] is None else "rightness on held-out labels"
        with epochs(f"polishing, {what}", teaching.EPOCHS, hidden=quiet or as_json) as advance:
            fusion = polished(
                fusion,
                networks,
                class_counts=class_counts,
                site_weights=options["site_weights"],
                inputs=real[0],
                targets=real[1],
                probes=probes,
                like=like,
                input_range=options["input_range"],
                rng=seed,
                seconds=polish_seconds,
                on_epoch=advance,
            )
    save(fusion.network, output, force=force)
    if as_json:
        print(json.dumps(fusion_summary(fusion, str(output)), indent=2))
    elif not quiet:
        out.print(fusion_table(fusion))
        local = len(fusion.sites)
        unsettled = method == "topdown" and not fusion.settled
        out.print(
            f"{output}: {fusion.network.parameters:,} parameters from {local} networks"
            + ("" if fusion.agreement is None else f", agreement {fusion.agreement:.0%}")
            + (" (stopped before the matching settled)" if unsettled else "")
        )
        if polish:
            out.print(polish_told(fusion))
        warning = fusion_verdict(fusion)
        if warning is not None:
            errors.print(f"pfnm: {warning}")


@app.command()
def check(
    fused: Annotated[Path, typer.Argument(help="The file of a fused network.")],
    files: Annotated[list[Path], typer.Argument(help="The files of the sites' networks.")],
    class_counts: CountsOption = None,
    site_weights: SiteWeightsOption = None,
    labels: SiteLabelsOption = None,
    activation: ActivationOption = None,
    input_range: InputRangeOption = None,
    input_like: InputLikeOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Say how often a fused network answers as its sites do together. No data."""
    from pfnm.formats.data import read_inputs

    like = None if input_like is None else read_inputs(input_like)[0]
    result = api.check(
        fused,
        files,
        class_counts=class_counts,
        site_weights=read_weights(site_weights, files),
        labels=read_site_labels(labels, files),
        activation=activation,
        input_range=parsed_range(input_range, like),
        rng=seed,
    )
    warning = verdict(result.agreement, result.site_agreement)
    if as_json:
        print(json.dumps({"file": str(fused), **vars(result), "warning": warning}, indent=2))
        return
    out.print(f"{fused}: agreement {result.agreement:.0%}")
    out.print(f"the best single site, {result.best_site}: {result.site_agreement:.0%}")
    if warning is not None:
        errors.print(f"pfnm: {warning}")


@app.command()
def frontier(
    files: FilesArgument,
    data: Annotated[
        Path | None, typer.Option(help=".npz with inputs x and labels y, to measure accuracy.")
    ] = None,
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
    input_range: InputRangeOption = None,
    input_like: InputLikeOption = None,
    polish: Annotated[
        bool, typer.Option("--polish", help="Polish each fusion too, a row of its own.")
    ] = False,
    seed: SeedOption = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing picture.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Fuse at several budgets and show size against accuracy (or agreement, without data)."""
    from pfnm.formats.data import read_examples, read_inputs
    from pfnm.frontier import frontier as measure
    from pfnm.report.frontier import check_picture, draw_frontier

    if output is not None:
        check_picture(output, force=force)
    chosen = [parsed_budget(text) for text in budgets.split(",")]
    examples = None if data is None else read_examples(data)
    like = None if input_like is None else read_inputs(input_like)[0]
    networks = api.as_networks(files, labels=read_site_labels(labels, files), activation=activation)
    counts = api.counts_table(class_counts, networks)
    with progress("fusing", hidden=as_json) as advance:
        points = measure(
            networks,
            budgets=chosen,
            class_counts=counts,
            examples=examples,
            site_weights=read_weights(site_weights, files),
            input_range=parsed_range(input_range, like),
            polished=polish,
            rng=seed,
            on_step=advance,
        )
    if output is not None:
        draw_frontier(points, output)
    if as_json:
        print(json.dumps([vars(point) for point in points], indent=2))
        return
    out.print(frontier_table(points))
    if output is not None:
        out.print(str(output))


def given_prior(
    site_variance: float | None,
    prior_variance: float | None,
    mass: float,
    prior_mean: float,
    rules: str,
) -> pfnm.Prior | None:
    """The prior with variances given on the command line, or None where it is to be fitted."""
    if site_variance is None and prior_variance is None:
        if prior_mean != pfnm.Prior.prior_mean:
            raise PFNMError("--prior-mean needs --site-variance or --prior-variance beside it")
        return None
    site = pfnm.Prior.site_variance if site_variance is None else site_variance
    wide = pfnm.Prior.prior_variance if prior_variance is None else prior_variance
    return pfnm.Prior(
        prior_variance=wide, site_variance=site, mass=mass, prior_mean=prior_mean, rules=rules
    )
