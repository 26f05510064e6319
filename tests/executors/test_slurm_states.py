"""The scheduler's temporary rejections, explained."""

import pytest

from sweep.executors.slurm_states import may_work_later, meaning


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
