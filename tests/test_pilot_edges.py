"""What a pilot bears: a file system that hangs, nodes that go, ranks that say anything, late words."""

import asyncio
import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from sweep.collect import table_of
from sweep.contract import Measurement, Workload
from sweep.diagnose import Diagnosis
from sweep.grid import parse_grid
from sweep.outcomes import Outcome
from sweep.pilot.agent import Agent
from sweep.pilot.attempt import AttemptResult, AttemptRunner, Link, RankReport
from sweep.pilot.channel import MAX_FRAME_BYTES, ChannelError
from sweep.pilot.files import Files
from sweep.pilot.leader import Leader
from sweep.pilot.log import attempt_log
from sweep.pilot.order import PilotOrder
from sweep.pilot.ranks import MAX_LINE_BYTES, Rank, start_ranks
from sweep.pilot.report import Conducted, record_of
from sweep.pilot.watchdog import Limits, Verdict
from sweep.plan import build
from sweep.records import problems
from sweep.search import Choice
from sweep.store import try_claim
from sweep.sweeps import create
from tests import driving

GRID = """\
name: edges
workload: simulated
models: [tiny-1M]
nodes: [1]
sequence_length: 64
global_batch: 1024
dtype: [fp32]
micro_batch_size: [1, 2]
params: {step_s: 0.02}
site: {gpu: cpu, gpus_per_node: 2, pilot_time: 10m}
"""


@pytest.fixture
def standing(tmp_path):
    grid = parse_grid(GRID, "grid.yaml")
    return create(tmp_path / "s", grid, grid.site, build(grid, grid.site), executor="local", grid_text=GRID)


def a_run(standing):
    return standing.runs[0].run()


class Mute:
    """An agent's line on which nothing is heard and everything said is kept."""

    def __init__(self):
        self.sent = []

    def send(self, message):
        self.sent.append(message)


def runner_on(standing, *links):
    workload = Workload(name="w", main="none:main", axes={})
    run = a_run(standing)
    return AttemptRunner("r.1", run, workload, links, Limits(), 0)


def test_the_loop_goes_on_while_the_file_system_hangs(standing):
    async def scenario():
        files = Files(standing.directory, "pilot-p0001")
        hung = asyncio.ensure_future(files.do(lambda: time.sleep(1.0)))
        written = asyncio.ensure_future(files.append({"event": "alive", "time": 1.0}))
        ticks = 0
        while not hung.done():
            await asyncio.sleep(0.02)
            ticks += 1
        await written
        files.close()
        return ticks

    assert asyncio.run(scenario()) > 20, "pings must go out meanwhile"
    assert len(driving.events_of(standing.directory.path, "alive")) == 1, "what came after the hang is in order"


def test_a_node_that_went_before_the_attempt_began_costs_no_start_limit(standing):
    async def scenario():
        return await runner_on(standing, Link("n1", Mute(), alive=False)).conduct()

    began = time.monotonic()
    result = asyncio.run(scenario())
    assert result.diagnosis.outcome is Outcome.NODE_FAIL
    assert result.accused == ("n1",)
    assert time.monotonic() - began < 5


def test_beats_that_are_none_are_passed_over(standing):
    async def scenario():
        link = Link("n1", Mute())
        runner = runner_on(standing, link)
        link.inbox = runner._inbox
        beats = [[0, "nonsense", 1, 2.0, 0.0], [0, "steady", "x", None, 0.0], [0, "steady", 3, {}, 0.0]]
        runner._note(link, {"is": "beats", "attempt": "r.1", "beats": [*beats, [0, "steady", 4, None, 0.0]]})
        return runner._watchdog.ranks[0].iteration

    assert asyncio.run(scenario()) == 4


ODD_BEATS = [
    {"phase": "steady", "iteration": "7"},
    {"phase": "steady", "iteration": [7]},
    {"phase": "steady", "iteration": 10**400},
    {"phase": "steady", "iteration": 7, "due_s": 10**400},
    {"phase": "steady", "iteration": 7, "due_s": "soon"},
    {"phase": {}, "iteration": 7},
    {"phase": "s" * 2**20, "iteration": 7},
    {},
]


