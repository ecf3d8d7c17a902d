"""The paper's experiments: definitions, runs that go on, engines, verdicts, figures."""

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from joblib import delayed

from pfnm.errors import PFNMError
from pfnm.experiments.claim import ASKED, OURS, PAPER, clearly_above, clearly_below
from pfnm.experiments.claims import claims
from pfnm.experiments.definition import NAMES, Experiment, Job, experiment
from pfnm.experiments.rows import (
    COLUMNS,
    COMPACT,
    TRIED,
    Row,
    fits,
    means,
    read_rows,
    with_compact,
    write_rows,
)
from pfnm.experiments.runner import ENGINES, _results, check_rows, run, seconds_spent
from pfnm.experiments.trials import EACH_ROUND, _round_of
from pfnm.formats.files import make_folder
from pfnm.lab.data import load_data
from pfnm.lab.folders import locked
from pfnm.lab.method import State, train_local
from pfnm.lab.setting import Setting, federation
from pfnm.report.experiments import draw
from pfnm.report.page import write_page

MAIN = "from pfnm.cli import main; main()"
TIMES = ("seconds", "job_seconds")


def tiny() -> Experiment:
    quick = experiment("sites", quick=True)
    return replace(
        quick, sites=(2, 3), splits=("even",), methods=("local", "fedavg", "pfnm", "joint-same")
    )


def measured(rows: list[Row]) -> list[Row]:
    """Without what the clock says."""
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


@pytest.mark.parametrize("name", NAMES)
def test_every_definition_can_be_run_whole_and_quick(name: str) -> None:
    for quick in (False, True):
        own = experiment(name, quick=quick)
        jobs = own.jobs()
        assert len({job.key for job in jobs}) == len(jobs)
        settings = len(own.settings) * len(own.splits)
        groups = len(own.methods) if own.kind == "rounds" else 1
        assert len(jobs) == groups * settings * sum(own.trials[data] for data in own.data)


def test_the_papers_settings() -> None:
    assert experiment("sites").sites == [5, 10, 15, 20, 25, 30]
    assert experiment("depth").depths == [1, 2, 3, 4, 5, 6]
    assert experiment("rounds").rounds == {"even": 20, "authors": 50}
    assert experiment("sensitivity").heat_sites == 25
    assert experiment("timing").settings == [(30, 1), (10, 6)]
    with pytest.raises(PFNMError, match="choose one of sites, depth"):
        experiment("site")


class StopError(Exception):
    """As if the power went out."""


