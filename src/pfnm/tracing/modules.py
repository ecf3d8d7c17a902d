"""PyTorch modules as `Network`s that can be matched, and fused ones as modules again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from pfnm.errors import PFNMError
from pfnm.fusing.atoms import observed_mean
from pfnm.fusing.inputs import Inputs
from pfnm.fusing.sites import comparable
from pfnm.networks.graph import OUTPUT, IntArray, UnitGraph
from pfnm.networks.network import Label, Network, Taken, Tensor
from pfnm.threads import one_of_torch
from pfnm.tracing.examples import examples_of
from pfnm.tracing.groups import ByHand
from pfnm.tracing.onnx_module import OnnxModule
from pfnm.tracing.proof import distance
from pfnm.tracing.resize import resized, runs_like
from pfnm.tracing.rules.call import Rule
from pfnm.tracing.running import ModuleProgram
from pfnm.tracing.trace import Trace, module_outputs, program_outputs, trace

SAME = 1e-4  # relative: outputs of a module and of the trace of another, in single precision
STATISTICS_ROWS = 128  # on which batch normalisation's statistics are computed
STATISTICS_SEED = 0
WIDENED = 4  # to see whether a module can be: by one unit in so many


@one_of_torch()
def from_modules(
    modules: Sequence[nn.Module],
    example_inputs: Any,
    *,
    output: int | str | None = None,
    labels: Sequence[Sequence[Label] | None] | None = None,
    names: Sequence[str] | None = None,
    rules: Mapping[str, Rule] | None = None,
    groups: ByHand = (),
) -> list[Network]:
    """Modules of one architecture as networks: traced once, each proved to be what was traced."""
    args, kwargs = given_inputs(example_inputs)
    found = trace(modules[0], *args, output=output, rules=rules, groups=groups, **kwargs)
    _refuse_pinned(found)
    program = _taking_rows(
        ModuleProgram(
            found,
            examples_of(found.example.inputs, found.example.kwargs),
            source=modules[0] if isinstance(modules[0], OnnxModule) else None,
        ),
        found.tensors(modules[0]),
    )
    graph = program.folding.graph(_with_outputs(found))
    first = Network(program.folding.fold(found.tensors(modules[0])), graph, program)
    graph = replace(graph, rigid={**graph.rigid, **held_by_code(modules[0], first)})
    networks = []
    for place, module in enumerate(modules):
        name = f"site{place}" if names is None else names[place]
        tensors = found.tensors(module)
        if place:
            _check_same(module, name, found, tensors)
        own = None if labels is None or labels[place] is None else tuple(labels[place] or ())
        folded = program.folding.fold(tensors)
        memory = program.folding.memory(tensors) or None
        taken = Taken.of(folded.arrays)
        networks.append(
            Network(folded, graph, program, labels=own, name=name, memory=memory, taken=taken)
        )
    return networks


def _taking_rows(program: ModuleProgram, tensors: Mapping[str, Tensor]) -> ModuleProgram:
    """The program, with what rows the module takes: any number of made-up ones, or fewer kinds.

    Some take only as many as the example has (the nodes of one graph), some only the example's own
    (where numbers stand for things).
    """
    folded = program.folding.fold(tensors)
    rng = np.random.default_rng(STATISTICS_SEED)
    rows = len(program.examples.rows)
    outputs = len(program.run(folded, program.examples.rows))
    for together, drawn in ((None, False), (rows, False), (None, True), (rows, True)):
        examples = replace(program.examples, together=together, drawn=drawn)
        tried = replace(program, examples=examples)
        counts = (1, rows + 1) if together is None else (2 * rows,)
        try:
            found = [tried.run(folded, examples.make([], count, rng)) for count in counts]
        except (RuntimeError, IndexError, PFNMError):  # whatever its operations raise
            continue
        if all(len(own) * rows == outputs * n for own, n in zip(found, counts, strict=True)):
            return tried
    return replace(program, examples=replace(program.examples, together=rows, drawn=True))


def held_by_code(module: nn.Module, network: Network) -> dict[str, str]:
    """The groups that could be widened but for the module's own code, each with what stands there.

    Found by doing it: all at once, and one at a time where that fails.
    """
    graph = network.graph
    free = [group for group in graph.outer_groups if group not in graph.rigid]
    together = [own for own in graph.alike if set(own) <= set(free)]
    together += [(group,) for group in free if not any(group in own for own in together)]
    if not free or _refusal(module, network, free) is None:
        return {}
    found: dict[str, str] = {}
    for groups in together:
        wrong = _refusal(module, network, groups)
        if wrong is not None:
            found |= dict.fromkeys(groups, f"the module's code holds its width: {wrong}")
    return found


def _refusal(module: nn.Module, network: Network, groups: Sequence[str]) -> str | None:
    """What is wrong with the module where these groups are somewhat wider, if anything is."""
    graph, sizes = network.graph, network.sizes
    assignments: dict[str, list[IntArray]] = {}
    for group in graph.groups:
        own = np.arange(sizes[group])
        if group in graph.inner:
            own = np.tile(own, (sizes[graph.inner[group]], 1))
        more = max(1, sizes[group] // WIDENED) if group in groups else 0
        assignments[group] = [own, np.where(own < sizes[group] - more, own, own + more)]
    pair = [network, replace(network, name="beside")]
    return refusal(module, observed_mean(comparable(pair), assignments))


@one_of_torch()
def refusal(module: nn.Module, network: Network) -> str | None:
    """What is wrong with the module when it is given a network's tensors, if anything is."""
    program = program_of(network)
    example = program.trace.example
    unfolded = program.folding.unfold(network.tensors)
    own = program.trace.program
    expected = program_outputs(own, unfolded, example)[own.output]
    state, kwargs = program.trace.state(unfolded), dict(example.kwargs)
    with example.seeded():
        return runs_like(module, state, example.inputs, kwargs, expected, program.answer)


