"""Modules fuse to a module: of copies the one they are of, of others one that works."""

import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from families import FAMILIES, Family, few_probes, seeded
from torch import Tensor, nn

import pfnm
from pfnm.errors import PFNMError
from pfnm.fusing.atoms import observed_mean
from pfnm.fusing.sites import Sites
from pfnm.fusion import Fusion
from pfnm.tracing import modules
from pfnm.tracing.examples import examples_of
from pfnm.tracing.running import Cost
from pfnm.tracing.shuffling import shuffled_by

WIDTH, WIDER = 8, 12
COPIES = 3
BACK = 1e-3  # relative: copies fused are the network
MEAN = 1e-4  # relative: units that share nothing give the mean of the outputs
APART = 1e-9  # a spread at which no two units are alike
RATE = 0.01
UNTOLD = {  # their outputs are no sum over units, or not all their groups can be wider
    *("autoencoder", "generator", "weight_norm", "lenet_numbered"),
}
OTHER_WIDTHS = (
    *("mlp_batchnorm", "lenet", "resnet", "mobilenet", "densenet", "unet", "mixer", "vit_fused"),
    *("llama", "lstm_bidirectional", "lstm_projected", "siamese"),
)
SOME = (  # one of each kind
    *("mlp_batchnorm", "lenet", "resnet", "mobilenet", "vit_fused", "llama", "lstm_bidirectional"),
)
WITH_CLASSES = ("mlp_relu", "lenet", "resnet_bottleneck", "resnext", "gru", "two_branches")
OTHER_SIZES = ("resnext", "resnet_groupnorm", "decoder")  # of groups and heads, at other widths

pytestmark = [  # of PyTorch about its own recurrent modules
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),
    pytest.mark.filterwarnings("ignore:The tensor attributes .*_flat_weights"),
]


@pytest.fixture(autouse=True, scope="module")
def _few_probes() -> Iterator[None]:
    with few_probes():
        yield


@dataclass(frozen=True)
class Pair:
    """Two networks of a family, traced once."""

    family: Family
    first: nn.Module
    second: nn.Module
    sites: Sites

    def fuse(self, budget: float | None, spread: float | None = None) -> Fusion:
        fusion = pfnm.fuse(self.sites, budget=budget, spread=spread)
        return replace(fusion, template=self.first)


@pytest.fixture(scope="module", params=FAMILIES.values(), ids=list(FAMILIES))
def pair(request: pytest.FixtureRequest, _few_probes: None) -> Pair:
    family: Family = request.param
    both = family.make(WIDTH, 0), family.make(WIDTH, 1)
    return Pair(family, *both, pfnm.as_sites(both, example_inputs=family.inputs(0)))


def made(name: str, width: int = WIDTH) -> list[nn.Module]:
    """Two networks of a family, the second of another width perhaps."""
    return [FAMILIES[name].make(WIDTH, 0), FAMILIES[name].make(width, 1)]


def fused(name: str, width: int = WIDTH, **options: object) -> Fusion:
    inputs = FAMILIES[name].inputs(0)
    return pfnm.fuse(made(name, width), example_inputs=inputs, **options)  # type: ignore[arg-type]


