"""The groups that a trace finds, what it pins, and what its proof refuses."""

import itertools
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from families import FAMILIES
from parts import Concatenated, FusedAttention, Residual
from torch import Tensor, nn

import pfnm
from pfnm.errors import PFNMError
from pfnm.tracing.rules.call import Call, Dims
from pfnm.tracing.trace import Trace

ROWS, FEATURES, WIDTH, HIDDEN, OUTPUTS = 2, 3, 8, 6, 2
SIDE = 8

pytestmark = [  # of PyTorch about its own recurrent modules
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),
    pytest.mark.filterwarnings("ignore:The tensor attributes .*_flat_weights"),
]


def features(rows: int = ROWS) -> Tensor:
    return torch.randn(rows, FEATURES, generator=torch.Generator().manual_seed(0))


def image() -> Tensor:
    return torch.randn(ROWS, FEATURES, SIDE, SIDE, generator=torch.Generator().manual_seed(0))


def of_vectors(*layers: nn.Module) -> Trace:
    return pfnm.trace(nn.Sequential(nn.Linear(FEATURES, WIDTH), *layers), features())


def of_images(*layers: nn.Module) -> Trace:
    return pfnm.trace(nn.Sequential(nn.Conv2d(FEATURES, WIDTH, 3), *layers), image())


@cache
def of_family(name: str) -> Trace:
    family = FAMILIES[name]
    return pfnm.trace(family.make(WIDTH, 0), *family.inputs(0))


def axes(trace: Trace, name: str) -> list[list[tuple[str | int, ...]]]:
    """The factors of every part of every axis of a tensor."""
    return [[part.factors for part in axis.parts] for axis in trace.graph.axes[name]]


def sizes(trace: Trace) -> dict[str, int]:
    """How many units every group has."""
    layouts = trace.program.layouts
    found = trace.graph.sizes({n: [d.size for d in own.axes] for n, own in layouts.items()})
    return {group: found[group] for group in trace.graph.groups}


# -- groups by hand ------------------------------------------------------------------------------


def test_a_chain_has_a_group_for_every_hidden_layer() -> None:
    layers = nn.ReLU(), nn.Linear(WIDTH, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, OUTPUTS)
    trace = of_vectors(*layers)
    assert sizes(trace) == {"0": WIDTH, "2": HIDDEN}
    assert axes(trace, "0.weight") == [[("0",)], [("input",)]]
    assert axes(trace, "2.weight") == [[("2",)], [("0",)]]
    assert axes(trace, "4.weight") == [[("output",)], [("2",)]]
    assert axes(trace, "4.bias") == [[("output",)]]
    assert not trace.graph.rigid
    roles = [trace.graph.role(name) for name in ("0.weight", "0.bias")]
    assert roles == ["weight", "bias"]


def test_a_residual_joins_what_is_added() -> None:
    body = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH))
    trace = of_vectors(Residual(body), nn.Linear(WIDTH, OUTPUTS))
    assert sizes(trace) == {"0": WIDTH, "1.body.0": HIDDEN}
    assert axes(trace, "1.body.2.weight") == [[("0",)], [("1.body.0",)]]
    assert axes(trace, "2.weight") == [[("output",)], [("0",)]]


def test_a_concatenation_has_two_groups_on_one_axis() -> None:
    trace = of_vectors(Concatenated(nn.Linear(WIDTH, HIDDEN)), nn.Linear(WIDTH + HIDDEN, OUTPUTS))
    assert sizes(trace) == {"0": WIDTH, "1.body": HIDDEN}
    assert axes(trace, "2.weight") == [[("output",)], [("0",), ("1.body",)]]


def test_flattened_maps_are_units_with_places() -> None:
    trace = of_images(nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(WIDTH * 9, OUTPUTS))
    assert sizes(trace) == {"0": WIDTH}
    assert axes(trace, "0.weight") == [[("0",)], [("input",)], [(3,)], [(3,)]]
    assert axes(trace, "4.weight") == [[("output",)], [("0", 9)]]


def test_a_grouped_convolution_has_filters_within_groups() -> None:
    trace = of_images(nn.Conv2d(WIDTH, 12, 3, groups=4), nn.Conv2d(12, OUTPUTS, 3))
    assert sizes(trace) == {"0": 4, "0#2": 2, "1": 3}
    assert trace.graph.inner == {"0#2": "0", "1": "0"}
    assert axes(trace, "0.bias") == [[("0", "0#2")]]
    assert axes(trace, "1.weight") == [[("0", "1", "0#2")], [(3,)], [(3,)]]
    assert axes(trace, "2.weight")[1] == [("0", "1")]


