"""How long a pilot still lasts: nothing here sees a clock."""

from dataclasses import replace

import pytest

from sweep.pilot.leader.pilot_time import LATELY, MARGIN_S, UNKNOWN_RUN, PilotTime
from sweep.planning.runs import ASSUMED_RUN_S
from tests.support.pilot_parts import LIMITS, spec


@pytest.mark.parametrize(("end", "left_s"), [("", 900.0), ("600", 500.0), ("5000", 900.0), ("unknown", 900.0)])
def test_slurm_states_when_the_job_ends_and_else_the_limit_does(end, left_s):
    job = PilotTime(spec(time_limit_s=1000), {"SLURM_JOB_END_TIME": end}, 0.0)
    assert job.left_s(100.0) == left_s - MARGIN_S


def test_the_margin_of_a_short_job_is_a_tenth():
    assert PilotTime(spec(time_limit_s=100), {}, 0.0).left_s(0.0) == 90.0


def test_the_next_run_takes_somewhat_more_than_the_longest_lately():
    job = PilotTime(spec(), {}, 0.0)
    assert job.next_run_s() == UNKNOWN_RUN * ASSUMED_RUN_S
    for seconds in [100.0] + [10.0] * (LATELY - 1):
        job.took(seconds)
    assert job.next_run_s() == 150.0
    job.took(10.0)
    assert job.next_run_s() == 15.0


def test_what_an_unknown_run_may_take_is_bounded_by_its_limit_and_the_job():
    assert PilotTime(spec(limits=replace(LIMITS, attempt_s=60.0)), {}, 0.0).next_run_s() == 60.0
    assert PilotTime(spec(time_limit_s=100), {}, 0.0).next_run_s() == 50.0
