"""The program of a traced network runs networks of other widths, and gives their states back."""

import pytest
import torch
from families import FAMILIES, Family

from pfnm.tracing.proof import distance
from pfnm.tracing.trace import trace

NARROW, WIDE = 8, 12
EXACT = 1e-5
WITHIN = ("resnet_groupnorm", "resnext", "decoder", "diffusion")  # more units within groups

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")


@pytest.mark.parametrize(
    "family",
    [family for family in FAMILIES.values() if family.name not in WITHIN],
    ids=lambda family: family.name,
)
def test_a_wider_network_of_the_same_family(family: Family) -> None:
    traced = trace(family.make(NARROW, 0), *family.inputs(0))
    wide = family.make(WIDE, 1)
    tensors = traced.tensors(wide)
    state = traced.state(tensors)
    assert set(state) == set(wide.state_dict())
    assert all(
        torch.equal(own, state[name])
        for name, own in wide.state_dict().items()
        if own.is_floating_point()
    )
    with torch.no_grad():
        expected = wide(*family.inputs(1))
    assert distance(traced.program.run(tensors, family.inputs(1)), expected) < EXACT
