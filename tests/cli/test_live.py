"""The live view: the sums that it shows, the picture in a terminal of 100 columns, and plain lines without one."""

import contextlib
import dataclasses
import io
import random
import re
import subprocess
import types
from collections.abc import Iterator

import pytest
from rich.console import Console

from sweep.cli import live_picture
from sweep.cli.live import PLAIN_EVERY_S, live_view
from sweep.cli.progress_text import full_text, range_text, saved, saved_text, summary_line
from sweep.cli.status import status
from sweep.outcomes import Outcome
from sweep.state.events import (
    Event,
    PilotEnded,
    PilotIntended,
    PilotStarted,
    PilotSubmitted,
    PilotWaits,
    SubmitDelayed,
)
from sweep.state.tally import Tally
from sweep.store.sweep import Sweep
from tests.support import driving, made_sweeps
from tests.support.made_events import recorded, started
from tests.support.made_records import write_journal
from tests.support.mounts import fill, full_mount
from tests.support.streams import on_a_terminal

__all__ = ["full_mount"]

SITE = {"gpu": "h100", "gpus_per_node": 8, "pilot_time": "60m", "max_pilots": 8}
SIZES = {"sequence_length": 1024, "global_batch": 2**20, "tp": [1, 2, 4, 8], "micro_batch_size": [1, 2, 4]}
NOW = 10_000.0


def made(tmp_path, models=("1B", "8B", "70B"), nodes=(1, 2, 4, 8), name="ultrascale"):
    """An existing sweep without any run."""
    keys = SIZES | {"strategy": "guided", "dtype": "bf16", "models": list(models), "nodes": list(nodes)}
    return made_sweeps.made(tmp_path / name, driving.simulated(SITE, name=name, **keys))


def pilot_events(name, width, start=0.0, nodes=()) -> Iterator[Event]:
    yield PilotIntended(time=start, pilot=name, token=name, nodes=width, time_limit_s=3600)
    if nodes:
        yield PilotStarted(time=start + 10, pilot=name, nodes=tuple(nodes), job_id="1")


def attempt_events(
    planned, outcome=Outcome.OK, *, number=1, pilot="p0001", start=100.0, took=20.0, rate=1000.0, message=None
) -> Iterator[Event]:
    yield started(planned.run_id, start, number, pilot)
    if outcome is not None:
        about = {"pilot": pilot, "started_at": start, "ended_at": start + took, "node_names": ("n1",)}
        about |= {"message": message or f"how {outcome} came about", "rate": rate if outcome is Outcome.OK else None}
        yield recorded(planned.run_id, outcome, start + took, number, **about)


def busy(sweep):
    """The events up to the middle of the sweep: successes, failures, runs in flight, pilots running and queued."""
    rng = random.Random(5)
    names = {"p0001": (2, ["node-001", "node-002"]), "p0002": (4, [f"node-{i:03}" for i in range(10, 14)])}
    for name, (width, nodes) in names.items():
        yield from pilot_events(name, width, nodes=nodes)
    for number in range(3, 9):
        yield from pilot_events(f"p{number:04}", 8, start=9000.0)
    fates = [Outcome.OK] * 6 + [Outcome.OOM_CUDA, Outcome.OOM_CUDA, Outcome.HANG, Outcome.NCCL_TIMEOUT]
    for at, planned in enumerate(sweep.runs):
        if at % 5 < 3:
            yield from attempt_events(planned, rng.choice(fates), rate=rng.uniform(5e3, 4e4))
    free = [planned for at, planned in enumerate(sweep.runs) if at % 5 == 4]
    for name, planned in zip(names, free, strict=False):
        yield from attempt_events(planned, None, pilot=name, start=NOW - 77)


def after(sweep, events) -> Sweep:
    """The sweep once these are in a journal."""
    write_journal(sweep.directory, "all", events)
    return dataclasses.replace(sweep)


