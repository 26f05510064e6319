"""Which processes are a pilot's: by their marks, whatever their parent."""

import os
import subprocess
import sys
import time
import uuid

import psutil
import pytest

from sweep.pilot.agent import processes
from sweep.pilot.agent.processes import NODE_MARK, PILOT_MARK, Activity, allocated
from tests.support.clients import made_client


@pytest.fixture
def sleeper(running):
    """Starts a process with these marks in its environment."""

    def start(token, node):
        environment = {k: v for k, v in os.environ.items() if k not in (PILOT_MARK, NODE_MARK)}
        marks = {name: value for name, value in ((PILOT_MARK, token), (NODE_MARK, node)) if value is not None}
        return running(sys.executable, "-c", "import time; time.sleep(60)", env={**environment, **marks}).pid

    return start


def pids(found):
    return {process.pid for process in found}


def test_what_was_there_before_is_not_looked_at_and_what_came_later_is(sleeper):
    """Of the machine's processes: the node of a large job may have thousands."""
    token = f"test{os.getpid()}-p0009"
    earlier, before = sleeper(token, "n1"), processes.present()
    later = sleeper(token, "n1")
    assert earlier in {pid for pid, _ in before}
    for find in (processes.descendants, lambda *given: processes.carrying([token], "n1", *given[1:])):
        assert {earlier, later} <= pids(find(()))
        found = pids(find((), before))
        assert later in found
        assert earlier not in found
    assert later not in pids(processes.descendants([later]))


def test_marks_show_whose_a_process_is(sleeper):
    token = f"test{os.getpid()}-p0001"
    mine, neighbour = sleeper(token, "n1"), sleeper(token, "n2")
    other, unmarked = sleeper(f"test{os.getpid()}-p0002", "n1"), sleeper(None, "n1")
    assert pids(processes.carrying([token], "n1")) == {mine}
    assert pids(processes.carrying([token])) == {mine, neighbour}
    assert processes.tokens_of_sweep(f"test{os.getpid()}-") == {token, f"test{os.getpid()}-p0002"}
    assert unmarked not in pids(processes.carrying([""]))
    assert other not in pids(processes.carrying([token]))


BARE = """
import os, sys
from sweep.pilot.agent.processes import mark_descendants
mark_descendants(dict(zip(("SWEEP_PILOT", "SWEEP_NODE"), sys.argv[1:])))
os.execve("/bin/sleep", ["sleep", "60"], {})
"""


def test_an_empty_environment_hides_no_descendant(running):
    token = f"test{os.getpid()}-bare"
    process = psutil.Process(running(sys.executable, "-c", BARE, token, "n1").pid)
    while process.name() != "sleep":
        time.sleep(0.01)
    assert process.environ() == {}
    assert pids(processes.carrying([token], "n1")) == {process.pid}
    assert pids(processes.carrying(["another", token])) == {process.pid}
    assert processes.carrying([token], "n2") == processes.carrying(["another"]) == []


def test_a_name_that_only_ends_with_the_mark_is_no_mark(sleeper, monkeypatch):
    token = f"test{os.getpid()}-suffix"
    monkeypatch.setenv(f"MY_{PILOT_MARK}", token)
    sleeper(None, None)
    assert processes.carrying([token]) == []


def test_dead_processes_are_not_listed(sleeper):
    token = f"test{os.getpid()}-dead"
    pid = sleeper(token, "n1")
    os.kill(pid, 9)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # a zombie, until its parent reaps it
    assert processes.carrying([token]) == []


def test_only_allocated_gpus_are_checked():
    assert allocated({}) is None
    assert allocated({"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2"}) == {"GPU-1", "GPU-2"}
    assert allocated({"SLURM_JOB_GPUS": "2,3"}) == {"2", "3"}


def test_work_is_seen_and_sleep_is_not(running, monkeypatch):
    monkeypatch.setattr(processes, "ACTIVITY_SHARE", 0.01)  # of a busy machine a process may get no more
    burn, rest = running(sys.executable, "-c", "while True: pass").pid, running("sleep", "600").pid
    activity = Activity()
    assert not activity.busy(burn), "nothing to compare with"
    activity.busy(rest)
    deadline = time.monotonic() + 60
    worked = False
    while not worked and time.monotonic() < deadline:
        time.sleep(2.5)
        worked = activity.busy(burn)
        assert not activity.busy(rest)
    assert worked


GPUS_LISTED = "0, GPU-5d5ba0d6-0001\n1, GPU-5d5ba0d6-0002\n"
DEVICES = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-0001)
  MIG 1g.5gb      Device  0: (UUID: MIG-c6d4f1ef-0001)
  MIG 1g.5gb      Device  1: (UUID: MIG-c6d4f1ef-0002)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-0002)
