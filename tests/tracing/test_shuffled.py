"""A shuffled module is another module, and the same function."""

import copy

import pytest
import torch
from composed import Plan, networks
from families import FAMILIES, Family
from hypothesis import assume, given, settings
from torch import Tensor, nn

import pfnm
from pfnm.errors import PFNMError
from pfnm.tracing.proof import distance

WIDTH = 8
EXACT = 1e-5  # relative to the largest output
LEAST_MOVED = 0.5  # of all parameters

pytestmark = [  # of PyTorch about its own recurrent modules
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),
    pytest.mark.filterwarnings("ignore:The tensor attributes .*_flat_weights"),
]


def apart(module: nn.Module, other: nn.Module, inputs: tuple[Tensor, ...]) -> float:
    """The largest difference of two modules' outputs, relative to the largest output."""
    with torch.no_grad():
        found, expected = other(*inputs), module(*inputs)
    return float((found - expected).abs().max() / expected.abs().max())


def moved(module: nn.Module, other: nn.Module) -> float:
    """The share of parameters that are not where they were."""
    pairs = list(zip(module.parameters(), other.parameters(), strict=True))
    changed = sum(int((one != two).sum()) for one, two in pairs)
    return changed / sum(one.numel() for one, _ in pairs)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_every_family(family: Family) -> None:
    module = family.make(WIDTH, 0)
    before = copy.deepcopy(module.state_dict())
    other = pfnm.shuffled(module, family.inputs(0), seed=1)
    assert apart(module, other, family.inputs(1)) < EXACT
    assert moved(module, other) >= LEAST_MOVED
    state = module.state_dict()
    assert state.keys() == before.keys() == other.state_dict().keys()
    assert all(torch.equal(state[name], own) for name, own in before.items())
    assert not module.training
    assert not other.training


@settings(max_examples=10, deadline=None)
@given(networks())
def test_composed_networks(plan: Plan) -> None:
    module, inputs = plan.make(), plan.inputs()
    others = [torch.randn_like(own) if own.is_floating_point() else own.flip(1) for own in inputs]
    with torch.no_grad():  # a mean over what was just normalised does not answer to anything
        assume(distance(module(*others), module(*inputs)) > EXACT)
    other = pfnm.shuffled(module, inputs, seed=1)
    assert apart(module, other, inputs) < EXACT
    assert moved(module, other) >= LEAST_MOVED


def test_the_seed_says_the_order() -> None:
    family = FAMILIES["mlp_relu"]
    module = family.make(WIDTH, 0)
    one, same, other = (pfnm.shuffled(module, family.inputs(0), seed) for seed in (1, 1, 2))
    assert moved(one, same) == 0
    assert moved(one, other) > LEAST_MOVED


def test_keyword_inputs_and_one_of_several_outputs() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.out = nn.Linear(3, WIDTH), nn.Linear(WIDTH, 2)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            hidden = torch.tanh(self.hidden(x))
            return {"hidden": hidden, "logits": self.out(hidden)}

    module, x = Named(), torch.randn(4, 3)
    other = pfnm.shuffled(module, {"x": x}, output="logits")
    with torch.no_grad():
        assert torch.allclose(other(x)["logits"], module(x)["logits"], atol=1e-6)
        assert not torch.allclose(other(x)["hidden"], module(x)["hidden"], atol=1e-6)


class Remembering(nn.Module):
    """Answers by whether its first weight is still what it was when it was made."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(3, WIDTH), nn.Linear(WIDTH, 2)
        self.made_with = self.hidden.weight.tolist()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(torch.tanh(self.hidden(x)))
        changed = not torch.compiler.is_exporting() and self.hidden.weight.tolist() != (
            self.made_with
        )
        return 2 * out if changed else out


def test_what_the_graph_does_not_hold_is_refused() -> None:
    with pytest.raises(PFNMError, match="Remembering: a copy with its units renamed answers other"):
        pfnm.shuffled(Remembering(), (torch.randn(2, 3),))