def test_an_interrupted_experiment_goes_on_to_the_same_rows(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        assert total == 4
        if done == 1:
            raise StopError

    whole = run(tiny(), tmp_path / "whole", workers=2)
    with pytest.raises(StopError):
        run(tiny(), tmp_path / "parts", on_job=stop)
    assert 0 < len(read_rows(tmp_path / "parts")) < len(whole)
    told: list[int] = []
    run(tiny(), tmp_path / "parts", on_job=lambda done, total: told.append(done))
    assert told == [1, 2, 3, 4]
    found = read_rows(tmp_path / "parts")
    assert measured(found) == measured(read_rows(tmp_path / "whole"))
    tried = [row for row in found if row["method"].endswith(TRIED)]
    assert len(found) == 4 * 4 + len(tried)
    assert len(tried) == 4 * (len(tiny().site_variances) + len(tiny().sgd_rates["digits"]))
    assert seconds_spent(tmp_path / "parts") > 0
    for method in ("pfnm", "fedavg"):
        for own in (row for row in found if row["method"] == method):
            same = {"sites": own["sites"], "trial": own["trial"]}
            others = [t for t in tried if fits(t, {**same, "method": method + TRIED})]
            assert own["train_accuracy"] == max(row["train_accuracy"] for row in others)
            assert own["widths"] == str(own["units"])
            if method == "pfnm":
                assert own["log_ratio"] <= 0
                (equal,) = [r for r in found if fits(r, {**same, "method": "joint-same"})]
                assert equal["parameters"] <= own["parameters"]
    again: list[int] = []
    run(tiny(), tmp_path / "parts", on_job=lambda done, total: again.append(done))
    assert again == [4]


def test_more_may_be_added_but_nothing_else_changed(tmp_path: Path) -> None:
    one = replace(tiny(), trials={"digits": 1}, sites=(2,), methods=("local", "ensemble"))
    first = run(one, tmp_path)
    both = run(replace(one, trials={"digits": 2}), tmp_path)
    assert measured(both[: len(first)]) == measured(first)
    assert len(both) == 2 * len(first)
    more = run(replace(one, sites=(2, 3), title="Another title"), tmp_path)
    assert measured(more[: len(first)]) == measured(first)
    assert len(more) == 3 * len(first)
    with pytest.raises(PFNMError, match="rows have another site_variances"):
        run(replace(one, site_variances=(5.0,)), tmp_path)
    record = json.loads((tmp_path / "experiment.json").read_text())
    assert [own["jobs"] for own in record["runs"]] == [1, 1, 1]
    record["conditions"]["digits, sha256"] = "0"
    (tmp_path / "experiment.json").write_text(json.dumps(record))
    with pytest.raises(PFNMError, match="another digits, sha256"):
        run(one, tmp_path)
    record["conditions"].pop("digits, sha256")
    training = record["conditions"]["training, digits"]
    assert training.pop("server_inputs") == 0  # there was no such setting once
    (tmp_path / "experiment.json").write_text(json.dumps(record))
    assert measured(run(one, tmp_path)[: len(first)]) == measured(first)
    training["server_inputs"] = 5
    (tmp_path / "experiment.json").write_text(json.dumps(record))
    with pytest.raises(PFNMError, match="another training, digits"):
        run(one, tmp_path)
    del training["server_inputs"]
    (tmp_path / "experiment.json").write_text(json.dumps(record))
    with (
        locked(tmp_path),
        pytest.raises(PFNMError, match="another process is at work"),
    ):
        run(one, tmp_path)
    (tmp_path / "rows.csv").write_text("data,split\ndigits,even\n")
    with pytest.raises(PFNMError, match=r"rows\.csv: has no column 'method'"):
        run(one, tmp_path)
    (tmp_path / "experiment.json").write_text("{}")
    with pytest.raises(PFNMError, match=r"experiment\.json: cannot be read"):
        run(one, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(PFNMError, match="is no folder"):
        run(one, tmp_path / "file")


def test_methods_may_be_added(tmp_path: Path) -> None:
    methods = ("local", "pfnm", "pfnm-same", "joint-same")
    whole = replace(tiny(), sites=(3,), methods=methods, site_variances=(0.001, 0.01))
    rows = run(replace(whole, methods=("local",)), tmp_path / "parts")
    parts = run(replace(whole, methods=("local", "joint-same")), tmp_path / "parts")
    assert len(parts) == 2 * len(rows)
    run(whole, tmp_path / "parts")
    run(whole, tmp_path / "whole")
    found = read_rows(tmp_path / "parts")
    assert measured(found) == measured(read_rows(tmp_path / "whole"))
    equal, narrow = ([r for r in found if r["method"] == name] for name in ("local", "pfnm-same"))
    for one, other in zip(narrow, equal, strict=True):
        assert one["units"] == 2 * other["units"]  # as wide as ours by default, where PFNM has more


def test_a_job_that_fails_does_not_keep_others_from_their_results(tmp_path: Path) -> None:
    one = replace(tiny(), trials={"digits": 1}, sites=(2, 1000), methods=("local", "ensemble"))
    with pytest.raises(
        PFNMError, match="1 of 2 jobs of sites failed, the first digits, even, 1000"
    ):
        run(one, tmp_path)
    assert {row["sites"] for row in read_rows(tmp_path)} == {2}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Ray's open files
@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "local"])
def test_a_cluster_gives_the_same_numbers(tmp_path: Path, engine: str) -> None:
    """A real one on this machine, with a single job: starting it is what takes the time."""
    one = replace(tiny(), trials={"digits": 1}, sites=(2,), methods=("local", "ensemble"))
    here = run(one, tmp_path / "local")
    assert measured(run(one, tmp_path / engine, engine=engine)) == measured(here)