def test_a_depthwise_convolution_keeps_the_group() -> None:
    trace = of_images(nn.Conv2d(WIDTH, WIDTH, 3, groups=WIDTH), nn.Conv2d(WIDTH, OUTPUTS, 3))
    assert sizes(trace) == {"0": WIDTH}
    assert axes(trace, "1.weight") == [[("0",)], [(1,)], [(3,)], [(3,)]]


def test_fused_queries_keys_and_values() -> None:
    layers = nn.Embedding(20, WIDTH), FusedAttention(WIDTH), nn.Linear(WIDTH, OUTPUTS)
    trace = pfnm.trace(nn.Sequential(*layers), torch.arange(10).reshape(ROWS, 5))
    heads, queries, values = "1.qkv", "1.qkv#2", "1.qkv#3"
    assert axes(trace, "1.qkv.bias") == [[(heads, queries), (heads, queries), (heads, values)]]
    assert axes(trace, "1.out.weight")[1] == [(heads, values)]
    assert trace.graph.inner == {queries: heads, values: heads}
    assert "queries and keys" in trace.graph.rigid[queries]
    assert heads not in trace.graph.rigid
    assert values not in trace.graph.rigid


def test_a_tied_embedding_is_one_tensor_with_two_names() -> None:
    trace = of_family("decoder")
    assert trace.names["embedding.weight"] == ("embedding.weight", "head.weight")
    assert "head.weight" not in trace.graph.axes
    state = trace.state(trace.tensors(FAMILIES["decoder"].make(WIDTH, 0)))
    assert torch.equal(state["embedding.weight"], state["head.weight"])


@pytest.mark.parametrize(("name", "gates"), [("lstm", 4), ("gru", 3)])
def test_both_directions_of_two_recurrent_layers(name: str, gates: int) -> None:
    trace = of_family(f"{name}_bidirectional")
    first, back, second, second_back = bodies = ("body", "body#2", "body#3", "body#4")
    assert axes(trace, "body.weight_ih_l0") == [[(gates, first)], [("embedding",)]]
    assert axes(trace, "body.weight_hh_l0_reverse") == [[(gates, back)], [(back,)]]
    assert axes(trace, "body.weight_ih_l1") == [[(gates, second)], [(first,), (back,)]]
    assert axes(trace, "head.weight")[1] == [(second,), (second_back,)]
    assert trace.graph.alike == (bodies,)
    assert not trace.graph.rigid


def test_a_projected_lstm_has_cells_and_outputs() -> None:
    trace = of_family("lstm_projected")
    assert axes(trace, "body.weight_hr_l0") == [[("body#2",)], [("body",)]]
    assert axes(trace, "body.weight_hh_l1") == [[(4, "body#3")], [("body#4",)]]
    assert set(trace.graph.alike) == {("body", "body#3"), ("body#2", "body#4")}


def test_weight_norm_runs_over_what_it_reads() -> None:
    trace = of_family("weight_norm")
    first, second = trace.graph.groups
    assert axes(trace, "4.parametrizations.weight.original1") == [[(second,)], [(first, 4)]]
    assert trace.graph.role("4.parametrizations.weight.original0") == "scale"
    assert set(trace.graph.rigid) == {first}


def test_rotary_coordinates_are_pinned() -> None:
    trace = of_family("llama")
    heads = "blocks.0.0.body.1.q"
    assert axes(trace, f"{heads}.weight")[0] == [(heads, f"{heads}#2", 2)] * 2
    assert axes(trace, "blocks.0.0.body.1.k.weight")[0] == [(heads, 2)] * 2
    (pin,) = [own for own in trace.pinned if own.tensor == f"{heads}.weight"]
    assert pin.reason == "an axis of constant 'blocks.0.0.body.1.frequencies'"
    assert not pin.in_the_way


