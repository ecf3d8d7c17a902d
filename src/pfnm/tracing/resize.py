"""A copy of a module with tensors of other widths, and whether it still runs.

The module's own code is kept. Sizes that PyTorch's modules hold in attributes follow the tensors;
a width that the user's code holds in a number cannot, and `runs_like` tells.
"""

import copy
import linecache
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pfnm.errors import PFNMError
from pfnm.tracing.sizes import sizes_follow

TOLERANCE = 1e-4  # of outputs, relative to the largest: rounding of single precision, many layers
SHOWN = 3  # names in a message
TORCH = Path(torch.__file__).parent


def resized(module: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    """A copy of `module` whose parameters and buffers are those of `state`, of whatever widths.

    Parameters
    ----------
    module
        The module, or a fresh one of its class. It is not changed.
    state
        A tensor for every name of the module's `state_dict()`; of names that are tied, one is
        enough. Buffers that are not in the `state_dict()` may be given, or stay.

    Data types, devices, `requires_grad`, modes and hooks are those of `module`.

        wide = resized(nn.Linear(4, 2), nn.Linear(6, 2).state_dict())
        wide.in_features  # 6
    """
    replacements = _replacements(module, state)
    try:
        copied: nn.Module = copy.deepcopy(module, _memo(module, replacements))
    except Exception as error:  # whatever the module's own attributes raise
        raise PFNMError(
            f"{_label('', module)} cannot be copied by copy.deepcopy ({_first_line(error)}); "
            "take out what cannot"
        ) from error
    copies = _tensors(copied)
    if kept := [name for name, _, new in _pairs(module, replacements) if copies[name] is not new]:
        raise PFNMError(
            f"{_label('', module)} keeps its own {_listed(kept)} when it is copied, as TorchScript "
            "does; give the module it was made of"
        )
    grown = [name for name, old, new in _pairs(module, replacements) if old.shape != new.shape]
    touched = {part for name in grown for part in _owners(name)}
    modes = [(part, part.training) for part in copied.modules()]
    copied.eval()  # a parametrisation may change with every look at it while training
    with torch.no_grad():
        for name, part in copied.named_modules():
            if name in touched:
                sizes_follow(_label(name, part), part)
            if isinstance(part, nn.RNNBase):
                part._init_flat_weights()
    for part, mode in modes:
        part.training = mode
    return copied


def runs_like(
    module: nn.Module,
    state: Mapping[str, Tensor],
    example_inputs: tuple[Any, ...],
    example_kwargs: Mapping[str, Any],
    expected: Tensor,
    answer: Callable[[Any], Any] = lambda outputs: outputs,
) -> str | None:
    """Nothing if the resized module answers as expected in eval mode, else what is wrong.

    Parameters
    ----------
    module, state
        As for `resized`.
    example_inputs, example_kwargs
        What the module is called with.
    expected
        What it should answer, within a relative 1e-4 of the largest value.
    answer
        Takes the tensor to compare from what the module gives.
    """
    try:
        copied = resized(module, state).eval()
    except PFNMError as error:
        return str(error)
    try:
        with torch.no_grad():
            given = answer(copied(*example_inputs, **example_kwargs))
    except Exception as error:  # whatever the module's own code raises
        return f"{_place(copied, error)}: {_first_line(error)}{_held(module, state)}"
    if not isinstance(given, Tensor):
        return f"{_label('', module)} gives a {type(given).__name__} instead of a tensor"
    if given.shape != expected.shape:
        shapes = f"{tuple(given.shape)} instead of {tuple(expected.shape)}"
        return f"{_label('', module)} gives outputs of shape {shapes}{_held(module, state)}"
    away = _distance(given, expected)
    if away <= TOLERANCE:
        return None
    return (
        f"{_label('', module)} runs, but its outputs are {away:.1e} (relative) from the expected "
        f"ones{_held(module, state)}"
    )


def _distance(given: Tensor, expected: Tensor) -> float:
    """The largest difference over the largest expected value."""
    given, expected = given.double(), expected.double()
    largest = expected.abs().max().clamp_min(torch.finfo(torch.double).tiny)
    return float((given - expected).abs().max() / largest)


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers under all their names."""
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def _replacements(module: nn.Module, state: Mapping[str, Tensor]) -> dict[int, Tensor]:
    """The tensors of the copy, by the identity of those they stand for."""
    tensors = _tensors(module)
    if unknown := [name for name in state if name not in tensors]:
        raise PFNMError(
            f"{_label('', module)} has no tensor {_listed(unknown)}; give those of its state_dict()"
        )
    new: dict[int, Tensor] = {}
    for name, tensor in state.items():
        old = tensors[name]
        if tensor.ndim != old.ndim:
            raise PFNMError(
                f"{name} has {tensor.ndim} axes, and {old.ndim} in {_label('', module)}; "
                "only their lengths may differ"
            )
        data = tensor.detach().to(device=old.device, dtype=old.dtype, copy=True)
        if not torch.equal(new.get(id(old), data), data):
            raise PFNMError(
                f"{name} is tied to another tensor in {_label('', module)}, and the two differ; "
                "give one of them"
            )
        parameter = isinstance(old, nn.Parameter)
        new[id(old)] = nn.Parameter(data, old.requires_grad) if parameter else data
    saved = [name for name in module.state_dict(keep_vars=True) if name in tensors]
    if missing := [name for name in saved if id(tensors[name]) not in new]:
        raise PFNMError(
            f"{_label('', module)} has a tensor {_listed(missing)} that is not given; "
            "give all of its state_dict()"
        )
    return new


def _memo(module: nn.Module, replacements: dict[int, Tensor]) -> dict[int, Any]:
    """What `copy.deepcopy` is to use instead of copying, by identity.

    Tensors computed from others and kept as attributes (the older weight_norm does) cannot be
    copied as they are; they are computed again at the next call. So are the lists of weights of
    recurrent modules.
    """
    memo: dict[int, Any] = {}
    for part in module.modules():
        for value in vars(part).values():
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
        if isinstance(part, nn.RNNBase):
            memo[id(part._flat_weights)] = []
    return {**memo, **replacements}


def _pairs(
    module: nn.Module, replacements: dict[int, Tensor]
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Each name with the tensor it has and the tensor it is to have."""
    for name, old in _tensors(module).items():
        if id(old) in replacements:
            yield name, old, replacements[id(old)]


def _owners(name: str) -> Iterator[str]:
    """The names of the modules around a tensor, from the innermost."""
    while name:
        name = name.rpartition(".")[0]
        yield name


def _label(name: str, module: nn.Module) -> str:
    """How a module is called in messages."""
    kind = type(module).__name__
    return f"{name} ({kind})" if name else kind


def _listed(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" * (len(names) > SHOWN))


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _place(module: nn.Module, error: Exception) -> str:
    """Where an error arose: the innermost module, and the last line of code not PyTorch's."""
    names = {id(part): name for name, part in module.named_modules()}
    place, line = _label("", module), ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and id(owner) in names:
            place = _label(names[id(owner)], owner)
        path = Path(frame.f_code.co_filename)
        if path != Path(__file__) and not path.is_relative_to(TORCH):
            code = linecache.getline(str(path), number).strip()
            line = f" in {path.name}, line {number} ({code})"
    return place + line


def _held(module: nn.Module, state: Mapping[str, Tensor]) -> str:
    """Numbers that modules of the user's own keep and that were widths of tensors below them."""
    tensors = _tensors(module)
    numbers = []
    for name, part in module.named_modules():
        prefix = f"{name}." if name else ""
        widths = {
            old
            for tensor in state
            if tensor.startswith(prefix)
            for old, new in zip(tensors[tensor].shape, state[tensor].shape, strict=True)
            if old != new
        }
        if not type(part).__module__.startswith("torch."):
            numbers += [
                f"{prefix}{attribute} = {value}"
                for attribute, value in vars(part).items()
                if type(value) is int and value in widths
            ]
    return f"; perhaps its code holds a width in {_listed(numbers)}" if numbers else ""
