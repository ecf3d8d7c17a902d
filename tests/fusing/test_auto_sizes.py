"""Sizes by evidence and agreement, and how sure a fusion is of its matches."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import Run, random_network, renamed

import pfnm
from pfnm.errors import PFNMError
from pfnm.fusing.atoms import part_of
from pfnm.fusing.sizes import NEAR, evident, smallest_near_best
from pfnm.networks.network import Network


def noisy_copies(
    sites: int, noise: float, sizes: tuple[int, ...] = (30, 12, 10, 4), units: int | None = None
) -> list[Network]:
    """One network with its units renamed and its weights disturbed, or so many of its units."""
    whole = random_network(0, sizes)
    found = []
    for j in range(sites):
        rng = np.random.default_rng(j)
        own = {g: rng.permutation(n)[: units or n] for g, n in whole.widths.items()}
        part = part_of(whole, own)
        tensors = {
            name: tensor + noise * rng.normal(size=tensor.shape)
            for name, tensor in part.tensors.items()
        }
        found.append(replace(part, tensors=tensors, name=f"site{j}"))
    return found


def test_the_evidence_sees_copies_and_strangers() -> None:
    copies = pfnm.as_sites(noisy_copies(5, 0.2))
    found = evident(copies, np.random.default_rng(0))
    assert found.widths == {"hidden1": 12, "hidden2": 10}
    assert found.prior.for_group("hidden1").site_variance == pytest.approx(0.04, rel=0.2)
    strangers = pfnm.as_sites([random_network(j, (30, 12, 4)) for j in range(4)])
    assert evident(strangers, np.random.default_rng(0)).widths["hidden1"] > 40


def test_the_evidence_counts_the_units_that_any_site_has() -> None:
    sites = pfnm.as_sites(noisy_copies(8, 0.1, (60, 30, 4), units=15))
    found = evident(sites, np.random.default_rng(0))
    assert found.widths["hidden1"] == pytest.approx(30, abs=1)


def test_auto_is_never_narrower_than_a_site_nor_larger_than_all() -> None:
    networks = [random_network(j, (8, 5 + j, 6, 3), name=f"site{j}") for j in range(4)]
    fusion = pfnm.fuse(networks, budget="auto")
    again = pfnm.fuse(networks, budget="AUTO ")
    assert fusion.widths["hidden1"] >= 8
    assert fusion.widths["hidden2"] >= 6
    assert fusion.network.parameters <= sum(network.parameters for network in networks)
    assert fusion.options["budget"] == "auto"
    for name, tensor in fusion.network.tensors.items():
        np.testing.assert_array_equal(tensor, again.network.tensors[name])


def test_auto_keeps_copies_small() -> None:
    fusion = pfnm.fuse(noisy_copies(5, 0.05), budget="auto")
    assert fusion.widths == {"hidden1": 12, "hidden2": 10}


def test_the_smallest_that_is_near_the_best_is_taken() -> None:
    fused = pfnm.fuse([random_network(j, (5, 4, 3)) for j in range(2)])
    shares = (0.5, 0.9 - NEAR, 0.9, 0.89)
    solutions = [replace(fused, agreement=share) for share in shares]
    assert smallest_near_best(solutions).agreement == 0.9 - NEAR
    assert smallest_near_best(solutions[2:]).agreement == 0.9


@pytest.mark.parametrize(
    "options",
    [
        {"method": "topdown"},
        {"max_params": 500},
        {"start": {"hidden1": [np.arange(4), np.arange(4)]}},
    ],
)
def test_what_auto_does_not_go_with(options: dict[str, object]) -> None:
    networks = [random_network(j, (5, 4, 3)) for j in range(2)]
    with pytest.raises(PFNMError, match=r"auto|not both"):
        pfnm.fuse(networks, budget="auto", **options)  # type: ignore[arg-type]


def test_auto_on_the_command_line(run: Run, site_files: list[Path], tmp_path: Path) -> None:
    target = tmp_path / "out.npz"
    status, text, _ = run("fuse", *site_files, "-o", target, "--budget", "auto", "--json")
    assert status == 0
    assert json.loads(text)["options"]["budget"] == "auto"
    status, text, _ = run("frontier", *site_files, "--budgets", "1x,auto")
    assert status == 0
    assert "auto" in text


def test_marginal_rules_have_a_prior_for_each_group() -> None:
    alone = pfnm.fuse(noisy_copies(4, 0.1, (30, 12, 4)), rules="marginal", budget=None)
    assert alone.widths == {"hidden1": 12}
    networks = noisy_copies(4, 0.1)
    fusion = pfnm.fuse(networks, rules="marginal", budget=None)
    assert set(fusion.prior.groups) == {"hidden1", "hidden2"}
    massive = pfnm.fuse(networks, rules="marginal", mass=7.0, budget=None).prior
    assert {prior.mass for prior in massive.groups.values()} == {7.0}
    given = pfnm.fuse(networks, rules="marginal", spread=0.2, budget=None).prior
    assert (given.site_variance, dict(given.groups)) == (0.2, {})


def test_a_fusion_is_sure_of_copies_and_less_so_of_strangers() -> None:
    copies = pfnm.fuse(noisy_copies(4, 0.05), budget="1x").confidence
    strangers = [random_network(j, (30, 12, 10, 4), name=f"site{j}") for j in range(4)]
    forced = pfnm.fuse(strangers, budget="1x").confidence
    for group, width in (("hidden1", 12), ("hidden2", 10)):
        assert [own.shape for own in copies[group]] == [(width,)] * 4
        assert np.concatenate(copies[group]).mean() > 0.95
        assert np.concatenate(forced[group]).mean() < 0.85


def test_confidence_goes_with_the_units_as_the_sites_list_them() -> None:
    network = random_network(0, (30, 12, 4))
    same = [renamed(network, np.random.default_rng(j)) for j in range(3)]
    odd = dict(same[2].tensors)
    odd["layers.0.weight"] = odd["layers.0.weight"].copy()
    weight = odd["layers.0.weight"]
    rows = weight if weight.shape[0] == 12 else weight.T
    rows[3] = -rows[3]
    fusion = pfnm.fuse([*same[:2], replace(same[2], tensors=odd)], budget="1x")
    sure = fusion.confidence["hidden1"][2]
    assert sure.argmin() == 3


def test_auto_and_confidence_of_modules() -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn

    def module(seed: int) -> object:
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 3)
        ).eval()

    fusion = pfnm.fuse(
        [module(j) for j in range(3)], example_inputs=torch.zeros(2, 6), budget="auto"
    )
    rigid = set(fusion.network.graph.rigid)
    assert rigid
    assert all(width == 8 for group, width in fusion.widths.items() if group in rigid)
    assert all(width >= 8 for width in fusion.widths.values())
    assert set(fusion.confidence) == set(fusion.network.graph.outer_groups)
