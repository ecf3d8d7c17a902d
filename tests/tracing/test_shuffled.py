"""Every family, and networks composed at random: shuffled exactly, most parameters moved."""

import pytest
import torch
from composed import Plan, networks
from families import FAMILIES, Family
from hypothesis import assume, given, settings
from torch import Tensor, nn

from pfnm.errors import PFNMError
from pfnm.tracing.proof import distance
from pfnm.tracing.shuffling import shuffled_by
from pfnm.tracing.trace import Trace, trace

EXACT = 1e-5
NARROW, WIDE = 8, 12
WIDER_WITHIN = ("resnet_groupnorm", "resnext", "decoder")  # more units within heads and groups

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")


def moved(traced: Trace, module: nn.Module, copy: nn.Module) -> float:
    """The share of parameters in tensors that are another."""
    before, after = module.state_dict(), copy.state_dict()
    sizes = {name: before[name].numel() for name in traced.names}
    other = [sizes[name] for name in sizes if not before[name].equal(after[name])]
    return float(sum(other) / sum(sizes.values()))


def hold(module: nn.Module, inputs: tuple[Tensor, ...], least: float) -> Trace:
    traced = trace(module, *inputs)
    copy = shuffled_by(traced, module)
    with torch.no_grad():
        assert distance(copy(*inputs), module(*inputs)) < EXACT
    assert moved(traced, module, copy) >= least
    assert not [own for own in traced.pinned if own.in_the_way], str(traced)
    return traced


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_every_family_is_shuffled_exactly(family: Family) -> None:
    module = family.make(NARROW, 0)
    traced = hold(module, family.inputs(0), least=0.5)
    assert bool(traced.graph.rigid) == (family.rigid or family.name == "weight_norm"), str(traced)
    wide = family.make(WIDE, 1)  # the same program runs the same network of other widths
    tensors = traced.tensors(wide)
    if family.name in WIDER_WITHIN:
        with pytest.raises(PFNMError, match="within"):
            traced.check(wide)
        return
    traced.check(wide)
    state = traced.state(tensors)
    assert all(torch.equal(own, state[name]) for name, own in wide.state_dict().items()
               if own.is_floating_point())  # fmt: skip


@settings(max_examples=12, deadline=None)
@given(networks())
def test_random_networks_are_shuffled_exactly(plan: Plan) -> None:
    module, inputs = plan.make(), plan.inputs()
    others = [torch.randn_like(own) if own.is_floating_point() else own.flip(1) for own in inputs]
    with torch.no_grad():  # a mean over what was just normalised does not answer to anything
        assume(distance(module(*others), module(*inputs)) > EXACT)
    hold(module, inputs, least=0.5)