@pytest.mark.parametrize("odd", ODD_BEATS, ids=range(len(ODD_BEATS)))
def test_an_odd_beat_costs_nothing_that_comes_with_it(tmp_path, odd):
    async def scenario():
        agent, rank = Agent("n1", 0, tmp_path), Rank(0, tmp_path / "log", "r.1")
        agent._channel = Mute()
        good = {"kind": "beat", "phase": "steady", "iteration": 6, "due_s": None}
        agent._on_progress(rank, [good])
        agent._on_progress(rank, [{"kind": "beat", **odd}, good, {"kind": "measurement", "step_times_s": [0.1]}])
        agent._flush_beats()
        return agent._channel.sent

    told, beats = asyncio.run(scenario())
    assert told["message"]["kind"] == "measurement"
    assert [beat[:4] for beat in beats["beats"]] == [[0, "steady", 6, None]]


NO_MESSAGES = [b"[" * 100_000, b'{"a":' * 100_000, b"\xff", b"[1]", b"1" * 5000, b'"\\ud83d"']


@pytest.mark.parametrize("line", NO_MESSAGES, ids=range(len(NO_MESSAGES)))
def test_what_is_no_message_costs_none_beside_it(tmp_path, line):
    assert [message["kind"] for message in messages_in(tmp_path, line + b'\n{"kind": "beat"}\n')] == ["beat"]


def messages_in(tmp_path, data, capacity=1 << 20):
    """What a rank that wrote this to its pipe has told."""
    read_fd, write_fd = os.pipe()
    fcntl.fcntl(write_fd, fcntl.F_SETPIPE_SZ, capacity)
    os.set_blocking(read_fd, False)
    rank = Rank(0, tmp_path / "log", "r.1", progress_fd=read_fd)
    found = []
    while data:
        data = data[os.write(write_fd, data[:capacity]) :]
        found += rank.read_progress()
    os.close(write_fd)
    os.close(read_fd)
    return found


def test_a_message_too_long_to_forward_is_told_as_the_failure_of_its_rank(tmp_path):
    """The leader takes 64 MiB in one piece. Beyond it, it could only take the node for lost."""
    long = b'{"kind": "measurement", "extra": "' + b"x" * (2 * MAX_LINE_BYTES) + b'"}\n'
    before, too_long, after = messages_in(tmp_path, b'{"kind": "a"}\n' + long + b'{"kind": "b"}\n')
    assert (before["kind"], after["kind"]) == ("a", "b")
    assert too_long["kind"] == "failure"
    assert "8 MiB" in too_long["message"]


