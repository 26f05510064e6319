"""Verdicts about the login node, from values as its readers return them."""

import pytest

from sweep.checks.check import Reading, Stated, Verdict, evaluate
from sweep.checks.login import LOGIN


def verdict(name, value, gpu="cpu"):
    (check,) = [check for check in LOGIN if check.name == name]
    return evaluate(check, Reading(value=value), Stated(gpu=gpu)).verdict


@pytest.mark.parametrize(("name", "value", "expected"), [
    ("controller", {"answer": "Slurmctld(primary) at c1 is UP", "seconds": 0.02}, Verdict.OK),
    ("controller", {"answer": "Slurmctld(primary) at c1 is UP", "seconds": 12.0}, Verdict.WARNING),
    ("controller", {"answer": "Slurmctld(primary) at c1 is DOWN", "seconds": 0.02}, Verdict.BELOW_FLOOR),
    ("controller", {"answer": "", "seconds": 0.02}, Verdict.UNKNOWN),
    ("Slurm commands", {"sbatch": "slurm 23.11.4", "srun": "slurm 23.11.4"}, Verdict.OK),
    ("Slurm commands", {"sbatch": "slurm 23.11.4", "srun": None}, Verdict.BELOW_FLOOR),
    ("KillWait", {"KillWait": "30 sec"}, Verdict.OK),
    ("KillWait", {"KillWait": "2 sec"}, Verdict.WARNING),
    ("KillWait", {}, Verdict.UNKNOWN),
    ("preemption", {"PreemptType": "preempt/none", "PreemptMode": "OFF"}, Verdict.OK),
    ("preemption", {"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE"}, Verdict.WARNING),
    ("accounting", {"AccountingStorageType": "accounting_storage/none"}, Verdict.WARNING),
    ("accounting", {"SLURM_VERSION": "25.11.7"}, Verdict.WARNING),  # it states (null)
    ("accounting", {}, Verdict.UNKNOWN),
    ("preemption", {"SLURM_VERSION": "25.11.7", "PreemptMode": "OFF"}, Verdict.OK),
    ("preemption", {"PreemptMode": "OFF"}, Verdict.UNKNOWN),
    ("drained nodes", {}, Verdict.OK),
    ("drained nodes", {"n7": "drained, bad GPU"}, Verdict.WARNING),
    ("a pilot is accepted", {"accepted": False, "answer": "Invalid account"}, Verdict.BELOW_FLOOR),
    ("shared files", {"write_s": 0.01, "link_s": 0.01, "rename_s": 0.01, "filesystem": "nfs4"}, Verdict.OK),
    ("shared files", {"write_s": 2.0, "link_s": 0.01, "rename_s": 0.01, "filesystem": "nfs4"}, Verdict.WARNING),
    ("room", {"free_bytes": 1e12, "free_inodes": 0, "total_inodes": 0}, Verdict.OK),  # btrfs counts none
    ("room", {"free_bytes": 1e12, "free_inodes": 12, "total_inodes": 1e6}, Verdict.BELOW_FLOOR),
    ("room", {"free_bytes": 1e6, "free_inodes": 1e6, "total_inodes": 1e6}, Verdict.BELOW_FLOOR),
    ("torch", {"python": "3.12", "torch": "2.13", "cuda": "12.9", "driver_cuda": "12.2"}, Verdict.OK),  # minor version
    ("torch", {"python": "3.12", "torch": "2.13", "cuda": "13.0", "driver_cuda": "12.2"}, Verdict.WARNING),
    ("logout", {"kill_user_processes": None, "linger": False}, Verdict.UNKNOWN),
    ("logout", {"kill_user_processes": True, "linger": False}, Verdict.WARNING),
    ("logout", {"kill_user_processes": True, "linger": True}, Verdict.OK),
    ("NCCL variables", {"NCCL_DEBUG": "WARN (shell)"}, Verdict.OK),
    ("NCCL variables", {"NCCL_P2P_DISABLE": "1 (shell)"}, Verdict.WARNING),
])  # fmt: skip
def test_verdicts(name, value, expected):
    assert verdict(name, value) is expected


def test_a_partition_that_is_down_empty_or_too_short():
    fine = {"name": "main", "up": True, "nodes": 8, "time_limit": "none", "time_limit_s": None, "pilot_time_s": 3600}
    assert verdict("partition", fine) is Verdict.OK
    for change in ({"up": False}, {"nodes": 0}, {"time_limit_s": 600}):
        assert verdict("partition", {**fine, **change}) is Verdict.BELOW_FLOOR


@pytest.mark.parametrize("check", LOGIN, ids=lambda check: check.name)
@pytest.mark.parametrize("value", [None, 7, [3]])
def test_nonsense_is_unknown(check, value):
    assert evaluate(check, Reading(value=value), Stated()).verdict is Verdict.UNKNOWN


def test_a_build_of_torch_without_cuda_on_a_cluster_of_gpus():
    value = {"python": "3.12", "torch": "2.13+cpu", "cuda": None, "driver_cuda": None}
    assert verdict("torch", value, gpu="h100") is Verdict.WARNING
    assert verdict("torch", value) is Verdict.OK
