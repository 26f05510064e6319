"""Verdicts about the login node, from values as its readers return them."""

from pathlib import Path

import pytest
import yaml

from sweep.checks.check import Reading, Stated, Verdict, evaluate
from sweep.checks.login import LOGIN

READ = yaml.safe_load(Path(__file__).with_name("login.yaml").read_text())


def verdict(name, value, gpu="cpu"):
    (check,) = [check for check in LOGIN if check.name == name]
    return evaluate(check, Reading(value=value), Stated(gpu=gpu)).verdict


@pytest.mark.parametrize(("name", "read"), [(name, read) for name, rows in READ.items() for read in rows], ids=str)
def test_verdicts(name, read):
    assert verdict(name, read["value"]) is Verdict(read["verdict"])


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
