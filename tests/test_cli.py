"""The commands as a person runs them, wrong input included."""

import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from conftest import Run, random_network
from typer import rich_utils
from typer.core import TyperArgument
from typer.main import get_command

import pfnm
from pfnm.cli.console import app
from pfnm.networks.perceptron import mlp

COMMANDS: dict[str, Any] = cast(Any, get_command(app)).commands


def test_fuse_inspect_evaluate(run: Run, site_files: list[Path], tmp_path: Path) -> None:
    target = tmp_path / "global.safetensors"
    counts = tmp_path / "counts.json"
    status, text, _ = run("fuse", *site_files, "-o", target, "--class-counts", counts)
    assert status == 0
    assert "5 to 7" in text
    fused = pfnm.load(target)
    assert [site["name"] for site in fused.metadata["sites"]] == ["site0", "site1", "site2"]
    assert fused.metadata["options"]["class_counts"] == [[1, 2, 3, 4], [2, 2, 3, 4], [3, 2, 3, 4]]
    assert len(fused.metadata["sites"][0]["sha256"]) == 64

    status, text, _ = run("inspect", target)
    assert status == 0
    assert "fused from site0, site1, site2" in text
    status, text, _ = run("inspect", target, "--json")
    assert json.loads(text)["widths"] == fused.widths

    x = np.random.default_rng(0).normal(size=(20, 6))
    y = fused.run(x).argmax(axis=1)
    np.savez(tmp_path / "test.npz", x=x, y=np.where(np.arange(20) < 15, y, (y + 1) % 4))
    status, text, _ = run("evaluate", target, "--data", tmp_path / "test.npz", "--json")
    assert (status, json.loads(text)["accuracy"]) == (0, 0.75)


