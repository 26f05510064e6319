"""The main job on one machine: from a grid to a heatmap, with real torch ranks on simulated nodes."""

import json
import signal
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support import driving
from tests.support.driving import running_attempt, wait_for
from tests.support.made_sweeps import GRID
from tests.support.paths import REPOSITORY

LAPTOP = REPOSITORY / "examples" / "laptop.yaml"
ONCE = ("models=tiny-1M", "zero=0", "remeasure=0", "global_batch=512")
ONCE += ("micro_batch_size=1", "warmup_iterations=1", "iterations=2")


def launch_laptop(root):
    """The laptop example, smaller."""
    options = [word for one in ONCE for word in ("-o", one)]
    return json.loads(driving.launched(root, LAPTOP.read_text(), "--json", *options).stdout)


@pytest.fixture(scope="module")
def laptop(tmp_path_factory):
    """(Its directory, what launch printed as JSON)."""
    root = tmp_path_factory.mktemp("laptop")
    return root / "s", launch_laptop(root)


def test_every_run_is_measured_by_real_ranks(laptop):
    directory, summary = laptop
    assert summary["counts"] == {"ok": 6}
    records = driving.assert_each_run_measured_once(directory)
    assert {(r["nodes"], r["tp"], r["pp"]) for r in records} >= {(1, 2, 1), (1, 1, 2), (2, 2, 1), (2, 1, 2)}
    assert not any(r["simulated"] for r in records)
    for record in records:
        assert len(record["rank_step_time_median_s"]) == record["gpus"]
        assert json.loads(record["versions_json"])["torch"]


def test_losses_agree_over_layouts_and_nodes(laptop):
    """The same seed and global batch: a layout with other training would differ here."""
    losses = defaultdict(list)
    for record in driving.records_of(laptop[0]):
        losses[record["model"]].append(record["losses"])
    for of_model in losses.values():
        assert len(of_model[0]) == 3
        for other in of_model[1:]:
            both = min(len(other), len(of_model[0]))  # one that has lost ends early
            assert other[:both] == pytest.approx(of_model[0][:both], rel=1e-5)


def test_the_heatmap_is_an_image_and_its_table_has_the_best(laptop):
    directory, summary = laptop
    assert Path(summary["heatmap"]).read_bytes().startswith(b"\x89PNG")
    done = driving.run("heatmap", directory, "--json", "--out", directory / "best.svg")
    cells = {(c["model"], c["nodes"]): c for c in json.loads(done.stdout)["cells"]}
    assert set(cells) == {("tiny-1M", 1), ("tiny-1M", 2)}
    best = max(record["tokens_per_second_per_gpu"] for record in driving.records_of(directory) if record["nodes"] == 1)
    assert cells["tiny-1M", 1]["tokens_per_second_per_gpu"] == pytest.approx(best)
    assert "<svg" in (directory / "best.svg").read_text()[:500]


def test_launching_again_runs_nothing_again(laptop):
    directory, _ = laptop
    before = len(driving.records_of(directory))
    launch_laptop(directory.parent)
    assert len(driving.records_of(directory)) == before


def test_interrupting_a_local_launch_stops_the_ranks(tmp_path):
    launcher = driving.launching(tmp_path, driving.slow())
    wait_for(lambda: running_attempt(tmp_path / "s"))
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(60) == 130
    assert driving.wait_until_unmarked(tmp_path / "s", 10) == []
    driving.succeeds("resume", tmp_path / "s")
    records = [record["outcome"] for record in driving.records_of(tmp_path / "s")]
    assert records.count("ok") == 4


def test_a_second_launcher_is_refused_and_may_take_over(tmp_path):
    directory = tmp_path / "s"
    first = driving.launching(tmp_path, driving.slow())
    wait_for(lambda: running_attempt(directory))
    refused = driving.run("resume", directory)
    assert refused.returncode == 2
    assert "another launcher holds this sweep" in refused.stderr
    driving.succeeds("resume", directory, "--takeover")
    assert first.wait(30) in (0, 1)
    driving.assert_each_run_measured_once(directory)


def test_a_dry_run_writes_nothing(tmp_path, monkeypatch):
    arguments = driving.launch_words(tmp_path, driving.slow(), "--dry-run", "--json")
    before = sorted(path.name for path in tmp_path.iterdir())
    done = driving.run(*arguments)
    document = json.loads(done.stdout)
    assert document["runs"] == 4
    assert "sweep.pilot.leader" in document["scripts"]["1"]
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_run_beyond_its_limit_is_ended_and_the_pilot_goes_on(tmp_path):
    changes = ("-o", "max_run_time=2s", "-o", "params.step_s=[0.02,900]", "-o", "micro_batch_size=1")
    driving.launched(tmp_path, driving.slow(), *changes)
    outcomes = sorted(record["outcome"] for record in driving.records_of(tmp_path / "s"))
    assert outcomes == ["ok", "time_limit"]
    assert len(driving.state_of(tmp_path / "s").pilots) == 1


def test_two_launches_of_one_directory_make_one_sweep(tmp_path):
    words = driving.launch_words(tmp_path, GRID)
    both = [driving.start(*words) for _ in range(2)]
    codes = sorted(process.wait(120) for process in both)
    assert codes in ([0, 2], [0, 0]), "the second is refused, or starts when all is done"
    records = [record["run_id"] for record in driving.records_of(tmp_path / "s")]
    assert len(records) == len(set(records)) == 4


def test_records_of_ranks_in_one_process_are_marked(tmp_path):
    directory = tmp_path / "s"
    params = {"step_s": 0.02, "one_process_per_node": True, "fault": ["slow_start", "exception"]}
    params |= {"fault_rank": 5, "fault_s": 0.1}
    site = {"gpus_per_node": 4, "env": {"SERVICE_API_KEY": "invalid for input"}}
    done = driving.launch(tmp_path, driving.simulated(site, nodes=2, **driving.ONE_LAYOUT, params=params))
    records = driving.records_of(directory)
    found = {json.loads(record["params_json"])["fault"]: record for record in records}
    assert set(found) == {"slow_start", "exception"}, done.stderr
    fine, failed = found["slow_start"], found["exception"]
    assert (fine["outcome"], fine["simulated"]) == ("ok", True)
    assert json.loads(fine["extra_json"])["ranks_in_one_process"] == 4
    assert len(fine["rank_step_time_median_s"]) == 8, "each rank measured"
    assert failed["outcome"] == "python_exception"
    assert "is <redacted> of size" in failed["evidence"], "the program printed the value of the site's SERVICE_API_KEY"
    assert driving.marked_processes(directory) == []