def rendered(sweep, *, width=100, height=40):
    console = Console(
        record=True, width=width, height=height, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(live_picture.picture(sweep, NOW, height=height, width=width))
    return console.export_text()


def test_a_saving_has_its_price_where_the_site_states_one(tmp_path):
    sweep = made(tmp_path)
    middle = after(sweep, busy(sweep))
    hours, dollars = saved(middle)
    assert (hours > 0, dollars) == (True, None)
    middle.site = middle.site.model_copy(update={"dollars_per_gpu_hour": 2.0})
    assert saved(middle) == (hours, pytest.approx(2 * hours))
    assert "($" in saved_text(middle)


def test_everything_is_shown_within_100_columns(tmp_path):
    sweep = made(tmp_path)
    middle = after(sweep, busy(sweep))
    sweep_state, text = middle.sweep_state, rendered(middle)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    found = Tally(sweep.runs, {}, serial=False).update(sweep_state).counts(middle.skipped())
    for word, number in found.items():
        reason = word.removeprefix("not_run_")
        assert f"{number} {word if reason == word else f'skipped ({reason})'}" in text
    skipped = sum(number for word, number in found.items() if word.startswith("not_run"))
    done_runs = len(sweep.runs) - skipped - found.get("waiting", 0) - found["running"]
    assert f"{done_runs}/{len(sweep.runs) - skipped} runs" in lines[0], "what is left out is not done"
    assert re.match(r"about \d+ min to \d+ min to go; 16:40 elapsed; [\d.,]+ GPU-hours spent", lines[1]), lines[1]
    assert "GPU-hours spent" in text
    assert re.search(r"\(\d+ skipped, about [\d.]+ GPU-hours saved\)", lines[0]), lines[0]
    assert "n/m: of m runs n have ended" in text
    assert "pilots: 2 running, 6 queued" in text
    assert re.search(r"p0001 +running +1:17 +node-001, node-002 +\S+-n\d-dp", text)
    assert re.search(r"p0003 +queued +16:40 +8 nodes", text)
    assert re.search(r"oom_cuda +how oom_cuda came about", text)
    assert [line.split()[0] for line in lines if re.match(r"\d+B  ", line)] == ["1B", "8B", "70B"]
    for (model, width), cell in middle.tally.cells.items():
        layout = cell.winner.removeprefix(f"{model}-n{width}-").rpartition("-")[0]
        assert re.search(rf"^{model} on {width} nodes? +[\d.]+k tok/s/GPU +{layout}\b", text, re.MULTILINE)
    latest = middle.tally.latest(3)
    assert text.count(" ago  ") == 3
    assert [a.ended_at for _, a in latest] == sorted((a.ended_at for _, a in latest), reverse=True)
    for model in ("1B", "8B", "70B"):
        best = max(
            (
                state.ok.tokens_per_second_per_gpu
                for run_id, state in sweep_state.runs.items()
                if state.ok and run_id.startswith(f"{model}-n2-")
            ),
            default=None,
        )
        row = next(line for line in lines if line.startswith(f"{model} "))
        assert best is None or f"{best / 1000:.3g}k" in row


def test_a_log_file_has_a_line_for_each_change_and_none_for_the_time_that_passes(tmp_path, capsys, monkeypatch):
    sweep = made(tmp_path, ("1B",), (1,))
    clock = [1000.0]
    monkeypatch.setattr("sweep.cli.live.time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr("sweep.cli.progress_text.time", types.SimpleNamespace(time=lambda: clock[0]))
    running = after(sweep, [*pilot_events("p0001", 1, nodes=("n1",)), *attempt_events(sweep.runs[0], None)])
    shown = set()
    with live_view() as show:
        for _ in range(20):  # 200 s: what was spent and what is left change with each step
            show(running)
            shown.add(summary_line(running))
            clock[0] += 10
        assert len(shown) > 2
        assert len(capsys.readouterr().err.splitlines()) == 1
        write_journal(sweep.directory, "more", list(attempt_events(sweep.runs[1])))
        show(dataclasses.replace(sweep))
        assert "1 ok" in capsys.readouterr().err
        clock[0] += 2 * PLAIN_EVERY_S
        show(dataclasses.replace(sweep))
        assert "1 ok" in capsys.readouterr().err, "that it lives"
    assert capsys.readouterr().err == "", "the last state is there already"


def test_a_pilot_that_wrote_its_last_line_is_ending_and_not_running(tmp_path):
    """Its job may be listed for some seconds more: the watch said "pilots: 1 running" and "done" in one line."""
    sweep = made(tmp_path, ("1B",), (1,))
    events = [*pilot_events("p0001", 1, nodes=("n1",)), *pilot_events("p0002", 1)]
    for planned in sweep.runs:
        events += attempt_events(planned)
    events.append(PilotEnded(time=500.0, pilot="p0001", reason="no remaining run fits"))
    middle = after(sweep, events)
    assert "pilots: 0 running, 1 queued, 1 ending" in summary_line(middle)
    text = rendered(middle)
    assert "pilots: 0 running, 1 queued, 1 ending" in text
    assert re.search(r"p0001 +ending +n1 +no remaining run fits", text)


def test_the_status_has_the_directory_the_launcher_the_latest_and_the_winner(tmp_path, command, monkeypatch):
    sweep = made_sweeps.made(tmp_path / "s")
    made_sweeps.pilot_wrote(sweep, "p0001", (sweep.runs[0].run_id, 1, Outcome.OK))
    document = command.json("status", tmp_path / "s")
    assert (document["directory"], document["launcher"]) == (str(tmp_path / "s"), None)
    monkeypatch.chdir(tmp_path)
    _, out, err = command("status")
    assert err == "sweep: s\n", "which was taken, as none is named"
    assert out.splitlines()[0] == f"{tmp_path}/s; no launcher runs"
    assert "best so far" in out
    assert sweep.runs[0].run_id[:40] in out.partition("latest\n")[2]


def test_a_cancelled_attempt_is_not_listed_among_the_failures(tmp_path, capsys):
    sweep = made(tmp_path, ("1B",), (1,))
    (one, other), started = sweep.runs[:2], pilot_events("p0001", 1, nodes=("n1",))
    failed = attempt_events(one, Outcome.CANCELLED), attempt_events(other, Outcome.HANG)
    write_journal(sweep.directory, "all", [*started, *failed[0], *failed[1]])
    status.main([str(sweep.directory.path)], standalone_mode=False)
    shown = capsys.readouterr().out
    assert f"hang: {other.run_id}" in shown
    assert f"cancelled: {one.run_id}" not in shown, "it waits to be measured"


def test_without_a_running_pilot_the_time_left_begins_once_one_runs(tmp_path):
    sweep = made(tmp_path, ("1B",), (1,))
    events = [*pilot_events("p0001", 1, nodes=("n1",)), *attempt_events(sweep.runs[0])]
    ended = PilotEnded(time=500.0, pilot="p0001", reason="SIGTERM")
    assert "once a pilot runs" in summary_line(after(sweep, [*events, ended]))


def test_a_long_message_leaves_the_count_and_the_outcome_whole(tmp_path):
    """In 80 columns the count was gone, the outcome cut, and the message ended within the exception's module."""
    sweep = made(tmp_path, ("1B",), (1,))
    message = "bench_workloads.trainers.driver.driver.TrainerEndedError: command ended without error, " + "x" * 99
    failed = attempt_events(sweep.runs[0], Outcome.PYTHON_EXCEPTION, message=message)
    text = rendered(after(sweep, [*pilot_events("p0001", 1, nodes=("n1",)), *failed]), width=80)
    assert re.search("1 +python_exception +TrainerEndedError: command ended", text)


def test_wide_and_tall_grids_fit_the_terminal(tmp_path):
    sweep = made(
        tmp_path,
        models=["1B", "3B", "8B", "Llama-2-13B", "70B"],
        nodes=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
        name="wide",
    )
    text = rendered(after(sweep, busy(sweep)), height=24)
    lines = text.rstrip().splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 24
    assert "512" in next(line for line in lines if line.startswith("tok/s/GPU by nodes"))
    heads, first, *_ = [line for line in rendered(sweep, width=60).splitlines() if re.match("tok/s/GPU by|1B", line)]
    assert re.fullmatch(r"tok/s/GPU by nodes +1 +2 +4 +and 7 more *", heads)
    assert re.fullmatch(r"1B( +[\d.,]+k?| +none){3} *", first), "each value whole"


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (10, 50, "about a minute"),
        (30, 200, "about 1 to 3 min"),
        (600, 1500, "about 10 min to 25 min"),
        (3 * 3600 + 600, 3 * 3600 + 600, "about 3 h 10 min"),
        (5400, 4 * 3600, "about 90 min to 4 h 0 min"),
        (3 * 86400, 5 * 86400, "about 3.0 days to 5.0 days"),
    ],
)
def test_spans_and_ranges_as_text(low, high, words):
    assert range_text(low, high) == words


