"""Slurm's reasons for a job that waits, in plain words."""

import pytest

from sweep.executors.slurm_states import wait

NEVER = """JobHeldUser JobHeldAdmin JobHoldMaxRequeue launch_failed_requeued_held DependencyNeverSatisfied
BadConstraints PartitionNodeLimit PartitionTimeLimit PartitionConfig InvalidAccount InvalidQOS AccountNotAllowed
QOSNotAllowed ReservationDeleted ReservationInvalid QOSMaxNodePerJobLimit QOSMaxWallDurationPerJobLimit
QOSMinCpuNotSatisfied QOSMaxGRESPerJob QOSMaxMemoryPerNode AssocMaxNodePerJobLimit AssocMaxWallDurationPerJobLimit
AssocMaxGRESPerNode AssocMaxCpuMinutesPerJobLimit MaxMemPerLimit QOSMinGRES"""
LATER = {
    "Priority": "for its turn",
    "Resources": "free nodes",
    "Licenses": "Licenses",
    "PartitionDown": "partition is closed",
    "PartitionInactive": "partition is closed",
    "ReqNodeNotAvail, UnavailableNodes:d[001-032]": "down, drained or reserved",
    "ReqNodeNotAvail,_Reserved_for_maintenance": "down, drained or reserved",
    "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions": "down, drained",
    "AssocGrpNodeLimit": "your group's share",
    "QOSGrpGRES": "your group's share",
    "MaxNodePerAccount": "your group's share",
    "AssocGrpCPUMinutesLimit": "hours are used up",
    "QOSGrpGRESRunMinutes": "hours are used up",
    "QOSMaxNodePerUserLimit": "your own share",
    "QOSMaxJobsPerUserLimit": "your own share",
    "AssocMaxJobsLimit": "your own share",
    "": "for its turn",
    "a site's | own reason": "a site's | own reason",
}


@pytest.mark.parametrize("reason", NEVER.split())
def test_what_does_not_start_by_itself_says_so_and_what_its_user_can_do(reason):
    found = wait(reason)
    assert (found.never, bool(found.remedy), found.text != reason) == (True, True, True)


@pytest.mark.parametrize(("reason", "text"), LATER.items())
def test_what_starts_later_says_on_what_it_waits(reason, text):
    assert text in wait(reason).text
    assert not wait(reason).never
