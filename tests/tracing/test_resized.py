"""A resized copy is the module of the other width: it answers, trains, saves, loads, exports."""

import copy
import io
import pickle
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import onnxruntime
import pytest
import torch
from composed import Plan, networks
from families import FAMILIES, Family
from hypothesis import given, settings
from torch import Tensor, nn

from pfnm.errors import PFNMError
from pfnm.tracing.resize import resized, runs_like

NARROW, WIDE = 8, 12
RATE = 0.01
FOLLOWING = [family for family in FAMILIES.values() if not family.numbered]
NUMBERED = [family for family in FAMILIES.values() if family.numbered]
ONNX = ("resnet", "lstm", "vit_fused")

pytestmark = [  # of PyTorch about its own recurrent modules
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),
    pytest.mark.filterwarnings("ignore:The tensor attributes .*_flat_weights"),
]
every_family = pytest.mark.parametrize("family", FOLLOWING, ids=lambda family: family.name)


@pytest.fixture(autouse=True)
def _one_seed() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def answer(module: nn.Module, family: Family) -> Tensor:
    with torch.no_grad():
        output: Tensor = module(*family.inputs(0))
    return output


def widened(family: Family) -> nn.Module:
    return resized(family.make(NARROW, 0), family.make(WIDE, 1).state_dict())


def same(one: nn.Module, other: nn.Module) -> bool:
    states = one.state_dict(), other.state_dict()
    return states[0].keys() == states[1].keys() and all(
        torch.equal(states[0][name], states[1][name]) for name in states[0]
    )


@every_family
@pytest.mark.parametrize(("before", "after"), [(NARROW, WIDE), (WIDE, NARROW)])
def test_it_is_the_module_of_the_other_width(family: Family, before: int, after: int) -> None:
    module, other = family.make(before, 0), family.make(after, 1)
    copied = resized(module, other.state_dict())
    assert torch.equal(answer(copied, family), answer(other, family))
    assert str(copied) == str(other)
    assert same(copied, other)
    assert same(module, family.make(before, 0))
    assert str(module) == str(family.make(before, 0))
    names = [name for name, _ in other.named_parameters()]
    assert [name for name, _ in copied.named_parameters()] == names
    state = other.state_dict()
    assert runs_like(module, state, family.inputs(0), {}, answer(other, family)) is None


@pytest.mark.parametrize("family", NUMBERED, ids=lambda family: family.name)
def test_a_width_held_in_a_number_is_told(family: Family) -> None:
    module, other = family.make(NARROW, 0), family.make(WIDE, 1)
    wrong = runs_like(module, other.state_dict(), family.inputs(0), {}, answer(other, family))
    places = {
        "lenet_numbered": "self.linear(x.view(-1, self.flat))): mat1",
        "vit_numbered": "blocks.0.0.body.1 (NumberedAttention) in parts.py, line",
        "generator": "1 (Unflatten): unflatten: Provided sizes [16, 2, 2]",
    }
    assert wrong is not None
    assert places[family.name] in wrong
    assert ("flat = 200" in wrong) == (family.name == "lenet_numbered")
    assert len(wrong.splitlines()) == 1
    with pytest.raises(RuntimeError):
        resized(module, other.state_dict())(*family.inputs(0))


@settings(max_examples=40, deadline=None)
@given(networks())
def test_composed_networks(plan: Plan) -> None:
    for before, after in ((0, 4), (4, 0)):
        other = plan.make(after)
        with torch.no_grad():
            expected = other(*plan.inputs())
        state = other.state_dict()
        assert runs_like(plan.make(before), state, plan.inputs(), {}, expected) is None


@every_family
def test_it_trains(family: Family) -> None:
    copied = widened(family).train()
    before = copy.deepcopy(copied).eval()
    optimiser = torch.optim.SGD(copied.parameters(), RATE)
    copied(*family.inputs(0)).square().mean().backward()
    for name, parameter in copied.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    optimiser.step()
    assert not torch.equal(answer(copied.eval(), family), answer(before, family))


