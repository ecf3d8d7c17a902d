"""`pfnm.fuse` on what people hold: files of different kinds, live estimators, networks."""

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import random_network

import pfnm


def test_files_of_different_formats_fuse_together(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnx")
    networks = [random_network(j, name=f"site{j}") for j in range(4)]
    endings = ["safetensors", "npz", "pt", "onnx"]
    paths = [tmp_path / f"site{j}.{ending}" for j, ending in enumerate(endings)]
    for network, path in zip(networks, paths, strict=True):
        pfnm.save(network, path)
    from_files, from_memory = pfnm.fuse(paths), pfnm.fuse(networks)
    inputs = np.random.default_rng(0).normal(size=(5, 6))
    np.testing.assert_allclose(
        from_files.network.run(inputs), from_memory.network.run(inputs), rtol=1e-5
    )


def test_estimators_come_back_as_an_estimator_and_classes_are_aligned() -> None:
    neural = pytest.importorskip("sklearn.neural_network")
    rng = np.random.default_rng(0)
    centres = 4 * np.eye(3)
    estimators = []
    for classes in ([0, 1], [1, 2], [0, 2], [0, 1, 2]):
        y = np.repeat(classes, 30)
        x = centres[y] + rng.normal(scale=0.3, size=(y.size, 3))
        names = np.array(["cat", "dog", "eel"])[y]
        estimators.append(
            neural.MLPClassifier((8,), solver="lbfgs", random_state=1, max_iter=50).fit(x, names)
        )
    fusion = pfnm.fuse(estimators, prior=pfnm.Prior(prior_variance=1.0, site_variance=0.05))
    assert fusion.model.classes_.tolist() == ["cat", "dog", "eel"]
    assert fusion.model.predict(centres).tolist() == ["cat", "dog", "eel"]


def test_class_counts_as_array_mapping_and_files_agree(
    site_files: list[Path], tmp_path: Path
) -> None:
    counts = json.loads((tmp_path / "counts.json").read_text())
    rows = "\n".join(f"{site},{','.join(map(str, row))}" for site, row in counts.items())
    (tmp_path / "plain.csv").write_text(rows)
    (tmp_path / "header.csv").write_text("site,0,1,2,3\n" + rows)
    (tmp_path / "labels.json").write_text(
        json.dumps({site: dict(zip("0123", row, strict=True)) for site, row in counts.items()})
    )
    given = [
        np.array(list(counts.values())),
        counts,
        *(tmp_path / name for name in ("counts.json", "plain.csv", "header.csv", "labels.json")),
    ]
    fusions = [pfnm.fuse(site_files, class_counts=form) for form in given]
    without = pfnm.fuse(site_files)
    for fusion in fusions:
        for name, tensor in fusions[0].network.tensors.items():
            np.testing.assert_array_equal(fusion.network.tensors[name], tensor)
    with_counts = fusions[0].network.tensors
    changed = [not np.array_equal(t, with_counts[n]) for n, t in without.network.tensors.items()]
    assert any(changed)


def test_a_round_starts_from_the_assignments_before(site_files: list[Path]) -> None:
    first = pfnm.fuse(site_files, method="topdown")
    again = pfnm.fuse(site_files, method="topdown", start=first.assignments)
    assert again.objective == pytest.approx(first.objective)
    parts = [first.site_part(j) for j in range(3)]
    assert [part.widths["hidden1"] for part in parts] == [5, 6, 7]


@pytest.mark.parametrize(
    ("networks", "message"),
    [
        ("site0.safetensors", "give a list"),
        ([1, 2], "network 0 is a int"),
        ([random_network(0)], "at least two"),
    ],
)
def test_what_cannot_be_fused_is_named(networks: object, message: str) -> None:
    with pytest.raises(pfnm.PFNMError, match=message):
        pfnm.fuse(networks)  # type: ignore[arg-type]  # wrong on purpose


def test_an_unknown_method_is_refused(site_files: list[Path]) -> None:
    with pytest.raises(pfnm.PFNMError, match="unknown method 'magic'"):
        pfnm.fuse(site_files, method="magic")
