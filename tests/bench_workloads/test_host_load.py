"""A host with more work than cores is noticed while iterations are timed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

torch = pytest.importorskip("torch")

from bench_workloads import hardware  # noqa: E402

CPU = torch.device("cpu")
linux = pytest.mark.skipif(not hardware.STAT.exists(), reason="/proc/stat is Linux's")


@linux
def test_busy_processes_crowd_the_host() -> None:
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        deadline = time.monotonic() + 60
        while not all(psutil.Process(spinner.pid).cpu_times().user > 0 for spinner in spinners):
            assert time.monotonic() < deadline, "they do not run"
            time.sleep(0.05)
        with hardware.Sampler(CPU) as load:
            time.sleep(1)  # the time that is sampled
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
    found = load.results(tokens=1)
    assert found["host_runnable_tasks"] > found["host_cores"]


def test_a_quiet_host_is_no_note_and_an_unknown_one_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu 1 2 3\nprocs_running 2\nprocs_blocked 0\n")
    monkeypatch.setattr(hardware, "STAT", stat)
    with hardware.Sampler(CPU) as load:
        pass
    assert load.results(tokens=1) == {"host_runnable_tasks": 1, "host_cores": os.cpu_count()}
    monkeypatch.setattr(hardware, "STAT", tmp_path / "none")
    with hardware.Sampler(CPU) as load:
        pass
    assert load.results(tokens=1) == {}