@pytest.mark.long
def test_clusters_give_the_same_numbers_by_the_command(tmp_path: Path) -> None:
    found = []
    for engine in ENGINES:
        reproduced("rounds", "-o", tmp_path / engine, "--engine", engine)
        found.append(measured(read_rows(tmp_path / engine / "rounds")))
    assert len(found[0]) > 20
    assert found[1] == found[0]
    assert found[2] == found[0]


def reproduced(*arguments: object) -> None:
    """What the command does, in small."""
    command = [sys.executable, "-c", MAIN, "reproduce", *map(str, arguments), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("names", "trials"),
    [(("sites",), 1), pytest.param(NAMES, 2, marks=pytest.mark.long)],
)
def test_rows_figures_and_the_page_by_the_command(
    tmp_path: Path, names: tuple[str, ...], trials: int
) -> None:
    page = tmp_path / "page.md"
    for name in names:
        reproduced(name, "-o", tmp_path, "--page", page, "--trials", trials, "--jobs", 1)
    text = page.read_text()
    for name in names:
        folder = tmp_path / name
        assert list(read_rows(folder)[0]) == list(COLUMNS)
        record = json.loads((folder / "experiment.json").read_text())
        assert record["experiment"]["name"] == name
        assert record["runs"][0]["versions"]["pfnm"]
        pictures = [path.name for path in folder.glob("*.png")]
        assert pictures
        assert all(f"{name}/{picture}" in text for picture in pictures)
        svgs = {path: path.read_bytes() for path in folder.glob("*.svg")}
        if names == NAMES:
            draw(experiment(name, quick=True), read_rows(folder), folder)
            assert {path: path.read_bytes() for path in svgs} == svgs
        own = experiment(name)  # only begun, with the last of its panels
        begun = [r | {"data": "cifar10"} for r in read_rows(folder) if r["split"] == own.splits[-1]]
        for rows in (begun[:1],) if names != NAMES else (begun, begun[:1]):
            assert all(path.exists() for path in draw(own, rows, tmp_path))
            assert all(claim.holds is not True for claim in claims(own, rows))
    assert "Claims of the paper" not in text  # which says nothing of digits
    if "sites" in names:
        assert "| PFNM is above FedAvg at every number of sites. | digits (asked) | in " in text
        assert "| sites | PFNM is above FedAvg at every number of sites. | " in text
        assert "each in a row `pfnm-tried`" in text
    if names == NAMES:
        assert "Further statements: " in text
        assert "Statements about the joint method: " in text


def row(**values: Any) -> Row:
    plain = {"data": "mnist", "split": "even", "sites": 5, "depth": 1, "trial": 0}
    return {**dict.fromkeys(COLUMNS), **plain, **values}


def test_verdicts_by_hand() -> None:
    own = replace(experiment("sites"), data=["mnist"], sites=[5, 10], splits=["even", "authors"])
    accuracies = {"local": 0.8, "ensemble": 0.93, "fedavg": 0.85, "kmeans": 0.9, "pfnm": 0.925}
    rows = [
        row(method=method, accuracy=value, split=split, sites=sites, log_ratio=-float(sites),
            widths="700", parameters=1000)
        for method, value in accuracies.items()
        for split in own.splits
        for sites in own.sites
    ]  # fmt: skip
    for uneven in rows:
        if (uneven["method"], uneven["split"]) == ("kmeans", "authors"):
            uneven["accuracy"] -= 0.05
    found = claims(own, rows)
    assert [claim.holds for claim in found] == [True] * 5 + [None] * 2
    assert [claim.whose for claim in found] == [PAPER] * 4 + [ASKED] + [OURS] * 2
    assert "4 of 4 networks at the published rules' limit of 700 units" in found[4].measured
    assert found[1].measured.startswith(
        "in 4 of 4 settings, clearly in 0, clearly not in 0; from +7.50 points, 1 trial (5 sites"
    )
    some = [claim.verdict for claim in claims(own, [r for r in rows if r["sites"] == 5])]
    assert some == ["not measured yet"] * 7
    worse = [{**r, "accuracy": 0.84} if r["method"] == "pfnm" and r["sites"] == 10 else r
             for r in rows]  # fmt: skip
    verdicts = [True, False, False, False, True, None, None]
    assert [claim.holds for claim in claims(own, worse)] == verdicts
    assert {claim.holds for claim in claims(own, [])} == {None}
    more = [{**r, "trial": 1, "accuracy": r["accuracy"] + 0.002 * (r["method"] == "pfnm")}
            for r in rows]  # fmt: skip
    above = claims(own, [*rows, *more])[1]
    assert "from +7.60 ± 0.14 points, 2 trials" in above.measured
    assert "in 4 of 4 settings, clearly in 4, clearly not in 0" in above.measured


