"""What once went wrong without a word: now right, warned of, or asked about."""

import json
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Run, random_network

import pfnm
from pfnm import PFNMError, PFNMWarning
from pfnm.lab.data import load_data
from pfnm.lab.method import accuracy, train_local
from pfnm.lab.setting import Federation, Setting, federation
from pfnm.networks.network import Array, Network
from pfnm.networks.perceptron import perceptron

neural = pytest.importorskip("sklearn.neural_network")
datasets = pytest.importorskip("sklearn.datasets")


@cache
def digits(split: str) -> tuple[Federation, list[Network]]:
    found = federation(Setting(sites=5, split=split, alpha=0.3, epochs=20), load_data("digits"))
    return found, list(train_local(found).networks.values())


def trained(x: Array, y: Any, parts: Sequence[Any], **options: Any) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            neural.MLPClassifier((30,), max_iter=100, random_state=j, **options).fit(x[p], y[p])
            for j, p in enumerate(parts)
        ]


def state_dict(estimator: Any) -> dict[str, Array]:
    """As PyTorch would have it: no word of activation, output or labels."""
    pairs = zip(estimator.coefs_, estimator.intercepts_, strict=True)
    return {
        f"{2 * c}.{kind}": values
        for c, (weight, bias) in enumerate(pairs)
        for kind, values in (("weight", weight.T), ("bias", bias))
    }


def options_of(fusion: pfnm.Fusion) -> set[str]:
    return {one.option for one in fusion.assumed}


def test_uneven_sites_without_class_counts_are_noticed() -> None:
    pytest.importorskip("torch")
    uneven, networks = digits("dirichlet")
    with pytest.warns(PFNMWarning, match="--class-counts"):
        without = pfnm.fuse(networks)
    counted = pfnm.fuse(networks, class_counts=list(uneven.counts.values()))
    assert accuracy(uneven, counted.network) > accuracy(uneven, without.network)
    assert "class_counts" in options_of(without) - options_of(counted)
    assert not any("--class-counts" in text for text in counted.warnings)
    estimated = pfnm.fuse(networks, class_counts="estimated")
    assert accuracy(uneven, estimated.network) > accuracy(uneven, without.network)
    _, even = digits("even")
    assert not any("--class-counts" in text for text in pfnm.fuse(even).warnings)


def test_labels_that_differ_and_were_not_given_are_noticed() -> None:
    x, y = datasets.load_digits(return_X_y=True)
    x = x / 16
    low, high = np.flatnonzero(y < 6), np.flatnonzero(y > 3)
    sites = [trained(x, y, [low])[0], trained(x, y - 4, [high])[0]]
    unnamed = [state_dict(site) for site in sites]
    with pytest.warns(PFNMWarning, match="--labels"):
        without = pfnm.fuse(unnamed)
    labels = [list(range(6)), list(range(4, 10))]
    named = pfnm.fuse(unnamed, labels=labels)
    assert named.evaluate(x, y)["accuracy"] > 0.8 > without.evaluate(x, y)["accuracy"]
    assert not any("--labels" in text for text in named.warnings)
    assert "labels" in options_of(without) - options_of(named)


def test_an_activation_that_nobody_told_is_assumed_aloud(run: Run, tmp_path: Path) -> None:
    x, y = datasets.load_digits(return_X_y=True)
    parts = np.array_split(np.random.default_rng(0).permutation(len(y)), 3)
    sites = trained(x / 16, y, parts, activation="tanh")
    bare = [state_dict(site) for site in sites]
    assumed, told = pfnm.fuse(bare), pfnm.fuse(bare, activation="tanh")
    assert "activation relu" in [one.what for one in assumed.assumed]
    assert "activation" not in options_of(told)
    assert "activation" not in options_of(pfnm.fuse(sites))  # which state it themselves
    files = [tmp_path / f"site{j}.npz" for j in range(3)]
    for path, site in zip(files, bare, strict=True):
        np.savez(path, **site)  # type: ignore[arg-type]
    out = tmp_path / "global.npz"
    _, text, _ = run("fuse", *files, "-o", out)
    assert "activation relu (--activation)" in text
    assert {"what": "activation relu", "option": "--activation"} in pfnm.load(out).metadata[
        "assumed"
    ]
    _, text, _ = run("fuse", *files, "-o", out, "--force", "--json")
    assert {"what": "activation relu", "option": "--activation"} in json.loads(text)["assumed"]
    assert run("fuse", *files, "-o", out, "--force", "--quiet") == (0, "", "")


