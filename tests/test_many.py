"""Many sites, read one at a time: as all at once, and able to go on after an interruption."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import pfnm
from pfnm import many
from pfnm.cli.console import app
from pfnm.errors import PFNMError
from pfnm.fusing.atoms import group_atoms
from pfnm.fusing.sites import comparable
from pfnm.many import fuse_many
from pfnm.matching.matching import match
from pfnm.matching.prior import Prior
from pfnm.networks.network import Network
from pfnm.networks.perceptron import layers, mlp

CLASSES, INPUTS, TRUE = 3, 12, 9


def network(seed: int, units: int = 6, inputs: int = INPUTS) -> Network:
    """Some of a few true units, with a little noise, in any order."""
    true, rng = np.random.default_rng(0), np.random.default_rng([1, seed])
    inward, outward = true.normal(size=(inputs, TRUE)), true.normal(size=(TRUE, CLASSES))
    own = rng.permutation(TRUE)[:units]
    weights = [
        w + 0.1 * rng.normal(size=w.shape) for w in (inward[:, own], outward[own])
    ]  # fmt: skip
    biases = [rng.normal(size=units) * 0.1, rng.normal(size=CLASSES) * 0.1]
    return mlp([w.astype(np.float32) for w in weights], biases, output="softmax")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "sites" / f"site{j}.npz" for j in range(12)]
    paths[0].parent.mkdir()
    for j, path in enumerate(paths):
        pfnm.save(network(j, units=5 + j % 2), path)
    return paths


@pytest.mark.parametrize("rules", ["marginal", "recommended", "published"])
@pytest.mark.parametrize("counted", [False, True])
def test_assignments_are_those_of_all_sites_at_once(
    files: list[Path], rules: str, counted: bool
) -> None:
    counts = np.random.default_rng(2).integers(1, 20, size=(len(files), CLASSES))
    given = counts if counted else None
    fusion = fuse_many(files, class_counts=given, rules=rules, sweeps=2, budget=None, seed=3)
    sites = comparable([pfnm.load(path) for path in files], given)
    (group,) = sites.networks[0].graph.groups
    prior = Prior.fit(sites.networks, rules=rules).for_group(group)
    atoms, precisions, mean = group_atoms(sites, group, {}, prior)
    together = match(
        atoms,
        prior,
        precisions=precisions,
        prior_mean=mean,
        sweeps=2,
        rng=np.random.default_rng(3),
    )
    for one, other in zip(fusion.assignments, together.assignments, strict=True):
        np.testing.assert_array_equal(one, other)
    assert fusion.network.widths == {group: together.width}
    assert fusion.reassigned == tuple(sweep.reassigned for sweep in together.trace)


def test_the_true_units_are_found_and_their_weights_are_means(files: list[Path]) -> None:
    fusion = fuse_many(files, budget=None)
    assert fusion.network.widths == {"hidden1": TRUE}
    members = [
        layers(pfnm.load(path))[0].weight[:, np.flatnonzero(own == 0)]
        for path, own in zip(files, fusion.assignments, strict=True)
    ]
    found = np.concatenate(members, axis=1)
    mean = found.mean(axis=1)
    mean *= np.linalg.norm(found, axis=0).mean() / np.linalg.norm(mean)
    fused = layers(fusion.network)
    np.testing.assert_allclose(fused[0].weight[:, 0], mean, rtol=1e-4)
    biases = [np.asarray(layers(pfnm.load(path))[1].bias) for path in files]
    np.testing.assert_allclose(np.asarray(fused[1].bias), np.mean(biases, axis=0), rtol=1e-4)


def test_a_sweep_over_a_sample_and_a_limit(files: list[Path]) -> None:
    fusion = fuse_many(files, budget=7, sweeps=2, sample=4)
    assert fusion.network.widths == {"hidden1": 7}
    assert len(fusion.reassigned) == 3


def test_an_interrupted_run_goes_on_to_the_same_result(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many, "CHECKPOINT_SECONDS", 0.0)
    whole, checkpoint = fuse_many(files, sweeps=2), tmp_path / "partial"

    def stop(what: str, done: int, total: int) -> None:
        if what == "matching" and done == 17:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fuse_many(files, sweeps=2, checkpoint=checkpoint, on_step=stop)
    with pytest.raises(PFNMError, match="the checkpoint of another run"):
        fuse_many(files, sweeps=1, checkpoint=checkpoint)
    kept = files[0].read_bytes()
    pfnm.save(network(99, units=5), files[0], force=True)  # trained again under the same name
    with pytest.raises(PFNMError, match="the checkpoint of another run"):
        fuse_many(files, sweeps=2, checkpoint=checkpoint)
    files[0].write_bytes(kept)
    steps: list[int] = []
    resumed = fuse_many(
        files,
        sweeps=2,
        checkpoint=checkpoint,
        on_step=lambda what, done, _: steps.append(done) if what == "matching" else None,
    )
    assert steps[0] == 17
    assert resumed.reassigned == whole.reassigned
    for name, tensor in whole.network.tensors.items():
        np.testing.assert_array_equal(tensor, resumed.network.tensors[name])


def test_the_checkpoint_stays_until_the_result_is_written(
    files: list[Path], tmp_path: Path
) -> None:
    checkpoint, output = tmp_path / "partial", tmp_path / "global.npz"
    fusion = fuse_many(files, checkpoint=checkpoint)
    with pytest.raises(PFNMError):
        fusion.save(tmp_path / "nowhere" / "global.npz")
    steps: list[str] = []
    again = fuse_many(
        files, checkpoint=checkpoint, on_step=lambda what, done, total: steps.append(what)
    )
    assert "matching" not in steps  # nothing is done twice
    assert again.reassigned == fusion.reassigned
    again.save(output)
    assert not checkpoint.exists()
    for name, tensor in fusion.network.tensors.items():
        np.testing.assert_array_equal(pfnm.load(output).tensors[name], tensor)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04"])
def test_half_a_checkpoint_is_named(files: list[Path], tmp_path: Path, content: bytes) -> None:
    (tmp_path / "partial").write_bytes(content)
    with pytest.raises(PFNMError, match="cannot be gone on from; remove it"):
        fuse_many(files, checkpoint=tmp_path / "partial")


def test_other_counts_are_another_run(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many, "CHECKPOINT_SECONDS", 0.0)
    counts = np.random.default_rng(2).integers(1, 20, size=(len(files), CLASSES))
    checkpoint = tmp_path / "partial"

    def stop(what: str, done: int, total: int) -> None:
        if what == "matching" and done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fuse_many(files, class_counts=counts, checkpoint=checkpoint, on_step=stop)
    with pytest.raises(PFNMError, match="the checkpoint of another run"):
        fuse_many(files, class_counts=counts + 1, checkpoint=checkpoint)


def test_what_does_not_fit_is_named(files: list[Path], tmp_path: Path) -> None:
    pfnm.save(network(0, inputs=4), tmp_path / "other.npz")
    with pytest.raises(PFNMError, match="other has"):
        fuse_many([*files, tmp_path / "other.npz"])
    deep = mlp([np.ones((INPUTS, 4)), np.ones((4, 4)), np.ones((4, CLASSES))])
    pfnm.save(deep, tmp_path / "deep.npz")
    with pytest.raises(PFNMError, match="deep has 2 hidden layers"):
        fuse_many([*files, tmp_path / "deep.npz"])
    with pytest.raises(PFNMError, match="fusing needs at least two"):
        fuse_many(files[:1])
    with pytest.raises(PFNMError, match="site 'site0' is missing"):
        fuse_many(files, class_counts={})


def test_the_command(files: list[Path], tmp_path: Path) -> None:
    output = tmp_path / "global.npz"
    arguments = ["fuse-many", str(files[0].parent), "-o", str(output), "--sweeps", "1"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "9 hidden units" in done.output
    assert "from 12 networks" in done.output
    assert pfnm.load(output).widths == {"hidden1": TRUE}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
