"""A traced module as a program: runs on rows of numbers, shows its maps, gives gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from math import prod
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from pfnm.errors import PFNMError
from pfnm.networks.graph import OUTPUT
from pfnm.networks.network import Tensor
from pfnm.networks.program import Map, Visitor
from pfnm.threads import one_of_torch
from pfnm.tracing.axes import SizeOf, leaves
from pfnm.tracing.examples import Examples
from pfnm.tracing.folding import Folding, Norm, Statistics
from pfnm.tracing.onnx_module import OnnxModule
from pfnm.tracing.program import Prepared
from pfnm.tracing.rules.call import Map as TracedMap
from pfnm.tracing.seeing import Later, at_positions, patches, plain_rows
from pfnm.tracing.streams import in_one_frame
from pfnm.tracing.trace import Trace

BLOCK_NUMBERS = 50_000  # of inputs at a time, so that what is between layers stays small
WORK = 1.2e10  # multiplications that made-up inputs of one purpose may cost a network
LIVE = 5e7  # numbers that enter and leave one map, of all inputs together: 200 MB
LEAST_PROBES = 32
MOST_WORK, FEWEST_PROBES = 1e12, 4  # where those cost more, there are fewer
HALVES = ("avx512_bf16", "amx_bf16")  # what processors call it
PICTURE = 4  # axes of a batch of pictures
SIDES = {"linear": (1, 0), "conv": (1, 0), "conv_transpose": (0, 1)}  # read and written axes


@dataclass(frozen=True, eq=False)
class ModuleProgram:
    """Runs a traced module on rows of numbers; its tensors are folded canonical ones."""

    trace: Trace
    examples: Examples
    activation: str | None = None
    activation_told: bool = True
    cost: Cost | None = None
    """Of one example."""
    source: OnnxModule | None = None
    """The graph that the first module was read from, to be written again."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", self.cost or cost_of(self.trace))

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
    def _shifts(self) -> dict[str, Norm]:
        """By weight: the normalisation that is folded into it."""
        return {norm.after[0]: norm for norm in self.folding.norms if norm.after is not None}

    @cached_property
    def _uses(self) -> Counter[str | None]:
        steps = (step.map for step in self.trace.program.steps if step.map is not None)
        return Counter(own.weight for own in steps if own.kind != "batch_norm")

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
        """A map whose features and values have one axis each that the weight has too.

        It is "linear", and can be fitted, where what leaves is features times weight plus bias: of
        a convolution the features are patches. Other convolutions can be "scaled". A map that is
        used twice can be neither.
        """
        if own.weight is None or self.trace.program.layouts[own.weight].merged:
            return None
        if own.kind not in SIDES or len(own.order) < 2:
            return None
        reads, writes = (own.order[side] for side in SIDES[own.kind])
        groups = own.arguments.get("groups", 1)
        depthwise = groups > 1 and self.trace.program.layouts[own.weight].dims[reads].size == 1
        # All examples have to go through it at once, and nothing else.
        alone = self._uses[own.weight] == 1 and self.examples.together is None
        ordered = own.kind == "linear" or own.order == tuple(range(len(own.order)))
        whole = own.kind != "conv_transpose" and groups == 1
        kind = f"traced {own.kind}"
        if alone and ordered:
            kind = "linear" if whole else "scaled"
        norm = self._shifts.get(own.weight)
        bias = own.bias if norm is None else norm.shift
        # Depthwise: each unit reads itself.
        return Map(own.weight, bias, kind, writes if depthwise else reads, writes)

    @property
    def vocabulary(self) -> int | None:
        """How many tokens there are, where one input is a row of tokens; else None."""
        if len(self.examples.slots) != 1 or not self.examples.whole or self.examples.drawn:
            return None
        # Positions and types are looked up too: what all tables have room for is always right.
        shown = int(self.examples.rows.max()) + 1
        return min((size for size in self._tables if size >= shown), default=None)

    @cached_property
    def _tables(self) -> list[int]:
        """How many rows each table has in which whole numbers are looked up."""
        return [
            int(self.trace.program.layouts[step.map.weight].dims[0].size)
            for step in self.trace.program.steps
            if step.map is not None and step.map.kind == "embedding" and step.map.weight
        ]

    def answer(self, outputs: Any) -> torch.Tensor:
        """The output that counts, of all that a module gives."""
        found = pytree.tree_leaves(outputs)[self.trace.program.output]
        assert isinstance(found, torch.Tensor)
        return found

    def numbers(self, tensors: Mapping[str, Any]) -> int:
        """How many numbers one input has."""
        return self.examples.numbers

    def probes(self, count: int, times: float = 1) -> int:
        """How many made-up inputs the network's size allows, of so many that are wanted."""
        assert self.cost is not None
        most = times * min(WORK / self.cost.work, LIVE / self.cost.live)
        least = min(LEAST_PROBES, max(FEWEST_PROBES, MOST_WORK / self.cost.work))
        return min(count, int(max(least, most)))

    @one_of_torch()
    def run(
        self,
        tensors: Mapping[str, Any],
        inputs: Any,
        visit: Visitor | None = None,
        first: Any = None,
        rows: int | None = None,
    ) -> Any:
        """The outputs (examples, outputs), a row for every position where there are several.

        Of PyTorch's tensors it gives one of PyTorch's, with gradients.
        """
        if isinstance(inputs, torch.Tensor):
            return self.run_torch(self.folding.unfold(tensors), inputs)
        axis = _output_axis(self.trace)
        look = None if visit is None else self._looking(tensors, visit, rows, len(inputs))
        block = len(inputs) if rows is not None else None
        with self.trace.example.seeded():
            found = [_rows(own, axis).numpy() for own in self._run(tensors, inputs, look, block)]
        return np.concatenate(found)

    def run_torch(
        self,
        unfolded: Mapping[str, torch.Tensor] | Prepared,
        inputs: torch.Tensor,
        look: Any = None,
    ) -> torch.Tensor:
        """The same of PyTorch's tensors, unfolded, all at once and with gradients.

        Convolutions in half precision, where the processor is quick at it. look: sees each map as
        it was traced.
        """
        with torch.autocast("cpu", torch.bfloat16, enabled=self._convolves and halves_are_quick()):
            found = self._run_once(unfolded, inputs, look, grad=True)
        return _rows(found, _output_axis(self.trace)).float()

    @cached_property
    def _reorders(self) -> bool:
        """Whether pictures may lie in memory in another order: a view wants them in theirs."""
        names = [str(step.node.target) for step in self.trace.program.steps]
        return not any("view" in name or "strided" in name for name in names)

    @cached_property
    def _convolves(self) -> bool:
        steps = (step.map for step in self.trace.program.steps)
        return any(own is not None and own.kind == "conv" for own in steps)

    def first_values(self, tensors: Mapping[str, Any], inputs: Any) -> Any:
        """Nothing: a first map's values would be too many to keep."""
        return None

    def in_one_frame(self, sites: Sequence[Mapping[str, Any]], inputs: Callable[[], Any]) -> Any:
        """The sites' tensors, residual streams rotated into coordinates that they share."""
        return in_one_frame(self.trace.streams, self.trace.graph, self.run, sites, inputs)

    @one_of_torch()
    def statistics(self, tensors: Mapping[str, Tensor], inputs: Tensor) -> dict[str, Statistics]:
        """What enters every batch normalisation on these inputs, by the name of its mean."""
        sums: dict[str, list[Any]] = {}

        def look(at: TracedMap, features: torch.Tensor, *_: Any) -> None:
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

    def _run(
        self, tensors: Mapping[str, Any], inputs: Any, look: Any, block: int | None = None
    ) -> Iterator[torch.Tensor]:
        unfolded = self.folding.unfold(tensors)
        own = self.trace.program.prepared(
            {name: torch.from_numpy(np.ascontiguousarray(t)) for name, t in unfolded.items()}
        )
        block = block or max(1, BLOCK_NUMBERS // max(self.examples.numbers, 1))
        block = self.examples.together or block
        for start in range(0, len(inputs), block):
            yield self._run_once(own, inputs[start : start + block], look)

    def _run_once(
        self,
        unfolded: Mapping[str, Any] | Prepared,
        inputs: Any,
        look: Any,
        *,
        grad: bool = False,
    ) -> torch.Tensor:
        given = self.examples.tensors(inputs)
        if self._reorders:
            given = tuple(map(_channels_last, given))
        args, kwargs = self.examples.placed(given)
        try:
            return self.trace.program.run(unfolded, args, kwargs, visit=look, grad=grad)
        except IndexError as error:
            known, most = self.vocabulary, int(inputs.max())
            if known is None or most < known:
                raise
            raise PFNMError(
                f"the inputs hold tokens up to {most}, but {self.trace.name} knows {known} of them "
                f"(0 to {known - 1}, by its table of embeddings); give tokens it knows "
                f"(inputs='tokens:{known}', --inputs tokens:{known})"
            ) from error

    def _size_of(self, tensors: Mapping[str, Any]) -> SizeOf:
        program = self.trace.program
        return program.size_of(program.sizes(self.folding.unfold(tensors)))

    def _looking(
        self, tensors: Mapping[str, Any], visit: Visitor, rows: int | None, examples: int
    ) -> Any:
        """Shows a visitor of `Network.run` rows of features and values.

        rows: so many altogether, in the form in which a map can be fitted, of maps that take all
        examples one below the other; else a few positions of each example. A map that can be fitted
        and adds to a residual stream is shown with the sum as its values: fitted to that, it mends
        what went wrong in the stream before it.
        """
        current = dict(tensors)
        layouts, size = self.trace.program.layouts, self._size_of(tensors)

        def look(own: TracedMap, features: torch.Tensor, values: Any, beside: Any) -> Any:
            at = self.map_of(own)
            if at is None or not isinstance(values, torch.Tensor):
                return None
            channel = -1 if own.kind == "linear" else 1
            beside = _alongside(beside, values)
            if rows is None:
                visit(at, at_positions(features, channel), at_positions(values, channel))
                return None
            if at.kind not in ("linear", "scaled") or len(values) % examples:
                return None
            norm = self._shifts.get(at.weight)
            layout = layouts[at.weight]
            for axis, order in layout.orders(size):  # as the canonical weight has them
                picked = torch.from_numpy(order)
                if axis == at.reads:
                    features = features.index_select(channel, picked)
                elif axis == at.writes:
                    values = values.index_select(channel, picked)
                    beside = None if beside is None else beside.index_select(channel, picked)
            leaving = plain_rows(values.movedim(channel, -1), rows)
            entering: Later | None = None
            if at.kind == "linear" and own.kind == "linear":
                entering = Later(partial(plain_rows, features, rows), examples)
            elif at.kind == "linear":
                kernel = [dim.size for dim in layout.dims[2:]]
                sides = values.shape[2:]
                make = partial(patches, features, sides, kernel, own.arguments, rows)
                entering = Later(make, examples)
            if norm is not None:
                leaving = leaving + current[norm.shift]
            if beside is not None and entering is not None:
                leaving = leaving + plain_rows(beside.movedim(channel, -1), rows)
            changed = visit(at, entering, leaving)
            if not changed:
                return None
            current.update(changed)
            new = self.folding.unfold(current)
            names = {at.weight, at.bias, *(() if norm is None else norm.names)}
            return {name: new[name] for name in names if name in new}

        return look


def _alongside(beside: Any, values: torch.Tensor) -> torch.Tensor | None:
    """What values are added to, one number for each of them; None where the sum has more."""
    if not isinstance(beside, torch.Tensor):
        return None
    try:
        return beside.expand(values.shape)
    except RuntimeError:  # the values themselves are repeated
        return None


@cache
def halves_are_quick() -> bool:
    """Whether this processor multiplies numbers of half the length at more than the usual pace."""
    told: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(told.get(name, False) for name in HALVES)


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """Pictures in the order of memory in which convolutions are quicker."""
    if tensor.dim() == PICTURE and tensor.is_floating_point():
        return tensor.contiguous(memory_format=torch.channels_last)
    return tensor


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


@dataclass(frozen=True)
class Cost:
    """What running one example costs."""

    work: float
    """Multiplications."""
    live: float
    """The most numbers that enter and leave one map."""
    values: float
    """The numbers that leave all maps."""


def cost_of(found: Trace) -> Cost:
    """About what one example costs."""
    work, live, leaving = 0.0, 1.0, 1.0

    def look(at: TracedMap, features: Any, values: Any, *_: Any) -> None:
        nonlocal work, live, leaving
        if at.weight is not None and isinstance(values, torch.Tensor) and at.kind != "embedding":
            shape = tuple(dim.size for dim in found.program.layouts[at.weight].dims)
            work += values.numel() * prod(shape) / max(shape[0], 1)
            live = max(live, features.numel() + values.numel())
            leaving += values.numel()

    example = found.example
    tensors = {
        n: np.zeros([d.size for d in lay.axes], np.float32)
        for n, lay in found.program.layouts.items()
    }
    found.program.run(tensors, example.inputs, example.kwargs, visit=look)
    rows = next((len(x) for x in example.inputs if isinstance(x, torch.Tensor) and x.dim()), 1)
    return Cost(max(work / rows, 1.0), live / rows, leaving / rows)