def test_a_norm_over_units_is_rigid() -> None:
    layer = of_vectors(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, OUTPUTS))
    assert layer.graph.rigid == {"0": "a norm runs over it"}
    batch = of_vectors(nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, OUTPUTS))
    assert batch.graph.rigid == {}
    assert [norm.mean for norm in batch.norms] == ["1.running_mean"]
    assert batch.graph.role("1.running_var") == "statistic"
    group = of_images(nn.GroupNorm(2, WIDTH), nn.ReLU(), nn.Conv2d(WIDTH, OUTPUTS, 3))
    assert group.graph.inner == {"0#2": "0"}
    assert group.graph.rigid == {"0#2": "a norm runs over it"}


def test_a_mean_over_units_cannot_be_widened() -> None:
    class Centred(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x - x.mean(-1, keepdim=True)

    trace = of_vectors(Centred(), nn.ReLU(), nn.Linear(WIDTH, OUTPUTS))
    assert list(trace.graph.rigid) == ["0"]


def test_what_no_operation_uses_stays() -> None:
    module = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, OUTPUTS))
    module.spare = nn.Linear(WIDTH, WIDTH)
    module.forward = lambda x: module[1](module[0](x))  # type: ignore[method-assign]
    trace = pfnm.trace(module, features())
    assert axes(trace, "spare.weight") == [[(WIDTH,)], [(WIDTH,)]]
    assert {own.kind for own in trace.pinned if own.tensor.startswith("spare")} == {"unused"}


# -- rules of one's own --------------------------------------------------------------------------


@torch.library.custom_op("pfnm_tests::mirrored", mutates_args=())
def mirrored(x: Tensor) -> Tensor:
    return x.flip(-1)


