"""The kernel's messages about ranks, and what happens where they cannot be read."""

import inspect
import re
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace

from sweep.diagnose.diagnose import diagnose
from sweep.outcomes import Outcome
from sweep.pilot.agent.agent import Agent
from sweep.pilot.agent.kernel_log import KernelWatch, XidEvents, kill_counter
from sweep.pilot.messages import Prepared
from tests.support.driving import wait_for
from tests.support.pilot_parts import CLEAN, PREPARE, STOP, Image, Scripted


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
    watch = KernelWatch("n1")
    assert [line for line in watch.facts([]) if "memory cgroup" in line] == []
    counter.write_text(text.format(3))
    (line,) = [line for line in watch.facts([]) if "memory cgroup" in line]
    assert line.startswith("oom-kill: 2 processes")
    watch.close()


@pytest.mark.parametrize(
    "text", ["oom_kill_disable 0\nunder_oom 0\n", "", "oom_kill\n", "oom_kill many\n", "a b c\n", "\xff"]
)
def test_a_kill_counter_that_does_not_count_does_not_fail_the_agent(tmp_path, monkeypatch, text):
    """Before Linux 4.13 memory.oom_control has no such row."""
    counter = tmp_path / "memory.oom_control"
    counter.write_text(text, encoding="latin-1")
    monkeypatch.setattr("sweep.pilot.agent.kernel_log.kill_counter", lambda: counter)
    watch = KernelWatch("n1")
    assert [line for line in watch.facts([]) if "memory cgroup" in line] == []
    watch.close()


class Nvml(SimpleNamespace):
    """As pynvml of a node with two GPUs, of which one is another job's: one critical Xid, then none."""

    NVMLError = type("NVMLError", (Exception,), {})
    NVMLError_Timeout = type("NVMLError_Timeout", (NVMLError,), {})
    nvmlEventTypeXidCriticalError = 8  # noqa: N815

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        if index:
            raise self.NVMLError("Insufficient Permissions")
        return index

    def nvmlEventSetWait_v2(self, events, wait_ms):  # noqa: N802
        if not self.due:
            time.sleep(0.01)
            raise self.NVMLError_Timeout
        return SimpleNamespace(device=0, eventData=self.due.pop())


def test_xids_come_from_nvml_where_the_kernels_log_cannot_be_read(monkeypatch):
    nvml = Nvml(
        due=[],
        nvmlInit=lambda: None,
        nvmlEventSetCreate=lambda: "events",
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetSupportedEventTypes=lambda device: 0xFF,
        nvmlDeviceRegisterEvents=lambda device, kind, events: None,
        nvmlDeviceGetPciInfo=lambda device: SimpleNamespace(busId=b"00000000:1B:00.0"),
    )
    xids = XidEvents(nvml)
    wait_for(lambda: xids.followed)
    nvml.due.append(13)
    wait_for(lambda: xids.lines)
    watch = KernelWatch("n1", xids)
    monkeypatch.setattr(watch, "_lines", list)
    assert watch.facts([]) == (), "it was before the attempt"
    nvml.due.append(79)
    wait_for(lambda: len(xids.lines) == 2)
    (line,) = watch.facts([])
    assert line == "NVRM: Xid (PCI:00000000:1B:00.0): 79, as NVML reports it"
    assert diagnose([], kernel=[line]).outcome is Outcome.XID_HARDWARE
    assert "NVML events" in watch.sources
    monkeypatch.setattr(watch, "_lines", lambda: ["NVRM: Xid (PCI:00000000:1B:00.0): 79, pid=7, GPU has fallen off"])
    assert len(watch.facts([])) == 1, "the kernel's own line says more"
    watch.close()


def test_the_bindings_have_what_is_asked_of_them():
    nvml = pytest.importorskip("pynvml")
    asked = set(re.findall(r"nvml\.((?:nvml|NVML)\w+)", inspect.getsource(XidEvents)))
    assert len(asked) > 8
    assert [name for name in sorted(asked) if not hasattr(nvml, name)] == []
    assert not XidEvents().followed or Path("/dev/nvidiactl").exists()


def fail(*_):
    raise ZeroDivisionError


@pytest.mark.parametrize("part", ["kill_counter", "KernelWatch._lines"])
async def test_a_kernel_log_that_cannot_be_read_does_not_fail_the_agent(tmp_path, monkeypatch, part):
    """The node matters more than the evidence."""
    monkeypatch.setattr(f"sweep.pilot.agent.kernel_log.{part}", fail)
    monkeypatch.setattr("sweep.pilot.agent.fork_servers.ForkServer", Image())
    # It ends every descendant of the agent's process: here that is pytest's.
    monkeypatch.setattr("sweep.pilot.agent.attempt.clear", AsyncMock(return_value=[]))
    line = Scripted(PREPARE, STOP)
    await Agent("n1", 0, tmp_path).serve(line)
    _hello, prepared, clean = line.sent
    assert prepared == Prepared(attempt="r.1")
    assert replace(clean, sources=()) == CLEAN
