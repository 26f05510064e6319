"""Runs to trackers: a real sweep, written by the real clients with no network, read back from their files."""

import json
import math
import sqlite3
import subprocess
from dataclasses import replace
from importlib.util import find_spec

import msgspec
import pytest

from sweep.outcomes import Outcome
from sweep.plugins import TRACKER
from sweep.records.record import record_from
from sweep.records.schema import Record
from sweep.store.directory import SweepDir
from sweep.trackers.tracking import SUMMARY, key_of, send, tracked
from tests.support import driving
from tests.support.made_records import made_record, made_run, made_sweep, record_event, write_journal
from tests.support.made_sweeps import GRID, measured
from tests.support.slurm.services import wait_until

pytestmark = pytest.mark.skipif(find_spec("wandb") is None, reason="wandb is not installed")
"""not imported here: each worker collects this file, and the import takes a second"""


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    """A sweep of 8 runs, about half of which fail: its directory."""
    directory = tmp_path_factory.mktemp("eight") / "s"
    keys = {"name": "eight", "models": ["tiny-1M", "tiny-4M"], "nodes": [1, 2], "micro_batch_size": [1, 2]}
    params = {"step_s": 0.02, "speed": 10, "fault": "exception", "fault_probability": 0.5}
    keys |= {"iterations": 4, "warmup_iterations": 2, "params": params}
    driving.launched(directory.parent, driving.simulated({"max_local_ranks": 4}, **keys))
    outcomes = [record["outcome"] for record in driving.records_of(directory)]
    assert len(outcomes) == 8
    assert {"ok", "python_exception"} <= set(outcomes)
    return directory


def expected(directory):
    """What a tracker should hold, by key."""
    sweep_id = json.loads(SweepDir(directory).provenance.read_text())["sweep_id"]
    runs = [tracked(record_from(record), sweep_id) for record in driving.records_of(directory)]
    return {run.key: run for run in runs}


def track(directory, name, *options, **env):
    done = driving.succeeds("track", directory, "--to", name, "--json", *options, env=env)
    return json.loads(done.stdout)


def without(values, *names):
    return {name: value for name, value in values.items() if name not in names and not name.startswith("_")}


def test_wandb_offline_holds_what_was_measured_and_a_second_time_adds_nothing(eight):
    from tests.support.wandb_file import read_all

    first, second = track(eight, "wandb"), track(eight, "wandb")
    assert (first["known"], first["new"], second["known"], second["new"]) == (8, 8, 8, 0)
    wanted, found = expected(eight), read_all(eight)
    assert set(found) == set(wanted)
    assert len(found) == 8
    for key, run in wanted.items():
        got = found[key]
        assert (got["name"], got["group"], got["project"]) == (run.name, run.group, "eight")
        assert without(got["config"]) == json.loads(json.dumps(run.config))
        rows = [without(row, *(name for name in row if name.startswith("heatmap"))) for row in got["history"]]
        assert [row for row in rows if row] == run.history
        assert {name: got["summary"].get(name) for name in run.summary} == run.summary
        assert (got["exit_code"] != 0) == run.failed
    pictures = [run for run in found.values() if "heatmap.path" in run["summary"]]
    assert len(pictures) == 1
    files = list(
        (eight / "wandb").glob(f"offline-run-*-{pictures[0]['id']}/files/{pictures[0]['summary']['heatmap.path']}")
    )
    assert files[0].read_bytes() == (eight / "figures" / "heatmap.png").read_bytes()


@pytest.mark.timeout(900)
def test_mlflow_holds_what_was_measured_and_a_second_time_adds_nothing(eight, tmp_path, monkeypatch):
    from mlflow.tracking import MlflowClient

    monkeypatch.chdir(tmp_path)  # where MLflow puts the artifacts of an SQLite store
    uri = f"sqlite:///{tmp_path / 'store.db'}"
    first, second = (track(eight, "mlflow", "--project", "other", MLFLOW_TRACKING_URI=uri) for _ in range(2))
    assert (first["known"], first["new"], second["known"], second["new"]) == (8, 8, 8, 0)
    client, wanted = MlflowClient(tracking_uri=uri), expected(eight)
    experiment = client.get_experiment_by_name("other").experiment_id
    found = {run.data.tags["sweep.key"]: run for run in client.search_runs([experiment])}
    assert set(found) == set(wanted)
    assert len(client.search_runs([experiment])) == 8
    for key, run in wanted.items():
        got = found[key]
        assert (got.info.run_name, got.data.tags["sweep.id"]) == (run.name, run.group)
        assert (got.info.status == "FAILED") == run.failed
        assert (got.info.start_time, got.info.end_time) == tuple(
            int(1000 * run.config[n]) for n in ("started_at", "ended_at")
        )
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in run.config.items()}
        assert got.data.params == texts
        for name, value in run.summary.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                assert got.data.metrics[name] == pytest.approx(value)
            else:
                assert got.data.tags[name] == (value if isinstance(value, str) else json.dumps(value))
        if run.history:
            losses = [(point.step, point.value) for point in client.get_metric_history(got.info.run_id, "loss")]
            assert losses == [(step, row["loss"]) for step, row in enumerate(run.history) if "loss" in row]
    pictures = [run for run in found.values() if client.list_artifacts(run.info.run_id)]
    assert len(pictures) == 1


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_each_project_is_a_destination_of_its_own(tmp_path, name):
    pytest.importorskip(name)
    assert len({TRACKER.find(name)(project, tmp_path).destination for project in ("a", "a", "b")}) == 2