def test_standardised_inputs_are_seen_to_be_so() -> None:
    x, y = datasets.load_digits(return_X_y=True)
    x = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-9)
    parts = np.array_split(np.random.default_rng(0).permutation(len(y)), 5)
    fusion = pfnm.fuse(trained(x, y, parts))
    assert str(fusion.sites.inputs.within) == "between -3 and 3"
    assert "inputs between -3 and 3" in [one.what for one in fusion.assumed]


def test_one_logit_is_not_guessed_to_be_a_value_or_a_probability(run: Run, tmp_path: Path) -> None:
    x, y = datasets.load_breast_cancer(return_X_y=True)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    parts = np.array_split(np.random.default_rng(0).permutation(len(y)), 3)
    bare = [state_dict(site) for site in trained(x, y, parts)]
    with pytest.warns(PFNMWarning, match="--head sigmoid or --head values"):
        unclear = pfnm.fuse(bare)
    with pytest.raises(PFNMError, match="--head sigmoid"):
        unclear.evaluate(x, y)
    settled = pfnm.fuse(bare, head="sigmoid")
    assert settled.evaluate(x, y)["accuracy"] > 0.95
    assert "head" in options_of(unclear) - options_of(settled)
    assert not any("--head" in text for text in settled.warnings)
    np.savez(tmp_path / "data.npz", x=x, y=y)
    unclear.save(tmp_path / "g.npz")
    status, _, error = run("evaluate", tmp_path / "g.npz", "--data", tmp_path / "data.npz")
    assert (status, "--head sigmoid" in error) == (2, True)
    told = ["--data", tmp_path / "data.npz", "--head", "sigmoid", "--json"]
    status, text, _ = run("evaluate", tmp_path / "g.npz", *told)
    assert json.loads(text)["accuracy"] > 0.95


def test_a_result_larger_than_its_sites_together_is_told() -> None:
    networks = [random_network(j, (6, 9, 9, 4), name=f"site{j}") for j in range(2)]
    apart = pfnm.Prior(prior_variance=1.0, site_variance=1e-4)  # under which no units are alike
    with pytest.warns(PFNMWarning, match="parameters, the 2 networks together"):
        large = pfnm.fuse(networks, budget=None, prior=apart)
    assert large.network.parameters > 2 * networks[0].parameters
    small = pfnm.fuse(networks, budget="1x")
    assert not any("together" in text and "parameters" in text for text in small.warnings)


def test_a_fusion_that_looks_worse_than_the_best_site_is_told() -> None:
    networks = [random_network(j, (6, 9, 9, 9, 4), name=f"site{j}") for j in range(4)]
    with pytest.warns(PFNMWarning, match="not worth having"):
        pfnm.fuse(networks, budget="1x")


def test_the_same_model_twice_is_noticed() -> None:
    network = random_network(0)
    copies = [replace(network, name=name) for name in ("a", "b", "c")]
    with pytest.warns(PFNMWarning, match="b has the same weights as a"):
        pfnm.fuse(copies)


@pytest.mark.parametrize("ignored", [{"mass": 2.0}, {"spread": 1.0}, {"rules": "paper"}])
def test_options_that_a_prior_would_ignore_are_errors(ignored: dict[str, Any]) -> None:
    networks = [random_network(j, name=f"site{j}") for j in range(2)]
    with pytest.raises(PFNMError, match=f"{next(iter(ignored))} would be ignored"):
        pfnm.fuse(networks, prior=pfnm.Prior(), **ignored)


