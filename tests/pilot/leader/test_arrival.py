"""How long a leader waits for its agents, and agents that come later."""

import pytest

from sweep.pilot.leader.nodes import waits
from sweep.pilot.timeouts import ARRIVAL_S, STRAGGLER_S
from sweep.state.events import PilotEnded, PilotStarted
from tests.support import driving
from tests.support.paths import REPOSITORY


@pytest.mark.parametrize(
    ("arrived", "now", "waiting"),
    [
        ([], ARRIVAL_S - 1, True),
        ([], ARRIVAL_S, False),
        ([float(second) for second in range(100)], 99 + ARRIVAL_S - 1, True),
        ([float(second) for second in range(100)], 99 + ARRIVAL_S, False),
        ([1.0] * 128, STRAGGLER_S, True),
        ([1.0] * 128, STRAGGLER_S + 1, False),
        ([2.0 * number for number in range(200)], 2.0 * 127 * 2 - 1, True),
        ([2.0 * number for number in range(200)], 2.0 * 127 * 2, False),
        ([1.0] * 256, 1.0, False),
    ],
)
def test_the_wait_for_256_agents_is_measured_by_those_that_arrived(arrived, now, waiting):
    assert waits(arrived, 256, 0.0, now) is waiting


LATE = ["/bin/sh", "-c", 'case " $* " in *" --index 1 "*) sleep 5;; esac; exec "$@"', "agent"]


def test_an_agent_that_comes_late_joins_and_runs_that_need_it_are_measured_in_the_same_pilot(tmp_path):
    """With a straggler's time of 2 s."""
    env = {"PYTHONPATH": f"{REPOSITORY}/tests/support/short_timeouts:{REPOSITORY}"}
    site = {"pilot_time": "20m", "max_pilots": 1, "container_prefix": LATE}
    keys = {"iterations": 4, "warmup_iterations": 2, "params": {"step_s": 0.4}}
    driving.launched(tmp_path, driving.simulated(site, nodes=[1, 2], micro_batch_size=[1, 2], **keys), env=env)
    records = driving.assert_each_run_measured_once(tmp_path / "s")
    assert {record["pilot"] for record in records} == {"p0001"}
    assert [event.nodes for event in driving.events_of(tmp_path / "s", PilotStarted)] == [
        ("local-0",),
        ("local-0", "local-1"),
    ]
    assert len(driving.events_of(tmp_path / "s", PilotEnded)) == 1
    assert driving.state_of(tmp_path / "s").pilots["p0001"].node_names == ("local-0", "local-1")
