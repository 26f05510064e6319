"""Which device a rank takes: the one that the site states, or none at all."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from bench_workloads.process import ALLOCATOR_VARIABLES, NoGpuError, WrongGpuError, grow_segments, pick_device
from sweep.plugins import WORKLOAD
from tests.support import driving
from tests.support.simulated import place

torch = pytest.importorskip("torch")

PLACE = place()
GRID = driving.simulated(
    {"gpu": "h100", "gpus_per_node": 1}, workload="transformer", models=["tiny-1M", "tiny-4M"], dtype="bf16",
    global_batch=512, micro_batch_size=[1, 2], warmup_iterations=1,
)  # fmt: skip


@pytest.fixture
def no_gpu():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")


@pytest.mark.parametrize("gpu", ["", "cpu"])
def test_without_a_stated_gpu_the_cpu_is_taken(no_gpu, gpu):
    assert pick_device(replace(PLACE, gpu=gpu)) == torch.device("cpu")


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("Torch not compiled with CUDA enabled", "Install a build of torch for GPUs"),
        ("The NVIDIA driver on your system is too old (found version 12020).", "Update the nodes' driver"),
        ("No CUDA GPUs are available", "Request the node's GPUs"),
        ("Found no NVIDIA driver on your system.\nPlease check that you have an NVIDIA GPU", "check nvidia-smi"),
    ],
)
def test_the_remedy_follows_from_torchs_reason(monkeypatch, reason, remedy):
    """What torch says with a build for CUDA: torch/csrc/cuda/Module.cpp, torch/cuda/__init__.py."""

    def init():
        raise (RuntimeError if built else AssertionError)(reason)

    built = None if "not compiled" in reason else "13.0"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", init)
    monkeypatch.setattr(torch.version, "cuda", built)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(NoGpuError) as caught:
        pick_device(replace(PLACE, gpu="h100"))
    message = str(caught.value)
    assert " ".join(reason.split()).rstrip(".") in message
    assert remedy in message
    assert f"the site states gpu: h100, but torch sees no GPU: {reason.split()[0]}" in message
    assert torch.__version__ in message
    assert f"built for {f'CUDA {built}' if built else 'no GPU'}, CUDA_VISIBLE_DEVICES=''" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("stated", "name", "wrong"),
    [
        ("h100", "NVIDIA H100 80GB HBM3", ""),
        ("h100", "NVIDIA H200", "State gpu: h200"),
        ("h100", "NVIDIA H100 PCIe", "State gpu: h100-pcie"),
        ("a100", "NVIDIA A100-SXM4-40GB", "State gpu: a100-40gb"),
        ("h100", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "Turn MIG off"),
        ("h100", "NVIDIA Engineering Sample", ""),
        ("", "NVIDIA H200", ""),
    ],
)
def test_the_devices_name_must_be_of_the_stated_kind(monkeypatch, stated, name, wrong):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    place = replace(PLACE, gpu=stated)
    if not wrong:
        assert pick_device(place) == torch.device("cuda", 0)
        return
    with pytest.raises(WrongGpuError, match=wrong):
        pick_device(place)


def test_a_sweep_for_a_gpu_on_a_machine_without_one_ends_each_run_at_once(no_gpu, tmp_path):
    """Acceptance 3 of the GPU issue: a named outcome and the remedy, and no figure from a CPU."""
    done = driving.launch(tmp_path, GRID, timeout=280)
    records = driving.records_of(tmp_path / "s")
    assert len({record["run_id"] for record in records}) == 4, done.stderr
    for record in records:
        assert record["outcome"] == "cuda_error"
        assert "the site states gpu: h100, but torch sees no GPU" in record["message"]
        assert "CUDA" in record["message"]
        assert "state gpu: cpu" in record["advice"]
        assert record["step_times_s"] is None


SETTERS = ("_accelerator_setAllocatorSettings", "_cuda_cudaCachingAllocator_set_allocator_settings")
"""of torch today and of an older one"""


@pytest.mark.parametrize("setter", SETTERS)
@pytest.mark.parametrize(
    ("cuda", "given", "expected"),
    [
        ("13.0", {}, "expandable_segments:True"),
        (None, {}, None),
        ("13.0", {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}, "max_split_size_mb:64"),
        ("13.0", {"PYTORCH_ALLOC_CONF": ""}, ""),
    ],
)
def test_segments_grow_unless_the_user_sets_otherwise(monkeypatch, cuda, given, expected, setter):
    environment = {k: v for k, v in os.environ.items() if k not in ALLOCATOR_VARIABLES} | given
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    given_to_torch = []
    for name in SETTERS:
        monkeypatch.delattr(torch._C, name, raising=False)
    monkeypatch.setattr(torch._C, setter, given_to_torch.append, raising=False)
    assert grow_segments() == expected
    assert given_to_torch == ([expected] if not given and cuda else []), "it may have read its variable before"
    assert environment.get("PYTORCH_ALLOC_CONF", given.get("PYTORCH_CUDA_ALLOC_CONF")) == expected


WATCHED = """
import functools, importlib, sys, torch
found = []
def noted(name, call):
    def asked(*args, **kwargs):
        back = sys._getframe(1)
        found.append(f"{name} by {back.f_code.co_filename}:{back.f_lineno}")
        return call(*args, **kwargs)
    return asked
for name in ("is_available", "device_count", "_lazy_init", "current_device", "get_device_properties"):
    setattr(torch.cuda, name, noted(name, getattr(torch.cuda, name)))
for module in sys.argv[1:]:
    importlib.import_module(module)
torch.cuda.is_available()
print("\\n".join(found))
"""


def test_what_a_fork_server_imports_asks_for_no_device():
    """torch refuses CUDA in a fork of a process that has counted the devices (torch/csrc/cuda/Module.cpp)."""
    modules = WORKLOAD.find("transformer").preload
    assert "torch._dynamo" in modules
    done = subprocess.run([sys.executable, "-c", WATCHED, *modules], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["is_available by <string>:14"], "the last line's own, as a control"
