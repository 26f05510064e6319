"""What an agent looks at on its node beside processes: shared memory, temporary files, the kernel, recorder dumps."""

import asyncio
import os
import pickle
import subprocess
import sys
import time

import pytest

from sweep.pilot.agent import evidence
from sweep.pilot.agent.agent import Agent
from sweep.pilot.agent.cleanup import empty, make_temporary, remove_scratch, remove_shared_memory
from sweep.pilot.agent.kernel_log import KernelWatch, kill_counter
from sweep.pilot.agent.processes import Activity, allocated
from sweep.pilot.leader.record import Findings
from tests.support.pilot_parts import PREPARE, Image, Scripted


def test_shared_memory_of_the_attempt_goes_and_all_else_stays(tmp_path):
    old = tmp_path / "torch_1_old"
    old.touch()
    os.utime(old, (1, 1))
    began = time.time() - 0.05
    for name in ("nccl-a1b2c3", "torch_77_1_0", "sem.mp-x", "another_program"):
        (tmp_path / name).touch()
    held = tmp_path / "nccl-held"
    with held.open("wb"):
        removed = remove_shared_memory(began, tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert {"nccl-a1b2c3", "torch_77_1_0", "sem.mp-x"} <= set(removed)
    assert {"another_program", "nccl-held"} <= left


def test_a_file_that_a_process_maps_is_held(tmp_path):
    program = (
        "import mmap,sys; f=open(sys.argv[1],'r+b'); m=mmap.mmap(f.fileno(),0); f.close(); print(1,flush=True); input()"
    )
    path = tmp_path / "nccl-mapped"
    path.write_bytes(b"0" * 4096)
    child = subprocess.Popen([sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    assert remove_shared_memory(0.0, tmp_path) == []
    child.communicate(b"\n")
    assert remove_shared_memory(0.0, tmp_path) == ["nccl-mapped"]


def test_files_from_before_the_attempt_stay(tmp_path):
    (tmp_path / "nccl-before").touch()
    assert remove_shared_memory(time.time() + 60, tmp_path) == []


def test_the_temporary_directory_goes_with_the_scratch(tmp_path):
    scratch = tmp_path / "token.n1.x"
    scratch.mkdir()
    temporary = make_temporary(scratch)
    (temporary / "deep").mkdir()
    (temporary / "deep" / "file").touch()
    (temporary / "link").symlink_to(tmp_path)
    empty(temporary)
    assert list(temporary.iterdir()) == []
    assert tmp_path.exists()
    remove_scratch(scratch)
    assert list(tmp_path.iterdir()) == []


def test_a_link_that_is_not_ours_is_not_followed(tmp_path):
    precious, scratch = tmp_path / "precious", tmp_path / "token.n1.x"
    precious.mkdir()
    scratch.mkdir()
    (scratch / "tmp").symlink_to(precious)
    remove_scratch(scratch)
    assert precious.exists()


@pytest.mark.parametrize(
    ("cgroup", "file", "text"),
    [
        ("11:memory:/job_1\n1:name=systemd:/\n", "memory/job_1/memory.oom_control", "under_oom 0\noom_kill {}\n"),
        ("0::/job_1\n", "job_1/memory.events", "low 0\noom 1\noom_kill {}\n"),
    ],
)
def test_the_kill_counter_of_both_versions(tmp_path, monkeypatch, cgroup, file, text):
    (tmp_path / "self").write_text(cgroup)
    counter = tmp_path / "fs" / file
    counter.parent.mkdir(parents=True)
    counter.write_text(text.format(1))
    found = kill_counter(tmp_path / "self", tmp_path / "fs")
    assert found == counter
    monkeypatch.setattr("sweep.pilot.agent.kernel_log.kill_counter", lambda: found)
    watch = KernelWatch()
    assert [line for line in watch.facts([]) if "memory cgroup" in line] == []
    counter.write_text(text.format(3))
    (line,) = [line for line in watch.facts([]) if "memory cgroup" in line]
    assert line.startswith("oom-kill: 2 processes")
    watch.close()


@pytest.mark.parametrize(
    "text", ["oom_kill_disable 0\nunder_oom 0\n", "", "oom_kill\n", "oom_kill many\n", "a b c\n", "\xff"]
)
def test_a_kill_counter_that_does_not_count_costs_no_agent(tmp_path, monkeypatch, text):
    """Before Linux 4.13 memory.oom_control has no such row."""
    counter = tmp_path / "memory.oom_control"
    counter.write_text(text, encoding="latin-1")
    monkeypatch.setattr("sweep.pilot.agent.kernel_log.kill_counter", lambda: counter)
    watch = KernelWatch()
    assert [line for line in watch.facts([]) if "memory cgroup" in line] == []
    watch.close()


def fail(*_):
    raise ZeroDivisionError


async def nothing_left(*_):
    """In the place of `clear`, which ends every descendant of the agent's process: here that is pytest's."""
    return []


@pytest.mark.parametrize("part", ["kill_counter", "KernelWatch.facts"])
def test_a_kernel_that_cannot_be_watched_costs_no_agent(tmp_path, monkeypatch, part):
    """Evidence is worth less than the node."""
    monkeypatch.setattr(f"sweep.pilot.agent.kernel_log.{part}", fail)
    monkeypatch.setattr("sweep.pilot.agent.agent.Zygote", Image())
    monkeypatch.setattr("sweep.pilot.agent.agent.clear", nothing_left)

    async def scenario():
        stop = {"do": "stop", "attempt": "r.1", "evidence": False, "grace_s": 0.1, "short": True}
        line = Scripted(PREPARE, stop)
        await Agent("n1", 0, tmp_path).serve(line)
        return line.sent

    _hello, _strays, prepared, clean = asyncio.run(scenario())
    assert prepared == {"is": "prepared", "attempt": "r.1", "cold": False}
    assert (clean["is"], clean["kernel"]) == ("clean", [])


def test_a_flight_recorder_dump_is_told_and_runs_nothing(tmp_path):
    entry = {"profiling_name": "nccl:all_reduce", "collective_seq_id": 41, "state": "started", "input_sizes": [[4]]}
    done = {**entry, "collective_seq_id": 40, "state": "completed"}
    (tmp_path / "flight.3").write_bytes(pickle.dumps({"version": "2.10", "entries": [done, entry]}))
    assert "nccl:all_reduce number 41 is started" in evidence.tell_dump(tmp_path, 3)

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    (tmp_path / "flight.4").write_bytes(pickle.dumps({"entries": [Evil()]}))
    assert evidence.tell_dump(tmp_path, 4) == ""
    assert not (tmp_path / "ran").exists()
    assert evidence.tell_dump(tmp_path, 5) == ""
    evidence.ask_for_dump(tmp_path, 5)


def test_only_allocated_gpus_are_looked_at():
    assert allocated({}) is None
    assert allocated({"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2"}) == {"GPU-1", "GPU-2"}
    assert allocated({"SLURM_JOB_GPUS": "2,3"}) == {"2", "3"}


def test_work_is_seen_and_sleep_is_not():
    burn = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    rest = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        activity = Activity()
        time.sleep(0.5)
        assert not activity.busy(burn.pid), "nothing to compare with"
        activity.busy(rest.pid)
        deadline = time.monotonic() + 20
        worked = False
        while not worked and time.monotonic() < deadline:
            time.sleep(2.5)
            worked = activity.busy(burn.pid)
            assert not activity.busy(rest.pid)
        assert worked
    finally:
        for process in (burn, rest):
            process.kill()
            process.wait()


def test_findings_reach_the_record():
    nccl = "".join(f"{host}:1:1 [0] NCCL INFO Using network Socket\n" for host in ("n1", "n2"))
    extra = {
        "allocator": {"reserved_bytes.all.peak": 100, "inactive_split_bytes.all.peak": 40},
        "allocator_new": {"num_alloc_retries": 3, "num_ooms": 0, "num_device_alloc": 5, "num_device_free": 5},
        "device_memory_not_torch_bytes": 1 << 30,
    }
    found = Findings.of([nccl, ""], [{}, extra])
    record = found.annotate({"notes": ["odd"], "suspect": False})
    assert record["notes"][0] == "odd"
    assert any("TCP sockets" in note for note in record["notes"])
    assert any("rank 1: Memory pressure" in note for note in record["notes"])
    assert record["suspect"], "a timing under memory pressure is not valid"
    assert found.facts["allocator_verdict"]["rank"] == 1
    assert found.facts["nccl"]["network"] == "Socket"
    quiet = Findings.of(["hello"], [{}])
    assert (quiet.facts, quiet.notes, quiet.invalid) == ({}, (), False)
