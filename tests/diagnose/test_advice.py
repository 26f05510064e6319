"""Advice and evidence that name the particular: which Xid, what a registry or srun answered."""

import pytest

from sweep.diagnose.diagnose import diagnose_text
from sweep.outcomes import Outcome

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