def test_check_uses_the_counts_of_the_record(
    run: Run, site_files: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "global.npz"
    run("fuse", *site_files, "-o", out, "--class-counts", tmp_path / "counts.json")
    told = ["--class-counts", tmp_path / "counts.json"]
    with_record, with_counts = (
        json.loads(run("check", out, *site_files, "--json", *more)[1]) for more in ([], told)
    )
    assert with_record == with_counts
    recorded = pfnm.check(out, site_files)
    assert recorded.agreement == with_record["agreement"]
    turned = pfnm.as_sites(site_files[::-1], record=pfnm.load(out).metadata)
    assert turned.class_counts is not None  # by site, whatever their order
    assert turned.class_counts.tolist() == [[3, 2, 3, 4], [2, 2, 3, 4], [1, 2, 3, 4]]
    assert pfnm.as_sites(site_files[:2], record=pfnm.load(out).metadata).class_counts is None


@pytest.mark.parametrize(
    "told", [["--inputs", "pictures:2x3"], ["--inputs", "table", "--input-range=-3,3"], []]
)
def test_check_uses_the_inputs_of_the_record(
    run: Run, site_files: list[Path], tmp_path: Path, told: list[str]
) -> None:
    out = tmp_path / "global.npz"
    run("fuse", *site_files, "-o", out, *told)
    without, again = (
        json.loads(run("check", out, *site_files, "--json", *more)[1]) for more in ([], told)
    )
    assert without == again
    assert len(without["assumed"]) == len(pfnm.load(out).metadata["assumed"])


def test_a_kind_that_no_text_tells_is_not_taken_from_the_record(
    site_files: list[Path], tmp_path: Path
) -> None:
    for kind in (pfnm.Table(whole=[1]), pfnm.Table(mean=1.0, deviation=2.0)):
        pfnm.fuse(site_files, inputs=kind).save(tmp_path / "g.npz", force=True)
        assumed = {one.option for one in pfnm.check(tmp_path / "g.npz", site_files).assumed}
        assert "inputs" in assumed


@pytest.mark.parametrize("damage", [{"input_range": [1]}, {"class_counts": [[1, 1, 1, 1]]}])
def test_a_damaged_record_counts_for_nothing(
    site_files: list[Path], damage: dict[str, Any]
) -> None:
    record = pfnm.fuse(site_files, input_range=(0, 2), class_counts=[[1, 2, 3, 4]] * 3).record()
    odd = {**record, "options": {**record["options"], **damage}}
    assert pfnm.as_sites(site_files, record=odd).names == pfnm.as_sites(site_files).names


@pytest.mark.parametrize("told", [{"head": "sigmoid"}, {"activation": "tanh"}])
def test_check_takes_what_the_fused_file_says(told: dict[str, Any], tmp_path: Path) -> None:
    bare = [{"0.weight": np.ones((5, 3)) * j, "2.weight": np.ones((2, 5))} for j in (1, 2, 3)]
    pfnm.fuse(bare, **told).save(tmp_path / "g.npz")
    assert 0 <= pfnm.check(tmp_path / "g.npz", bare).agreement <= 1


def test_what_is_told_counts_for_networks_too() -> None:
    told = random_network(0)
    told = replace(told, program=replace(perceptron(told), activation_told=False))
    fusion = pfnm.fuse([told, replace(told, name="b")], activation="tanh")
    assert fusion.network.activation == "tanh"
    assert "activation" not in options_of(fusion)


def test_outputs_that_contradict_each_other_are_refused() -> None:
    for outputs in (("values", "softmax"), ("identity", "values"), ("sigmoid", "softmax")):
        networks = [replace(random_network(j), output=o) for j, o in enumerate(outputs)]
        with pytest.raises(PFNMError, match="has output"):
            pfnm.fuse(networks)


@pytest.mark.parametrize("inputs", [pfnm.Table, 5])
def test_what_is_no_kind_is_named(inputs: Any) -> None:
    with pytest.raises(PFNMError, match="expected a kind"):
        pfnm.fuse([random_network(j) for j in range(2)], inputs=inputs)


class Frame:
    """A table with named columns, as pandas and polars have it."""

    def __init__(self, values: Array, columns: Sequence[Any], index: Sequence[Any] = ()) -> None:
        self.values, self.columns = np.asarray(values), list(columns)
        self.index = list(index) or list(range(len(self.values)))

    def __getitem__(self, wanted: list[Any]) -> "Frame":
        return Frame(self.values[:, [self.columns.index(name) for name in wanted]], wanted)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.values, dtype)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Any:
        return iter(self.columns)


