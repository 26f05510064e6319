"""Ends that logs show have their outcomes, healthy logs none: the corpus in messages.yaml, which states its sources.

Evidence and advice name the particular: which Xid, what a registry or srun answered. An error that a log states at its
end is a failure of unknown cause, where no rule knows it.
"""

from pathlib import Path

import pytest
import yaml

from sweep.diagnose.diagnose import diagnose_text
from sweep.diagnose.scan import RULES, scan
from sweep.outcomes import NO_FAILURE, Outcome

CORPUS = yaml.safe_load((Path(__file__).parent / "messages.yaml").read_text())
HEALTHY = CORPUS.pop("healthy")
ENDS = [
    pytest.param(part, end["outcome"], end["log"], id=f"{part}-{number}-{end.get('source', end['outcome'])}")
    for part, ends in CORPUS.items()
    for number, end in enumerate(ends)
]


@pytest.mark.parametrize(("part", "outcome", "log"), ENDS)
def test_an_end_has_its_outcome(part: str, outcome: str, log: str) -> None:
    found = diagnose_text(log)
    assert str(found.outcome or NO_FAILURE) in outcome.split("|"), found
    if part in ("messages", "launches", "later"):
        assert found.advice
        assert found.evidence


@pytest.mark.parametrize("log", HEALTHY, ids=range(len(HEALTHY)))
def test_a_healthy_log_is_no_failure(log: str) -> None:
    assert diagnose_text(log).outcome is None, diagnose_text(log)


def test_every_rule_is_used() -> None:
    logs = [*(end["log"] for ends in CORPUS.values() for end in ends), *HEALTHY]
    assert {rule.name for rule in RULES} - {hit.source for log in logs for hit in scan(log)} == set()


def test_a_memory_limit_that_was_met_at_some_point_is_the_end_where_nothing_better_is_known() -> None:
    met = "slurmstepd: error: Exceeded step memory limit at some point.\n"
    assert str(diagnose_text(met).outcome) == "oom_host"
    missing = "ModuleNotFoundError: No module named 'x'\n"
    assert str(diagnose_text(missing + met).outcome) == "import_error"


PYXIS = """\
pyxis: importing docker image: registry.example#team/image:1
slurmstepd: error: pyxis: child 12345 failed with error code: 1
slurmstepd: error: pyxis: failed to import docker image
slurmstepd: error: pyxis: printing enroot log file:
slurmstepd: error: pyxis:     [INFO] Authenticating with user: <anonymous>
slurmstepd: error: pyxis:     [ERROR] URL https://registry.example/v2/team/manifests/1 returned error code: {answer}
slurmstepd: error: pyxis: couldn't start container
slurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1
"""


@pytest.mark.parametrize("answer", ["401 Unauthorized", "404 Not Found"])
def test_what_the_registry_answered_is_the_evidence(answer):
    found = diagnose_text(PYXIS.format(answer=answer))
    assert found.outcome is Outcome.CONFIG_ERROR
    assert answer in found.evidence
    assert "registry refused" in found.advice


@pytest.mark.parametrize(
    "reason", ["More processors requested than permitted", "Memory required by task is not available"]
)
def test_a_step_that_its_job_cannot_hold_is_no_wrong_request_of_a_job(reason):
    found = diagnose_text(f"srun: error: Unable to create step for job 42: {reason}\n")
    assert (found.outcome, reason in found.evidence) == (Outcome.CONFIG_ERROR, True)
    assert "than its own job has" in found.advice


@pytest.mark.parametrize(("xid", "drained"), [(94, False), (95, True), (79, True)])
def test_only_a_contained_error_leaves_the_node_in_use(xid, drained):
    advice = diagnose_text(f"[1.0] NVRM: Xid (PCI:0000:3b:00): {xid}, pid=42, name=python, Ch 00000008\n").advice
    assert ("have this GPU drained" in advice, "need not be drained" in advice) == (drained, not drained)


STATED = [
    "fatal: cannot map the segment",
    "mytrainer: error: the moon is full",
    "[n1] [ERROR] the moon is full",
    "2026-01-01 10:00:00 n1 loader exited with status 3",
    "launcher error: the moon is full",
    "Status:   Failed",
]


@pytest.mark.parametrize("line", STATED)
def test_an_error_at_the_end_that_no_rule_knows_is_unknown(line: str) -> None:
    found = diagnose_text(f"starting\nstep 1 loss 3.0\n{line}\ncleaning up\n")
    assert str(found.outcome) == "unknown"
    assert found.evidence == line


@pytest.mark.parametrize(
    "line",
    [
        "error: 0.12",
        "val error: 0.12",
        "WARNING: loader: error: the moon is full",
        "wandb: ERROR the run was not uploaded",
        "exited with status 0",
        "errors: none",
        "status: ok",
    ],
)
def test_a_figure_a_warning_or_a_good_end_is_no_error(line: str) -> None:
    assert diagnose_text(f"starting\n{line}\n").outcome is None


@pytest.mark.parametrize("line", STATED)
def test_work_that_goes_on_after_the_error_or_was_done_shows_that_nothing_failed(line: str) -> None:
    assert diagnose_text(f"{line}\nstep 1 loss 3.0\n").outcome is None
    assert diagnose_text(f"Training completed\n{line}\n").outcome is None


def test_the_end_is_a_dozen_lines() -> None:
    line = "fatal: cannot map the segment\n"
    assert diagnose_text(line + "\nmore output" * 11).outcome is not None
    assert diagnose_text(line + "\nmore output" * 12).outcome is None


def test_the_first_error_of_the_end_is_its_evidence() -> None:
    found = diagnose_text("fatal: the first\nfatal: the second\n")
    assert found.evidence == "fatal: the first"
    assert "no known cause" in found.advice