@pytest.mark.parametrize(
    ("leads", "good", "clear", "against"),
    [  # of PFNM over FedAvg, in two trials: the standard error is half of what they differ by
        ((0.01, 0.031), 1, 0, 0),
        ((0.01, 0.029), 1, 1, 0),
        ((0.03, -0.01), 1, 0, 0),
        ((-0.01, -0.029), 0, 0, 1),
        ((0.01, -0.03), 0, 0, 0),
    ],
)
def test_what_is_clear_lies_beyond_two_standard_errors(
    leads: tuple[float, float], good: int, clear: int, against: int
) -> None:
    own = replace(experiment("sites"), data=["mnist"], sites=[5], splits=["even"])
    rows = [row(method="fedavg", accuracy=0.5, trial=trial) for trial in range(2)]
    rows += [row(method="pfnm", accuracy=0.5 + x, trial=t) for t, x in enumerate(leads)]
    claim = claims(own, rows)[1]
    told = f"in {good} of 1 settings, clearly in {clear}, clearly not in {against}; "
    assert claim.measured.startswith(told)
    assert claim.against == against


@pytest.mark.parametrize(
    ("mean", "deviation", "trials", "bound", "above", "below"),
    [
        (-0.005, 0.003, 3, -0.01, True, False),  # 2.9 standard errors from the bound
        (-0.005, 0.003, 3, 0.0, False, True),
        (-0.005, 0.005, 3, -0.01, False, False),  # 1.7
        (-0.005, 0.005, 9, -0.01, True, False),  # 3
        (-0.015, 0.005, 9, -0.01, False, True),
        (0.5, math.nan, 1, 0.0, False, False),
    ],
)
def test_clear_of_a_bound(
    mean: float, deviation: float, trials: int, bound: float, above: bool, below: bool
) -> None:
    difference = mean, deviation, trials
    assert clearly_above(difference, bound) is above
    assert clearly_below(difference, bound) is below


def test_near_the_ensemble_is_clear_of_the_point_it_may_be_below() -> None:
    own = replace(experiment("sites"), data=["mnist"], sites=[5, 10], splits=["even"])
    leads = {5: (-0.004, -0.005, -0.006), 10: (-0.014, -0.015, -0.016)}
    rows = [
        row(method=method, accuracy=0.9 + lead * (method == "pfnm"), trial=trial, sites=sites)
        for sites, found in leads.items()
        for trial, lead in enumerate(found)
        for method in ("ensemble", "pfnm")
    ]
    near = claims(own, rows)[2]
    assert near.measured.startswith("in 1 of 2 settings, clearly in 1, clearly not in 1; ")
    assert (near.clear, near.against) == (1, 1)


def test_depth_is_judged_at_the_same_width_too() -> None:
    own = replace(experiment("depth"), data=["mnist"], splits=["even"], depths=[2])
    tried = [
        row(method=method, depth=2, parameters=size, train_accuracy=fit, accuracy=fit)
        for method, size, fit in (("pfnm-tried", 1500, 0.95), ("pfnm-tried", 1000, 0.92),
                                  ("pfnm-same-tried", 250, 0.8))
    ]  # fmt: skip
    others = [
        row(method=method, depth=2, parameters=size, accuracy=value)
        for method, size, value in (("ensemble", 1000, 0.95), ("weighted", 1000, 0.95),
                                    ("joint", 300, 0.9), ("pfnm", 1500, 0.95),
                                    ("pfnm-same", 250, 0.8))
    ]  # fmt: skip
    rows = [*tried, *others]
    assert with_compact(rows) == [*rows, {**tried[1], "method": COMPACT}]
    assert with_compact(tried) == tried  # how large the sites are is not known
    found = claims(own, rows)
    assert "even split: 1.50 of theirs" in found[2].measured
    assert [claim.holds for claim in found[2:]] == [False, None, False, True, False, False]
    assert "; from +10.00 points, 1 trial (2 hidden layers, even split)" in found[5].measured
    assert found[5].measured.endswith("parameters on average 300 against 250")
    assert found[6].measured.endswith("parameters on average 300 against 1,000")