def test_columns_of_a_table_are_taken_by_name() -> None:
    networks = [replace(random_network(j, (3, 9, 4)), features=("a", "b", "c")) for j in range(3)]
    fusion = pfnm.fuse(networks)
    rows = 3 * np.random.default_rng(0).normal(size=(40, 3))
    answers = fusion.predict(rows)
    assert fusion.predict(rows[:, [2, 0, 1]]).tolist() != answers.tolist()
    shuffled = Frame(np.column_stack([rows[:, [2, 0, 1]], answers]), ["c", "a", "b", "y"])
    assert fusion.predict(shuffled).tolist() == answers.tolist()
    assert fusion.evaluate(shuffled, answers)["accuracy"] == 1
    like, again = (pfnm.fuse(networks, input_like=own) for own in (rows, shuffled))
    np.testing.assert_array_equal(like.network.run(rows), again.network.run(rows))
    with pytest.raises(PFNMError, match=r"input 'c', and no column is .*\(columns: a, b\)"):
        fusion.predict(shuffled[["a", "b"]])
    unnamed = Frame(rows, range(3))
    assert fusion.predict(unnamed).tolist() == answers.tolist()
    with pytest.raises(PFNMError, match="inputs hold NaN"):
        fusion.predict(rows * np.nan)


class Series(dict[Any, int]):
    """Counts by class in whatever order, as `value_counts` of pandas gives them."""

    def to_dict(self) -> dict[Any, int]:
        return dict(self)


COUNTS = np.array([[3, 4], [5, 6], [7, 8]])


@pytest.mark.parametrize(
    "counts",
    [
        Frame(COUNTS, range(2)),
        Frame(COUNTS[:, ::-1], ["yes", "no"]),
        Frame(COUNTS[::-1], ["no", "yes"], ["site2", "site1", "site0"]),
        Frame(COUNTS[::-1], range(2), ["site2", "site1", "site0"]),
        [{"yes": y, "no": n} for n, y in COUNTS.tolist()],
        {f"site{j}": Series(yes=y, no=n) for j, (n, y) in enumerate(COUNTS.tolist())},
    ],
)
def test_counts_are_taken_by_the_names_they_have(counts: Any) -> None:
    networks = [replace(random_network(j, (3, 9, 2)), labels=("no", "yes")) for j in range(3)]
    found = pfnm.as_sites(networks, class_counts=counts).class_counts
    np.testing.assert_array_equal(found, COUNTS)


def test_class_names_without_named_outputs_are_told_a_way_out() -> None:
    networks = [random_network(j, (3, 9, 2)) for j in range(2)]
    with pytest.raises(PFNMError, match=r"class 'no' \(classes: 0, 1\); .*have no names.*--labels"):
        pfnm.fuse(networks, class_counts=[{"no": 1, "yes": 2}] * 2)