"""
"""the form of NVIDIA's MIG User Guide"""


@pytest.mark.parametrize(
    ("ours", "uuids"),
    [
        ({"1"}, {"GPU-5d5ba0d6-0002"}),
        ({"GPU-5d5ba0d6-0002"}, {"GPU-5d5ba0d6-0002"}),
        ({"GPU-5d5ba0d6"}, {"GPU-5d5ba0d6-0001", "GPU-5d5ba0d6-0002"}),
        ({"MIG-c6d4f1ef-0002"}, {"MIG-c6d4f1ef-0002", "GPU-5d5ba0d6-0001"}),
        ({"MIG-gone"}, set()),
    ],
)
def test_gpus_and_their_parts_are_found_by_every_name_that_cuda_takes(ours, uuids):
    assert processes.uuids_of(ours, GPUS_LISTED, DEVICES) == uuids


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """An nvidia-smi that lists these processes on MIG devices of GPU 0."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-c6d4f1ef-0001")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def lists(*rows, memory=""):
        answers = {
            "--query-gpu=uuid": memory,
            "--query-gpu": GPUS_LISTED,
            "-L": DEVICES,
            "--query-compute-apps": "\n".join(rows) + "\n",
        }
        cases = "".join(f"{name}*) printf '%s' '{text}';;\n" for name, text in answers.items())
        made_client(tmp_path / "nvidia-smi", f'case "$1" in\n{cases}esac')

    return lists


def test_processes_that_were_on_the_gpus_before_the_attempt_or_are_others_leave_the_node_clean(sleeper, nvidia_smi):
    before = sleeper(None, None)
    while psutil.Process(before).create_time() >= time.time() - processes.START_TIME_ERROR_S:
        time.sleep(0.05)
    since = time.time()
    during = sleeper(None, None)
    root = 1 if os.getuid() else None  # a test as root has no other user's process
    listed = [f"{pid}, GPU-5d5ba0d6-0001" for pid in (before, during, root, 4_194_000) if pid is not None]
    nvidia_smi(*listed)
    assert processes.left_on_gpus(0.0, since) == [f"pid {during} on GPU GPU-5d5ba0d6-0001"]


@pytest.mark.parametrize(("after", "left"), [("40020", ["40000 MiB of GPU GPU-5d5ba0d6-0002"]), ("900", [])])
def test_memory_that_nobody_listed_holds_is_what_the_attempt_left(monkeypatch, nvidia_smi, after, left):
    """In a namespace of processes nvidia-smi lists none. Another program's memory was in use before."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setattr(processes, "_uuids", {})
    monkeypatch.setattr(processes, "_first_mib", {})
    nvidia_smi(memory="GPU-5d5ba0d6-0001, 3\nGPU-5d5ba0d6-0002, 20\n")
    processes.note_memory_in_use()
    nvidia_smi(memory=f"GPU-5d5ba0d6-0001, 70000\nGPU-5d5ba0d6-0002, {after}\n")
    found = processes.left_on_gpus(0.0, time.time())
    assert [text.partition(" by ")[0] for text in found] == left
    nvidia_smi(f"{4_194_000}, GPU-5d5ba0d6-0002", memory=f"GPU-5d5ba0d6-0002, {after}\n")
    assert processes.left_on_gpus(0.0, time.time()) == [], "where processes are listed, they count"


def test_the_server_of_the_sharing_service_is_not_left_by_an_attempt(running, tmp_path, nvidia_smi):
    server = tmp_path / "nvidia-cuda-mps-server"
    server.symlink_to("/bin/sleep")
    nvidia_smi(f"{running(server, '60').pid}, MIG-c6d4f1ef-0001")
    assert processes.left_on_gpus(0.0, time.time() - 10) == []


AGENT = """
import asyncio, os, subprocess
import psutil
from sweep.pilot.agent.cleanup import clear

def escape(**marks):
    rank = ["sh", "-c", "setsid sleep 300 >/dev/null & echo $!"]  # it ends: init becomes the parent of what it started
    return psutil.Process(int(subprocess.check_output(rank, env={**os.environ, **marks})))
ours, others = escape(), escape(SWEEP_NODE="another-node")
left = asyncio.run(clear([], [], 0.1, lambda: None))
print(left, *(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in (ours, others)))
others.kill()
"""


def test_a_process_that_escaped_from_its_rank_is_killed_and_one_of_another_node_is_not():
    marks = {PILOT_MARK: f"test-{uuid.uuid4().hex}", NODE_MARK: "n1"}
    command = [sys.executable, "-c", AGENT]
    shown = subprocess.check_output(command, env={**os.environ, **marks}, text=True, timeout=60)
    assert shown == "[] False True\n"