def test_a_method_of_which_every_round_is_matched() -> None:
    sites = federation(Setting(sites=3, hidden=(8,), epochs=1, later_epochs=1), load_data("digits"))
    local, each, ours = train_local(sites), State(), State()
    for number in range(1, 7):
        each, info = _round_of(EACH_ROUND)(sites, each, local, number)
        ours, _ = _round_of("pfnm-joint")(sites, ours, local, number)
        assert info.objective is not None
    assert each.server.sent
    assert ours.server.averaging


def test_verdicts_on_rounds_by_hand() -> None:
    own = replace(
        experiment("rounds"), data=["mnist"], splits=["even"], depths=[1], rounds={"even": 3}
    )
    curves = {"pfnm": (0.8, 0.91, 0.92), "fedavg": (0.5, 0.7, 0.9), "dsgd": (0.95, 0.96, 0.97)}
    rows = [
        row(method=method, round=number, accuracy=value, units=100 - number,
            communications=number * (100 if method == "dsgd" else 1), epochs=10.0 * number)
        for method, values in curves.items()
        for number, value in enumerate(values, start=1)
    ]  # fmt: skip
    rows.append(row(method="ensemble", round=0, accuracy=0.905))
    found = claims(own, rows)
    assert [claim.holds for claim in found] == [True, False, True, True, *[None] * 4]
    assert "PFNM 2, FedAvg never, D-SGD 100" in found[0].measured
    assert "PFNM 20.0, FedAvg never, D-SGD 10.0" in found[1].measured
    assert "(PFNM first in 1 of 1 trial)" in found[0].measured
    assert "99 to 97 units" in found[2].measured
    assert (
        "PFNM 92.0 % with 97 units, FedAvg 90.0 % with 97 units, D-SGD 97.0 %" in found[3].measured
    )
    alone = row(method="ensemble", round=0, accuracy=0.1, trial=1)
    assert claims(own, [*rows, alone]) == found  # a trial that the others do not have
    later = [{**r, "trial": 1, "communications": 1000, "accuracy": 1.0}
             for r in [*rows, alone] if r["method"] != "pfnm"]  # fmt: skip
    later += [{**r, "trial": 1} for r in rows if r["method"] == "pfnm"]
    assert "(PFNM first in 1 of 2 trials)" in claims(own, [*rows, *later])[0].measured
    early = row(method="dsgd", communications=1, epochs=0.1, accuracy=0.91)
    found = claims(own, [*rows, early])
    assert [claim.holds for claim in found] == [False, False, True, True, *[None] * 4]
    assert "D-SGD 0.1" in found[1].measured
    sooner = [
        {**r, "method": "joint-each", "accuracy": 0.95} for r in rows if r["method"] == "pfnm"
    ]
    found = claims(own, [*rows, *sooner])
    assert [claim.holds for claim in found] == [True, False, True, True, True, False, True, True]
    assert "the joint method 1, FedAvg never" in found[4].measured
    assert [claim.whose for claim in found] == [PAPER, ASKED, PAPER, ASKED, *[OURS] * 4]
    assert found[7].measured.endswith(
        "the joint method 95.0 % with 97 units, PFNM 92.0 % with 97 units; "
        "against PFNM +3.00 points, 1 trial"
    )
    worse = [{**r, "accuracy": 0.91} for r in sooner]
    assert [claim.holds for claim in claims(own, [*rows, *worse])[6:]] == [True, False]
    behind = [{**r, "accuracy": 0.99} if r["method"] == "fedavg" else r for r in rows]
    assert claims(own, behind)[3].holds is False
    twice = [{**r, "trial": t} for r in rows for t in range(2)]
    assert (claims(own, twice)[3].clear, claims(own, twice)[3].against) == (1, 0)
    twice = [{**r, "trial": t} for r in behind for t in range(2)]
    assert (claims(own, twice)[3].clear, claims(own, twice)[3].against) == (0, 1)


