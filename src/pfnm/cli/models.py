"""Modules of the user's own, by name: --model, --model-args and --example."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from pfnm.cli.options import KNOWN
from pfnm.errors import PFNMError
from pfnm.frameworks.classes import made

EXAMPLE_SEED = 0
LEAST_ROWS = 2  # a single row looks like no axis at all

ModelOption = Annotated[
    str | None,
    typer.Option(
        help="For files of any PyTorch architecture: the class, package.module:Class. Its code is "
        "imported and run, from here too; the weights are read without running anything.",
        rich_help_panel=KNOWN,
    ),
]
ModelArgsOption = Annotated[
    str | None,
    typer.Option(
        help="The arguments the class is made with, as JSON: '{\"width\": 16}' or '[16]'.",
        rich_help_panel=KNOWN,
    ),
]
ExampleOption = Annotated[
    list[str] | None,
    typer.Option(
        help="The shape of the model's input with its batch: 2,3,32,32; of tokens below 100: "
        "2,16:100. Once for each input. Of an ONNX graph only where it does not state it.",
        rich_help_panel=KNOWN,
    ),
]


def made_model(
    model: str | None, arguments: str | None, example: list[str] | None
) -> tuple[Any, Any]:
    """A module of the class that --model names, and example inputs of these shapes; or nothing."""
    if model is None:
        if arguments is not None:
            raise PFNMError("--model-args belong to --model; give that too")
        return None, _examples(example) if example else None
    if not example:
        raise PFNMError(
            "--model needs --example, the shape of its input with the batch: --example 2,3,32,32"
        )
    try:
        import torch
    except ImportError:
        raise PFNMError("--model needs PyTorch; pip install 'pfnm[torch]'") from None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(EXAMPLE_SEED)
        module = made(model, parsed_arguments(arguments))
    return module, _examples(example)


def _examples(texts: list[str]) -> tuple[Any, ...]:
    try:
        import torch
    except ImportError:
        raise PFNMError("--example needs PyTorch; pip install 'pfnm[torch]'") from None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(EXAMPLE_SEED)
        return tuple(_example(text) for text in texts)


def parsed_arguments(arguments: str | None) -> dict[str, Any] | list[Any]:
    """What --model-args says."""
    try:
        given = {} if arguments is None else json.loads(arguments)
    except ValueError as error:
        raise PFNMError(f"--model-args is no JSON ({error}); give a mapping or a list") from error
    if not isinstance(given, dict | list):
        raise PFNMError("--model-args is no mapping and no list; give one of these as JSON")
    return given


def _example(text: str) -> Any:
    import torch

    shape, _, tokens = text.partition(":")
    try:
        lengths = [int(length) for length in shape.split(",")]
        most = int(tokens) if tokens else None
        if min(lengths) < 1 or (most is not None and most < 1):
            raise ValueError
    except ValueError:
        raise PFNMError(
            f"--example is {text!r}, expected a shape such as 2,3,32,32, or 2,16:100 for tokens "
            "below 100"
        ) from None
    lengths[0] = max(lengths[0], LEAST_ROWS)
    return torch.randn(lengths) if most is None else torch.randint(most, lengths)
