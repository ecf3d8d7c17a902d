"""Joint fusion: budgets, scale, copies, renaming; probes and the repairs that use them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from conftest import random_network, renamed
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from replay import Replay
from scipy.special import log_softmax

import pfnm
from pfnm.api import fuse_sites
from pfnm.errors import PFNMError
from pfnm.fusing.activity import activities
from pfnm.fusing.atoms import group_atoms, observed_mean, part_of, with_tensors
from pfnm.fusing.budget import limits_by_parameters, parameters, width_limits
from pfnm.fusing.inputs import Units
from pfnm.fusing.joint import ALL, ROUND, Effort, centred, fuse_joint, joint_states
from pfnm.fusing.probes import agreement, probe
from pfnm.fusing.refit import TINY, copied, refit, repair_norms
from pfnm.fusing.sites import comparable
from pfnm.fusing.wanted import refit_targets
from pfnm.matching.matching import match
from pfnm.matching.prior import Prior
from pfnm.networks.graph import IntArray
from pfnm.networks.network import Network
from pfnm.networks.perceptron import layers, perceptron

QUICK = settings(
    max_examples=8, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate)
)


@st.composite
def federations(draw: st.DrawFn, depths: tuple[int, ...] = (1, 2, 3)) -> list[Network]:
    """A few networks of one depth, widths that differ and may fall from layer to layer."""
    seed = draw(st.integers(0, 2**31))
    depth = draw(st.sampled_from(depths))
    biases = draw(st.booleans())
    return [
        random_network(
            seed + j,
            (4, *(draw(st.integers(1, 6)) for _ in range(depth)), 3),
            biases=biases,
            name=f"site{j}",
        )
        for j in range(draw(st.integers(2, 4)))
    ]


@pytest.mark.parametrize(
    ("effort", "budget", "tried"),
    [
        (ALL, None, {"topdown": 1, "joint": 16}),
        (ALL, 1.0, {"joint": 16}),  # the paper's would be wider
        (ROUND, None, {"joint": 4}),
    ],
)
def test_what_is_tried(effort: Effort, budget: float | None, tried: dict[str, int]) -> None:
    """A matching for each emphasis and order; each as averaged, and refitted three times."""
    sites = comparable([random_network(j, (6, 5, 3), name=f"site{j}") for j in range(3)])
    rng = np.random.default_rng(0)
    candidates = fuse_sites(sites, budget=budget, effort=effort, rng=rng).candidates
    assert Counter(one.method for one in candidates) == tried
    assert {one.emphasis for one in candidates} - {None} == {*effort.emphases}


@given(federations(depths=(1, 2, 4, 8)), st.sampled_from([1.0, 1.3, 2.0, 8, None]))
@QUICK
def test_the_budget_holds_on_any_input(networks: list[Network], budget: float | int | None) -> None:
    fusion = pfnm.fuse(networks, budget=budget)
    for group, width in fusion.widths.items():
        sites = [network.widths[group] for network in networks]
        most = sum(sites)
        if isinstance(budget, int):
            most = budget
        elif budget is not None:
            most = int(budget * max(sites) + 1e-9)
        assert max(sites) <= width <= most
    assert np.isfinite(fusion.network.run(np.ones((1, 4)))).all()
    for j, network in enumerate(networks):
        assert fusion.site_part(j).widths == network.widths


@given(federations(depths=(1, 2, 3, 8)), st.sampled_from([1.0, 2.0, None]))
@QUICK
def test_renaming_units_changes_nothing(networks: list[Network], budget: float | None) -> None:
    rng = np.random.default_rng(5)
    orders = [
        {group: rng.permutation(width) for group, width in network.widths.items()}
        for network in networks
    ]
    others = [part_of(network, order) for network, order in zip(networks, orders, strict=True)]
    expected, found = pfnm.fuse(networks, budget=budget), pfnm.fuse(others, budget=budget)
    for name, tensor in expected.network.tensors.items():
        np.testing.assert_array_equal(found.network.tensors[name], tensor)
    for group, assignments in expected.assignments.items():
        for own, order, old in zip(found.assignments[group], orders, assignments, strict=True):
            np.testing.assert_array_equal(own, old[order[group]])
    assert found.agreement == expected.agreement


def scaled(network: Network, factor: float) -> Network:
    """All times a factor; of deep networks the weights alone, for there biases break the scale."""
    deep = len(network.graph.groups) > 1
    tensors = {k: factor * t for k, t in network.tensors.items() if t.ndim == 2 or not deep}
    axes = {name: network.graph.axes[name] for name in tensors}
    maps = tuple(
        replace(at, bias=at.bias if at.bias in tensors else None) for at in network.program.maps
    )
    return replace(
        network,
        tensors=tensors,
        graph=replace(network.graph, axes=axes),
        program=replace(perceptron(network), maps=maps),
    )


@given(federations(), st.sampled_from([1 / 128, 64.0]))
@QUICK
def test_a_common_factor_of_all_weights_changes_no_match(
    networks: list[Network], factor: float
) -> None:
    """Every candidate's matching stays; in deep networks biases aside, which a factor makes smaller
    or larger beside what comes from below, so that units do something else.

    Factors are powers of two, so that rounding is the same and ties fall the same way.
    """

    def matched(factor: float) -> list[list[int]]:
        own = [scaled(network, factor) for network in networks]
        sites, prior = comparable(own), Prior.fit(own)
        active = activities(sites, sites.inputs.make(sites.networks, 50, np.random.default_rng(0)))
        rng = np.random.default_rng(1)
        states = joint_states(sites, prior, width_limits(own, 2.0), active, 1.0, None, rng, None)
        return [a.tolist() for state, _ in states for m in state.values() for a in m.assignments]

    assert matched(1.0) == matched(factor)


def _atoms(networks: list[Network], group: str) -> tuple[list[np.ndarray], Prior]:
    prior = Prior.fit(networks).for_group(group)
    sites = comparable(networks)
    atoms, _, _ = group_atoms(sites, group, {}, prior)
    inputs = sites.inputs.make(sites.networks, 50, np.random.default_rng(0))
    extra = activities(sites, inputs)[group].counting(1.0)
    return [np.concatenate(pair, axis=1) for pair in zip(atoms, extra, strict=True)], prior


def test_a_joint_step_is_no_worse_for_its_site_than_what_it_replaces() -> None:
    """On the atoms the joint method matches, each single step raises its group's conditional."""
    networks = [random_network(j, (4, 6, 5, 3)) for j in range(4)]
    atoms, prior = _atoms(networks, "hidden1")
    state = match(atoms, prior, sweeps=0).assignments
    for site in (2, 0, 3, 1, 2):
        after = match(atoms, prior, start=state, sweeps=1, rng=Replay([[site]])).assignments
        assert _own_gain(site, after, atoms, prior) >= _own_gain(site, state, atoms, prior) - 1e-9
        state = after


