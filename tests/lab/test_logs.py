"""What a run writes for TensorBoard and MLflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfnm.errors import PFNMError
from pfnm.lab.logs import check_logs, logging_to, measured, mlflow_place
from pfnm.lab.records import Row
from pfnm.lab.setting import Setting

SETTING = Setting(data="digits", sites=3, rounds=2, hidden=(5,), epochs=1, later_epochs=1)


def row(method: str, number: int, accuracy: float | None) -> Row:
    return {
        "method": method, "round": number, "accuracy": accuracy, "parameters": 10 * number,
        "objective": None, "bytes_up": {"a": 1_000_000, "b": 500_000}, "bytes_down": {},
        "seconds_training": 1.0, "seconds_combining": 0.5, "seconds_evaluating": 0.0,
    }  # fmt: skip


ROWS = [row("pfnm", 1, 0.5), row("pfnm", 2, 0.75), row("local", 1, None)]


def test_what_is_not_measured_is_left_out() -> None:
    found = measured(ROWS[2])
    assert "accuracy" not in found
    assert "objective" not in found
    assert found["megabytes_up"] == 1.5


def test_an_unknown_log_is_told_before_anything_is_done(tmp_path: Path) -> None:
    with pytest.raises(PFNMError, match="tensorboard, mlflow"):
        check_logs(["wandb"])
    with logging_to([], tmp_path, SETTING) as write:
        write(ROWS[0])
    assert not list(tmp_path.iterdir())


def test_tensorboard_has_a_curve_for_each_method_and_measure(tmp_path: Path) -> None:
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for _ in range(2):  # the second time as a resumed run would: all rows come anew
        with logging_to(["tensorboard"], tmp_path, SETTING) as write:
            for own in ROWS:
                write(own)
    events = reading.EventAccumulator(str(tmp_path / "tensorboard" / "pfnm"))
    events.Reload()
    curve = [(event.step, event.value) for event in events.Scalars("accuracy")]
    assert curve == [(1, 0.5), (2, 0.75)]
    events = reading.EventAccumulator(str(tmp_path / "tensorboard" / "local"))
    events.Reload()
    assert "accuracy" not in events.Tags()["scalars"]


@pytest.mark.filterwarnings("ignore")  # of SQLAlchemy's, which MLflow uses in an old way
def test_mlflow_has_a_run_for_each_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sqlalchemy")
    tracking = pytest.importorskip("mlflow.tracking")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        with logging_to(["mlflow"], tmp_path, SETTING) as write:
            for own in ROWS:
                write(own)
    client = tracking.MlflowClient(tracking_uri=mlflow_place(tmp_path))
    experiment = client.get_experiment_by_name("pfnm").experiment_id
    runs = {run.data.tags["method"]: run for run in client.search_runs([experiment])}
    assert sorted(runs) == ["local", "pfnm"]
    assert runs["pfnm"].info.status == "FINISHED"
    assert runs["pfnm"].data.params["sites"] == "3"
    history = client.get_metric_history(runs["pfnm"].info.run_id, "accuracy")
    assert [(own.step, own.value) for own in history] == [(1, 0.5), (2, 0.75)]