def test_networks_by_name_or_one_after_another() -> None:
    networks = [random_network(j, (3, 9, 2)) for j in range(2)]
    by_name = pfnm.fuse(dict(zip(("north", "south"), networks, strict=True)))
    assert by_name.sites.names == ("north", "south")
    one_by_one = pfnm.fuse(network for network in networks)
    assert one_by_one.network.parameters == by_name.network.parameters
    with pytest.raises(PFNMError, match="a mapping from site name"):
        pfnm.fuse({"0.weight": np.ones((2, 3)), "1.weight": np.ones((2, 2))})


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (([0, 1], [1, 2]), r"site0 may name .* 0, 1, elsewhere as many are counted from 1"),
        (
            (["ill", "well"], [0, 1]),
            r"no class of its is another site's \('ill', 'well'; .* 0, 1\)",
        ),
        ((["ill", "well"], ["Ill", "well"]), "its 'ill' looks like 'Ill' elsewhere"),
        ((["ill", "well"], ["sick", "well"]), None),
        (([0, 2], [1, 2]), None),
    ],
)
def test_classes_that_may_have_several_names(labels: Any, words: str | None) -> None:
    networks = [replace(random_network(j, (3, 9, 2)), labels=tuple(labels[j])) for j in range(2)]
    found = [text for text in pfnm.fuse(networks).warnings if "may name classes" in text]
    assert bool(found) == (words is not None)
    if words is not None:
        with pytest.warns(PFNMWarning, match=words):
            pfnm.fuse(networks)


def test_what_only_some_sites_tell_of_their_inputs() -> None:
    rows, target = datasets.load_wine(return_X_y=True)
    pipeline = pytest.importorskip("sklearn.pipeline").make_pipeline
    scaler = pytest.importorskip("sklearn.preprocessing").StandardScaler
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bare = neural.MLPClassifier((9,), max_iter=9).fit(scaler().fit_transform(rows), target)
        whole = pipeline(scaler(), neural.MLPClassifier((9,), max_iter=9)).fit(rows, target)
    with pytest.warns(PFNMWarning, match="site1 has no scaler before its network"):
        pfnm.fuse([whole, bare])
    named = replace(random_network(0, (3, 9, 2)), features=("a", "b", "c"))
    with pytest.warns(PFNMWarning, match="site1 does not name its inputs"):
        pfnm.fuse([named, random_network(1, (3, 9, 2))])


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_inputs_outside_of_the_assumed_range_are_noticed(activation: str) -> None:
    x, y = datasets.load_digits(return_X_y=True)
    parts = np.array_split(np.random.default_rng(0).permutation(len(y)), 3)
    pixels, shares = (trained(x * by, y, parts, activation=activation) for by in (16, 1 / 16))
    with pytest.warns(PFNMWarning, match=r"hardly sure .* between 0 and 1 .*--input-range"):
        pfnm.fuse(pixels)
    for told in ({"input_range": (0, 255)}, {"input_like": 16 * x[:20]}):
        assert not any("hardly sure" in text for text in pfnm.fuse(pixels, **told).warnings)
    assert not any("hardly sure" in text for text in pfnm.fuse(shares).warnings)


def test_one_answer_to_everything_is_told() -> None:
    network = replace(random_network(0, (3, 9, 2)), labels=("no", "yes"))
    rows = np.random.default_rng(0).normal(size=(40, 3))
    said = network.predict(rows)
    other = np.where(said == "no", "yes", "no")
    assert "note" not in pfnm.fuse([network, network]).evaluate(rows, said)
    alike = np.repeat(rows[:1], 40, axis=0)
    found = pfnm.fuse([network, network]).evaluate(alike, np.where(np.arange(40) < 9, said, other))
    assert "every example is taken for" in found["note"]


def test_data_without_names_meet_networks_with_some(run: Run, tmp_path: Path) -> None:
    networks = [replace(random_network(j, (3, 9, 4)), features=("a", "b", "c")) for j in range(2)]
    networks[1] = replace(networks[1], features=("c", "b", "a"))
    rows = np.random.default_rng(0).normal(size=(40, 3))
    np.savez(tmp_path / "data.npz", x=rows, y=networks[0].predict(rows))
    files = [tmp_path / f"site{j}.safetensors" for j in range(2)]
    for network, file in zip(networks, files, strict=True):
        pfnm.formats.save(network, file)
    status, _, error = run("evaluate", *files, "--data", tmp_path / "data.npz")
    assert (status, "in different orders" in error) == (2, True)
    status, text, _ = run("evaluate", files[0], "--data", tmp_path / "data.npz")
    assert (status, "in the network's own order" in text) == (0, True)
