"""Classes of the user's own, by name: package.module:Class."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pfnm.errors import PFNMError


def made(model: str, arguments: Mapping[str, Any] | Sequence[Any], own: Any = None) -> Any:
    """A PyTorch module of the class that a name says, made with these arguments.

    Its code is imported, from the working directory too, and run. own: the class, where it is
    known already.
    """
    import torch

    own = named(model) if own is None else own
    try:
        found = own(**arguments) if isinstance(arguments, Mapping) else own(*arguments)
    except Exception as error:  # the user's own code may raise anything
        raise PFNMError(
            f"--model {model} cannot be made with {arguments or 'no arguments'} "
            f"({type(error).__name__}: {error}); correct --model-args"
        ) from error
    if not isinstance(found, torch.nn.Module):
        raise PFNMError(
            f"--model {model} makes a {type(found).__name__}, expected a torch.nn.Module"
        )
    return found


def named(model: str) -> Any:
    """The class, or whatever else a name says."""
    place, _, name = model.partition(":")
    if not place or not name:
        raise PFNMError(f"--model is {model!r}, expected package.module:Class")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(place)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # the user's own code may raise anything
        raise PFNMError(
            f"--model {model} cannot be imported ({type(error).__name__}: {error}); give a class "
            "that Python finds from here"
        ) from error
    return found