def _own_gain(
    site: int, assignments: Sequence[IntArray], atoms: list[np.ndarray], prior: Prior
) -> float:
    """Twice the log posterior of one site's assignment given the others', term by term."""
    p, p_0, sites = 1 / float(prior.site_variance), 1 / prior.prior_variance, len(atoms)  # type: ignore[arg-type]
    total, new = 0.0, 0
    for unit, i in enumerate(assignments[site]):
        members = [
            atoms[j][np.flatnonzero(a == i)[0]]
            for j, a in enumerate(assignments)
            if j != site and i in a
        ]
        s, weight = p * sum(members, np.zeros(atoms[0].shape[1])), p_0 + p * len(members)
        total += ((p * atoms[site][unit] + s) ** 2 / (p + weight) - s**2 / weight).sum()
        if members:
            total += 2 * np.log(len(members) / (sites - len(members)))
        else:
            new += 1
            total -= 2 * np.log(new * sites / prior.mass)
    return float(total)


def test_copies_of_a_deep_network_fuse_to_it_at_1x() -> None:
    network = random_network(3, (5, 8, 8, 8, 4))
    rng = np.random.default_rng(0)
    copies = [renamed(network, rng) for _ in range(4)]
    fusion = pfnm.fuse(copies, budget=1.0)
    inputs = rng.normal(size=(50, 5))
    same = fusion.network.run(inputs).argmax(axis=1) == network.run(inputs).argmax(axis=1)
    assert same.mean() > 0.95
    assert fusion.agreement is not None
    assert fusion.agreement > 0.95