def test_a_launch_in_a_terminal_and_one_without(tmp_path):
    params = {"step_s": 0.05, "fault": "exception", "fault_probability": 0.3}
    keys = {"models": ["tiny-1M", "tiny-4M"], "nodes": [1, 2], "iterations": 4, "micro_batch_size": [1, 2, 4]}
    grid = driving.simulated({"max_local_ranks": 4}, **keys, params=params)
    written = on_a_terminal(*driving.launch_words(tmp_path, grid), columns=100)
    assert "\x1b[" in written
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    assert "12/12 runs" in plain
    assert re.search(r"p0001 +running +[0-9:]* +local-0", plain)
    assert re.search(r"\d+ +python_exception", plain)
    assert re.search(r"12 runs: .*\s+python_exception: \S.*\s+`sweep status .*`sweep explain .* what to try", plain)
    assert "rank-hours spent" in plain
    frames = written.count("best tok/s/GPU")
    assert 2 <= frames < 200
    done = driving.run("status", tmp_path / "s", "--watch")
    assert done.returncode == 0
    assert "\x1b" not in done.stderr
    assert "12 runs: " in done.stderr
    assert "rank-hours; done" in done.stderr


def test_a_full_file_system_is_stated_with_what_continues_until_the_sweep_is_done(full_mount):
    place = full_mount("1m")
    sweep = made(place, models=["1B"], nodes=[1])
    write_journal(sweep.directory, "all", pilot_events("p0001", 1, nodes=("n1",)))
    assert full_text(sweep) == ""
    fill(place)
    full = f"the file system of {sweep.directory.path} is full: nothing more is recorded until space is freed, then "
    assert full_text(sweep) == full + "it goes on"
    assert full_text(sweep) in summary_line(sweep)
    assert "to go" not in summary_line(sweep)
    sweep.sweep_state.apply_all([PilotEnded(time=3000.0, pilot="p0001", reason="SIGTERM")])
    assert full_text(sweep) == full + f"`sweep resume {sweep.directory.path}` continues", "neither pilot nor launcher"
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    assert full_text(sweep) == "", "an image of an ended sweep has nothing to record"


