"""The command for more sites than memory holds: fuse-many."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pfnm.cli.console import JsonOption, SeedOption, app, bar, out, print_json
from pfnm.cli.options import CountsOption, FilesArgument, ThreadsOption
from pfnm.fusing.budget import DEFAULT_BUDGET, parsed_budget
from pfnm.many import RULES, fuse_many
from pfnm.matching.prior import RULES as ALL_RULES
from pfnm.threads import limited

MOST_SWEEPS = 10_000


@app.command("fuse-many", epilog="Example: pfnm fuse-many sites/ -o global.safetensors --sweeps 1")
def fuse_many_files(
    files: FilesArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the result goes.")],
    class_counts: CountsOption = None,
    budget: Annotated[
        str,
        typer.Option(
            help="How wide the hidden layer may become: a factor of the widest site's (1.5, 2x), a "
            "number of units (300), or none."
        ),
    ] = f"{DEFAULT_BUDGET:g}x",
    rules: Annotated[str, typer.Option(help=f"One of {', '.join(ALL_RULES)}.")] = RULES,
    sweeps: Annotated[
        int,
        typer.Option(
            min=0, max=MOST_SWEEPS, help="How often sites are matched again after the first pass."
        ),
    ] = 1,
    sample: Annotated[
        int | None,
        typer.Option(min=1, help="So many sites in each sweep, drawn anew (default: all)."),
    ] = None,
    seed: SeedOption = 0,
    threads: ThreadsOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing output.")] = False,
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing.")] = False,
) -> None:
    """Fuse the networks of thousands of sites, with one hidden layer, read one at a time.

    Interrupted, the same command goes on where it stopped.
    """
    from pfnm.formats import format_of
    from pfnm.formats.files import check_output
    from pfnm.formats.folders import expanded

    format_of(output)
    site_files = expanded(files)
    check_output(output, force=force, inputs=site_files)
    with limited(threads), bar(hidden=quiet or as_json) as shown:
        task = shown.add_task("reading", total=len(site_files))
        fusion = fuse_many(
            site_files,
            class_counts=class_counts,
            budget=parsed_budget(budget),
            rules=rules,
            sweeps=sweeps,
            sample=sample,
            seed=seed,
            checkpoint=output.with_name(f".{output.name}.partial"),
            on_step=lambda what, done, total: shown.update(
                task, description=what, completed=done, total=total
            ),
        )
    fusion.save(output, force=force)
    network = fusion.network
    (width,) = network.widths.values()
    if as_json:
        print_json(
            {
                "output": str(output),
                "sites": len(fusion.names),
                "width": width,
                "parameters": network.parameters,
                "reassigned": list(fusion.reassigned),
                "options": dict(fusion.options),
            }
        )
    elif not quiet:
        moved = ", ".join(f"{number:,}" for number in fusion.reassigned)
        out.print(
            f"{output}: {width} hidden units, {network.parameters:,} parameters, from "
            f"{len(fusion.names):,} networks (units moved in each pass: {moved})"
        )