def test_the_mean_counts_the_sites_that_have_both_ends_by_hand() -> None:
    networks = [random_network(j, (2, 1, 1, 2)) for j in range(2)]
    assignments = {
        "hidden1": (np.array([0]), np.array([0])),
        "hidden2": (np.array([0]), np.array([1])),
    }
    mean = observed_mean(comparable(networks), assignments)
    first, second, _ = layers(mean)
    local = [layers(network) for network in networks]
    np.testing.assert_allclose(
        first.weight, (local[0][0].weight + local[1][0].weight) / 2, rtol=1e-9
    )
    # Unit 0 below is both sites', the units above are one site's each: nothing is halved.
    np.testing.assert_allclose(
        second.weight[0], [local[j][1].weight[0, 0] for j in range(2)], rtol=1e-9
    )


def test_norms_are_repaired_and_least_squares_helps_on_probes() -> None:
    networks = [random_network(j, (5, 10, 10, 10, 4)) for j in range(5)]
    sites = comparable(networks)
    rng = np.random.default_rng(0)
    assignments = {
        group: tuple(rng.permutation(10) for _ in networks) for group in networks[0].graph.groups
    }
    mean = observed_mean(sites, assignments)
    repaired = with_tensors(sites, repair_norms(sites, assignments, mean))
    members = [
        np.linalg.norm(layers(n)[0].weight[:, np.flatnonzero(a == 0)[0]])
        for n, a in zip(networks, assignments["hidden1"], strict=True)
    ]
    assert np.linalg.norm(layers(repaired)[0].weight[:, 0]) == pytest.approx(np.mean(members))
    probing = probe(sites, 400, rng)
    (targets,) = refit_targets(sites, [assignments], probing)
    fitted = refit(copied(repaired), targets, probing, 0.01, None)

    def error(network: Network) -> float:
        wanted = np.mean([log_softmax(own, axis=0) for own in probing.outputs], axis=0)
        found = network.run(probing.inputs).T
        return float(((log_softmax(found, axis=0) - log_softmax(wanted, axis=0)) ** 2).mean())

    assert error(fitted) < error(repaired) / 2


def test_probes_fill_the_input_range_and_a_site_agrees_with_itself() -> None:
    networks = [random_network(j, (20, 9, 4)) for j in range(2)]
    rng = np.random.default_rng(1)
    probes = Units().make(networks, 30, rng)
    assert probes.min() >= 0
    assert probes.max() == 1
    sites = comparable([networks[0], networks[0]])
    assert agreement(networks[0], probe(sites, 300, rng)) == 1
    assert agreement(networks[1], probe(sites, 300, rng)) < 0.9


def test_limits() -> None:
    networks = [random_network(0, (6, 5, 8, 3)), random_network(1, (6, 7, 4, 3))]
    assert width_limits(networks, None) is None
    assert width_limits(networks, 1.3) == {"hidden1": 9, "hidden2": 10}
    assert width_limits(networks, 20) == {"hidden1": 20, "hidden2": 20}
    limits = limits_by_parameters(networks, 500)
    assert parameters(networks[0], limits) <= 500
    wider = {group: width + 1 for group, width in limits.items()}
    assert parameters(networks[0], wider) > 500
    assert pfnm.fuse(networks, max_params=300).network.parameters <= 300
    with pytest.raises(PFNMError, match="below the widest site's 8 units in hidden2"):
        width_limits(networks, 7)


def test_regressions_fuse_too() -> None:
    networks = [random_network(j, (6, 9, 1)) for j in range(3)]
    fusion = pfnm.fuse(networks, budget=None)
    assert fusion.agreement is not None
    assert fusion.agreement > 0.5


def test_a_start_wider_than_the_budget_is_refused() -> None:
    networks = [random_network(j) for j in range(3)]
    wide = pfnm.fuse(networks, budget=None)
    assert wide.widths["hidden1"] > 5
    with pytest.raises(PFNMError, match="more than the limit of 5"):
        pfnm.fuse(networks, budget=1.0, start=wide.assignments)
    sites = comparable(networks)
    again = fuse_joint(
        sites, prior=Prior.fit(networks), rng=np.random.default_rng(0), start=wide.assignments
    )
    assert again.widths["hidden1"] <= wide.widths["hidden1"]


