"""PyTorch modules as `Network`s that can be matched, and fused ones as modules again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from pfnm.errors import PFNMError
from pfnm.fusing.atoms import observed_mean
from pfnm.fusing.inputs import Inputs
from pfnm.fusing.sites import comparable
from pfnm.networks.graph import OUTPUT, IntArray, UnitGraph
from pfnm.networks.network import Label, Network, Tensor
from pfnm.networks.program import Map, Visitor
from pfnm.threads import one_of_torch
from pfnm.tracing.axes import leaves
from pfnm.tracing.examples import Examples, examples_of
from pfnm.tracing.folding import Folding, Norm, Statistics
from pfnm.tracing.groups import ByHand
from pfnm.tracing.onnx_module import OnnxModule
from pfnm.tracing.proof import distance
from pfnm.tracing.resize import resized, runs_like
from pfnm.tracing.rules.call import Map as TracedMap
from pfnm.tracing.rules.call import Rule
from pfnm.tracing.trace import Trace, module_outputs, program_outputs, trace

BLOCK_NUMBERS = 50_000  # of inputs at a time, so that what is between layers stays small
POSITIONS = 4  # of a picture or signal at which it is seen what units do
WORK = 4e9  # multiplications that made-up inputs of one purpose may cost a network
LEAST_PROBES = 32
SAME = 1e-4  # relative: outputs of a module and of the trace of another, in single precision
STATISTICS_ROWS = 128  # on which batch normalisation's statistics are computed
STATISTICS_SEED = 0
WIDENED = 4  # to see whether a module can be: by one unit in so many


@dataclass(frozen=True, eq=False)
class ModuleProgram:
    """Runs a traced module on rows of numbers; its tensors are folded canonical ones."""

    trace: Trace
    examples: Examples
    activation: str | None = None
    activation_told: bool = True
    source: OnnxModule | None = None
    """The graph that the first module was read from, to be written again."""
    work: float = field(init=False)
    """Multiplications for one example."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "work", _work(self.trace))

    @cached_property
    def folding(self) -> Folding:
        """How batch normalisation is folded away."""
        steps = [step.map for step in self.trace.program.steps if step.map is not None]
        uses = [own.weight for own in steps if own.kind != "batch_norm"]
        found: dict[str, Norm] = {}
        for own in self.trace.norms:
            if own.mean is None or own.variance is None:
                continue  # it has no memory: what it does is no scale and shift
            after = None
            if own.after is not None and uses.count(own.after[0]) == 1:
                weight, bias, kind = own.after
                axis = 1 if kind == "conv_transpose" else 0
                merged = self.trace.program.layouts[weight].merged
                if not (merged and kind == "conv_transpose"):
                    after = (weight, bias, axis)
            found.setdefault(
                own.mean, Norm(own.weight, own.bias, own.mean, own.variance, own.epsilon, after)
            )
        return Folding(tuple(found.values()))

    @cached_property
    def maps(self) -> tuple[Map, ...]:
        """Its weights at work: linear maps and convolutions, each once."""
        found: dict[str, Map] = {}
        for step in self.trace.program.steps:
            at = None if step.map is None else self.map_of(step.map)
            if at is not None:
                found.setdefault(at.weight, at)
        return tuple(found.values())

    def map_of(self, own: TracedMap) -> Map | None:
        """A map whose features and values have one axis each that the weight has too."""
        if own.weight is None or self.trace.program.layouts[own.weight].merged:
            return None
        sides = {"linear": (1, 0), "conv": (1, 0), "conv_transpose": (0, 1)}.get(own.kind)
        if sides is None or len(own.order) < 2:
            return None
        reads, writes = (own.order[side] for side in sides)
        shape = tuple(dim.size for dim in self.trace.program.layouts[own.weight].dims)
        if own.kind != "linear" and shape[reads] == 1 and shape[writes] > 1:
            reads = writes  # depthwise: each unit reads itself
        return Map(own.weight, own.bias, f"traced {own.kind}", reads, writes)

    def answer(self, outputs: Any) -> torch.Tensor:
        """The output that counts, of all that a module gives."""
        found = pytree.tree_leaves(outputs)[self.trace.program.output]
        assert isinstance(found, torch.Tensor)
        return found

    def numbers(self, tensors: Mapping[str, Any]) -> int:
        """How many numbers one input has."""
        return self.examples.numbers

    def probes(self, count: int) -> int:
        """How many made-up inputs the network's size allows, of so many that are wanted."""
        return min(count, max(LEAST_PROBES, int(WORK / self.work)))

    @one_of_torch()
    def run(
        self,
        tensors: Mapping[str, Any],
        inputs: Any,
        visit: Visitor | None = None,
        first: Any = None,
    ) -> Any:
        """The outputs (examples, outputs), a row for every position where there are several."""
        look = None if visit is None else self._looking(visit)
        axis = _output_axis(self.trace)
        with self.trace.example.seeded():
            found = [_rows(own, axis).numpy() for own in self._run(tensors, inputs, look)]
        return np.concatenate(found)

    def first_values(self, tensors: Mapping[str, Any], inputs: Any) -> Any:
        """Nothing: a first map's values would be too many to keep."""
        return None

    @one_of_torch()
    def statistics(self, tensors: Mapping[str, Tensor], inputs: Tensor) -> dict[str, Statistics]:
        """What enters every batch normalisation on these inputs, by the name of its mean."""
        sums: dict[str, list[Any]] = {}

        def look(at: TracedMap, features: torch.Tensor, _: Any) -> None:
            if at.statistics is not None:
                rows = features.double().movedim(1, -1).flatten(0, -2)
                total = sums.setdefault(at.statistics[0], [0, 0.0, 0.0])
                total[0] += len(rows)
                total[1] += rows.sum(dim=0)
                total[2] += rows.square().sum(dim=0)

        with self.trace.example.seeded():
            for _ in self._run(tensors, inputs, look):
                pass
        result = {}
        for name, (count, total, squares) in sums.items():
            mean = (total / count).numpy()
            result[name] = Statistics(mean, np.maximum((squares / count).numpy() - mean**2, 0))
        return result

    def _run(self, tensors: Mapping[str, Any], inputs: Any, look: Any) -> Any:
        unfolded = self.folding.unfold(tensors)
        own = self.trace.program.prepared(
            {name: torch.from_numpy(np.ascontiguousarray(t)) for name, t in unfolded.items()}
        )
        block = max(1, BLOCK_NUMBERS // max(self.examples.numbers, 1))
        block = self.examples.together or block
        for start in range(0, len(inputs), block):
            given = self.examples.tensors(inputs[start : start + block])
            args, kwargs = self.examples.placed(given)
            yield self.trace.program.run(own, args, kwargs, visit=look)

    def _looking(self, visit: Visitor) -> Any:
        """Shows a visitor of `Network.run` rows of features and values, at a few positions."""

        def look(own: TracedMap, features: torch.Tensor, values: Any) -> None:
            at = self.map_of(own)
            if at is not None and isinstance(values, torch.Tensor):
                channel = -1 if own.kind == "linear" else 1
                visit(at, _at_positions(features, channel), _at_positions(values, channel))

        return look


def _at_positions(values: torch.Tensor, channel: int) -> Tensor:
    """Rows (examples x positions, channels), at a few positions evenly apart."""
    rows = values.movedim(channel, -1)
    rows = rows.reshape(len(rows), -1, rows.shape[-1])
    places = np.unique(np.linspace(0, rows.shape[1] - 1, POSITIONS + 2).round().astype(int)[1:-1])
    result: Tensor = rows[:, torch.from_numpy(places)].reshape(-1, rows.shape[-1]).numpy()
    return result


def _rows(found: torch.Tensor, axis: int) -> torch.Tensor:
    """Outputs as (rows, outputs)."""
    if found.dim() < 2:
        return found.reshape(-1, 1)
    return found.movedim(axis, -1).flatten(0, -2)


def _output_axis(found: Trace) -> int:
    """The axis of the output along which the network's outputs lie; the last if there is none."""
    dims = found.program.output_dims
    for axis, dim in enumerate(dims):
        if any(found.program.spaces.get(id(leaf)) == OUTPUT for leaf in leaves(dim)):
            return axis
    return len(dims) - 1


def _work(found: Trace) -> float:
    """About how many multiplications one example costs."""
    total = 0.0

    def look(at: TracedMap, _: Any, values: Any) -> None:
        nonlocal total
        if at.weight is not None and isinstance(values, torch.Tensor) and at.kind != "embedding":
            shape = tuple(dim.size for dim in found.program.layouts[at.weight].dims)
            total += values.numel() * prod(shape) / max(shape[0], 1)

    example = found.example
    tensors = {
        n: np.zeros([d.size for d in lay.axes], np.float32)
        for n, lay in found.program.layouts.items()
    }
    found.program.run(tensors, example.inputs, example.kwargs, visit=look)
    rows = next((len(x) for x in example.inputs if isinstance(x, torch.Tensor) and x.dim()), 1)
    return max(total / rows, 1.0)


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
        networks.append(Network(folded, graph, program, labels=own, name=name))
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
