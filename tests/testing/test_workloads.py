"""`check_workload`: our own workloads pass, and each deviation of another is found."""

import pytest

from bench_workloads import WORKLOADS
from bench_workloads.trainers import TRAINERS
from sweep.contract import Rule, Workload
from sweep.errors import SweepError
from sweep.plugins import WORKLOAD
from sweep.testing import ConformanceError, check_workload, example_run
from sweep.testing.declarations import declaration_findings

PARAMS = {
    "transformer": {"threads": 1, "count_flops": False},
    "simulated": {"step_s": 0.01},
}
"""small enough for a test"""


OURS = sorted(set(WORKLOADS) - set(TRAINERS))
"""those with an adapter: test_trainers.py"""


@pytest.mark.parametrize("name", OURS)
def test_our_own_conform(name):
    check_workload(name, example_run(WORKLOAD.find(name), params=PARAMS.get(name, {})), timeout_s=250)


def test_an_attempt_that_is_not_ok_is_found_as_it_is_recorded():
    run = example_run(WORKLOAD.find("simulated"), params={"step_s": 0.01, "fault": "config_mismatch"})
    with pytest.raises(ConformanceError) as error:
        check_workload("simulated", run)
    text = str(error.value)
    assert text.startswith("the workload simulated does not conform:\n- the attempt is recorded as config_mismatch: dp")


def main(run, progress):
    """Of the declarations below."""


def ignores(columns):
    return columns["dp"] > 4


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"main": "no_such_module:main"}, "main: 'no_such_module:main' is not a function of (run, progress)"),
        ({"main": "tests.testing.test_workloads:ignores"}, "is not a function of (run, progress): TypeError"),
        ({"axes": frozenset({"dp", "width"})}, "axes: 'width' is not a layout field"),
        ({"params": {"tp": 1}}, "params: 'tp' is also the name of an axis"),
        ({"params": {"kind": "a"}, "choices": {"kind": ("b",)}}, "the default 'a' of kind is not among ('b',)"),
        ({"choices": {"colour": ("b",)}}, "choices: 'colour' is neither an axis nor a parameter"),
        ({"one_process_param": "shared"}, "one_process_param: 'shared' is not a parameter"),
        ({"preload": ("no_such_module",)}, "preload: no_such_module cannot be imported: ModuleNotFoundError"),
        ({"preload": ("tests.testing.starts_a_thread",)}, "starts_a_thread leaves threads"),
        ({"rules": (Rule("r", lambda c: c["width"] > 1, "x"),)}, "rule r: cannot be evaluated: KeyError"),
        ({"rules": (Rule("r", lambda c: c["dp"], "x"),)}, "rule r: broken gives int64"),
        ({"rules": (Rule("r", lambda c: c["dp"] > 1, "dp={dp}"),)}, "rule r: rejects the run that is checked (dp=2)"),
        ({"rules": (Rule("r", lambda c: c["dp"] > 2, "{width}"),)}, "rule r: cannot be evaluated: KeyError: 'width'"),
        ({"rules": (Rule("r", ignores, "x", torch="newest"),)}, "rule r: cannot be evaluated: InvalidSpecifier"),
        ({"rules": (Rule("r", ignores, "x"), Rule("r", ignores, "x"))}, "rules: two are named 'r'"),
        ({"name": "my bench"}, "name: 'my bench' is not letters"),
        ({}, ""),
    ],
)
def test_what_is_declared_wrongly_is_found(changes, finding):
    values = {"name": "theirs", "main": "tests.testing.test_workloads:main", "axes": frozenset({"dp"})}
    workload = Workload(**{**values, **changes})
    found = "\n".join(declaration_findings(workload, example_run(workload)))
    assert finding in found if finding else found == ""


def test_an_unknown_name_is_the_users_error():
    with pytest.raises(SweepError, match="unknown workload 'transformr'"):
        check_workload("transformr")