def given_inputs(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Example inputs as positional and keyword ones."""
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    if isinstance(example_inputs, torch.Tensor):
        return (example_inputs,), {}
    return tuple(example_inputs), {}


def _with_outputs(found: Trace) -> UnitGraph:
    """The graph, with the number of outputs where no tensor's axis tells it."""
    graph = found.graph
    if any(OUTPUT in axis.spaces for axes in graph.axes.values() for axis in axes):
        return graph
    dims = found.program.output_dims
    outputs = dims[-1].size if len(dims) > 1 else 1
    return replace(graph, constant={**graph.constant, OUTPUT: outputs})


def _refuse_pinned(found: Trace) -> None:
    for own in found.pinned:
        if own.in_the_way:
            raise PFNMError(
                f"{found.name}: {own}; give a rule for the operation (axis_rules=...), or state "
                f"the group by hand (axis_groups=[{{{own.tensor!r}: {own.axis}, ...}}])"
            )


def _check_same(module: nn.Module, name: str, found: Trace, tensors: Mapping[str, Tensor]) -> None:
    """An error unless a module answers as the trace of the first one does with its tensors."""
    expected = module_outputs(module, found.example)[found.program.output]
    try:
        answered = program_outputs(found.program, tensors, found.example)[found.program.output]
        same = answered.shape == expected.shape and distance(answered, expected) <= SAME
    except RuntimeError:  # whatever PyTorch says of sizes that do not fit
        same = False
    if not same:
        raise PFNMError(
            f"{name} ({type(module).__name__}) computes something else from its tensors than the "
            "first module would; fuse modules that differ only in weights and widths (in how many "
            "heads and groups they have, not in how large these are)"
        )


def to_state(network: Network, inputs: Inputs | None = None) -> dict[str, torch.Tensor]:
    """The tensors of a network as a module's state, batch normalisation with statistics of its own.

    inputs: the kind on which these are computed; like the example if none is given.
    """
    program = program_of(network)
    statistics = None
    if program.folding.norms:
        kind: Inputs = program.examples if inputs is None else inputs
        rng = np.random.default_rng(STATISTICS_SEED)
        rows = kind.make([network], program.probes(STATISTICS_ROWS), rng)
        statistics = program.statistics(network.tensors, rows)
    return program.trace.state(program.folding.unfold(network.tensors, statistics))


def to_module(network: Network, first: nn.Module, inputs: Inputs | None = None) -> nn.Module:
    """A copy of the first module, resized, with the network's tensors."""
    wrong = refusal(first, network)
    if wrong is not None:
        raise PFNMError(
            f"{type(first).__name__} cannot be given the fused widths: {wrong}; take the tensors "
            "(fusion.state_dict()), or fuse with budget=1.0"
        )
    return resized(first, to_state(network, inputs))


def program_of(network: Network) -> ModuleProgram:
    """The program of a traced module; an error for any other network."""
    if not isinstance(network.program, ModuleProgram):
        raise PFNMError(f"{network.name} is no traced module, which this needs")
    return network.program


def to_graph(network: Network, notes: Mapping[str, Any], inputs: Inputs | None = None) -> bytes:
    """The ONNX graph that the first site was read from, with the network's tensors."""
    program = program_of(network)
    if program.source is None:
        raise PFNMError(
            "only what was fused from ONNX graphs is written as one; choose another format, or "
            "torch.onnx.export(fusion.model, ...)"
        )
    module = to_module(network, program.source, inputs)
    assert isinstance(module, OnnxModule)
    return module.written(program.trace.example.inputs, notes)


def module_with(model: nn.Module, tensors: Mapping[str, Tensor], file: str) -> nn.Module:
    """A copy of a module with the tensors of a file, of whatever widths; counters stay its own."""
    own = model.state_dict()
    strange = [name for name in tensors if name not in own]
    if strange:
        raise PFNMError(
            f"{file}: it holds a tensor {strange[0]!r} that {type(model).__name__} has not; give "
            "the class whose weights these are"
        )
    kept = {name: tensor for name, tensor in own.items() if not tensor.is_floating_point()}
    given = {name: torch.from_numpy(np.ascontiguousarray(t)) for name, t in tensors.items()}
    try:
        return resized(model, {**kept, **given})
    except PFNMError as error:
        raise PFNMError(f"{file}: {error}") from None
