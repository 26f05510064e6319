"""The simulated workload: its ranks sleep as reported, and injected faults really happen; all workloads' settings."""

import importlib
import os
import re
import signal
from pathlib import Path

import pytest

from bench_workloads.simulated import FAULTS, WORKLOAD, Settings, faults, formula
from bench_workloads.simulated.faults import HARMLESS, fault_of
from sweep.contract import Layout, Run
from tests.support.driving import wait_for
from tests.support.ranks.harness import ForkServer, Rank, a_run
from tests.support.simulated import big, placed


@pytest.fixture(scope="module")
def light():
    """A fork server without torch."""
    fork_server = ForkServer("simulated")
    yield fork_server
    fork_server.close()


def rehearse(light: ForkServer, ranks: int = 2, *, timeout_s: float = 30, **params) -> list[Rank]:
    run = a_run(Layout(dp=ranks), workload="simulated", params={"step_s": 0.01, "noise": 0.0, **params})
    return light.attempt(run, timeout_s=timeout_s)


def test_a_rank_sleeps_sends_heartbeats_and_measures(light: ForkServer):
    for rank in rehearse(light, step_s=0.05):
        assert rank.exit == 0
        found = rank.measurement
        assert found["simulated"] is True
        assert all(t >= 0.05 for t in found["step_times_s"])
        assert (len(found["step_times_s"]), len(found["warmup_times_s"])) == (2, 1)
        phases = [heartbeat["phase"] for heartbeat in rank.heartbeats]
        assert phases[0] == "start"
        assert phases[1] == "first_iteration"
        assert phases[-1] == "finish"
        assert found["effective"]["dp"] == 2


def test_fast_ranks_send_few_heartbeats(light: ForkServer):
    run = a_run(Layout(), workload="simulated", iterations=200, params={"step_s": 0.002})
    assert len(light.attempt(run)[0].heartbeats) < 10


def test_times_are_reported_for_the_real_speed(light: ForkServer):
    rank = rehearse(light, 1, step_s=2000.0, speed=1e5)[0]
    assert rank.measurement["step_times_s"] == [2000.0, 2000.0]


def test_a_fault_ends_its_rank_and_leaves_the_other_waiting(light: ForkServer):
    """Each fault's outcome: tests/faults/test_local.py."""
    broken, waiting = rehearse(light, fault="exception", fault_rank=0, timeout_s=1.0)
    assert (broken.exit, broken.failure["type"]) == (1, "RuntimeError")
    assert "is invalid for input of size" in broken.stderr
    assert waiting.killed, "a rank whose peer is gone must wait"


def ignores_sigterm(pid):
    """By the mask of ignored signals that the kernel shows."""
    mask = re.search(r"SigIgn:\s+(\w+)", Path(f"/proc/{pid}/status").read_text())[1]
    return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)


def test_sigterm_is_really_ignored():
    child = os.fork()
    if not child:
        faults.act("ignore_sigterm", placed(big(Layout())), Settings())
    try:
        wait_for(lambda: ignores_sigterm(child))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_slow_rank_is_slow_alone(light: ForkServer):
    quick, slow = rehearse(light, fault="slow_rank", fault_rank=1, fault_s=0.2)
    assert min(slow.measurement["step_times_s"]) > max(0.2, min(quick.measurement["step_times_s"]))


def test_one_iteration_is_disturbed(light: ForkServer):
    times = rehearse(light, 1, fault="slow_iteration", fault_iteration=2, fault_s=0.3)[0].measurement["step_times_s"]
    assert times[1] > max(0.3, times[0])


def test_too_big_for_the_gpu_fails_out_of_memory(light: ForkServer):
    fits = big(Layout(tp=4, recompute="full"), params={"step_s": 0.01, "fault": "oom_cuda_if_too_big"})
    too_big = big(Layout(), params={"step_s": 0.01, "fault": "oom_cuda_if_too_big"})
    assert [rank.exit for rank in light.attempt(fits)] == [0] * 4
    assert "CUDA out of memory" in light.attempt(too_big)[0].stderr


def test_the_same_runs_fail_every_time():
    runs = [big(Layout(micro_batch_size=n), params={}) for n in range(1, 201)]
    settings = Settings(fault="hang, oom_cuda", fault_probability=0.3)
    found = [fault_of(placed(run), settings) for run in runs]
    assert found == [fault_of(placed(run), settings) for run in runs]
    assert 30 < sum(map(bool, found)) < 90
    assert {*found} == {"", "hang", "oom_cuda"}
    assert found != [fault_of(placed(run, seed=1), settings) for run in runs]
    with pytest.raises(ValueError, match="unknown fault eaten"):
        Settings(fault="hang,eaten")
    assert set(HARMLESS) < {"", *FAULTS}


def test_a_run_asks_for_one_process_by_its_parameter():
    asked = ({"one_process_per_node": True}, {"one_process_per_node": False}, {})
    assert [WORKLOAD.in_one_process(big(Layout(), params=params)) for params in asked] == [True, False, False]


def test_the_formula_has_the_right_trends():
    def step(nodes: int = 1, **layout) -> float:
        return formula.step_s(big(Layout(**layout), nodes=nodes), 989.0)

    def memory(**layout) -> int:
        return formula.peak_memory_bytes(big(Layout(**layout)))

    base = {"dp": 8, "micro_batch_size": 1, "grad_accum": 8}
    assert step(**{**base, "micro_batch_size": 2, "grad_accum": 4}) < step(**base)
    assert step(**base, recompute="full") > step(**base)
    assert step(pp=8, grad_accum=64) < step(pp=8, grad_accum=8, micro_batch_size=8)
    assert memory(dp=8) > memory(dp=8, zero=1) > memory(dp=8, zero=2) > memory(dp=8, zero=3)
    assert memory(tp=2) < memory() > memory(pp=2)
    assert memory(recompute="full") < memory(recompute="selective") < memory()


RUN = {"model": "m", "shape": {}, "nodes": 1, "gpus_per_node": 1, "sequence_length": 8, "layout": Layout()}


@pytest.mark.parametrize("workload", ["transformer", "simulated"])
def test_a_run_gives_parameters_and_defaults_the_rest(workload):
    package = importlib.import_module(f"bench_workloads.{workload}")
    declared, settings = package.WORKLOAD, package.Settings
    assert settings.of(Run(workload=workload, **RUN)) == settings()
    assert settings.defaults() == declared.params == vars(settings())
    name, value = next(iter(settings.defaults().items()))
    assert settings.of(Run(workload=workload, params={name: value}, **RUN)) == settings()
    with pytest.raises(ValueError, match=f"{workload} has no parameter colour, size"):
        settings.of(Run(workload=workload, params={"size": 1, "colour": 2}, **RUN))