def test_a_file_system_without_a_free_inode_is_full(full_mount):
    place = full_mount("1m,nr_inodes=40")
    sweep = made(place, models=["1B"], nodes=[1])
    assert full_text(sweep) == ""
    with contextlib.suppress(OSError):
        for number in range(40):
            (place / str(number)).touch()
    assert "is full (no inode is left): nothing more" in full_text(sweep)


def test_a_refused_pilot_says_why_in_the_picture_and_in_plain_lines_until_one_is_accepted(tmp_path):
    sweep = made(tmp_path, ("1B",), (1,))
    refused = SubmitDelayed(time=1.0, pilot="p0001", reason="sbatch: error: state a project")
    waiting = after(sweep, [refused])
    for text in (summary_line(waiting), " ".join(rendered(waiting).split())):
        assert "sbatch: error: state a project; the launcher tries again later" in text
    accepted = after(sweep, [refused, PilotSubmitted(time=2.0, pilot="p0002", job_id="7")])
    assert "refused" not in summary_line(accepted)


def test_a_pilot_that_waits_says_why_and_what_the_user_can_do(tmp_path):
    sweep = made(tmp_path, ("1B",), (1, 2))
    reasons = ["Priority", "JobHeldUser", "JobHeldUser", "PartitionDown"]
    events = []
    for number, reason in enumerate(reasons, start=1):
        events += pilot_events(f"p000{number}", 2)
        events.append(PilotSubmitted(time=1.0, pilot=f"p000{number}", job_id=f"7{number}"))
        events.append(PilotWaits(time=2.0, pilot=f"p000{number}", reason=reason))
    waiting = after(sweep, events)
    assert "pilots: 0 running, 4 queued, 2 of them never to start (JobHeldUser)" in summary_line(waiting)
    text = " ".join(rendered(waiting).split())
    assert "2 nodes it waits for its turn, or for free nodes" in text
    held = "p0002 and 1 more never to start: it is held by its user (JobHeldUser)"
    assert f"{held}; release it: `scontrol release 72,73`" in text
    assert "p0004 waiting: its partition is closed (PartitionDown); it starts once an administrator opens" in text