def test_verdicts_on_the_prior_by_hand() -> None:
    own = replace(
        experiment("sensitivity"), data=["mnist"], splits=["even"], sites=[25],
        prior_variances=[1.0, 10.0], masses=[1.0, 10.0], site_variances=[0.1, 1.0],
    )  # fmt: skip
    heat = [
        row(method="prior", sites=25, prior_variance=v, mass=m, train_accuracy=0.9 - 0.001 * v * m,
            widths="700" if v == 1 else "200")
        for v in own.prior_variances for m in own.masses
    ]  # fmt: skip
    sweep = [row(method="site variance", sites=25, site_variance=v, train_accuracy=0.7 + 0.2 * v)
             for v in own.site_variances]  # fmt: skip
    robust, stronger = claims(own, [*heat, *sweep])
    assert (robust.holds, stronger.holds) == (False, True)
    assert "3 of 4 within 2 points of the best (0 clearly not), all within 9.9" in robust.measured
    assert "2 of 4 networks at the published rules' limit" in robust.measured
    assert "18.0 points against 9.9" in stronger.measured
    again = [{**r, "trial": 1, "train_accuracy": r["train_accuracy"] + 0.01} for r in heat]
    robust, _ = claims(own, [*heat, *again, *sweep])  # the far one is as far in both trials
    assert "3 of 4 within 2 points of the best (1 clearly not)" in robust.measured
    assert robust.against == 1
    near = [{**r, "train_accuracy": 0.9} for r in heat]
    assert [c.holds for c in claims(own, [*near, *sweep])] == [True, True]
    assert [c.holds for c in claims(own, [*near[1:], *sweep])] == [None, None]


def test_verdicts_on_time_by_hand() -> None:
    own = replace(experiment("timing"), data=["mnist"])
    rows = [
        row(method="pfnm", depth=d, seconds=s, site_variance=v)
        for d, v, s in ((1, 1.0, 0.5), (1, 0.1, 0.4), (6, 1.0, 2.0), (6, 0.1, 61.0))
    ]
    (slow,) = claims(own, rows)
    assert slow.holds is False
    assert "1 hidden layer: 0.50 s with sigma^2 = 1 (the authors: 40 s)" in slow.measured
    assert "6 hidden layers: 61.00 s with sigma^2 = 0.1 (the authors: 60 s)" in slow.measured
    assert [c.holds for c in claims(own, rows[:1])] == [None]


def test_means_leave_out_what_was_not_measured() -> None:
    rows = [row(accuracy=0.5), row(accuracy=0.7, trial=1), row(accuracy=None, trial=2)]
    mean, deviation, number = means(rows, "accuracy", data="mnist")
    assert mean == pytest.approx(0.6)
    assert number == 2
    assert deviation == pytest.approx(0.2 / 2**0.5)
    assert means(rows, "accuracy", data="cifar10")[2] == 0