@every_family
def test_it_saves_loads_copies_and_exports(family: Family) -> None:
    copied = widened(family)
    expected = answer(copied, family)
    file = io.BytesIO()
    torch.save(copied.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    loaded = resized(family.make(NARROW, 2), state)  # from the file alone
    assert torch.equal(answer(loaded, family), expected)
    again = resized(family.make(NARROW, 3), family.make(WIDE, 3).state_dict())
    again.load_state_dict(state)
    assert torch.equal(answer(again, family), expected)
    assert torch.equal(answer(copy.deepcopy(copied), family), expected)
    if family.name != "weight_norm":  # PyTorch pickles no parametrised module
        assert torch.equal(answer(pickle.loads(pickle.dumps(copied)), family), expected)
    exported = torch.export.export(copied, family.inputs(0), strict=False).module()
    assert torch.allclose(answer(exported, family), expected, atol=1e-6)
    moved = copied.double().float()
    assert torch.allclose(answer(moved, family), expected, atol=1e-6)


@pytest.mark.parametrize("name", ONNX)
def test_it_exports_to_onnx(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    copied = widened(family)
    path = tmp_path / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter about itself
        program = torch.onnx.export(copied, family.inputs(0), dynamo=True, verbose=False)
    assert program is not None
    program.save(path)
    session = onnxruntime.InferenceSession(path)
    feeds = {
        entry.name: tensor.numpy()
        for entry, tensor in zip(session.get_inputs(), family.inputs(0), strict=True)
    }
    output = torch.as_tensor(session.run(None, feeds)[0])
    assert torch.allclose(output, answer(copied, family), atol=1e-5)


def test_tied_parameters_stay_one() -> None:
    family = FAMILIES["decoder"]
    state = family.make(WIDE, 1).state_dict()
    copied = resized(family.make(NARROW, 0), state)
    assert copied.get_parameter("head.weight") is copied.get_parameter("embedding.weight")
    one_name = {name: tensor for name, tensor in state.items() if name != "head.weight"}
    assert same(resized(family.make(NARROW, 0), one_name), copied)
    with pytest.raises(PFNMError, match="tied to another tensor in Decoder, and the two differ"):
        resized(family.make(NARROW, 0), {**state, "head.weight": state["head.weight"] + 1})


def test_the_state_is_not_shared() -> None:
    state = nn.Linear(6, 2).state_dict()
    before = state["weight"].clone()
    with torch.no_grad():
        resized(nn.Linear(4, 2), state).get_parameter("weight").zero_()
    assert torch.equal(state["weight"], before)


def test_modes_types_and_hooks_follow() -> None:
    calls: list[tuple[int, ...]] = []
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)).double()
    module[0].requires_grad_(False)
    module[1].eval()
    module[2].register_forward_hook(lambda part, args, out: calls.append(tuple(args[0].shape)))
    wide = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    copied = resized(module, wide.state_dict())
    assert [part.training for part in copied.modules()] == [True, True, False, True]
    assert [tensor.requires_grad for tensor in copied.parameters()] == [False] * 2 + [True] * 4
    assert {tensor.dtype for tensor in copied.parameters()} == {torch.double}
    counts = [name for name, buffer in copied.named_buffers() if buffer.dtype == torch.long]
    assert counts == ["1.num_batches_tracked"]
    copied(torch.zeros(2, 4).double())
    assert calls == [(2, 5)]


def test_buffers_that_are_not_saved_may_be_given() -> None:
    family = FAMILIES["llama"]
    state = family.make(WIDE, 0).state_dict()
    name = "blocks.0.0.body.1.frequencies"
    assert name not in state
    copied = resized(family.make(NARROW, 0), {**state, name: torch.tensor([3.0, 4.0, 5.0])})
    assert copied.get_buffer(name).tolist() == [3.0, 4.0, 5.0]
    kept = resized(family.make(NARROW, 0), state).get_buffer(name)
    assert torch.equal(kept, family.make(NARROW, 0).get_buffer(name))


def test_parametrised_modules_are_not_looked_at_while_training() -> None:
    spectral = nn.utils.parametrizations.spectral_norm
    module, wide = spectral(nn.Linear(4, 3)), spectral(nn.Linear(6, 5))
    copied = resized(module, wide.state_dict())
    assert same(copied, wide)
    assert copied.extra_repr() == nn.Linear(6, 5).extra_repr()
    assert copied.training


def test_weights_computed_before_the_call() -> None:
    norm = nn.utils.parametrizations.weight_norm
    module, wide = norm(nn.LSTM(3, 4), "weight_hh_l0"), norm(nn.LSTM(3, 6), "weight_hh_l0")
    x = torch.ones(2, 1, 3)
    module(x)  # leaves computed weights in the module's list of weights
    assert torch.equal(resized(module, wide.state_dict())(x)[0], wide(x)[0])


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_the_older_weight_norm() -> None:
    module, wide = (nn.utils.weight_norm(nn.Linear(4, width)) for width in (3, 5))
    x = torch.ones(2, 4)
    assert torch.equal(resized(module, wide.state_dict())(x), wide(x))


class Stubborn(nn.Linear):
    def __deepcopy__(self, memo: object) -> "Stubborn":
        return Stubborn(self.in_features, self.out_features)


def test_a_module_that_copies_its_own_tensors_is_named() -> None:
    with pytest.raises(PFNMError, match="Stubborn keeps its own weight, bias when it is copied"):
        resized(Stubborn(2, 3), nn.Linear(4, 3).state_dict())


def test_a_module_that_cannot_be_copied_is_named() -> None:
    module = nn.Linear(2, 2)
    module.lock = threading.Lock()  # type: ignore[assignment]
    with pytest.raises(
        PFNMError, match=r"Linear cannot be copied by copy.deepcopy \(cannot pickle"
    ):
        resized(module, module.state_dict())


def test_a_norm_without_tensors_is_told_by_running() -> None:
    def norm(width: int) -> nn.Module:
        return nn.Sequential(nn.Linear(3, width), nn.LayerNorm(width, elementwise_affine=False))

    x = torch.ones(2, 3)
    wrong = runs_like(norm(4), norm(6).state_dict(), (x,), {}, torch.ones(2, 6))
    assert wrong is not None
    assert wrong.startswith("1 (LayerNorm): Given normalized_shape=[4]")


def test_other_outputs_are_told() -> None:
    module, x = nn.Linear(3, 2), torch.ones(1, 3)
    state = module.state_dict()
    expected = module(x).detach()
    assert runs_like(module, state, (), {"input": x}, expected) is None
    assert runs_like(module, state, (x,), {}, expected * (1 + 1e-6)) is None
    assert runs_like(module, state, (x,), {}, expected[0], lambda out: out[0]) is None
    assert "from the expected ones" in str(runs_like(module, state, (x,), {}, expected + 1))
    assert "from the expected ones" in str(runs_like(module, state, (x,), {}, expected * torch.nan))
    wrong = runs_like(module, state, (x,), {}, expected, lambda out: [out])
    assert wrong == "Linear gives a list instead of a tensor"
    assert "(1, 2) instead of (2,)" in str(runs_like(module, state, (x,), {}, expected[0]))