@mirrored.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("pfnm_tests::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    return 2 * x


@doubled.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class Custom(nn.Module):
    """A hidden layer, a custom operation, outputs."""

    def __init__(self, operation: str) -> None:
        super().__init__()
        self.operation = operation
        self.hidden, self.out = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        own = {"mirrored": mirrored, "doubled": doubled}[self.operation]
        out: Tensor = self.out(own(self.hidden(x)))
        return out


def unchanged(call: Call) -> Dims:
    """A rule: the dimensions stay what they are."""
    return call.tensors[0].dims


def test_an_operation_without_a_rule_pins_and_is_named() -> None:
    module = Custom("doubled")
    trace = pfnm.trace(module, features())
    assert trace.graph.groups == ()
    (pin, *_) = [own for own in trace.pinned if own.in_the_way]
    assert pin.operation == "pfnm_tests.doubled.default"
    assert str(pin).startswith("hidden.weight axis 0, 8: no rule for it (pfnm_tests.doubled")
    assert "no rule for it" in str(trace)
    with pytest.raises(PFNMError, match=r"Custom: hidden.weight axis 0.*pfnm_tests.doubled"):
        pfnm.fuse([module, Custom("doubled")], example_inputs=(features(),))


def test_batch_normalisation_beside_an_operation_without_a_gradient_fuses() -> None:
    """Inputs cannot be fitted to what it remembers, and are left as they are."""
    models = [nn.Sequential(Custom("doubled"), nn.BatchNorm1d(OUTPUTS)) for _ in range(2)]
    rules = {"pfnm_tests.doubled": unchanged}
    fusion = pfnm.fuse(models, example_inputs=(features(),), axis_rules=rules, budget=1.0)
    assert fusion.model(features()).shape == (len(features()), OUTPUTS)


@pytest.mark.parametrize("name", ["pfnm_tests.doubled", "pfnm_tests.doubled.default"])
def test_a_rule_frees_it(name: str) -> None:
    trace = pfnm.trace(Custom("doubled"), features(), rules={name: unchanged})
    assert sizes(trace) == {"hidden": WIDTH}
    assert not any(own.in_the_way for own in trace.pinned)


def test_a_wrong_rule_is_refused() -> None:
    with pytest.raises(PFNMError, match=r"the unit graph is wrong: renaming .* 'hidden' changes"):
        pfnm.trace(Custom("mirrored"), features(), rules={"pfnm_tests.mirrored": unchanged})


def test_a_rule_of_other_shapes_is_as_good_as_none() -> None:
    rules = {"pfnm_tests.doubled": lambda call: call.tensors[0].dims[:1]}
    trace = pfnm.trace(Custom("doubled"), features(), rules=rules)
    assert "its rule gives other shapes" in {own.reason for own in trace.pinned}


# -- groups by hand ------------------------------------------------------------------------------

BY_HAND = {"hidden.weight": 0, "hidden.bias": 0, "out.weight": 1}


def test_a_group_by_hand_frees_it() -> None:
    trace = pfnm.trace(Custom("doubled"), features(), groups=[BY_HAND])
    assert sizes(trace) == {"hidden": WIDTH}
    assert not any(own.in_the_way for own in trace.pinned)
    assert not trace.graph.rigid  # so it may be wider too


@pytest.mark.filterwarnings("ignore::pfnm.PFNMWarning")
def test_groups_by_hand_are_fused() -> None:
    module, x = Custom("doubled"), features()
    other = Custom("doubled")
    with torch.no_grad():  # the same network, its units in another order
        order = torch.randperm(WIDTH)
        other.hidden.weight.copy_(module.hidden.weight[order])
        other.hidden.bias.copy_(module.hidden.bias[order])
        other.out.weight.copy_(module.out.weight[:, order])
        other.out.bias.copy_(module.out.bias)
    fusion = pfnm.fuse([module, other], example_inputs=(x,), axis_groups=[BY_HAND], budget=1.0)
    assert torch.allclose(fusion.model(x), module(x), atol=1e-5)
    wide = pfnm.fuse(
        [module, Custom("doubled")], example_inputs=(x,), axis_groups=[BY_HAND], budget=1.5
    )
    assert wide.model.hidden.out_features > WIDTH


def test_a_wrong_group_by_hand_is_refused() -> None:
    with pytest.raises(PFNMError, match=r"the unit graph is wrong: renaming .* 'hidden' changes"):
        pfnm.trace(Custom("mirrored"), features(), groups=[BY_HAND])
    with pytest.raises(PFNMError, match=r"axis 2 of 'hidden.weight', and there is no such"):
        pfnm.trace(Custom("doubled"), features(), groups=[{"hidden.weight": 2}])
    with pytest.raises(PFNMError, match=r"which is no multiple"):
        pfnm.trace(Custom("doubled"), features(), groups=[{"hidden.bias": 0, "hidden.weight": 1}])


class FlattenedByHand(nn.Module):
    """Maps that an operation without a rule flattens."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = nn.Conv2d(2, 4, 3), nn.Linear(4 * 9, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(doubled(self.conv(x)).flatten(1))
        return out


def test_an_axis_by_hand_may_have_several_entries_a_unit() -> None:
    by_hand = {"conv.weight": 0, "conv.bias": 0, "out.weight": 1}
    x = torch.randn(2, 2, 5, 5, generator=torch.Generator().manual_seed(0))
    trace = pfnm.trace(FlattenedByHand(), x, groups=[by_hand])
    assert sizes(trace) == {"conv": 4}
    assert axes(trace, "out.weight")[1] == [("conv", 9)]


# -- inputs and outputs --------------------------------------------------------------------------


class Several(nn.Module):
    """Two inputs; hidden values, logits and a count, in a container."""

    def __init__(self, container: str) -> None:
        super().__init__()
        self.container = container
        self.left, self.right = nn.Linear(FEATURES, WIDTH), nn.Linear(FEATURES, WIDTH)
        self.out = nn.Linear(WIDTH, OUTPUTS)

    def forward(self, left: Tensor, right: Tensor, scale: float = 1.0) -> object:
        hidden = torch.relu(self.left(left) + scale * self.right(right))
        logits = self.out(hidden)
        match self.container:
            case "dict":
                return {"hidden": hidden, "logits": logits}
            case "tuple":
                return hidden, logits
            case "nested":
                return {"all": (hidden, logits)}
        return Answer(hidden, logits)


@dataclass
class Answer:
    hidden: Tensor
    logits: Tensor


torch.export.register_dataclass(Answer)

OUTPUT_NAMES: list[tuple[str, str | int]] = [
    ("dict", "logits"),
    ("dict", 1),
    ("tuple", 1),
    ("tuple", "1"),
    ("nested", "all.1"),
    ("dataclass", "logits"),
]


@pytest.mark.parametrize(("container", "output"), OUTPUT_NAMES)
def test_one_of_several_outputs_counts(container: str, output: str | int) -> None:
    trace = pfnm.trace(Several(container), features(), features() + 1, output=output)
    assert sizes(trace) == {"left": WIDTH}
    assert axes(trace, "out.weight") == [[("output",)], [("left",)]]


def test_the_first_output_counts_unless_another_is_named() -> None:
    trace = pfnm.trace(Several("dict"), features(), features() + 1)
    assert trace.graph.groups == ()  # the hidden values are the answer


@pytest.mark.parametrize("container", ["dict", "dataclass"])
def test_an_output_that_is_not_there(container: str) -> None:
    with pytest.raises(PFNMError, match="Several has no floating-point output 'loss'; it has hid"):
        pfnm.trace(Several(container), features(), features(), output="loss")


def test_keyword_inputs() -> None:
    module = Several("dict")
    trace = pfnm.trace(module, left=features(), right=features() + 1, scale=0.5, output="logits")
    assert sizes(trace) == {"left": WIDTH}
    inputs = {"left": features(5), "right": features(5) - 1, "scale": 0.5}
    found = trace.program.run(trace.tensors(module), (), inputs)
    with torch.no_grad():
        expected = module(**inputs)["logits"]
    assert torch.allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("name", ["lenet", "unet", "densenet", "vit", "llama", "lstm", "siamese"])
def test_another_number_of_rows(name: str) -> None:
    family = FAMILIES[name]
    module, trace = family.make(WIDTH, 0), of_family(name)
    inputs = tuple(torch.cat([own, own.flip(0), own[:1]]) for own in family.inputs(1))
    with torch.no_grad():
        expected = module(*inputs)
    found = trace.program.run(trace.tensors(module), inputs)
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_batch_of_one_is_enough() -> None:
    module = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, OUTPUTS))
    assert sizes(pfnm.trace(module, features(1))) == {"0": WIDTH}


@pytest.mark.parametrize("name", ["resnet", "unet", "vit_fused", "lstm_projected", "mixer"])
def test_the_program_runs_other_widths(name: str) -> None:
    family = FAMILIES[name]
    trace, wide = of_family(name), family.make(12, 1)
    with torch.no_grad():
        expected = wide(*family.inputs(1))
    found = trace.program.run(trace.tensors(wide), family.inputs(1))
    assert torch.allclose(found, expected, atol=1e-4)


# -- what is refused -----------------------------------------------------------------------------


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        return out if out.sum() > 0 else -out


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls = nn.Linear(FEATURES, OUTPUTS), itertools.count(1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = next(self.calls) * self.layer(x)
        return out


def test_branches_on_values_are_told_in_one_line() -> None:
    with pytest.raises(PFNMError, match=r"Branching cannot be traced: torch.export says") as caught:
        pfnm.trace(Branching(), features())
    assert len(str(caught.value).splitlines()) == 1


def test_a_module_that_keeps_state_is_refused() -> None:
    with pytest.raises(PFNMError, match="Counting does not answer twice the same"):
        pfnm.trace(Counting(), features())


def test_a_module_without_tensors_is_refused() -> None:
    with pytest.raises(PFNMError, match="ReLU has no tensors; there is nothing to match"):
        pfnm.trace(nn.ReLU(), features())


def test_inputs_that_prove_nothing_are_refused() -> None:
    module = nn.Sequential(nn.Linear(FEATURES, WIDTH, bias=False), nn.Linear(WIDTH, OUTPUTS))
    with pytest.raises(PFNMError, match="do not depend on the order of units at all"):
        pfnm.trace(module, torch.zeros(ROWS, FEATURES))


def test_tensors_of_another_architecture_are_refused() -> None:
    trace = of_vectors(nn.Linear(WIDTH, OUTPUTS))
    with pytest.raises(PFNMError, match=r"Linear has no tensor '0.weight', which the traced Seq"):
        trace.tensors(nn.Linear(FEATURES, OUTPUTS))
    other = nn.Sequential(nn.Conv2d(FEATURES, WIDTH, 3), nn.Linear(WIDTH, OUTPUTS))
    with pytest.raises(PFNMError, match=r"'0.weight' has shape \(8, 3, 3, 3\), the traced .* 2"):
        trace.tensors(other)


# -- shown ---------------------------------------------------------------------------------------


def test_it_reads_as_a_table() -> None:
    trace = of_images(nn.GroupNorm(2, WIDTH), nn.Flatten(), nn.Linear(WIDTH * 36, OUTPUTS))
    assert str(trace).splitlines()[:4] == [
        "Sequential: 2 groups, 6 tensors",
        "  group  units  tensors",
        "  0          2        5",
        "  0#2        4        5  within 0; rigid: a norm runs over it",
    ]
    assert "  pinned:\n    3.weight axis 1, 6: a place in a map" in str(trace)
