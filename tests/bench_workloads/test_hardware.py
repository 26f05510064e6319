"""Sampling of a GPU's state during the timed steps, against NVML's functions as nvidia-ml-py offers them; a host's."""

import os
import sys
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from bench_workloads import hardware  # noqa: E402
from tests.support.driving import wait_for  # noqa: E402

CUDA = torch.device("cuda", 0)


class Nvml(SimpleNamespace):
    """As pynvml: a clock that falls while power rises to its cap, and a counter of energy."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self) -> None:
        super().__init__(calls=0, energy=0)
        self.nvmlInit = lambda: None
        self.nvmlDeviceGetHandleByUUID = lambda uuid: uuid
        self.nvmlDeviceGetUUID = lambda handle: handle
        self.nvmlDeviceGetMaxClockInfo = lambda handle, kind: 1980
        self.nvmlDeviceGetEnforcedPowerLimit = lambda handle: 700_000
        self.nvmlDeviceGetTemperature = lambda handle, sensor: 60

    def nvmlDeviceGetClockInfo(self, handle, kind):  # noqa: N802
        self.calls += kind == self.NVML_CLOCK_SM
        return max(1200, 1980 - 100 * self.calls) if kind == self.NVML_CLOCK_SM else 2619

    def nvmlDeviceGetPowerUsage(self, handle):  # noqa: N802
        return min(700_000, 400_000 + 100_000 * self.calls)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):  # noqa: N802
        return 0x4 if self.calls > 2 else 0x1  # idle is no throttling

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):  # noqa: N802
        self.energy += 500_000
        return self.energy


@pytest.fixture
def nvml(monkeypatch):
    """That of a GPU which torch sees."""
    found = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", found)
    properties = SimpleNamespace(uuid="GPU-1")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(hardware, "PERIOD_S", 0.01)
    return found


def test_clocks_power_and_reasons_are_sampled_during_the_steps(nvml):
    sampler = hardware.Sampler(CUDA)
    with sampler, sampler.step():
        wait_for(lambda: nvml.calls > 4)
    found = sampler.results(tokens=1000)
    samples = found["device_samples"]
    assert samples["count"] >= 3
    smallest, median, greatest = samples["sm_clock_mhz"]
    assert 1200 <= smallest <= median <= greatest < 1980
    assert samples["power_w"][2] == 700
    assert samples["throttle_reasons"] == ["power cap"]
    assert found["notes"] == ["the GPU's clocks were lowered while it was timed: power cap"]
    assert found["energy_j"] == 500
    assert found["energy_j_per_token"] == 0.5
    assert found["energy_coarse"]
    assert samples["power_kind"] == "average"


@pytest.mark.parametrize(("answer", "power", "kind"), [(0, 612.5, "instant"), (3, 400.0, "average")])
def test_the_power_of_the_moment_is_taken_where_the_gpu_has_it(nvml, answer, power, kind):
    """NVML's usual power is an average over a second from Ampere on (nvml.h)."""
    nvml.NVML_FI_DEV_POWER_INSTANT, nvml.NVML_SUCCESS = 186, 0
    field = SimpleNamespace(nvmlReturn=answer, value=SimpleNamespace(uiVal=612_500))
    nvml.nvmlDeviceGetFieldValues = lambda handle, fields: [field]
    nvml.nvmlDeviceGetPowerUsage = lambda handle: 400_000
    found = hardware.state(CUDA)
    assert (found["power_w"], found["power_kind"]) == (power, kind)


def test_what_lies_between_steps_does_not_count(monkeypatch, nvml):
    """The counter of energy rises by 500 J with each reading; two steps of one reading each way have used 1,000 J."""
    monkeypatch.setattr(hardware, "PERIOD_S", 60)
    sampler = hardware.Sampler(CUDA)
    with sampler:
        for _ in range(2):
            with sampler.step():
                pass
            nvml.energy += 10**9
    found = sampler.results(tokens=1000)
    assert found["device_samples"]["count"] == 2, "one at the end of each step, however short"
    assert found["energy_j"] == 1000


def test_bindings_that_lack_a_function_give_the_rest(nvml):
    del nvml.nvmlDeviceGetEnforcedPowerLimit
    found = hardware.state(CUDA)
    assert "power_limit_w" not in found
    assert found["temperature_c"] == 60


def test_the_bindings_of_the_extra_have_every_function_that_is_asked():
    """nvidia-ml-py as installed: names and constants that only a driver could answer."""
    nvml = pytest.importorskip("pynvml")
    import inspect
    import re

    asked = set(re.findall(r"nvml\.((?:nvml|NVML)\w+)", inspect.getsource(hardware)))
    assert len(asked) > 12
    assert [name for name in sorted(asked) if not hasattr(nvml, name)] == []


def test_without_bindings_a_note_is_recorded(monkeypatch, nvml):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    sampler = hardware.Sampler(CUDA)
    with sampler:
        pass
    found = sampler.results(tokens=1000)
    assert found["device_samples"] is None
    assert "nvidia-ml-py" in found["notes"][0]


def test_the_tasks_of_a_busy_host_are_counted_and_those_of_an_unknown_one_unknown(tmp_path, monkeypatch):
    stat = tmp_path / "stat"
    stat.write_text("cpu 1 2 3\nprocs_running 2\nprocs_blocked 0\n")
    for path, found in ((stat, {"host_runnable_tasks": 1, "host_cores": os.cpu_count()}), (tmp_path / "none", {})):
        monkeypatch.setattr(hardware, "STAT", path)
        with hardware.Sampler(torch.device("cpu")) as load:
            pass
        assert load.results(tokens=1) == found
