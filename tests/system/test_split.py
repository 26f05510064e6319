"""Runs that no pilot's nodes can keep inside one NVLink domain."""

import pytest

from sweep.state.events import PilotEnded
from tests.support import driving

KEYS = {"models": {"eight": driving.EIGHT}, "strategy": "exhaustive", "nodes": 2, "tp": 4, "tp_across_nodes": True}
SITE = {"pilot_time": "5m", "domain_nodes": ["rack[1-2]", "local-0", "local-1"]}


@pytest.mark.parametrize("split", ["reject", "mark"])
def test_pilots_whose_domains_split_every_run_end_the_launch_or_measure_it(tmp_path, split):
    """The site has a domain that is wide enough, so that the plan keeps the run, but no pilot gets its nodes."""
    done = driving.launch(
        tmp_path, driving.simulated(SITE, **KEYS, iterations=3, params={"step_s": 0.01}, split=split)
    )  # fmt: skip
    ends = [event.reason for event in driving.events_of(tmp_path / "s", PilotEnded)]
    if split == "mark":
        (record,) = driving.records_of(tmp_path / "s")
        assert (done.returncode, record["outcome"], record["split_groups"]) == (0, "ok", ["tp"])
        return
    assert done.returncode == 1
    assert ends == ["no remaining run fits"] * 3
    assert "pilots of 2 nodes end without starting a run; `split: reject` leaves out runs whose" in done.stderr
    assert driving.records_of(tmp_path / "s") == []
