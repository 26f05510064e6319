"""The scheduler's temporary rejections, explained."""

import pytest

from sweep.executors.executor import JobState, JobStatus
from sweep.executors.slurm_states import first_live, may_work_later, meaning


@pytest.mark.parametrize(
    ("message", "means"),
    [
        ("QOSMaxSubmitJobPerUserLimit; Job violates accounting/QOS policy", "limit of jobs in the queue"),
        (
            "sbatch: error: AssocGrpSubmitJobsLimit; Job violates accounting/QOS policy",
            "your group has reached its limit of jobs",
        ),
        (
            "sbatch: error: QOSGrpSubmitJobsLimit; Job violates accounting/QOS policy",
            "your group has reached its limit of jobs",
        ),
        (
            "AssocMaxSubmitJobLimit; Job violates accounting/QOS policy",
            "you have reached your limit of jobs in the queue",
        ),
        (
            "sbatch: error: If munged is up, restart with --num-threads=10; sbatch: error: Munge encode failed: Failed "
            'to access "/run/munge/munge.socket.2": No such file or directory (Did you start munged?); sbatch: error: '
            "slurm_send_node_msg: auth_g_create: REQUEST_SUBMIT_BATCH_JOB has authentication error; sbatch: error: "
            "Batch job submission failed: Protocol authentication error",
            "munge",
        ),
        ("Slurm temporarily unable to accept job, sleeping and retrying", "the cluster has reached its limit of jobs"),
        ("Unable to contact slurm controller (connect failure)", "down or slow"),
        ("Socket timed out on send/recv operation", "down or slow"),
        ("sbatch did not answer within 60 s; it may have accepted the request", "down or slow"),
        ("RPC rate limit exceeded", "too many requests"),
    ],
)
def test_temporary_rejections_are_explained(message, means):
    assert means in meaning(message)
    assert may_work_later(message) or "did not answer" in message


LATER = (
    "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates "
    "accounting/QOS policy (job submit limit, user's size and/or time limits)",
    "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size "
    "and/or time limits)",
)
NEVER = (
    "sbatch: error: QOSMaxNodePerUserLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS "
    "policy (job submit limit, user's size and/or time limits)",
    "sbatch: error: QOSMaxWallDurationPerJobLimit\nsbatch: error: Batch job submission failed: Job violates "
    "accounting/QOS policy (job submit limit, user's size and/or time limits)",
    "sbatch: error: AssocGrpNodeLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy "
    "(job submit limit, user's size and/or time limits)",
    "sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)",
    "sbatch: error: invalid partition specified: gpu",
)


@pytest.mark.parametrize("message", LATER)
def test_a_policy_that_may_be_the_number_of_jobs_is_tried_again_later(message):
    assert may_work_later(message)


@pytest.mark.parametrize("message", NEVER)
def test_a_policy_whose_named_limit_is_this_jobs_size_or_time_is_not_tried_again(message):
    assert not may_work_later(message)


def status(state):
    return JobStatus(state=state)


def test_of_several_jobs_of_one_name_the_oldest_that_lives_counts():
    """A submission whose reply was lost may have been repeated: the first of them has priority in the queue."""
    running, pending, gone = (status(state) for state in (JobState.RUNNING, JobState.PENDING, JobState.GONE))
    assert first_live([("12", pending), ("9", pending), ("101", pending)]) == ("9", pending)
    assert first_live([("7", gone), ("12", pending), ("101", running)]) == ("101", running)
    assert first_live([("8", gone), ("7", gone)]) == ("7", gone)
    assert first_live([]) is None
