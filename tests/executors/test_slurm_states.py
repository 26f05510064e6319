"""The scheduler's temporary rejections, explained."""

import pytest

from sweep.executors.executor import JobState, JobStatus
from sweep.executors.slurm_states import cluster_of, may_work_later, meaning, parse_sacct, parse_squeue


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
        ("sbatch: error: Batch job submission failed: Transport endpoint is not connected", "down or slow"),
        ("Batch job submission failed: Required partition not available (inactive or drain)", "partition is closed"),
        ("Batch job submission failed: Requested partition configuration not available now", "partition is closed"),
        ("sbatch: error: QOSGrpNodeLimit; sbatch: error: Job violates accounting/QOS policy", "your group's share"),
        ("sbatch: error: AssocGrpCPUMinutesLimit; Job violates accounting/QOS policy", "your group's share"),
        ("sbatch: error: QOSGrpCPURunMinutesLimit; Job violates accounting/QOS policy", "your group's share"),
    ],
)
def test_temporary_rejections_are_explained(message, means):
    assert means in meaning(message)
    assert may_work_later(message) or "did not answer" in message


@pytest.mark.parametrize(
    ("message", "later"),
    [
        ("sbatch: error: Batch job submission failed: Unspecified error", True),
        ("sbatch: error: Batch job submission failed: Requested operation is presently disabled", True),
        ("sbatch: error: Batch job submission failed: Required node not available (down, drained or reserved)", True),
        ("sbatch: error: lua: this week the queue is closed", True),
        ("sbatch exited with 1", True),
        ("sbatch: error: invalid partition specified: nowhere; Invalid partition name specified", False),
        ("Batch job submission failed: Invalid account or account/partition combination specified", False),
        ("Batch job submission failed: Invalid qos specification", False),
        ("Batch job submission failed: Invalid feature specification", False),
        ("Batch job submission failed: Invalid generic resource (gres) specification", False),
        ("Batch job submission failed: Node count specification invalid", False),
        ("Batch job submission failed: More processors requested than permitted", False),
        ("Batch job submission failed: Requested node configuration is not available", False),
        ("Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)", False),
        ("Batch job submission failed: User's group not permitted to use this partition", False),
        ("Batch job submission failed: Access denied to requested reservation", False),
        ("sbatch: unrecognized option '--no-such-option=3'", False),
        ("sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.", False),
        ("sbatch: error: QOSMaxWallDurationPerJobLimit; Job violates accounting/QOS policy", False),
        ("sbatch: error: QOSMaxNodePerJobLimit; Job violates accounting/QOS policy", False),
        ("sbatch: error: QOSMaxCpuMinutesPerJobLimit; Job violates accounting/QOS policy", False),
    ],
)
def test_only_a_rejection_that_is_known_to_be_permanent_is_one(message, later):
    """Texts of Slurm 22.05's library and clients."""
    assert may_work_later(message) == later


def test_a_job_as_squeue_and_sacct_show_it():
    listed = parse_squeue(
        "7|RUNNING|n[1-2]|1795352400|s-p0001|None\n"
        "8|FAILED|n3|1795352400|s-p0002|NonZeroExitCode\n"
        "9|PENDING||N/A|a|name|Reason|of mine\n"
        "garbage\n"
    )
    assert listed["7"] == JobStatus(state=JobState.RUNNING, word="RUNNING", nodes="n[1-2]", name="s-p0001")
    assert (listed["8"].name, listed["8"].ended_at, listed["8"].reason) == ("s-p0002", 1795352400.0, "NonZeroExitCode")
    assert (listed["9"].state, listed["9"].ended_at) == (JobState.PENDING, None)
    (ended,) = parse_sacct("7|CANCELLED by 0|n[1-2]|1795352400|s-p0001\n").values()
    assert (ended.state, ended.ended_at, ended.name) == (JobState.GONE, 1795352400.0, "s-p0001")
    (running,) = parse_sacct("7|RUNNING|n[1-2]|Unknown|s-p0001\n").values()
    assert running.ended_at is None


def test_the_clusters_name_in_its_configuration():
    assert cluster_of("Configuration data as of 2026-11-22\nClusterName             = alps\nX = 1\n") == "alps"
    assert cluster_of("ClusterName\n") == ""