def test_a_unit_of_one_site_should_do_what_it_does_there_however_little_it_is_trusted() -> None:
    networks = [replace(random_network(j, (6, 5, 5, 2))) for j in range(2)]
    sites = comparable(networks, [[10, 0], [0, 10]])
    probing = probe(sites, 60, np.random.default_rng(0))
    probing = replace(probing, trust=np.array([np.full(60, 1e-30), np.ones(60)]))
    own = (np.arange(5), np.arange(5, 10))
    (targets,) = refit_targets(sites, [{"hidden1": own, "hidden2": own}], probing)
    first, second = layers(sites.networks[0])[:2]
    assert first.bias is not None
    assert second.bias is not None
    does = np.maximum(probing.inputs @ first.weight + first.bias, 0) @ second.weight + second.bias
    np.testing.assert_allclose(targets[second.weight_name][:5], does.T, rtol=1e-5, atol=1e-6)


def test_sites_may_be_certain_of_what_only_the_others_have_seen() -> None:
    networks = []
    for j in range(2):
        network = random_network(j, (6, 5, 2))
        networks.append(replace(network, tensors={n: 10 * t for n, t in network.tensors.items()}))
    fusion = pfnm.fuse(networks, class_counts=[[10, 0], [0, 10]])
    assert fusion.agreement is not None
    assert np.isfinite(fusion.agreement)


def shifted(network: Network, constant: float) -> Network:
    """The same classifier: a constant added to all of its outputs."""
    name = layers(network)[-1].bias_name
    assert name is not None
    return replace(network, tensors={**network.tensors, name: network.tensors[name] + constant})


@pytest.mark.parametrize("labels", [("abc", "abc"), ("ab", "cd"), ("abc", "bcd")])
def test_a_constant_added_to_all_outputs_of_a_site_changes_no_prediction(
    labels: tuple[str, str],
) -> None:
    networks = [
        replace(random_network(j, (6, 9, len(own))), labels=tuple(own))
        for j, own in enumerate(labels)
    ]
    inputs = np.random.default_rng(0).normal(size=(200, 6))

    def answers(constant: float) -> np.ndarray:
        sites = comparable([shifted(networks[0], constant), networks[1]])
        sites = replace(sites, networks=list(map(centred, sites.networks, sites.known)))
        assignments = {"hidden1": (np.arange(9), np.arange(9))}
        probing = probe(sites, 300, np.random.default_rng(0))
        mean = observed_mean(sites, assignments)
        (targets,) = refit_targets(sites, [assignments], probing)
        fitted = refit(mean, targets, probing, TINY, None)
        return np.asarray(fitted.run(inputs))

    np.testing.assert_allclose(answers(20.0), answers(0.0), rtol=1e-3, atol=1e-3)


def test_several_values_of_a_regression_stay_values() -> None:
    networks = [
        replace(shifted(random_network(j, (6, 9, 9, 2)), 20.0), output="values") for j in range(4)
    ]
    inputs = np.random.default_rng(0).uniform(size=(50, 6))
    mean = np.mean([network.run(inputs) for network in networks], axis=0)
    fused = pfnm.fuse(networks).network.run(inputs)
    assert np.abs(fused - mean).mean() < 3


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"other": []}, "name the groups other, expected hidden1"),
        ({"hidden1": [[0, 1, 2, 3, 4]]}, "assignments of 1 sites"),
        ({"hidden1": [[0, 1], [0, 1, 2, 3, 4]]}, "2 assignments to start from, for 5 units"),
    ],
)
def test_a_bad_start_is_told(start: dict[str, list[list[int]]], message: str) -> None:
    with pytest.raises(PFNMError, match=message):
        pfnm.fuse([random_network(0), random_network(1)], start=start)  # type: ignore[arg-type]


def test_half_precision() -> None:
    network = random_network(0, (784, 100, 10))
    half = replace(network, tensors={n: t.astype(np.float16) for n, t in network.tensors.items()})
    fusion = pfnm.fuse([half, replace(half, name="other")], budget=1.0)
    inputs = np.random.default_rng(0).uniform(size=(50, 784))
    same = fusion.network.run(inputs).argmax(axis=1) == half.run(inputs).argmax(axis=1)
    assert same.mean() > 0.9