def answer(module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    with torch.no_grad():
        output: Tensor = module(*inputs)
    return output


def apart(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest value."""
    return float((found - expected).abs().max() / expected.abs().max())


# -- every family --------------------------------------------------------------------------------


def test_shuffled_copies_fuse_back(pair: Pair) -> None:
    family, module = pair.family, pair.first
    trace = modules.program_of(pair.sites.networks[0]).trace
    copies = [shuffled_by(trace, module, seed) for seed in range(COPIES)]
    fusion = pfnm.fuse(copies, example_inputs=family.inputs(0), budget=1.0)
    assert fusion.widths == pair.sites.networks[0].widths
    inputs = family.inputs(1)
    assert apart(answer(fusion.model, inputs), answer(module, inputs)) < BACK


def test_two_networks_fuse_to_one_that_works(pair: Pair, tmp_path: Path) -> None:
    budgets = (1.0, 1.5, None) if pair.family.name in SOME else (1.5,)
    for budget in budgets:
        check_fused(pair, budget, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("budget", [1.0, None])
def test_at_other_budgets_too(pair: Pair, budget: float | None, tmp_path: Path) -> None:
    check_fused(pair, budget, tmp_path)


def check_fused(pair: Pair, budget: float | None, folder: Path) -> None:
    """It runs, has the widths it may have, is saved and loaded, and takes a training step."""
    family, fusion = pair.family, pair.fuse(budget)
    own = pair.sites.networks[0].widths
    for group, width in fusion.widths.items():
        assert width >= own[group]
        assert width <= int(own[group] * (2 if budget is None else budget))
        assert width == own[group] or group not in fusion.network.graph.rigid
    model, inputs = fusion.model, family.inputs(1)
    assert not model.training
    expected = answer(model, inputs)
    assert expected.isfinite().all()
    assert expected.shape == answer(pair.first, inputs).shape
    fusion.save(folder / "fused.safetensors", force=True)
    loaded = pfnm.load(folder / "fused.safetensors", model=pair.second)
    assert torch.equal(answer(loaded, inputs), expected)
    assert all(own.is_contiguous() for own in model.state_dict().values())
    trained = copy.deepcopy(model).train()
    trained(*inputs).square().mean().backward()
    torch.optim.SGD(trained.parameters(), RATE).step()
    assert all(own.grad is not None and own.grad.isfinite().all() for own in trained.parameters())
    assert not torch.equal(answer(trained.eval(), inputs), expected)


def test_networks_that_share_nothing_give_their_mean(pair: Pair) -> None:
    if pair.family.rigid or pair.family.name in UNTOLD:
        pytest.skip("its outputs are no sum over units")
    fusion = pair.fuse(None, spread=APART)
    assert fusion.widths == {group: 2 * n for group, n in pair.sites.networks[0].widths.items()}
    inputs = pair.family.inputs(1)
    expected = (answer(pair.first, inputs) + answer(pair.second, inputs)) / 2
    assert apart(answer(fusion.model, inputs), expected) < MEAN


# -- a few ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OTHER_WIDTHS)
def test_widths_may_differ_from_site_to_site(name: str) -> None:
    fusion = fused(name, WIDER, budget=1.0)
    narrow, wide = (network.widths for network in fusion.sites.networks)
    assert narrow != wide
    assert all(fusion.widths[group] >= wide[group] for group in wide)
    assert answer(fusion.model, FAMILIES[name].inputs(1)).isfinite().all()


@pytest.mark.parametrize("name", OTHER_SIZES)
def test_groups_and_heads_of_other_sizes_are_refused(name: str) -> None:
    with pytest.raises(PFNMError, match=r"site1 .* computes something else .* not in how large"):
        fused(name, WIDER)


@pytest.mark.parametrize("name", ["lenet_numbered", "vit_numbered", "generator"])
def test_a_width_that_the_code_holds_stays(name: str) -> None:
    fusion = fused(name, budget=None)
    held = [why for why in fusion.network.graph.rigid.values() if "code holds its width" in why]
    assert held
    assert answer(fusion.model, FAMILIES[name].inputs(1)).isfinite().all()
    wider = fused(name, WIDER)
    with pytest.raises(PFNMError, match=r"cannot be given the fused widths.*state_dict\(\)"):
        _ = wider.model
    assert wider.state_dict().keys() == fusion.model.state_dict().keys()


@pytest.mark.parametrize("name", ["resnet", "vit_fused", "lstm_bidirectional", "two_branches"])
def test_it_exports(name: str) -> None:
    model, inputs = fused(name, budget=1.5).model, FAMILIES[name].inputs(1)
    exported = torch.export.export(model, inputs, strict=False).module()
    assert apart(answer(exported, inputs), answer(model, inputs)) < 1e-5


def test_it_exports_to_onnx(tmp_path: Path) -> None:
    model, inputs = fused("cnn_1d", budget=1.5).model, FAMILIES["cnn_1d"].inputs(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter about itself
        program = torch.onnx.export(model, inputs, dynamo=True, verbose=False)
    assert program is not None
    program.save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    found = session.run(None, {session.get_inputs()[0].name: inputs[0].numpy()})[0]
    assert apart(torch.as_tensor(found), answer(model, inputs)) < 1e-5


@pytest.mark.parametrize("name", ["lenet", "resnet", "gru"])
def test_top_down(name: str) -> None:
    fusion = fused(name, method="topdown", budget=1.5)
    assert fusion.options["method"] == "topdown"
    assert answer(fusion.model, FAMILIES[name].inputs(1)).isfinite().all()


@pytest.mark.parametrize("name", SOME)
def test_top_down_finds_the_units_of_shuffled_copies(name: str) -> None:
    family = FAMILIES[name]
    module, inputs = family.make(WIDTH, 0), family.inputs(0)
    traced = pfnm.trace(module, *inputs)
    copies = [shuffled_by(traced, module, seed) for seed in range(COPIES)]
    sites = pfnm.as_sites(copies, example_inputs=inputs)
    fitted = pfnm.Prior.fit(sites.networks)
    weak = replace(fitted, prior_variance=1e6 * fitted.prior_variance)  # which shrinks nothing
    fusion = replace(pfnm.fuse(sites, method="topdown", prior=weak), template=module)
    assert fusion.widths == sites.networks[0].widths
    assert apart(answer(fusion.model, inputs), answer(module, inputs)) < BACK


@pytest.mark.parametrize("name", SOME)
def test_parts_of_one_network_fuse_to_it_again(name: str) -> None:
    """A round in which no site has learned anything."""
    first = fused(name, budget=1.0)
    parts = [first.site_part(place) for place in range(2)]
    again = pfnm.fuse(parts, budget=1.0, start=first.assignments)
    for group, own in first.assignments.items():
        for assignment, other in zip(own, again.assignments[group], strict=True):
            assert np.array_equal(assignment, other)
    rows = first.sites.networks[0].program.examples.rows
    assert np.allclose(again.network.run(rows), first.network.run(rows), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"conv": [np.arange(WIDTH)] * 2}, "name the groups conv, expected"),
        (None, "more than the limit"),
    ],
)
def test_a_start_that_does_not_fit_is_refused(start: object, message: str) -> None:
    wide = fused("lenet", budget=2.0, spread=APART)
    with pytest.raises(PFNMError, match=message):
        fused("lenet", budget=1.0, start=start or wide.assignments)


def test_rounds_start_where_the_last_ended() -> None:
    first = fused("lenet", budget=1.5)
    again = fused("lenet", budget=1.5, start=first.assignments)
    assert again.options["started_from_assignments"]
    assert again.objective == pytest.approx(first.objective, rel=0.01)
    own = again.sites.networks[0].widths
    assert all(own[group] <= width <= 1.5 * own[group] for group, width in again.widths.items())


@pytest.mark.parametrize("name", ["lenet", "resnet", "lstm"])
def test_the_parts_of_sites_that_share_nothing_add_up(name: str) -> None:
    family, fusion = FAMILIES[name], fused(name, budget=None, spread=APART)
    rows = examples_of(family.inputs(1), {}).rows
    parts = [fusion.site_part(place) for place in range(2)]
    assert [part.name for part in parts] == ["site0", "site1"]
    for part, site in zip(parts, fusion.sites.networks, strict=True):
        assert part.widths == site.widths
    biases = parts[0].run(rows) + parts[1].run(rows) - fusion.network.run(rows)
    assert np.allclose(biases, biases[0], atol=1e-5)  # counted twice: the same for every input
    assert not np.allclose(parts[0].run(rows), parts[1].run(rows), atol=1e-2)


def test_class_counts_weigh_the_sites() -> None:
    even, counted = fused("lenet"), fused("lenet", class_counts=[[9, 9, 9, 9, 9], [1] * 5])
    inputs = FAMILIES["lenet"].inputs(1)
    assert counted.options["class_counts"] == [[9] * 5, [1] * 5]
    assert apart(answer(counted.model, inputs), answer(even.model, inputs)) > BACK


@pytest.mark.parametrize("name", WITH_CLASSES)
def test_a_site_counts_for_a_class_as_far_as_it_has_seen_it(name: str) -> None:
    inputs = FAMILIES[name].inputs(1)
    first, second = (answer(module, inputs) for module in made(name))
    counts = np.random.default_rng(0).integers(1, 50, size=(2, first.shape[-1]))
    fusion = fused(name, budget=None, spread=APART, class_counts=counts)
    shares = torch.from_numpy((counts / counts.sum(axis=0)).astype(np.float32))
    expected = shares[0] * first + shares[1] * second
    assert apart(averaged(fusion, inputs), expected.flatten(0, -2)) < MEAN


def averaged(fusion: Fusion, inputs: tuple[Tensor, ...]) -> Tensor:
    """What the matched networks answer before a refit, which fits log probabilities instead."""
    network = observed_mean(fusion.sites, fusion.assignments)
    return torch.from_numpy(network.run(examples_of(inputs, {}).rows))


def classifier(outputs: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, outputs)
    ).eval()


def test_sites_may_know_different_classes() -> None:
    x = torch.randn(3, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    modules_of_sites = [classifier(3, 0), classifier(2, 1)]
    counts = {"site0": {"a": 3, "b": 4, "c": 1}, "site1": {"c": 5, "d": 2}}
    fusion = pfnm.fuse(
        modules_of_sites, example_inputs=(x,), labels=[["a", "b", "c"], ["c", "d"]],
        class_counts=counts, budget=None, spread=APART,
    )  # fmt: skip
    assert fusion.network.labels == ("a", "b", "c", "d")
    found = averaged(fusion, (x,))
    first, second = (answer(module, (x,)) for module in modules_of_sites)
    expected = torch.stack(
        [first[:, 0], first[:, 1], (first[:, 2] + 5 * second[:, 0]) / 6, second[:, 1]], dim=1
    )
    assert apart(found, expected) < MEAN
    assert set(fusion.predict(x.numpy())) <= set("abcd")


def test_class_counts_are_estimated() -> None:
    fusion = fused("lenet", class_counts="estimated")
    shares = np.array(fusion.options["class_counts"])
    assert shares.shape == (2, 5)
    assert np.allclose(shares.sum(axis=1), 1)


class Drawing(nn.Module):
    """It draws at random in eval mode, as variational autoencoders do."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.mean = nn.Linear(4, WIDTH), nn.Linear(WIDTH, 3)
        self.decode, self.out = nn.Linear(3, WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        mean = self.mean(torch.relu(self.encode(x)))
        out: Tensor = self.out(torch.relu(self.decode(mean + torch.randn_like(mean))))
        return out


def test_what_draws_at_random_is_fused_and_the_same_every_time() -> None:
    x, own = torch.randn(5, 4), [Drawing(), Drawing()]
    first = pfnm.fuse(own, example_inputs=(x,), budget=1.0)
    torch.rand(3)  # another state of the generator
    again = pfnm.fuse(own, example_inputs=(x,), budget=1.0)
    assert first.agreement == again.agreement
    assert list(first.widths) == ["encode", "decode"]  # not those along which it draws
    assert first.model(x).isfinite().all()


def test_labels_name_the_outputs() -> None:
    names = list("abcde")
    swapped = names[::-1]
    fusion = fused("lenet", budget=None, spread=APART, labels=[names, swapped])
    assert sorted(map(str, fusion.network.labels or ())) == names
    inputs = FAMILIES["lenet"].inputs(1)
    first, second = (answer(module, inputs) for module in made("lenet"))
    order = [names.index(str(label)) for label in fusion.network.labels or ()]
    expected = ((first + second.flip(-1)) / 2)[:, order]
    assert apart(answer(fusion.model, inputs), expected) < MEAN


def test_a_network_that_costs_much_is_run_on_fewer_inputs() -> None:
    sites = pfnm.as_sites(made("lenet"), example_inputs=FAMILIES["lenet"].inputs(0))
    program = modules.program_of(sites.networks[0])
    counts = {}
    for work in (1e-6, 1e10, 2e11, 1e13):
        counts[work] = replace(program, cost=Cost(work, 1.0, 1.0)).probes(500)
    assert counts == {1e-6: 500, 1e10: 32, 2e11: 5, 1e13: 4}


# -- batch normalisation -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp_batchnorm", "resnet", "resnet_preactivated", "unet"])
def test_at_rest_it_answers_as_the_network_does(name: str) -> None:
    family, fusion = FAMILIES[name], fused(name, budget=1.5)
    inputs = family.inputs(1)
    found = answer(fusion.model, inputs)
    found = found.movedim(1, -1).flatten(0, -2)
    rows = examples_of(inputs, {}).rows
    assert apart(found, torch.from_numpy(fusion.network.run(rows))) < 1e-4


def test_its_statistics_are_those_of_what_enters_it() -> None:
    fusion = fused("vgg_batchnorm", budget=1.5)
    program = modules.program_of(fusion.network)
    rng = np.random.default_rng(modules.STATISTICS_SEED)
    count = program.probes(modules.STATISTICS_ROWS)
    (inputs,) = program.examples.tensors(fusion.sites.inputs.make([fusion.network], count, rng))
    norms = [own for own in fusion.model.modules() if isinstance(own, nn.BatchNorm2d)]
    seen: list[Tensor] = []
    for norm in norms:
        norm.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    answer(fusion.model, (inputs,))
    for norm, entering in zip(norms, seen, strict=True):
        assert norm.running_mean is not None
        assert norm.running_var is not None
        mean = entering.mean((0, 2, 3))
        variance = entering.var((0, 2, 3), correction=0)
        assert torch.allclose(norm.running_mean, mean, atol=1e-4)
        assert torch.allclose(norm.running_var, variance, rtol=1e-3, atol=1e-4)


# -- refused -------------------------------------------------------------------------------------


def test_modules_need_an_example() -> None:
    with pytest.raises(PFNMError, match=r"traced on an example; give example_inputs=\(x,\)"):
        pfnm.fuse(made("lenet"))


def test_an_activation_is_the_modules_own() -> None:
    with pytest.raises(PFNMError, match="a module's code states its activations"):
        fused("lenet", activation="relu")


def test_architectures_are_not_mixed() -> None:
    mixed = [FAMILIES["lenet"].make(WIDTH, 0), FAMILIES["vgg"].make(WIDTH, 0)]
    with pytest.raises(PFNMError, match="give modules of one architecture"):
        pfnm.fuse(mixed, example_inputs=FAMILIES["lenet"].inputs(0))


def test_the_same_tensors_of_another_function_are_refused() -> None:
    x = torch.randn(2, 3)
    both = [
        seeded(lambda w, own=own: nn.Sequential(nn.Linear(3, w), own(), nn.Linear(w, 2)))(WIDTH, 0)  # type: ignore[misc]
        for own in (nn.ReLU, nn.Tanh)
    ]
    with pytest.raises(PFNMError, match=r"site1 \(Sequential\) computes something else"):
        pfnm.fuse(both, example_inputs=x)


def test_networks_without_hidden_units_are_refused() -> None:
    with pytest.raises(PFNMError, match="hidden"):
        pfnm.fuse([nn.Linear(3, 2), nn.Linear(3, 2)], example_inputs=torch.randn(2, 3))


def _disturb_by_optimizer(module: nn.Module) -> None:
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(module.parameters(), lr=0.01).step()


def _disturb_data(module: nn.Module) -> None:
    next(module.parameters()).data[0] += 1e-3


def _disturb_by_numpy(module: nn.Module) -> None:
    next(module.parameters()).detach().numpy()[0] += 1e-3


@pytest.mark.parametrize("change", [_disturb_by_optimizer, _disturb_data, _disturb_by_numpy])
@pytest.mark.parametrize("use", ["check", "polish", "confidence", "fuse"])
def test_modules_that_were_trained_on_are_noticed(
    change: Callable[[nn.Module], None], use: str
) -> None:
    torch.manual_seed(0)
    modules = [nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)) for _ in range(2)]
    sites = pfnm.as_sites(modules, example_inputs=torch.randn(3, 4))
    fusion = pfnm.fuse(sites, budget=1.0)
    before = fusion.predict(np.eye(4, dtype=np.float32))
    uses: dict[str, Callable[[], object]] = {
        "check": fusion.check,
        "polish": lambda: fusion.polish(seconds=0.1),
        "confidence": lambda: fusion.confidence,
        "fuse": lambda: pfnm.fuse(sites, budget=1.0),
    }
    fusion.check()  # all is well so far
    change(modules[1])
    with pytest.raises(PFNMError, match=r"site1: the module's weights have changed.*fuse the mod"):
        uses[use]()
    np.testing.assert_array_equal(fusion.predict(np.eye(4, dtype=np.float32)), before)
    pfnm.fuse(modules, example_inputs=torch.randn(3, 4), budget=1.0).check()  # the way out
