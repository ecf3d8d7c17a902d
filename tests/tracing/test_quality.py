"""How good fused modules are: a small network of pictures, two sites, no data."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pfnm
from pfnm import teaching
from pfnm.fusing import wanted
from pfnm.fusing.inputs import Given, Like
from pfnm.fusing.probes import probe
from pfnm.fusing.refit import Making
from pfnm.fusing.tokens import Written
from pfnm.fusing.wanted import refit_targets, targets_when_asked
from pfnm.fusing.whole import room_for, side_by_side, whole_network
from pfnm.lab.data import load_data
from pfnm.networks.graph import OUTPUT
from pfnm.tracing import remembering, running
from pfnm.tracing.remembering import FLOOR, Memory, Remembered
from pfnm.verdicts import verdict

EPOCHS, RATE, BATCH = 12, 0.01, 32
SIDE = 8


class Small(nn.Module):
    """Two convolutions and a hidden layer, for digits of 8 x 8."""

    def __init__(self, classes: int = 10, *, batch_norm: bool = False) -> None:
        super().__init__()
        norm: Callable[[int], nn.Module] = nn.BatchNorm2d if batch_norm else nn.Identity
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), norm(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), norm(16), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, classes)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.features(x))
        return y


@dataclass(frozen=True)
class Digits:
    """Two trained networks, and what to test them on."""

    modules: list[nn.Module]
    x: torch.Tensor
    y: torch.Tensor

    def accuracy(self, model: nn.Module) -> float:
        with torch.no_grad():
            return float((model(self.x).argmax(dim=1) == self.y).float().mean())


def digits() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    data = load_data("digits")
    pictures = [
        torch.from_numpy(x.astype(np.float32)).reshape(-1, 1, SIDE, SIDE)
        for x in (data.train_inputs, data.test_inputs)
    ]
    labels = [torch.from_numpy(y) for y in (data.train_labels, data.test_labels)]
    return pictures[0], labels[0], pictures[1], labels[1]


def trained(x: torch.Tensor, y: torch.Tensor, seed: int, **how: bool) -> nn.Module:
    torch.manual_seed(seed)
    module = Small(int(y.max()) + 1, **how)
    optimizer = torch.optim.Adam(module.parameters(), RATE)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x)).split(BATCH):  # type: ignore[no-untyped-call]
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return module.eval()


@pytest.fixture(autouse=True, scope="module")
def _seeded() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng(devices=[]):
        patch.setattr(remembering, "POOL", 400)
        patch.setattr(running, "WORK", 2e7)  # fewer lessons and probes
        patch.setattr(teaching, "EPOCHS", 8)
        yield


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "batch_norm"])
def pair(request: pytest.FixtureRequest, _seeded: None) -> Digits:
    x, y, test_x, test_y = digits()
    half = len(x) // 2
    modules = [
        trained(x[part], y[part], seed, batch_norm=request.param)
        for seed, part in enumerate((slice(half), slice(half, None)))
    ]
    return Digits(modules, test_x, test_y)


EXAMPLE = torch.rand(4, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0))


def test_at_one_width_it_is_refitted_and_taught(pair: Digits) -> None:
    sites = pfnm.as_sites(pair.modules, example_inputs=EXAMPLE)
    fusion = pfnm.fuse(sites, budget=1.0)
    averaged = next(one for one in fusion.candidates if one.ridge is None)
    assert fusion.agreement is not None
    assert max(one.sure_agreement for one in fusion.candidates) > averaged.sure_agreement
    network, rows = fusion.network, pair.x.flatten(1).numpy()
    fused = float((network.run(rows).argmax(axis=1) == pair.y.numpy()).mean())
    polished = fusion.polish()
    taught = float((polished.network.run(rows).argmax(axis=1) == pair.y.numpy()).mean())
    local = max(map(pair.accuracy, pair.modules))
    assert fused > 0.6
    assert taught > local - 0.1


def test_sites_with_different_classes_know_all_of_them_together() -> None:
    x, y, test_x, test_y = digits()
    low, high = y < 5, y >= 5
    modules = [trained(x[low], y[low], 0), trained(x[high], y[high] - 5, 1)]
    labels = [list(range(5)), list(range(5, 10))]
    fusion = pfnm.fuse(modules, example_inputs=EXAMPLE, labels=labels, budget=2.0)
    both = Digits(modules, test_x, test_y)
    assert isinstance(fusion.model, Small)
    assert both.accuracy(fusion.model) > 0.6


class Speaker(nn.Module):
    """A language model of few tokens."""

    def __init__(self, tokens: int, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, tokens)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.lstm(self.embedding(text))[0])
        return y


def test_language_models_write_the_text_on_which_they_are_fused() -> None:
    torch.manual_seed(0)
    tokens, length = 12, 20
    counting = (torch.arange(length + 1) + torch.arange(60)[:, None]) % tokens  # 3, 4, 5, ...
    modules = []
    for seed in range(2):
        torch.manual_seed(seed)
        module = Speaker(tokens)
        optimizer = torch.optim.Adam(module.parameters(), 0.02)
        for _ in range(60):
            said = module(counting[:, :-1]).flatten(0, 1)
            optimizer.zero_grad()
            nn.functional.cross_entropy(said, counting[:, 1:].flatten()).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        modules.append(module.eval())
    sites = pfnm.as_sites(modules, example_inputs=torch.zeros(2, length, dtype=torch.long))
    assert isinstance(sites.inputs, Written)
    written = sites.inputs.pool.astype(int)
    follows = (written[:, 1:] - written[:, :-1]) % tokens == 1
    assert follows[:, 2:].mean() > 0.9  # they count
    fusion = pfnm.fuse(sites, budget=2.0)
    answers = fusion.network.run(counting[:, :-1].numpy().astype(np.float32)).argmax(axis=1)
    assert (answers == counting[:, 1:].flatten().numpy()).mean() > 0.9
    assert fusion.agreement is not None
    polished = pfnm.fuse(sites, budget=1.0).polish()
    assert polished.polish_record is not None


def test_written_text_that_judges_does_nothing_else() -> None:
    torch.manual_seed(0)
    modules = [Speaker(12).eval() for _ in range(2)]  # what they write is chance: never twice alike
    sites = pfnm.as_sites(modules, example_inputs=torch.zeros(2, 20, dtype=torch.long))
    assert isinstance(sites.inputs, Written)
    rng, many = np.random.default_rng(0), len(sites.inputs.pool)
    taught, judges = (
        {row.tobytes() for row in make(sites.networks, many, rng)}
        for make in (sites.inputs.make, sites.inputs.make_to_judge)
    )
    assert len(taught) > len(judges) > 0
    assert len(taught) + len(judges) == many
    assert not taught & judges


@pytest.fixture(scope="module")
def untrained() -> list[nn.Module]:
    torch.manual_seed(0)
    return [Small(batch_norm=True).eval() for _ in range(2)]


def real_inputs(form: str) -> object:
    rows = torch.rand(24, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    if form == "loader":
        pairs = TensorDataset(rows, torch.zeros(24))
        return DataLoader(pairs, batch_size=7)
    return {"tensor": rows, "array": rows.numpy(), "rows": rows.flatten(1).numpy()}[form]


@pytest.mark.parametrize("form", ["tensor", "array", "rows", "loader"])
def test_real_inputs_take_the_place_of_made_up_ones(untrained: list[nn.Module], form: str) -> None:
    inputs: Any = real_inputs(form)
    sites = pfnm.as_sites(untrained, example_inputs=EXAMPLE, inputs=inputs)
    assert isinstance(sites.inputs, Given)
    given = {row.tobytes() for row in cast(Any, real_inputs("rows"))}
    for count, expected in ((10, 10), (30, len(given))):  # none of them twice
        made = sites.inputs.make(sites.networks, count, np.random.default_rng(0))
        assert made.shape == (expected, SIDE * SIDE)
        found = {row.tobytes() for row in made}
        assert len(found) == expected
        assert found <= given


def test_real_inputs_stand_beside_those_that_are_remembered(untrained: list[nn.Module]) -> None:
    rows: Any = real_inputs("rows")
    kind = "pictures:1x8x8"
    sites = pfnm.as_sites(untrained, example_inputs=EXAMPLE, inputs=kind, input_like=rows)
    assert isinstance(sites.inputs, Like)
    assert isinstance(sites.inputs.kind, Remembered)
    given = {row.tobytes() for row in rows}
    for count, expected in ((10, 5), (60, len(rows))):
        made = sites.inputs.make(sites.networks, count, np.random.default_rng(0))
        assert sum(row.tobytes() in given for row in made) == expected


def test_what_is_remembered_is_what_inputs_leave(pair: Digits) -> None:
    sites = pfnm.as_sites(pair.modules, example_inputs=EXAMPLE, inputs="pictures:1x8x8")
    if sites.networks[0].memory is None:
        assert isinstance(sites.inputs, pfnm.Pictures)
        return
    assert isinstance(sites.inputs, Remembered)
    rng = np.random.default_rng(0)
    plain = torch.from_numpy(sites.inputs.kind.make(sites.networks, 200, rng))
    fitted = torch.from_numpy(sites.inputs.pool[0])
    for network in sites.networks:
        memory, labels = Memory(network), torch.zeros(0)
        before, after = (float(memory.distance(x, labels, 0.0)) for x in (plain, fitted))
        assert after < before / 4
    # What judges is of other pictures than what fits; shifts move pixels, and change none.
    count = 3 * len(fitted)
    made = sites.inputs.make(sites.networks, count, rng), sites.inputs.make_to_judge([], 50, rng)
    fitting, judging = ({np.sort(row).tobytes() for row in rows} for rows in made)
    assert judging
    assert not fitting & judging
    low, high = map(float, sites.inputs.within.ends)
    assert low <= float(fitted.min()) <= float(fitted.max()) <= high


def test_the_distance_has_the_gradient_of_what_it_is() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 6, 3),
        nn.BatchNorm2d(6, affine=False), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(96, 5),
        nn.BatchNorm1d(5), nn.Linear(5, 3),
    )  # fmt: skip
    module.train()(3 * torch.rand(50, 1, 8, 8) - 1)  # so that they remember something
    sites = pfnm.as_sites([module, module], example_inputs=torch.rand(2, 1, 8, 8))
    memory = Memory(sites.networks[0])
    x, labels = torch.randn(12, 64, requires_grad=True), torch.arange(12) % 3
    found = memory.slope(x, labels, 0.5)

    values = x.reshape(-1, 1, 8, 8)
    apart = []
    for layer in module.eval():
        values = layer(values)
        if not isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            continue
        mean, variance = torch.zeros(()), torch.ones(())  # of what left it in training
        if layer.affine:
            mean, variance = layer.bias.detach(), layer.weight.detach().square()
        axes = [axis for axis in range(values.dim()) if axis != 1]
        off = values.mean(dim=axes) - mean
        spread = (values.var(dim=axes, correction=0) + FLOOR).sqrt() - (variance + FLOOR).sqrt()
        apart.append(((off.square() + spread.square()) / (variance + FLOOR)).mean())
        values = values.clone()  # what comes next works in place
    distance = torch.stack(apart).mean() + 0.5 * nn.functional.cross_entropy(values, labels)
    (expected,) = torch.autograd.grad(distance, x)
    assert float((found - expected).norm() / expected.norm()) < 0.1  # of half precision, perhaps


def test_the_same_seed_gives_the_same_module(untrained: list[nn.Module]) -> None:
    found = [
        pfnm.fuse(untrained, example_inputs=EXAMPLE, budget=1.0, seed=3).network.tensors
        for _ in range(2)
    ]
    for name, tensor in found[0].items():
        np.testing.assert_array_equal(tensor, found[1][name])


def test_advice_for_a_network_that_cannot_be_wider(untrained: list[nn.Module]) -> None:
    sites = pfnm.as_sites(untrained, example_inputs=EXAMPLE, inputs=np.ones((4, SIDE * SIDE)))
    network = sites.networks[0]
    text = verdict(0.3, 0.9, network=network)
    assert text is not None
    assert text.endswith(
        "allow a larger budget (--budget), give a few real inputs (--input-like), polish it "
        "(--polish), or go on in rounds"
    )
    rigid = replace(network.graph, rigid=dict.fromkeys(network.graph.groups, "a norm"))
    text = verdict(0.3, 0.9, network=replace(network, graph=rigid), real=True, polished=True)
    assert text is not None
    assert text.endswith("; go on in rounds")


def test_two_of_three_sites_fit_whole_into_twice_the_width() -> None:
    modules = []
    for seed in range(3):
        torch.manual_seed(seed)
        modules.append(Small().eval())
    sites = pfnm.as_sites(modules, example_inputs=EXAMPLE)
    fusion = pfnm.fuse(sites, budget=2.0)
    assert "whole" in {one.method for one in fusion.candidates}
    for group, own in fusion.assignments.items():
        assert all(len(set(units)) == len(units) for units in own)
        assert max(map(max, own)) < fusion.widths[group]
    assert room_for(sites, {group: 2 * width for group, width in fusion.widths.items()}) == 3
    chosen = [0, 2]
    matched = {g: tuple(np.arange(w) for _ in modules) for g, w in sites.networks[0].widths.items()}
    assignments = side_by_side(sites, chosen, matched)
    probing = probe(sites, 50, np.random.default_rng(0))
    (targets,) = refit_targets(sites, [assignments], probing)
    outward = {name: targets[name] for name in sites.networks[0].graph.tensors_of(OUTPUT)[:1]}
    average = partial(whole_network, sites, chosen, assignments)
    found = dict(Making(sites, average, probing, lambda: outward).networks([None, 1e-3]))
    rows = EXAMPLE.flatten(1).numpy()
    expected = np.mean([sites.networks[j].run(rows) for j in chosen], axis=0)
    np.testing.assert_allclose(found[None].run(rows), expected, rtol=1e-4, atol=1e-5)
    wanted = probing.answer.T
    near = [
        np.square(softmax(n.run(probing.inputs), axis=1) - wanted).mean() for n in found.values()
    ]
    assert near[1] < near[0]


def test_targets_made_when_asked_for_are_those_made_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modules = []
    for seed in range(3):
        torch.manual_seed(seed)
        modules.append(Small().eval())
    sites = pfnm.as_sites(modules, example_inputs=EXAMPLE)
    rng = np.random.default_rng(0)
    widths = sites.networks[0].widths
    matchings = [
        {group: tuple(rng.permutation(width) for _ in modules) for group, width in widths.items()}
        for _ in range(2)
    ]
    probing = probe(sites, 50, rng)
    at_once = refit_targets(sites, matchings, probing)
    monkeypatch.setattr(wanted, "LARGE", 0)
    when_asked, outward = targets_when_asked(sites, matchings, probing)
    for made, expected in zip([own() for own in when_asked], at_once, strict=True):
        assert set(made) == set(expected)
        for name, own in made.items():
            np.testing.assert_array_equal(own, expected[name])
    (name,) = outward()
    np.testing.assert_array_equal(outward()[name], at_once[1][name])
