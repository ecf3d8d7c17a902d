"""A module as a graph of operations: torch.export without decomposition, in eval mode."""

from __future__ import annotations

import logging
import operator
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export.graph_signature import InputKind, OutputKind
from torch.nn.modules import transformer
from torch.utils import _pytree as pytree

from pfnm.errors import PFNMError

WRAPPERS = ("wrap_with_autocast", "wrap_with_set_grad_enabled", "tag_activation_checkpoint")


@dataclass(frozen=True)
class Source:
    """Where a placeholder's tensor comes from: a tensor of the module, an input, a constant."""

    kind: str  # "tensor", "input", "constant"
    name: str


@dataclass(frozen=True)
class Exported:
    """The graph, and what its placeholders and outputs are."""

    graph: fx.GraphModule
    sources: Mapping[str, Source]
    constants: Mapping[str, Any]
    names: Mapping[str, tuple[str, ...]]
    """Every tensor's first name, and all its names."""
    buffers: frozenset[str]
    inputs: Any
    outputs: Any
    user_outputs: tuple[Any, ...] = field(default=())


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Eval mode, and attention step by step; afterwards everything is as it was."""
    modes = {part: part.training for part in module.modules()}
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    module.eval()
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for part, mode in modes.items():
            part.training = mode


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch.export prints and warns of on its way."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        noise = StringIO()
        with warnings.catch_warnings(), redirect_stdout(noise), redirect_stderr(noise):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


@contextmanager
def _masks_as_given() -> Iterator[None]:
    """PyTorch's transformers look at a mask's values to see whether it is causal: a mere hint."""
    looking = transformer._detect_is_causal_mask
    transformer._detect_is_causal_mask = lambda mask, is_causal=None, size=None: bool(is_causal)
    try:
        yield
    finally:
        transformer._detect_is_causal_mask = looking


def export(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Exported:
    """The operations that a module runs on these inputs."""
    with evaluating(module), _quiet(), _masks_as_given():
        try:
            program = torch.export.export(module, args, dict(kwargs), strict=False)
        except Exception as error:
            raise PFNMError(
                f"{type(module).__name__} cannot be traced: torch.export says "
                f"{first_line(error)!r}; {_way_out(error)}"
            ) from error
    graph = program.graph_module
    _inline(graph)
    _clean(graph.graph)
    graph.recompile()
    names, first = tensor_names(module)
    signature = program.graph_signature
    sources, constants = {}, {}
    for spec in signature.input_specs:
        target = spec.target or ""
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER) and target in first:
            sources[spec.arg.name] = Source("tensor", first[target])
        elif spec.kind == InputKind.USER_INPUT:
            sources[spec.arg.name] = Source("input", spec.arg.name)
        else:
            sources[spec.arg.name] = Source("constant", target)
            constants[target] = _constant(program, target)
    if any(_unknown(node.meta.get("val")) for node in graph.graph.nodes):
        _Recorder(graph).record(module, sources, constants, pytree.tree_leaves((args, kwargs)))
    outputs = next(node for node in graph.graph.nodes if node.op == "output").args[0]
    user = tuple(
        own
        for own, spec in zip(outputs, signature.output_specs, strict=True)
        if spec.kind == OutputKind.USER_OUTPUT
    )
    spec = program.call_spec
    buffers = frozenset(first[n] for n, _ in module.named_buffers() if n in first)
    return Exported(graph, sources, constants, names, buffers, spec.in_spec, spec.out_spec, user)


def _way_out(error: BaseException) -> str:
    if "data-dependent" in str(error).lower() or "DataDependent" in type(error).__name__:
        return "a forward pass that branches on the values in its tensors has no fixed graph"
    return "see that torch.export.export(module, example_inputs, strict=False) works"


def first_line(error: BaseException) -> str:
    """What an error says first."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0]


def _constant(program: Any, target: str) -> Any:
    if target in program.constants:
        return program.constants[target]
    return program.state_dict[target]


