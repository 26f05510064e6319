"""`check_workload`: our own workloads pass, and each deviation of another is found."""

import pytest

from bench_workloads import WORKLOADS
from bench_workloads.trainers import TRAINERS
from sweep.contract import Rule, Workload
from sweep.errors import SweepError
from sweep.plugins import WORKLOAD
from sweep.testing import ConformanceError, check_workload, example_run

PARAMS = {
    "transformer": {"threads": 1, "count_flops": False},
    "simulated": {"step_s": 0.01},
    "collectives": {"max_bytes": 4096},
    "matmul": {"squares": "64", "width_steps": 0, "repeats": 1},
}
"""small enough for a test"""


OURS = sorted(set(WORKLOADS) - set(TRAINERS))
"""those with an adapter: test_trainers.py"""


@pytest.mark.parametrize(
    "name",
    [name if name in {"transformer", "simulated"} else pytest.param(name, marks=pytest.mark.long) for name in OURS],
)
def test_our_own_conform(name):
    check_workload(name, example_run(WORKLOAD.find(name), params=PARAMS.get(name, {})), timeout_s=250)


def workload(main="good"):
    return Workload(name="theirs", main=f"tests.testing.wrong_mains:{main}", axes=frozenset({"dp"}))


def findings(checked, timeout_s=60.0):
    with pytest.raises(ConformanceError) as error:
        check_workload(checked, timeout_s=timeout_s)
    assert str(error.value).startswith("the workload theirs does not conform:\n- ")
    return "\n".join(error.value.findings)


def test_a_minimal_one_conforms():
    check_workload(workload())


@pytest.mark.parametrize(
    ("main", "finding"),
    [
        ("too_few_times", "recorded as config_mismatch: iterations: requested 2, timed 1"),
        ("no_heartbeat", "rank 0: sent no heartbeat of an iteration"),
        ("backwards", "rank 1: its phases go back: steady, first_iteration"),
        ("another_layout", "recorded as config_mismatch: dp: requested 2, ran 7"),
        ("another_layout", "rank 0: peak_allocated_bytes is -1: what is unknown is None"),
        ("twice", "rank 0: reported 2 measurements"),
        ("nothing", "rank 0: reported 0 measurements"),
        ("raises", "rank 0: RuntimeError: no such device"),
        ("exits", "rank 0: ended with 3"),
    ],
)
def test_what_ranks_do_wrong_is_found(main, finding):
    assert finding in findings(workload(main))


def test_a_rank_that_does_not_end_is_found_and_ended():
    assert "rank 1: has not ended after 3 s" in findings(workload("hangs"), timeout_s=3)


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
    ],
)
def test_what_is_declared_wrongly_is_found(changes, finding):
    values = {"name": "theirs", "main": "tests.testing.wrong_mains:good", "axes": frozenset({"dp"})}
    with pytest.raises(ConformanceError) as error:
        check_workload(Workload(**{**values, **changes}))
    assert finding in "\n".join(error.value.findings)


def test_an_unknown_name_is_the_users_error():
    with pytest.raises(SweepError, match="unknown workload 'transformr'"):
        check_workload("transformr")