def test_the_page_says_how_many_trials_there_are_and_what_all_would_take(tmp_path: Path) -> None:
    own = replace(experiment("sites"), splits=["even"], sites=[5], methods=["local", "pfnm"])
    make_folder(tmp_path / "sites")
    rows = [
        row(method=method, trial=trial, job_seconds=seconds)
        for trial, seconds in enumerate([1800.0, 5400.0])
        for method in ("local", "pfnm")
    ]
    rows += [row(method=method, data="cifar10", job_seconds=3600.0) for method in own.methods]
    write_rows(tmp_path / "sites", rows)
    write_page([own], tmp_path, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "Trials: MNIST 2 of 10, CIFAR-10 1 of 3. 6 rows" in page
    # MNIST: one hour and three, so ten times two; CIFAR-10: three times two
    assert "would be 26.0 hours of work in one thread, and with `--jobs 2` some 13.0 hours" in page
    write_rows(tmp_path / "sites", rows[:-1])  # of one trial a method is missing
    write_page([own], tmp_path, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "Trials: MNIST 2 of 10, CIFAR-10 0 of 3. 5 rows" in page
    assert "Every trial" not in page


def test_the_page_has_a_table_of_verdicts_data_set_by_data_set(tmp_path: Path) -> None:
    own = replace(experiment("sites"), sites=[5, 10], splits=["even"])
    accuracies = {"mnist": {5: 0.9, 10: 0.9}, "cifar10": {5: 0.4, 10: 0.2}}
    rows = [
        row(method=method, data=data, sites=sites, accuracy=value, trial=trial)
        for data, by_sites in accuracies.items()
        for trial in range(2 if data == "mnist" else 1)  # what one trial says is never clear
        for sites, pfnm in by_sites.items()
        for method, value in (("pfnm", pfnm), ("local", 0.1), ("fedavg", 0.3))
    ]
    folder = tmp_path / "sites"
    folder.mkdir()
    write_rows(folder, rows)
    write_page([own], tmp_path, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "paper: 3 of 7 hold (3 not measured yet), each data set counted by itself.\n\n" in page
    assert "| experiment | claim | MNIST | CIFAR-10 |\n" in page
    local = "PFNM is above the sites' own networks at every number of sites."
    assert f"| {local} | yes | yes (clearly in 0 of 2) |" in page
    above = "| PFNM is above FedAvg at every number of sites. |"
    assert f"{above} yes | no (in 1 of 2; clearly not in 0) |" in page
    near = "PFNM is near the uniform ensemble (at most 1 point below) or above it, at every number"
    assert f"| sites | {near} of sites. | not measured yet |  |\n" in page  # not claimed of both
    assert f"{above} MNIST | in 2 of 2 settings, " in page
    assert "|  | CIFAR-10 | in 1 of 2 settings, " in page
    assert "; from -10.00 points, 1 trial (10 sites" in page


def test_the_page_begins_with_what_to_conclude(tmp_path: Path) -> None:
    own = replace(experiment("depth"), depths=[1, 2], splits=["even"], data=["mnist"])
    rows = [
        row(method=method, sites=10, depth=depth, accuracy=accuracy, parameters=parameters)
        for depth in own.depths
        for method, accuracy, parameters in (
            ("ensemble", 0.9, 1000),
            ("fedavg", 0.7, 100),
            ("pfnm", 0.9 - depth / 100, 1000 * depth),
            ("joint", 0.86, 250),
        )
    ]
    (tmp_path / "depth").mkdir()
    write_rows(tmp_path / "depth", rows)
    draw(own, rows, tmp_path / "depth")
    write_page([own], tmp_path, tmp_path / "page.md")
    beginning = (tmp_path / "page.md").read_text().partition("## How it was measured")[0]
    assert "above FedAvg after one round in 2 of 2 settings." in beginning
    assert "| 1 | PFNM as published against FedAvg, one round | +18.0 to +19.0 |" in beginning
    assert "or at most 1 point below, in 0 of 2 settings on MNIST." in beginning
    assert "| 2 | PFNM as published against the uniform ensemble | -2.0 to -1.0 |" in beginning
    assert "With 1 to 2 hidden layers its network has 1 to 2 times the parameters" in beginning
    assert "0.25 times as many, and is above the ensemble in 0 of 2 settings." in beginning
    assert "ours at twice a site's width against the uniform ensemble | -4.0 |" in beginning
    assert "\n4. " not in beginning  # what has no rows is left out
    assert "depth/depth-size.png)" in beginning


def test_the_committed_page_follows_from_the_rows(tmp_path: Path) -> None:
    """Byte for byte, and the figures are there."""
    root = Path(__file__).parents[2]
    (tmp_path / "docs").mkdir()
    (tmp_path / "results").symlink_to(root / "results")
    again = tmp_path / "docs" / "results.md"
    write_page([experiment(name) for name in NAMES], tmp_path / "results", again)
    assert again.read_bytes() == (root / "docs" / "results.md").read_bytes()


def test_the_page_says_when_a_choice_lies_at_the_end_of_its_grid(tmp_path: Path) -> None:
    make_folder(tmp_path / "sites")
    grid = (0.1, 0.3, 1.0, 3.0)
    trained = [  # of each trial: at the smallest end, twice; a tie there; at the largest end
        (0.9, 0.897, 0.8, 0.7), (0.91, 0.9, 0.9, 0.9), (0.9, 0.9, 0.8, 0.7), (0.1, 0.3, 0.5, 0.6)
    ]  # fmt: skip
    rows = [
        row(method="pfnm-tried", site_variance=value, train_accuracy=accuracy, trial=trial)
        for trial, found in enumerate(trained)
        for value, accuracy in zip(grid, found, strict=True)
    ]
    rows += [row(method="fedavg-tried", rate=rate, train_accuracy=rate, left_out=1)
             for rate in (0.1, 0.3)]  # fmt: skip
    rows.append(row(method="fedavg-tried", rate=0.03, train_accuracy=0.3, data="cifar10"))
    rows += [row(method=method, left_out=out) for method, out in (("fedavg", 3), ("local", 0))]
    write_rows(tmp_path / "sites", rows)
    write_page([experiment("sites")], tmp_path, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "Trials: MNIST 0 of 10, CIFAR-10 0 of 3. 21 rows" in page
    assert "sigma^2 was chosen from 0.1, 0.3, 1, 3 (each in a row `pfnm-tried`); in 2 of 4" in page
    better = "of these and better on the training data than the next, by"
    assert f"in 2 of 4 choices it is the smallest {better} 0.7 points on average and 1.0 at" in page
    assert f"in 1 of 4 choices it is the largest {better} 10.0 points on average" in page
    assert "sites are left out whose training diverged (`left_out`): 1 (`fedavg`)." in page
    assert "chosen from MNIST 0.1, 0.3; CIFAR-10 0.03 (each in a row `fedavg-tried`)." in page


def test_a_bad_folder_does_not_keep_other_experiments_from_their_turn(tmp_path: Path) -> None:
    make_folder(tmp_path / "sites")
    (tmp_path / "sites" / "experiment.json").write_text("{}")
    make_folder(tmp_path / "timing")
    write_rows(tmp_path / "timing", [row(method="pfnm", seconds=1.0, data="digits")])
    command = [sys.executable, "-c", MAIN, "reproduce", "all", "--quick", "--draw"]
    done = subprocess.run(
        [*command, "-o", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("experiment.json: cannot be read") == 1
    assert (tmp_path / "timing" / "timing.png").exists()


def killed(job: Job, data_dir: Path | None) -> list[Row]:
    """As the system does for want of memory."""
    os.kill(os.getpid(), signal.SIGKILL)
    return []


def test_a_worker_that_is_killed_is_told_in_one_line() -> None:
    work = [delayed(killed)(job, None) for job in tiny().jobs()]
    with pytest.raises(PFNMError, match="a worker ended before its job did"):
        list(_results(work, "local", 2))


def test_a_page_without_rows_has_no_experiments(tmp_path: Path) -> None:
    write_page([experiment("sites")], tmp_path, tmp_path / "page.md")
    assert "## sites" not in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("experiment.json", '{"conditions": {}, "runs": [{"jobs": 1}]}'),
        ("experiment.json", '{"conditions": {}, "runs": [null]}'),
        ("experiment.json", "[" * 100_000),
        ("rows.csv", ",".join(COLUMNS) + "\ndigits,even\n"),
        ("rows.csv", ",".join(COLUMNS) + "\ndigits,even,pfnm,a" + ",1" * 18 + "\n"),
        ("rows.csv", ",".join(COLUMNS) + "\ndigits,even,pfnm,9,2,1,0,1,1,1,1,0" + ",inf" * 10),
    ],
)
def test_damaged_records_are_told_in_a_line(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "experiment.json").write_text('{"conditions": {}, "runs": []}')
    (tmp_path / name).write_text(text)
    with pytest.raises(PFNMError, match=name):
        check_rows(experiment("timing", quick=True), tmp_path)


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("precious")
    with pytest.raises(PFNMError, match="is not empty"):
        run(experiment("timing", quick=True), tmp_path)
    assert (tmp_path / "rows.csv").read_text() == "precious"
    assert len(list(tmp_path.iterdir())) == 1