def tensor_names(module: nn.Module) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """All names of every floating-point tensor in the state, by its first; and the first of each.

    Tensors that share their memory are one.
    """
    state = module.state_dict(keep_vars=True)
    by_place: dict[Any, str] = {}
    names: dict[str, list[str]] = {}
    first: dict[str, str] = {}
    for name, tensor in state.items():
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            continue
        place = (tensor.data_ptr(), tensor.shape, tensor.stride()) if tensor.numel() else name
        own = by_place.setdefault(place, name)
        names.setdefault(own, []).append(name)
        first[name] = own
    for kind in (module.named_parameters, module.named_buffers):
        for name, tensor in kind(remove_duplicate=False):
            place = (tensor.data_ptr(), tensor.shape, tensor.stride())
            if name not in first and place in by_place and tensor.is_floating_point():
                first[name] = by_place[place]
    return {own: tuple(all_names) for own, all_names in names.items()}, first


def _inline(graph: fx.GraphModule) -> None:
    """Puts subgraphs that only wrap (autocast, no_grad) into the graph around them."""
    for node in list(graph.graph.nodes):
        name = getattr(node.target, "__name__", "") if node.op == "call_function" else ""
        if name not in WRAPPERS:
            continue
        place = next(
            (n for n, own in enumerate(node.args) if _subgraph(graph, own) is not None), None
        )
        if place is None:
            continue
        inner = _subgraph(graph, node.args[place])
        assert inner is not None
        _inline(inner)
        inputs = [own for own in inner.graph.nodes if own.op == "placeholder"]
        values: dict[fx.Node, Any] = dict(zip(inputs, node.args[place + 1 :], strict=True))
        with graph.graph.inserting_before(node):
            outputs = graph.graph.graph_copy(inner.graph, values)
        for user in list(node.users):
            if user.target is operator.getitem and isinstance(outputs, list | tuple):
                user.replace_all_uses_with(outputs[user.args[1]])
                graph.graph.erase_node(user)
        if node.users:
            only = outputs[0] if isinstance(outputs, list | tuple) else outputs
            node.replace_all_uses_with(only)
        graph.graph.erase_node(node)
        for own, other in inner.named_children():
            if not hasattr(graph, own):
                setattr(graph, own, other)


def _subgraph(graph: fx.GraphModule, node: Any) -> fx.GraphModule | None:
    if isinstance(node, fx.Node) and node.op == "get_attr":
        found = getattr(graph, str(node.target), None)
        return found if isinstance(found, fx.GraphModule) else None
    return None


def _clean(graph: fx.Graph) -> None:
    """Without assertions, and without what nobody uses."""
    for node in reversed(list(graph.nodes)):
        checks = any(word in str(node.target) for word in ("assert", "sym_constrain"))
        if node.op == "call_function" and checks and not node.users:
            graph.erase_node(node)
    graph.eliminate_dead_code()


def _unknown(meta: Any) -> bool:
    """Whether a shape or a number depends on the values in tensors."""
    if isinstance(meta, list | tuple):
        return any(_unknown(own) for own in meta)
    if isinstance(meta, Tensor):
        return any(not isinstance(size, int) for size in meta.shape)
    return isinstance(meta, torch.SymInt | torch.SymFloat | torch.SymBool)


class _Recorder(fx.Interpreter):
    """Runs the graph on the example, to know shapes that depend on the values in tensors."""

    def record(
        self,
        module: nn.Module,
        sources: Mapping[str, Source],
        constants: Mapping[str, Any],
        inputs: list[Any],
    ) -> None:
        """Puts the shapes of the run where the exported ones were."""
        state, left = module.state_dict(), iter(inputs)
        values = []
        for node in self.graph.nodes:
            if node.op == "placeholder":
                source = sources[node.name]
                if source.kind == "tensor":
                    values.append(state[source.name].detach().clone())
                else:
                    given = constants.get(source.name, None)
                    own = given if source.kind == "constant" else next(left)
                    values.append(own.clone() if isinstance(own, Tensor) else own)
        with torch.no_grad():
            self.run(*values)

    def run_node(self, n: fx.Node) -> Any:
        """What a node gives, and its shape in the node's notes."""
        result = super().run_node(n)
        n.meta["val"] = pytree.tree_map_only(
            Tensor, lambda own: torch.empty_like(own, device="meta"), result
        )
        return result