def test_the_longest_message_is_forwarded_whatever_it_is_written_as(tmp_path):
    """JSON makes six bytes of a character of two."""
    head, tail = b'{"kind": "measurement", "extra": "', b'"}\n'
    long = head + "é".encode() * ((MAX_LINE_BYTES - len(head) - len(tail)) // 2) + tail
    (message,) = messages_in(tmp_path, long)
    told = {"is": "told", "attempt": "r.1", "rank": 0, "message": message}
    assert message["kind"] == "measurement"
    assert len(json.dumps(told)) < MAX_FRAME_BYTES


def test_a_rank_that_beats_without_pause_does_not_hold_its_agent(tmp_path):
    """Its agent reads no faster than it writes: the other ranks and the leader wait meanwhile."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    beat = b'{"kind": "beat", "phase": "steady", "iteration": 1}\n' * 1000
    writer = subprocess.Popen(
        [sys.executable, "-c", f"import os\nwhile True: os.write({write_fd}, {beat!r})"], pass_fds=[write_fd]
    )
    rank = Rank(0, tmp_path / "log", "r.1", progress_fd=read_fd)
    try:
        deadline = time.monotonic() + 20
        while not rank.read_progress():
            assert time.monotonic() < deadline
        assert len(rank.read_progress()) < 100_000
    finally:
        writer.kill()
        writer.wait()
        os.close(write_fd)
        os.close(read_fd)


@pytest.mark.parametrize("last", [ChannelError("a frame of 99999999 bytes"), ValueError("no JSON"), None])
def test_a_line_that_cannot_be_read_any_more_is_seen_as_gone(standing, last):
    class Line(Mute):
        async def receive(self):
            if last is None:
                return {"no": "known message"}
            raise last

    async def scenario():
        link = Link("n1", Line())
        link.inbox = asyncio.Queue()
        await link.read()
        return link, link.inbox.get_nowait()

    link, told = asyncio.run(scenario())
    assert told == (link, {"is": "gone"})
    assert (link.alive, link.gone.is_set(), link.cleared.is_set()) == (False, True, True)


class OneProcess:
    """A warm image that forks one process and tells how it ended."""

    async def fork(self, request, fds, on_exit):
        os.write(fds[1], b'{"kind": "measurement"}\n')
        self.end = on_exit
        return 1


def test_the_end_of_a_rank_is_told_whatever_it_said_last(tmp_path):
    """In the same read of the warm image's words stand the ends of others."""

    async def scenario():
        image, ends = OneProcess(), []
        ranks = [Rank(number, tmp_path / "log", "r.1") for number in range(2)]
        await start_ranks(image, ranks, {}, None, lambda *_: 1 / 0, lambda rank: ends.append(rank.number))
        image.end(0)
        for rank in ranks:
            rank.close_progress()
        return ends

    assert asyncio.run(scenario()) == [0, 1]


def test_a_failure_nobody_thought_of_costs_the_attempt_and_its_nodes_are_cleared(standing, monkeypatch):
    async def scenario():
        link = Link("n1", Mute())
        runner = runner_on(standing, link)
        monkeypatch.setattr(runner, "_start", lambda *_: 1 / 0)

        async def answer():
            while not any(message["do"] == "stop" for message in link.channel.sent):
                if link.inbox is not None and len(link.channel.sent) == 1:
                    link.inbox.put_nowait((link, {"is": "prepared", "attempt": "r.1", "address": "x", "port": 1}))
                await asyncio.sleep(0.01)
            nothing = {"left": [], "kernel": [], "removed": [], "stacks": {}, "tails": {}, "killed": []}
            link.inbox.put_nowait((link, {"is": "clean", "attempt": "r.1", **nothing}))

        answering = asyncio.ensure_future(answer())
        result = await runner.conduct()
        await answering
        return result

    result = asyncio.run(scenario())
    assert result.diagnosis.outcome is Outcome.UNKNOWN
    assert "ZeroDivisionError" in result.message
    assert not result.not_cleaned


def order(**changes):
    values = {"name": "p0001", "token": "t", "sweep_name": "edges", "nodes": 1, "gpus_per_node": 2, "gpu": "cpu"}
    values |= {"time_limit_s": 1000, "executor": "local", "scratch": "/tmp"}
    return PilotOrder(**{**values, **changes})


def conducted(standing, limit_s=900.0):
    return Conducted(
        run=a_run(standing),
        attempt=1,
        order=order(),
        job_id="7",
        nodes=("local-0",),
        started_at=1.0,
        idle_s=0.5,
        limit_s=limit_s,
        beside={"other.1"},
    )


def result_of(outcome, measurement=None):
    ranks = [RankReport("local-0", measurement=measurement) for _ in range(2)]
    return AttemptResult(Diagnosis(outcome, "", "", None, None), "why", ranks, {"total_s": 1.0})


@pytest.mark.parametrize("times", ["not a list", [None] * 5, [{"a": 1}] * 5])
def test_a_measurement_that_is_none_voids_the_attempt(standing, times):
    record, _ = record_of(conducted(standing), result_of(Outcome.OK, Measurement(step_times_s=times)), None, 2.0)
    assert problems(record) == []
    assert record["outcome"] == "unknown"
    assert record["step_time_median_s"] is None


NUMBERS_THAT_ARE_NONE = [
    {"peak_allocated_bytes": "12 GB"},
    {"peak_allocated_bytes": [12]},
    {"peak_allocated_bytes": 2**63},
    {"peak_reserved_bytes": True},
    {"parameters": "7B"},
    {"parameters": -(2**64)},
    {"losses": [1, "2", 3, 4, 5]},
    {"grad_norms": [1.0, True, 1.0, 1.0, 1.0]},
    {"losses": [2**60 + 1] * 5},
    {"peak_allocated_bytes": "x" * 1_000_000},
]


@pytest.mark.parametrize("values", NUMBERS_THAT_ARE_NONE, ids=lambda values: f"{values}"[:40])
def test_a_value_of_the_wrong_kind_voids_the_attempt_and_not_the_table(standing, values):
    """One such value in the journal, and no collect would ever read the sweep again."""
    measurement = Measurement(**{"step_times_s": [0.1] * 5, **values})
    record, _ = record_of(conducted(standing), result_of(Outcome.OK, measurement), None, 2.0)
    assert record["outcome"] == "unknown"
    assert "cannot be recorded" in record["message"]
    assert len(record["message"]) < 2000
    assert problems(record) == []
    assert table_of([json.loads(json.dumps(record))]).num_rows == 1


def test_the_reason_names_the_value(standing):
    measurement = Measurement(step_times_s=[0.1] * 5, peak_allocated_bytes="12 GB")
    record, _ = record_of(conducted(standing), result_of(Outcome.OK, measurement), None, 2.0)
    assert "peak_memory_bytes must be int64, not '12 GB'" in record["message"]
    assert record["peak_memory_bytes"] is None


def test_a_failure_keeps_its_outcome_where_its_numbers_are_none(standing):
    """An out-of-memory that tells its peak in words is an out-of-memory all the same."""
    measurement = Measurement(step_times_s=[0.1] * 5, peak_allocated_bytes="12 GB")
    record, _ = record_of(conducted(standing), result_of(Outcome.OOM_CUDA, measurement), None, 2.0)
    assert problems(record) == []
    assert record["outcome"] == "oom_cuda"
    assert record["peak_memory_bytes"] is None
    assert record["message"].startswith("why; ")
    assert "12 GB" in record["message"]


def test_bytes_that_come_as_a_fraction_are_rounded(standing):
    """They were worked out of GiB: no reason to lose the attempt."""
    runner = runner_on(standing, Link("n1", Mute()))
    told = {"kind": "measurement", "step_times_s": [0.1] * 5, "peak_allocated_bytes": 12.3 * 2**30, "parameters": 7e9}
    runner._note_told(runner._ranks[0], told)
    measurement = runner._ranks[0].measurement
    assert (measurement.peak_allocated_bytes, measurement.parameters) == (13207024435, 7_000_000_000)
    assert isinstance(measurement.parameters, int)


def test_the_record_says_what_ran_beside_it(standing):
    record, _ = record_of(conducted(standing), result_of(Outcome.HANG), None, 2.0)
    assert json.loads(record["extra_json"])["beside"] == ["other.1"]


def test_what_a_workload_finds_odd_is_noted_once(standing):
    odd = Measurement(step_times_s=[0.1] * 5, extra={"notes": ["the trainer says 2, its steps make 3"]})
    record, _ = record_of(conducted(standing), result_of(Outcome.OK, odd), None, 2.0)
    assert record["notes"].count("the trainer says 2, its steps make 3") == 1
    assert record["outcome"] == "ok"


@pytest.mark.parametrize(("limit_s", "outcome"), [(900.0, "time_limit"), (850.0, "time_limit"), (300.0, "preempted")])
def test_a_run_longer_than_a_whole_pilot_is_not_tried_for_ever(standing, limit_s, outcome):
    record, _ = record_of(conducted(standing, limit_s), result_of(Outcome.TIME_LIMIT), None, 2.0)
    assert record["outcome"] == outcome
    assert ("pilot_time" in record["message"]) is (limit_s == 850.0)


def test_only_the_user_or_the_scheduler_cancels(standing):
    stopping = Verdict(Outcome.CANCELLED, "cancelled by the user")
    cancelled = result_of(Outcome.CANCELLED)
    assert record_of(conducted(standing), cancelled, stopping, 2.0)[0]["outcome"] == "cancelled"
    assert record_of(conducted(standing), cancelled, None, 2.0)[0]["outcome"] == "unknown"


def fill(directory):
    """Files until no more can be made there."""
    for number in range(100):
        try:
            (directory / str(number)).touch()
        except OSError as error:
            if error.errno == errno.ENOSPC:
                return
            raise
    raise AssertionError("never full")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_node_without_room_for_the_attempt_says_disk_full(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=8", "none", scratch], check=True)

    async def scenario():
        agent = Agent("n1", 0, scratch)
        agent._channel = Mute()
        fill(scratch)
        await agent._handle({"do": "prepare", "attempt": "r.1", "preload": [], "env": {}, "first": True})
        return agent._channel.sent

    try:
        (answer,) = asyncio.run(scenario())
    finally:
        subprocess.run(["umount", "-l", scratch], check=True)
    assert answer["outcome"] == "disk_full"


def test_a_claim_that_was_made_before_an_error_is_ours(standing):
    holder = {"pilot": "p0001", "job_id": "7", "time": 5.0}
    assert try_claim(standing.directory, "r", 1, holder)
    assert try_claim(standing.directory, "r", 1, holder), "asked again after its answer was lost"
    assert not try_claim(standing.directory, "r", 1, {**holder, "pilot": "p0002"})


def test_what_ends_with_the_whole_job_accuses_no_node(standing):
    stopping = Verdict(Outcome.PREEMPTED, "the pilot's job was told to end (SIGTERM)")
    slurm = dataclasses.replace(conducted(standing), order=order(executor="slurm"))
    accusing = dataclasses.replace(result_of(Outcome.NODE_FAIL), accused=("n1",))
    record, about = record_of(slurm, accusing, stopping, 2.0)
    assert (record["outcome"], about) == ("preempted", {})
    record, about = record_of(slurm, accusing, None, 2.0)
    assert (record["outcome"], about["accused"]) == ("node_fail", ["n1"])


@pytest.mark.parametrize(
    ("told", "failure"),
    [
        ({}, {"type": "Exception", "message": "", "traceback": ""}),
        ({"type": "E", "message": 7}, {"type": "E", "message": "7", "traceback": ""}),
        ({"type": None, "traceback": ["a"]}, {"type": "Exception", "message": "", "traceback": "['a']"}),
    ],
)
def test_a_failure_told_in_another_form_has_a_log_and_a_record(standing, told, failure):
    runner = runner_on(standing, Link("n1", Mute()))
    report = runner._ranks[0]
    runner._note_told(report, {"kind": "failure", **told})
    assert report.failure == failure
    runner._note_exit(0, 1, None)
    runner._marks["ended"] = time.monotonic()
    result = runner._result({})
    record, _ = record_of(conducted(standing), result, None, 2.0)
    assert problems(record) == []
    assert record["outcome"] == "python_exception"
    assert failure["traceback"] in attempt_log(record, result)


def test_a_failure_of_megabytes_is_kept_in_part(standing):
    runner = runner_on(standing, Link("n1", Mute()))
    long = {"type": "E" * 2**20, "message": "m" * 2**20, "traceback": "t" * 2**20 + "the cause"}
    runner._note_told(runner._ranks[0], {"kind": "failure", **long})
    failure = runner._ranks[0].failure
    assert len(str(failure)) < 50_000
    assert failure["traceback"].endswith("the cause")


def test_a_log_that_cannot_be_written_ends_no_leader(standing, monkeypatch):
    leader = Leader(standing.directory, order(), standing.runs, "7")
    monkeypatch.setattr("sweep.pilot.leader.attempt_log", lambda *_: 1 / 0)
    asyncio.run(leader._keep_log("r", 1, {}, result_of(Outcome.HANG)))
    assert not standing.directory.log("r", 1).exists()


def test_half_a_character_in_a_message_reaches_the_record_as_one_that_can_be_written(tmp_path):
    told = json.dumps({"kind": "failure", "message": "bad \ud83d name"}).encode() + b"\n"
    (message,) = messages_in(tmp_path, told)
    assert message["message"].encode() == b"bad ? name"


def test_a_workload_that_the_node_does_not_have_is_an_import_error(standing):
    run = dataclasses.replace(a_run(standing), workload="plugged")
    planned = standing.runs[0]._replace(run_json=run.canonical_json(), run_id=run.run_id)
    leader = Leader(standing.directory, order(), [planned], "7")
    result = asyncio.run(leader._conduct("r.1", Choice(planned, 1, ("n1",)), [Link("n1", Mute())], Limits()))
    assert result.diagnosis.outcome is Outcome.IMPORT_ERROR
    assert "plugged" in result.message


def test_no_rank_began_where_an_agent_still_imports(standing, monkeypatch):
    """Another node's trouble ended the attempt: who is late with its answer is busy, not dirty."""
    monkeypatch.setattr("sweep.pilot.attempt.GRACE_S", 0.1)
    monkeypatch.setattr("sweep.pilot.attempt.CLEAN_S", 0.1)

    async def scenario():
        links = [Link("n1", Mute(), alive=False), Link("n2", Mute())]
        run = dataclasses.replace(a_run(standing), nodes=2)
        runner = AttemptRunner("r.1", run, Workload(name="w", main="n:m", axes={}), links, Limits(), 0)
        return await runner.conduct(), links

    result, links = asyncio.run(scenario())
    assert result.diagnosis.outcome is Outcome.NODE_FAIL
    assert links[1].clean
    assert not result.not_cleaned


PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
CHILD = """
from sweep.pilot.job import StepDaemon
above = StepDaemon()
print(above.died, flush=True)
input()
print(above.died, flush=True)
"""


def test_a_leader_notices_that_the_daemon_above_it_died():
    above = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert above.stdout.readline() == "False\n"
    above.kill()
    above.wait()
    above.stdin.write("\n")
    above.stdin.flush()
    assert above.stdout.readline() == "True\n"


DAEMONS = GRID.replace("step_s: 0.02", "step_s: 0.5, fault: leak_child, fault_iteration: 1, fault_s: 600").replace(
    "[1, 2]", "[1]"
)


def agent_pids(directory):
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if "sweep.pilot.agent" in words and any(str(directory) in word for word in words):
                found.append(process.pid)
    return found


def daemons(directory):
    """Processes forked from a warm image whose session's leader has gone."""
    if not (directory / "provenance.json").exists():
        return []
    pids = [int(words.split()[0]) for words in driving.marked_processes(directory) if "sweep.pilot.zygote" in words]
    return [pid for pid in pids if psutil.pid_exists(pid) and not psutil.pid_exists(os.getsid(pid))]


def killed_agent_leaves_nothing(directory, launcher):
    """Kill an agent in the middle of an attempt that has let a daemon go; the run is measured all the same."""
    deadline = time.monotonic() + 60
    while not daemons(directory):
        assert time.monotonic() < deadline, "no daemon was let go"
        time.sleep(0.05)
    os.kill(agent_pids(directory)[0], signal.SIGKILL)
    assert launcher.wait(120) == 0
    outcomes = [event["record"]["outcome"] for event in driving.events_of(directory, "record")]
    assert outcomes == ["node_fail", "ok"]
    assert driving.marked_processes(directory) == []


def test_an_agent_that_dies_alone_leaves_nothing_on_this_machine(tmp_path):
    (tmp_path / "grid.yaml").write_text(DAEMONS)
    words = ("launch", tmp_path / "grid.yaml", "--dir", tmp_path / "s", "--executor", "local", "--yes")
    killed_agent_leaves_nothing(tmp_path / "s", driving.start(*words))


@pytest.mark.slurm
def test_an_agent_that_dies_alone_leaves_nothing_on_its_node(tmp_path, slurm_cluster):
    (tmp_path / "grid.yaml").write_text(DAEMONS.replace("pilot_time: 10m", "pilot_time: 10m, poll_interval_s: 1"))
    words = ("launch", tmp_path / "grid.yaml", "--dir", tmp_path / "s", "--executor", "slurm", "--yes")
    killed_agent_leaves_nothing(tmp_path / "s", driving.start(*words, env=slurm_cluster.env))
