"""Polish: taught by the sites, kept only where it helps."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import random_network

import pfnm
from pfnm import polishing as module
from pfnm import teaching
from pfnm.conversion import as_sites
from pfnm.errors import PFNMError
from pfnm.evaluate import evaluate
from pfnm.fusing.probes import agreement, alike, probe, said_together
from pfnm.fusing.sites import comparable
from pfnm.lab.data import load_data
from pfnm.lab.method import accuracy, train_local
from pfnm.lab.runs import simulate
from pfnm.lab.setting import Setting
from pfnm.lab.setting import federation as digit_sites
from pfnm.networks.activations import ACTIVATIONS
from pfnm.networks.network import Network
from pfnm.networks.perceptron import with_activation

torch = pytest.importorskip("torch")
WEIGHT = "layers.0.weight"


def federation(**changes: object) -> list[Network]:
    return [
        replace(random_network(j, (8, 12, 12, 4), name=f"site{j}"), **changes)  # type: ignore[arg-type]
        for j in range(4)
    ]


@pytest.mark.usefixtures("few_probes")
def test_a_narrow_fusion_of_digits_gets_better() -> None:
    setting = Setting(sites=4, hidden=(20, 20, 20), epochs=20)
    digits = digit_sites(setting, load_data("digits"))
    networks, counts = list(train_local(digits).networks.values()), list(digits.counts.values())
    fusion = pfnm.fuse(networks, class_counts=counts, budget=1.0)
    polished = fusion.polish()
    assert fusion.agreement is not None
    assert polished.agreement is not None
    assert polished.agreement > fusion.agreement + 0.03
    assert accuracy(digits, polished.network) > accuracy(digits, fusion.network) + 0.03
    assert polished.widths == fusion.widths
    assert polished.assignments is fusion.assignments
    record = polished.polish_record
    assert record is not None
    assert record.kept
    assert record.judged_on == "probes"
    assert polished.record()["agreement"] == polished.agreement == record.agreement_after


@pytest.mark.usefixtures("few_probes")
def test_the_same_seed_gives_the_same_network() -> None:
    networks = federation()
    fusion = pfnm.fuse(networks, budget=1.0)
    first, again = (fusion.polish(seed=3) for _ in range(2))
    for name, tensor in first.network.tensors.items():
        np.testing.assert_array_equal(again.network.tensors[name], tensor)


def like_answers(network: Network, networks: list[Network], inputs: np.ndarray) -> float:
    wanted = said_together(comparable(networks), [n.run(inputs).T for n in networks])
    return alike(network, inputs, wanted)


@pytest.mark.usefixtures("few_probes")
@pytest.mark.parametrize("probes", [True, False])
def test_real_inputs_teach_what_probes_do_not_reach(*, probes: bool) -> None:
    networks = federation()
    rng = np.random.default_rng(0)
    real = (5 + rng.normal(size=(600, 8))).astype(np.float32)
    fusion = pfnm.fuse(networks, budget=1.0)
    polished = fusion.polish(real[:400], probes=probes)
    record = polished.polish_record
    assert record is not None
    assert (record.kept, record.judged_on) == (True, "real inputs")
    before, after = (like_answers(f.network, networks, real[400:]) for f in (fusion, polished))
    assert after > before


@pytest.mark.usefixtures("few_probes")
def test_few_real_inputs_in_place_of_made_up_ones_teach_as_much() -> None:
    few = np.random.default_rng(3).normal(size=(50, 8)).astype(np.float32)
    sites = pfnm.as_sites(federation(), inputs=few)
    made = module._probes(sites, np.random.default_rng(0))
    assert len(made) == 4000  # plain, mixed and seeking, as of made-up ones
    plain = {row.tobytes() for row in made[:2000]}
    assert plain == {row.tobytes() for row in sites.inputs.make([], 50, np.random.default_rng(0))}
    assert len({row.tobytes() for row in made[3000:]}) > 100  # towards one of four classes


@pytest.mark.usefixtures("few_probes")
def test_labels_are_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teaching, "LARGEST_RATE", 1e-2)  # for so few steps
    networks = [replace(network, labels=tuple("abcd")) for network in federation()]
    inputs = np.random.default_rng(0).normal(size=(1500, 8))
    labels = np.array(list("abcd"))[np.digitize(inputs[:, 0], [-0.7, 0, 0.7])]
    fusion = pfnm.fuse(networks, budget=1.0)
    polished = fusion.polish(inputs[:500], labels[:500], probes=False)
    assert polished.record()["polish"]["judged_on"] == "labels"
    measures = [evaluate(f.network, inputs[500:], labels[500:]) for f in (fusion, polished)]
    assert measures[1]["accuracy"] > measures[0]["accuracy"] + 0.1


@pytest.mark.usefixtures("few_probes")
def test_probes_imitate_given_inputs() -> None:
    networks = federation()
    like = np.random.default_rng(0).uniform(2, 3, size=(5, 8)).astype(np.float32)
    sites = as_sites(networks, input_like=like)
    made = module._probes(sites, np.random.default_rng(0))
    assert (made >= like.min(axis=0) - 1e-6).all()
    assert (made <= like.max(axis=0) + 1e-6).all()
    record = json.dumps(pfnm.fuse(sites, budget=1.0).polish().record())
    assert "like the 5 given" in record
    assert f"{like.min():g}" not in record  # no value of the real inputs is told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"probes": False}, "nothing to teach by"),
        ({"targets": np.zeros(30, int)}, "targets but no data"),
        ({"data": np.zeros((5, 8))}, "5 inputs to polish on are too few"),
        ({"data": np.zeros((30, 7))}, "expected rows of 8 numbers"),
        ({"data": np.full((30, 8), np.nan)}, "NaN"),
        ({"data": np.zeros((30, 8)), "targets": np.arange(30) % 5}, "does not know the label 4"),
        ({"data": np.zeros((30, 8)), "targets": np.zeros(29, int)}, "one row of"),
        ({"data": np.zeros((30, 8)), "targets": np.full(30, 0.5)}, "taken for a classifier"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, object], message: str) -> None:
    fusion = pfnm.fuse(federation(), budget=1.0)
    with pytest.raises(PFNMError, match=message):
        fusion.polish(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input_like": [["x"] * 8]}, "the inputs to imitate"),
        ({"input_range": (1, 0)}, "the range is 1 to 0, which is none"),
        ({"input_range": (0, 1, 2)}, "no pair of numbers"),
        ({"input_range": (np.zeros(5), 1)}, "each of the 8 inputs that site0 takes"),
        ({"input_like": np.ones((3, 8))}, "none of them varies"),
    ],
)
def test_what_is_wrong_with_inputs_is_said(options: dict[str, object], message: str) -> None:
    with pytest.raises(PFNMError, match=message):
        pfnm.fuse(federation(), **options)  # type: ignore[arg-type]


def test_the_rate_rises_and_falls_once() -> None:
    done = np.linspace(0, 1, 101)
    rates = np.array([teaching.rate(share) for share in done])
    top = int(rates.argmax())
    assert done[top] == pytest.approx(teaching.WARM_UP)
    assert rates[top] == pytest.approx(teaching.LARGEST_RATE)
    assert (np.diff(rates[: top + 1]) > 0).all()
    assert (np.diff(rates[top:]) < 0).all()
    assert rates[-1] == 0


@pytest.mark.usefixtures("few_probes")
@pytest.mark.parametrize("method", ["pfnm", "pfnm-joint", "joint"])
def test_the_lab_polishes_before_it_sends_out(method: str, tmp_path: Path) -> None:
    setting = Setting(sites=3, hidden=(10,), epochs=1, rounds=2, methods=(method,), budget=1.0)
    rows = [
        simulate(replace(setting, polish=polish), tmp_path / str(polish))
        for polish in (False, True)
    ]
    assert rows[0][-1]["accuracy"] != rows[1][-1]["accuracy"]
    assert rows[0][-1]["bytes_up"] == rows[1][-1]["bytes_up"] or method == "pfnm"


@pytest.mark.usefixtures("few_probes")
def test_what_cannot_be_bettered_is_kept() -> None:
    network = random_network(0, (8, 12, 4))
    copies = [replace(network, name=name) for name in ("a", "b")]
    fusion = replace(pfnm.fuse(copies, budget=1.0), network=network)
    polished = fusion.polish()
    assert not polished.record()["polish"]["kept"]
    np.testing.assert_array_equal(
        polished.network.tensors["layers.0.weight"], network.tensors["layers.0.weight"]
    )
    hurried = pfnm.fuse(federation(), budget=1.0).polish(seconds=0.0)
    assert not hurried.record()["polish"]["kept"]


@pytest.mark.usefixtures("few_probes")
@pytest.mark.parametrize("output", ["values", "sigmoid"])
def test_values_and_sigmoids(output: str) -> None:
    networks = federation(output=output)
    fusion = pfnm.fuse(networks, budget=1.0)
    polished = fusion.polish()
    fresh = probe(comparable(networks), 2000, np.random.default_rng(77))
    assert agreement(polished.network, fresh) > agreement(fusion.network, fresh)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_every_activation_is_numpys(activation: str) -> None:
    network = with_activation(random_network(0, (8, 12, 4)), activation)
    inputs = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32)
    found = network.program.run(teaching._tensors(network), torch.from_numpy(inputs))
    np.testing.assert_allclose(found.numpy(), network.run(inputs), rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("few_probes")
def test_sites_that_know_different_classes_and_no_biases() -> None:
    networks = [
        replace(random_network(j, (8, 12, len(own)), biases=False), labels=tuple(own))
        for j, own in enumerate(("abc", "bcd"))
    ]
    fusion = pfnm.fuse(networks, budget=1.0)
    polished = fusion.polish()
    assert polished.network.labels == ("a", "b", "c", "d")
    before, after = (pfnm.check(f.network, networks, seed=5).agreement for f in (fusion, polished))
    assert after > before + 0.02


@pytest.mark.usefixtures("few_probes")
def test_features_in_other_units_polish_as_well() -> None:
    scale = np.where(np.arange(20) < 10, 1000, 1).astype(np.float32)
    networks = [random_network(j, (20, 12, 4), name=f"site{j}") for j in range(4)]
    scaled = [
        replace(n, tensors={**n.tensors, WEIGHT: n.tensors[WEIGHT] / scale}) for n in networks
    ]
    shares = []
    for own, ends in ((networks, None), (scaled, (np.zeros(20), scale))):
        fusion = pfnm.fuse(own, budget=1.0, input_range=ends)
        polished = fusion.polish()
        assert polished.agreement is not None
        assert fusion.agreement is not None
        assert polished.agreement > fusion.agreement
        shares.append(polished.agreement)
    assert shares[1] == pytest.approx(shares[0], abs=0.05)


@pytest.mark.usefixtures("few_probes")
def test_the_range_a_fusion_was_made_with_is_kept() -> None:
    fusion = pfnm.fuse(federation(), budget=1.0, input_range=(-3, 3)).polish()
    assert str(fusion.sites.inputs.within) == "between -3 and 3"
    assert fusion.record()["options"]["input_range"] == [-3, 3]


@pytest.mark.usefixtures("few_probes")
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_precisions(dtype: type) -> None:
    networks = [
        replace(n, tensors={name: t.astype(dtype) for name, t in n.tensors.items()})
        for n in federation()
    ]
    polished = pfnm.fuse(networks, budget=1.0).polish()
    assert polished.network.dtype == dtype


@pytest.mark.usefixtures("few_probes")
def test_a_regression_learns_targets() -> None:
    networks = [
        replace(random_network(j, (8, 12, 1), name=f"site{j}"), output="values") for j in range(3)
    ]
    inputs = np.random.default_rng(0).normal(size=(500, 8))
    targets = inputs[:, 0] - inputs[:, 1]
    fusion = pfnm.fuse(networks, budget=1.0)
    polished = fusion.polish(inputs[:400], targets[:400], probes=False)
    before, after = (evaluate(f.network, inputs[400:], targets[400:]) for f in (fusion, polished))
    assert after["mean_squared_error"] < before["mean_squared_error"] / 2


def test_steps_are_those_of_pytorchs_adam() -> None:
    generator = torch.Generator().manual_seed(0)

    def start() -> list[Any]:
        generator.manual_seed(0)
        shapes = (8, 3, 3, 3), (8,), (5, 8)
        return [torch.randn(s, generator=generator).requires_grad_() for s in shapes]

    def loss(tensors: list[Any]) -> Any:
        pictures = torch.ones(4, 3, 6, 6).cumsum(2).to(memory_format=torch.channels_last)
        seen = torch.relu(torch.nn.functional.conv2d(pictures, tensors[0], tensors[1])).mean((2, 3))
        return (seen @ tensors[2].T).square().mean()

    own, theirs = start(), start()
    step, optimizer = teaching.adam_steps(own), torch.optim.Adam(theirs, lr=0.01, fused=True)
    for _ in range(5):
        gradients = torch.autograd.grad(loss(own), own)
        assert not gradients[0].is_contiguous()  # as those of pictures lie
        step(gradients, 0.01)
        optimizer.zero_grad()
        loss(theirs).backward()
        optimizer.step()
    for tensor, other in zip(own, theirs, strict=True):
        assert torch.equal(tensor, other)