def test_the_same_seed_gives_the_same_bytes(
    run: Run, site_files: list[Path], tmp_path: Path
) -> None:
    for name in ("one", "two"):
        assert run("fuse", *site_files, "-o", tmp_path / f"{name}.safetensors", "-q")[:2] == (0, "")
    one, two = ((tmp_path / f"{name}.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two


def test_json_is_all_that_is_printed(run: Run, site_files: list[Path], tmp_path: Path) -> None:
    status, text, err = run("fuse", *site_files, "-o", tmp_path / "g.npz", "--json")
    result = json.loads(text)
    assert (status, err) == (0, "")
    layer = result["layers"][0]
    assert layer["site_widths"] == [5, 6, 7]
    assert layer["in_all"] + layer["in_some"] + layer["in_one"] == layer["width"]
    assert 0.5 < result["agreement"] <= 1
    assert all(0 <= tried["sure_agreement"] <= 1 for tried in result["candidates"])
    assert result["options"]["budget"] == 2.0
    assert layer["width"] <= 14


@pytest.fixture
def bad_files(site_files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Site files and, beside them, files with everything that can be wrong."""
    rng = np.random.default_rng(0)
    w1, w2, middle = (rng.normal(size=shape) for shape in ((6, 5), (5, 4), (5, 5)))
    b1, b2 = np.zeros(5), np.zeros(4)
    nan = np.where(np.arange(4) == 2, np.nan, w2)
    np.savez(tmp_path / "nan.npz", w1=w1, b1=b1, w2=nan, b2=b2)
    np.savez(tmp_path / "inputs.npz", w1=w1[1:], b1=b1, w2=w2, b2=b2)
    np.savez(tmp_path / "outputs.npz", w1=w1, b1=b1, w2=w2[:, :3], b2=b2[:3])
    np.savez(tmp_path / "deep.npz", w1=w1, b1=b1, w2=middle, b2=b1, w3=w2, b3=b2)
    np.savez(tmp_path / "nobias.npz", w1=w1, w2=w2)
    (tmp_path / "truncated.safetensors").write_bytes(site_files[0].read_bytes()[:-9])
    (tmp_path / "exists.npz").write_bytes(b"mine")
    (tmp_path / "short.json").write_text(json.dumps({"site0": [1], "site1": [1], "site2": [1]}))
    (tmp_path / "unseen.json").write_text(json.dumps({f"site{j}": [0, 1, 1, 1] for j in range(3)}))
    (tmp_path / "less.csv").write_text("site0,1,2,3,4\nsite1,1,2,3,4\n")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "two.json").write_text('["a", "b"]')
    monkeypatch.chdir(tmp_path)
    return tmp_path


SITES = "site0.safetensors site1.safetensors site2.safetensors"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("site0.safetensors -o out.npz", "fusing needs at least two"),
        ("site0.safetensors site0.safetensors -o out.npz", "site0.safetensors"),
        ("site0.safetensors missing.npz -o out.npz", "missing.npz: cannot be read"),
        ("site0.safetensors nan.npz -o out.npz", "nan.npz: tensor 'w2' holds NaN"),
        ("site0.safetensors inputs.npz -o out.npz", "inputs has 5 inputs, site0 has 6"),
        ("site0.safetensors outputs.npz -o out.npz", "outputs has 3 outputs, site0 has 4"),
        ("site0.safetensors deep.npz -o out.npz", "deep has 2 hidden layers, site0 has 1"),
        ("site0.safetensors nobias.npz -o out.npz", "site0 has a bias 'layers.0.bias', nobias"),
        ("site0.safetensors truncated.safetensors -o out.npz", "truncated.safetensors"),
        ("site0.safetensors short.json -o out.npz", "short.json: unknown extension"),
        (f"{SITES} -o exists.npz", "exists.npz: it exists already"),
        (f"{SITES} -o out.txt", "out.txt: unknown extension"),
        (f"{SITES} -o no/out.npz", "no/out.npz"),
        (f"{SITES} -o out.npz --class-counts short.json", "1 counts for 4 classes"),
        (f"{SITES} -o out.npz --class-counts unseen.json", "class 0 has been seen by no site"),
        (f"{SITES} -o out.npz --class-counts less.csv", "site 'site2' is missing"),
        (f"{SITES} -o out.npz --class-counts broken.json", "broken.json: not valid JSON"),
        (f"{SITES} -o out.npz --site-variance -1", "site_variance is -1.0"),
        (f"{SITES} -o out.npz --prior-variance 0", "prior_variance is 0.0"),
        (f"{SITES} -o out.npz --mass nan", "mass is nan"),
        (f"{SITES} -o out.npz --rules mine", "unknown rules 'mine'"),
        (f"{SITES} -o out.npz --prior-mean 1", "--prior-mean needs --site-variance"),
        (f"{SITES} -o out.npz --budget 0", "budget is 0"),
        (f"{SITES} -o out.npz --budget 0.5", "a budget of 0.5x is below the widest site's 7"),
        (
            f"{SITES} -o out.npz --budget 2",
            "a budget of 2 units, a whole number",
        ),
        (f"{SITES} -o out.npz --budget -1x", "budget is -1.0"),
        (f"{SITES} -o out.npz --budget wide", "budget 'wide' is no factor"),
        (f"{SITES} -o out.npz --max-params 9", "9 parameters are too few"),
        (f"{SITES} -o out.npz --budget 2x --max-params 900", "not both"),
        (f"{SITES} -o out.npz --method magic", "unknown method 'magic'"),
        (f"{SITES} -o out.npz --sweeps 3", "sweeps belong to the method 'topdown'"),
        (f"{SITES} -o out.npz --calibrate nan.npz", "no array named x"),
        (f"{SITES} -o out.npz --rules paper --class-counts counts.json", "no use of class counts"),
        ("nobias.npz nan.npz -o out.npz --activation x", "unknown activation 'x'"),
        (f"{SITES} -o out.npz --labels two.json", "2 labels for 4 outputs"),
        (f"{SITES} -o out.npz --nonsense", "--nonsense"),
        (SITES, "--output"),
    ],
)
def test_bad_input_is_one_line_and_status_2_and_nothing_is_written(
    arguments: str, message: str, run: Run, bad_files: Path
) -> None:
    before = {path: path.read_bytes() for path in bad_files.iterdir()}
    status, text, err = run("fuse", *arguments.split())
    assert (status, text, err.count("\n")) == (2, "", 1)
    assert message in err
    assert {path: path.read_bytes() for path in bad_files.iterdir()} == before


# A shell lets what it runs in the background ignore interrupts, and so would its children. This one
# waits when the result is written and has not got its name yet.
INTERRUPTED = """
import os, signal
from pfnm.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
def waiting(file):
    print("ready", flush=True)
    signal.pause()
os.fsync = waiting
main()
"""


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [(signal.SIGINT, 130, "pfnm: interrupted\n"), (signal.SIGTERM, 143, "")],
)
def test_an_interrupted_run_leaves_nothing(
    number: int, status: int, said: str, site_files: list[Path], tmp_path: Path
) -> None:
    before = sorted(tmp_path.iterdir())
    options = map(str, ["fuse", *site_files, "-o", tmp_path / "out.npz", "--quiet"])
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert len(list(tmp_path.iterdir())) == len(before) + 1
    process.send_signal(number)
    assert process.communicate(timeout=60)[1] == said
    assert process.returncode == status
    assert sorted(tmp_path.iterdir()) == before


def test_demo(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    status, text, _ = run("demo", "--folder", tmp_path / "demo")
    assert status == 0
    cells = [line.split("│") for line in text.splitlines() if line.startswith("│")]
    accuracy = {row[1].strip(): float(row[2].strip(" %")) for row in cells}
    fused, single = accuracy["pfnm: one fused network"], accuracy["one site alone (mean of ten)"]
    assert fused > single + 20
    assert fused > accuracy["plain average of the weights"] + 20
    page = Path(text.splitlines()[-1].strip())
    assert "One network has" in page.read_text()
    command = next(line for line in text.splitlines() if line.strip().startswith("pfnm fuse"))
    done = subprocess.run(
        command.replace(
            "pfnm fuse", f"{sys.executable} -c 'from pfnm.cli import main; main()' fuse"
        ),
        shell=True,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "parameters from 10 networks" in done.stdout
    by_hand, shown = (
        pfnm.load(tmp_path / "demo" / f"{n}.safetensors") for n in ("fused", "global")
    )
    assert all(np.array_equal(by_hand.tensors[k], v) for k, v in shown.tensors.items())


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_help_explains_all_and_cuts_nothing(
    run: Run, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rich_utils, "MAX_WIDTH", 80)
    status, text, _ = run(command, "--help")
    assert status == 0
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    words = " ".join(re.sub(r"[^\x00-\x7f]", " ", text).split())
    for argument in COMMANDS[command].params:
        if isinstance(argument, TyperArgument):
            assert argument.help
            assert argument.help.split()[0] in words


def test_alone_it_prints_the_help(run: Run) -> None:
    status, text, err = run()
    assert (status, err) == (0, "")
    assert "Usage" in text


def test_names_are_printed_as_they_are(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "a["  # "a[/red]" would be the end of something red
    folder.mkdir()
    path = folder / "red].npz"
    names = [("[bold]w", None), (":smile:v", None)]
    labels = ["[/b]", "\udc80"]
    weights = [np.ones((4, 3)), np.ones((3, 2))]
    sites = {"sites": [{"name": "[/i]"}]}
    pfnm.save(mlp(weights, names=names, labels=labels, metadata=sites), path)
    np.savez(folder / "test.npz", x=np.ones((2, 4)), y=labels)
    status, text, _ = run("inspect", path)
    assert status == 0
    for word in ("[bold]w", ":smile:v", "[/b], \\udc80", "fused from [/i]"):
        assert word in text
    status, text, _ = run("evaluate", path, "--data", folder / "test.npz")
    assert (status, "0.5000" in text) == (0, True)


def test_a_line_break_in_a_name_is_no_line_break_in_an_error(run: Run, tmp_path: Path) -> None:
    status, _, err = run("inspect", tmp_path / "one\ntwo.npz")
    assert (status, err.count("\n")) == (2, 1)
    assert "one two.npz" in err


def test_labels_for_a_file_without(run: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "site.npz", w=np.eye(2))
    np.savez(tmp_path / "test.npz", x=np.eye(2), y=["cat", "dog"])
    (tmp_path / "labels.json").write_text('["cat", "dog"]')
    named = ("--labels", tmp_path / "labels.json", "--json")
    status, text, _ = run(
        "evaluate", tmp_path / "site.npz", "--data", tmp_path / "test.npz", *named
    )
    assert (status, json.loads(text)["accuracy"]) == (0, 1.0)
    assert json.loads(run("inspect", tmp_path / "site.npz", *named)[1])["labels"] == ["cat", "dog"]
    status, _, err = run("inspect", tmp_path / "site.npz", "--labels", tmp_path / "missing.json")
    assert (status, err.count("\n")) == (2, 1)


def test_targets_that_do_not_vary_have_no_r2(run: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "site.npz", w=np.ones((2, 1)))
    np.savez(tmp_path / "test.npz", x=np.eye(2), y=np.ones(2))
    options = ("evaluate", tmp_path / "site.npz", "--data", tmp_path / "test.npz")
    assert json.loads(run(*options, "--json")[1])["r2"] is None
    assert "r2                  │ -" in run(*options)[1]


@pytest.mark.parametrize("option", ["", "--json"])
def test_standard_output_that_fails(option: str, site_files: list[Path]) -> None:
    code = "from pfnm.cli import main; main()"
    command = f"{sys.executable} -c '{code}' inspect {site_files[0]} {option}"

    def ending(rest: str) -> tuple[int, str]:
        shell = ["bash", "-c", f"{command} {rest}"]
        done = subprocess.run(shell, check=False, capture_output=True, text=True)
        return done.returncode, done.stderr

    status, err = ending("> /dev/full")
    assert (status, err.count("\n")) == (2, 1)
    assert "No space left" in err
    assert ending("| true; exit ${PIPESTATUS[0]}") == (1, "")


def test_frontier_shows_size_against_accuracy(
    run: Run, site_files: list[Path], tmp_path: Path
) -> None:
    x = np.random.default_rng(0).normal(size=(40, 6))
    y = pfnm.load(site_files[0]).run(x).argmax(axis=1)
    np.savez(tmp_path / "val.npz", x=x, y=y)
    arguments = ["frontier", *site_files, "--budgets", "1x,none", "--data", tmp_path / "val.npz"]
    status, text, _ = run(*arguments, "-o", tmp_path / "frontier.png", "--json")
    told = json.loads(text)
    points = told["points"]
    assert status == 0
    names = ["best site (site0)", "1x", "no limit", "ensemble of 3"]
    assert [point["name"] for point in points] == names
    assert points[0]["accuracy"] == 1
    assert points[1]["parameters"] < points[2]["parameters"]
    assert (tmp_path / "frontier.png").read_bytes().startswith(b"\x89PNG")
    status, text, err = run(*arguments, "-o", tmp_path / "frontier.png")
    assert (status, text) == (2, "")
    assert "exists already" in err
    status, text, _ = run("frontier", *site_files, "--budgets", "1x")
    assert status == 0
    assert "likeness" in text
    assert text.count("(--") == len(told["assumed"]) > 0


def test_calibrate_chooses_on_labelled_data(
    run: Run, site_files: list[Path], tmp_path: Path
) -> None:
    x = np.random.default_rng(0).normal(size=(40, 6))
    np.savez(tmp_path / "val.npz", x=x, y=pfnm.load(site_files[1]).run(x).argmax(axis=1))
    target = tmp_path / "g.npz"
    status, _, _ = run("fuse", *site_files, "-o", target, "--calibrate", tmp_path / "val.npz")
    assert status == 0
    options = pfnm.load(target).metadata["options"]
    assert options["prior"]["site_variance"] in (1.0, 3.0, 10.0)
    assert options["prior"]["mass"] in (0.1, 1.0, 10.0)


def test_a_fusion_not_worth_having_is_said_to_be_so(run: Run, tmp_path: Path) -> None:
    """Sites that learned nothing in common, one of which nearly is the ensemble."""
    paths = [tmp_path / f"site{j}.npz" for j in range(3)]
    for j, path in enumerate(paths):
        pfnm.save(random_network(j, (6, 12, 12, 12, 12, 4)), path)
    (tmp_path / "weights.json").write_text('{"site0": 50, "site1": 1, "site2": 1}')
    weights = ["--site-weights", tmp_path / "weights.json"]
    status, _, err = run("fuse", *paths, "-o", tmp_path / "g.npz", "--budget", "1x", *weights)
    assert status == 0
    assert "not worth having" in err
    assert "--budget" in err


def test_simulate_resume_and_what_is_wrong(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    small = ("--sites", 3, "--hidden", 12, "--rounds", 2, "--epochs", 2)
    status, text, error = run("simulate", *small, "--methods", "ensemble,pfnm-joint", "-o", folder)
    assert (status, error) == (0, "")
    assert "PFNM joint with rounds" in text
    assert (folder / "split.png").stat().st_size > 5000
    assert pfnm.load(folder / "global" / "pfnm-joint.safetensors").widths["hidden1"] <= 24
    before = (folder / "metrics.jsonl").read_text()
    status, text, _ = run("simulate", "--resume", folder, "--json")
    assert status == 0
    assert [row["method"] for row in json.loads(text)["rows"]] == ["ensemble", *["pfnm-joint"] * 2]
    assert (folder / "metrics.jsonl").read_text() == before
    status, text, _ = run("simulate", "--methods", "list")
    assert "fedprox" in text
    for arguments, message in [
        (("-o", folder), "there is a run already"),
        (("--resume", tmp_path / "none"), "there is no run in it"),
        (("--methods", "magic"), "unknown method 'magic'"),
        (("--hidden", "wide"), "no list of widths"),
        (("--join", "site1"), "no SITE:ROUND"),
        (("--join", "north:2"), "there is no north"),
        (("--data", "odd"), "unknown data set 'odd'"),
        (("--split", "odd"), "unknown split 'odd'"),
        (("--fraction", 2), "fraction must lie"),
        (("--learning-rate", 1e30, "-o", tmp_path / "far"), "no site could be trained"),
    ]:
        status, text, error = run("simulate", *arguments)
        assert (status, text) == (2, ""), arguments
        assert message in error
        assert error.count("\n") == 1


def test_data_list_and_get(run: Run, tmp_path: Path) -> None:
    status, text, _ = run("data", "list", "--data-dir", tmp_path)
    assert status == 0
    assert "no (pfnm data get mnist)" in text
    assert run("data", "get", "digits")[0] == 0
    status, _, error = run("data", "get", "odd")
    assert status == 2
    assert "choose digits, pydoc, mnist, fashion, cifar10" in error


@pytest.mark.usefixtures("few_probes")
def test_check_tells_a_good_fusion_from_a_bad_one(run: Run, tmp_path: Path) -> None:
    network = random_network(0, (6, 9, 4))
    files = [tmp_path / f"site{j}.safetensors" for j in range(3)]
    for j, file in enumerate(files):
        noise = np.random.default_rng(j)
        tensors = {n: t + 0.05 * noise.normal(size=t.shape) for n, t in network.tensors.items()}
        pfnm.save(replace(network, tensors=tensors), file)
    good, bad, odd = (tmp_path / f"{name}.safetensors" for name in ("good", "bad", "odd"))
    run("fuse", *files, "-o", good)
    pfnm.save(random_network(9, (6, 9, 4)), bad)
    pfnm.save(random_network(9, (6, 9, 5)), odd)
    polished = tmp_path / "polished.safetensors"
    status, text, _ = run(
        "fuse", *files, "-o", polished, "--polish", "--polish-seconds", 1, "--json"
    )
    assert status == 0
    assert pfnm.load(polished).metadata["polish"]["seconds"] == 1
    status, text, _ = run("check", good, *files, "--json")
    found = json.loads(text)
    assert status == 0
    assert found["agreement"] > 0.9
    status, text, error = run("check", bad, *files)
    assert status == 0
    assert "not worth having" in error
    assert "the best single site, site" in text
    status, _, error = run("check", odd, *files)
    assert status == 2
    assert "outputs" in error


@pytest.mark.usefixtures("few_probes")
def test_polish_on_data_and_what_is_wrong(run: Run, site_files: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    x = np.random.default_rng(0).uniform(-2, 5, size=(60, 6))
    np.savez(tmp_path / "x.npz", x=x)
    np.savez(tmp_path / "xy.npz", x=x, y=np.arange(60) % 3)
    np.savez(tmp_path / "narrow.npz", x=x[:, :5])
    np.savez(tmp_path / "y.npz", y=np.arange(60) % 3)
    target = tmp_path / "g.safetensors"
    fuse: list[object] = ["fuse", *site_files, "-o", target, "--force"]
    polish: list[object] = [*fuse, "--polish", "--polish-seconds", 2]
    cases: list[tuple[list[object], str]] = [
        (["--input-range", "-2,5"], "probes"),
        (["--input-like", tmp_path / "x.npz"], "probes"),
        (["--polish-data", tmp_path / "x.npz", "--no-probes"], "real inputs"),
        (["--polish-data", tmp_path / "xy.npz"], "labels"),
    ]
    for options, judged_on in cases:
        status, _, _ = run(*polish, *options)
        assert status == 0
        assert pfnm.load(target).metadata["polish"]["judged_on"] == judged_on
    before = target.read_bytes()
    for arguments, message in [
        ([*polish, "--input-range", "1"], "expected both ends in one word"),
        ([*polish, "--input-range", "3,1"], "the range is 3 to 1, which is none"),
        ([*polish, "--no-probes"], "--no-probes needs --polish-data"),
        ([*fuse, "--polish-data", tmp_path / "x.npz"], "--polish-data belongs to --polish"),
        ([*polish, "--polish-data", tmp_path / "narrow.npz"], "expected rows of 6 numbers"),
        ([*polish, "--polish-data", tmp_path / "y.npz"], "no array named x"),
        ([*polish, "--polish-data", tmp_path / "none.npz"], "none.npz"),
    ]:
        status, text, error = run(*arguments)
        assert (status, text) == (2, "")
        assert message in error
        assert error.count("\n") == 1
    assert target.read_bytes() == before
    status, text, _ = run("frontier", *site_files, "--budgets", "1x", "--polish", "--json")
    assert [point["name"] for point in json.loads(text)["points"]][1:3] == ["1x", "1x, polished"]