class Recorder:
    destination = "here"
    hint = ""

    def __init__(self):
        self.writes = []

    def write(self, run, picture=None):
        self.writes.append((run.key, run.summary["outcome"], picture))


def stored(name, directory):
    """Names of the runs that a tracker stores, each as often as it is there."""
    if name == "wandb":
        return [path.name.rpartition("-")[2] for path in (directory / "wandb").glob("offline-run-*")]
    with sqlite3.connect(directory / "mlflow.db") as connection:
        query = (
            "select value from tags join runs using (run_uuid) where key = 'sweep.key' and lifecycle_stage = 'active'"
        )
        return [key for (key,) in connection.execute(query)]


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_killed_session_is_continued_and_no_run_is_doubled(name, tmp_path):
    """Also where it was cut off between a run and its mark: that run is replaced."""
    if name == "mlflow":
        pytest.importorskip("mlflow")
    directory = measured(tmp_path / "s", GRID + "zero: [0, 1]\n").directory.path
    killed = subprocess.Popen([*driving.SWEEP, "track", str(directory), "--to", name])
    journals = (directory / "journal").glob
    assert wait_until(lambda: any(p.read_bytes().count(b'"tracked"') >= 3 for p in journals("tracker-*")), 120, 0.01)
    killed.kill()
    killed.wait()
    (journal,) = journals("tracker-*")
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:-1]))
    assert track(directory, name)["new"] == 8 - (len(lines) - 2), "the first line is of no run that was written"
    assert sorted(stored(name, directory)) == sorted(expected(directory))


@pytest.mark.parametrize(
    ("name", "env"),
    [
        ("wandb", {"WANDB_MODE": "online", "WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_API_KEY": "0" * 40}),
        ("wandb", {"WANDB_DIR": "/dev/null/under"}),
        ("mlflow", {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}),
    ],
)
def test_a_server_or_a_folder_that_refuses_is_reported_with_what_is_left(tmp_path, name, env):
    pytest.importorskip(name)
    measured(tmp_path / "s")
    done = driving.run("track", tmp_path / "s", "--to", name, "--json", env={"WANDB_INIT_TIMEOUT": "2", **env})
    assert done.returncode == 1
    reported = json.loads(done.stdout)
    assert (reported["new"], reported["left"]) == (0, 4)
    assert name in reported["error"]


def test_lost_is_replaced_by_the_attempts_own_record(tmp_path):
    sweep = made_sweep(tmp_path / "s")
    recorder = Recorder()
    write_journal(sweep, "launcher-0001", [record_event(made_record(outcome=Outcome.LOST, message="gone"), 1.0)])
    send(sweep, "id", recorder)
    write_journal(sweep, "p1", [record_event(made_record(), 2.0)])
    write_journal(sweep, "launcher-0002", [record_event(made_record(outcome=Outcome.LOST, message="gone"), 3.0)])
    assert send(sweep, "id", recorder, picture=lambda: tmp_path) == (1, 1, 0, None)
    assert send(sweep, "id", recorder) == (1, 0, 0, None)
    elsewhere = Recorder()
    elsewhere.destination = "there"
    assert send(sweep, "id", elsewhere) == (1, 1, 0, None), "another destination gets everything"
    key = key_of("id", made_run().run_id, 1)
    assert recorder.writes == [(key, "lost", None), (key, "ok", tmp_path)]


def test_iterations_and_summary_share_no_name_and_rates_are_of_the_step():
    losses = [4.0, 3.0, 2.5, 2.0, 1.5]
    record = replace(made_record(times=(0.1, 0.2, 0.4)), losses=losses, grad_norms=None)
    run = tracked(record, "id")
    assert [row["loss"] for row in run.history] == losses
    assert [row.get("step_time_s") for row in run.history] == [None, None, 0.1, 0.2, 0.4]
    rates = [row["step_tokens_per_second_per_gpu"] for row in run.history[2:]]
    assert sorted(rates)[1] == pytest.approx(run.summary["tokens_per_second_per_gpu"])
    assert not {name for row in run.history for name in row} & set(SUMMARY)
    assert all(not isinstance(v, float) or math.isfinite(v) for v in run.summary.values())


def test_a_record_that_lacks_columns_is_written():
    record = msgspec.json.decode('{"run_id": "r", "attempt": 1, "pilot": "p", "outcome": "hang"}', type=Record)
    run = tracked(record, "id")
    assert (run.config["tp"], run.summary) == (None, {"outcome": "hang"})
