"""Never silently wrong: wrong rules are refused, missing ones pin, outputs are what they were."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pfnm.errors import PFNMError
from pfnm.tracing.program import AnyTensor
from pfnm.tracing.proof import distance
from pfnm.tracing.rules.call import Call, Dims, Map
from pfnm.tracing.shuffling import shuffled
from pfnm.tracing.trace import module_outputs, trace


class Net(nn.Module):
    """Two layers, with a function between them."""

    def __init__(self, between: Any) -> None:
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.second = nn.Linear(6, 3)
        self.between = between

    def forward(self, x: Tensor) -> Any:
        return self.second(self.between(self.first(x)))


X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))


def test_a_wrong_rule_is_refused_and_the_group_named() -> None:
    def wrong(call: Call) -> Dims:
        return tuple(call["self"].dims)

    module = Net(lambda x: x.cumsum(1))
    assert trace(module, X).graph.groups == ()
    with pytest.raises(PFNMError, match="renaming the units of 'first' changes the outputs"):
        trace(module, X, rules={"aten.cumsum": wrong})


def test_an_operation_without_a_rule_pins_what_it_touches() -> None:
    traced = trace(Net(lambda x: torch.fft.fft(x).real), X)
    assert traced.graph.groups == ()
    ways = [own for own in traced.pinned if own.in_the_way]
    assert {own.tensor for own in ways} == {"first.weight", "first.bias", "second.weight"}
    assert all("fft" in own.operation for own in ways if "first" in own.tensor)


def test_a_users_rule_frees_it() -> None:
    def orderless(call: Call) -> Dims:
        return tuple(call.tensors[0].dims)

    module = Net(lambda x: x.sort(1).values.flip(1).sum(1, keepdim=True) + x)
    assert trace(module, X).graph.groups == ()
    rules = {"aten.sort": lambda call: [orderless(call)] * 2, "aten.flip": orderless}
    assert trace(module, X, rules=rules).graph.groups == ("first",)


def test_what_cannot_be_widened_is_found_by_trying() -> None:
    def silent(call: Call) -> Dims:
        dims = call["self"].dims
        return (*dims[:-1], call.fresh(1))

    module = Net(lambda x: x - x.mean(1, keepdim=True))
    assert "averaged" in trace(module, X).graph.rigid["first"]
    silent_rules = {"aten.mean.dim": silent}
    assert "widening" in trace(module, X, rules=silent_rules).graph.rigid["first"]


def test_a_branch_on_values_is_one_line() -> None:
    with pytest.raises(PFNMError, match="cannot be traced: torch") as caught:
        trace(Net(lambda x: x if x.sum() > 0 else -x), X)
    assert "\n" not in str(caught.value)


def test_a_module_with_a_memory_is_refused() -> None:
    class Counting(nn.Linear):
        calls = 0.0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1.0
            return super().forward(x) * self.calls

    with pytest.raises(PFNMError, match="does not answer twice the same"):
        trace(Counting(4, 3), X)


def test_outputs_that_do_not_depend_on_units_prove_nothing() -> None:
    with pytest.raises(PFNMError, match="nothing can be proved"):
        trace(Net(lambda x: (x * 0).relu()), X)


def test_a_module_is_left_as_it_was() -> None:
    module = nn.Sequential(nn.Linear(4, 6), nn.Dropout(), nn.BatchNorm1d(6), nn.Linear(6, 3))
    module[1].eval()
    before = {name: own.clone() for name, own in module.state_dict().items()}
    trace(module, X)
    assert [part.training for part in module] == [True, False, True, True]
    assert all(torch.equal(own, before[name]) for name, own in module.state_dict().items())


def test_dicts_keywords_and_several_outputs() -> None:
    class Many(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(4, 6)
            self.side = nn.Linear(3, 6)
            self.head = nn.Linear(6, 2)
            self.value = nn.Linear(6, 5)

        def forward(self, x: Tensor, *, extra: Tensor, scale: float = 1.0) -> dict[str, Any]:
            hidden = (self.body(x) + self.side(extra)).tanh() * scale
            return {"logits": self.head(hidden), "more": (self.value(hidden), hidden)}

    module = Many()
    extra = torch.randn(5, 3)
    traced = trace(module, X, extra=extra, scale=2.0)
    assert traced.graph.groups == ("body",)  # the other head's outputs stay too
    assert traced.program.fixed_outputs == [0, 1]
    assert trace(module, X, output="more.0", extra=extra).graph.groups == ("body",)
    assert trace(module, X, output="more.1", extra=extra).graph.groups == ()
    with pytest.raises(PFNMError, match=r"logits, more.0, more.1"):
        trace(module, X, output="nothing", extra=extra)
    copy = shuffled(module, (X,), example_kwargs={"extra": extra})
    for name in ("head", "value"):
        assert torch.equal(copy.get_submodule(name).bias, module.get_submodule(name).bias)  # type: ignore[arg-type]
    rows = traced.program.run(traced.tensors(module), (X[:3],), {"extra": extra[:3], "scale": 2.0})
    expected = module(X[:3], extra=extra[:3], scale=2.0)["logits"]
    assert torch.allclose(rows, expected, atol=1e-6)


@pytest.mark.parametrize("rows", [1, 3, 7])
def test_any_number_of_rows(rows: int) -> None:
    module = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    traced = trace(module, torch.randn(1, 5, 8))  # a batch of one
    x = torch.randn(rows, 5, 8)
    found = traced.program.run(traced.tensors(module), (x,))
    with torch.no_grad():
        assert distance(found, module(x)) < 1e-5


def test_a_visitor_sees_maps_in_order_and_may_replace_them() -> None:
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)
    ).eval()
    x = torch.randn(2, 3, 4, 4)
    traced = trace(module, x)
    tensors = traced.tensors(module)
    seen = []

    def visit(own: Map, features: Tensor, values: Tensor, _: Any) -> dict[str, AnyTensor] | None:
        seen.append((own.kind, own.weight, tuple(features.shape), tuple(values.shape)))
        if own.kind == "linear":
            return {"4.weight": np.zeros_like(tensors["4.weight"])}
        return None

    found = traced.program.run(tensors, (x,), visit=visit)
    assert [own[:2] for own in seen] == [
        ("conv", "0.weight"),
        ("batch_norm", "1.weight"),
        ("linear", "4.weight"),
    ]
    assert seen[0][2:] == ((2, 3, 4, 4), (2, 4, 2, 2))
    bias = module[4].bias
    assert isinstance(bias, Tensor)
    assert torch.allclose(found, bias.expand(2, 2))
    (norm,) = traced.norms
    assert norm.after == ("0.weight", "0.bias", "conv")


def test_a_replaced_tensor_is_seen_wherever_it_was_used() -> None:
    class Transposed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 4))

        def forward(self, x: Tensor) -> Tensor:
            turned = self.weight.t()
            return x @ turned @ turned

    module = Transposed()
    traced = trace(module, X)
    zeros = {"weight": np.zeros((4, 4), dtype=np.float32)}
    found = traced.program.run(traced.tensors(module), (X,), visit=lambda *_: zeros)
    assert not found.any()


def test_gradients_flow_where_asked() -> None:
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    traced = trace(module, X)
    tensors = {
        name: torch.as_tensor(own).requires_grad_() for name, own in traced.tensors(module).items()
    }
    torch.autograd.backward(traced.program.run(tensors, (X,), grad=True).sum())
    assert all(own.grad is not None for own in tensors.values())
    assert not traced.program.run(tensors, (X,)).requires_grad


def test_random_layers_are_the_same_in_every_run() -> None:
    module = Net(lambda x: x + torch.randn_like(x))
    assert trace(module, X).graph.groups == ()
    assert module_outputs(module, trace(module, X).example)
