"""Plug-ins: known names load, unknown names get the nearest as a remedy, load errors report the reason."""

import importlib.metadata
import sys

import pytest

from sweep import plugins
from sweep.errors import SweepError

FINDERS = {
    "workload": (plugins.find_workload, "transformer", plugins.workload_names()),
    "trainer": (plugins.find_trainer, "torchtitan", plugins.trainer_names()),
    "executor": (plugins.find_executor, "local", tuple(plugins.EXECUTORS)),
    "strategy": (plugins.find_strategy, "guided", tuple(plugins.STRATEGIES)),
    "tracker": (plugins.find_tracker, "trackio", tuple(plugins.TRACKERS)),
}


@pytest.mark.parametrize("kind", FINDERS)
def test_every_name_of_a_seam_can_be_loaded(kind):
    find, _, names = FINDERS[kind]
    for name in names:
        if kind == "tracker":
            pytest.importorskip(name)
        assert find(name) is not None


@pytest.mark.parametrize("kind", FINDERS)
def test_an_unknown_name_is_answered_with_the_nearest(kind):
    find, name, _ = FINDERS[kind]
    with pytest.raises(SweepError, match=rf"unknown {kind} '{name}x' \(did you mean {name}"):
        find(name + "x")


def test_a_tracker_that_is_not_installed_reports_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.delitem(sys.modules, "sweep.trackers.wandb", raising=False)
    with pytest.raises(
        SweepError, match=r"--to: the tracker 'wandb' cannot be loaded: .*wandb.* \(pip install wandb\)"
    ):
        plugins.find_tracker("wandb")


@pytest.mark.parametrize(("kind", "group"), [("workload", "sweep.workloads"), ("trainer", "sweep.trainers")])
def test_what_others_register_is_found_and_checked(kind, group, monkeypatch):
    def registered(place):
        point = importlib.metadata.EntryPoint("theirs", place, group)
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point])

    find, own, _ = FINDERS[kind]
    registered(plugins.WORKLOADS[own] if kind == "workload" else plugins.TRAINERS[own])
    assert find("theirs") is find(own)
    registered("json:dumps")
    with pytest.raises(SweepError, match=f"the {kind} 'theirs' is a function, not a "):
        find("theirs")
    registered("no_such_module:X")
    with pytest.raises(SweepError, match=f"the {kind} 'theirs' cannot be loaded: No module named"):
        find("theirs")
