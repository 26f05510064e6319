"""Plug-ins: known names load, unknown names get the nearest as a remedy, load errors report the reason."""

import sys

import pytest

from sweep import plugins
from sweep.errors import SweepError
from tests.support.driving import plug_in

KINDS = {
    "transformer": plugins.WORKLOAD,
    "torchtitan": plugins.TRAINER,
    "local": plugins.EXECUTOR,
    "guided": plugins.STRATEGY,
    "wandb": plugins.TRACKER,
}
"""one name of each kind"""


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.word)
def test_every_name_of_a_seam_can_be_loaded(kind):
    for name in kind.names():
        if kind.package:
            pytest.importorskip(name)
        assert kind.find(name) is not None


@pytest.mark.parametrize("name", KINDS)
def test_an_unknown_name_is_answered_with_the_nearest(name):
    with pytest.raises(SweepError, match=rf"unknown {KINDS[name].word} '{name}x' \(did you mean {name}"):
        KINDS[name].find(name + "x")


def test_a_tracker_that_is_not_installed_reports_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.delitem(sys.modules, "sweep.trackers.wandb", raising=False)
    with pytest.raises(
        SweepError, match=r"--to: the tracker 'wandb' cannot be loaded: .*wandb.* \(pip install wandb\)"
    ):
        plugins.TRACKER.find("wandb")


@pytest.mark.parametrize("name", ["transformer", "torchtitan"])
def test_what_others_register_is_found_and_checked(name, monkeypatch, tmp_path):
    kind = KINDS[name]

    def registered(place):
        folder = tmp_path / place.partition(":")[0]
        plug_in(folder, "theirs", place, group=kind.group)
        monkeypatch.syspath_prepend(folder)

    registered(kind.table[name])
    assert kind.find("theirs") is kind.find(name)
    registered("json:dumps")
    with pytest.raises(SweepError, match=f"the {kind.word} 'theirs' is a function, not a "):
        kind.find("theirs")
    registered("no_such_module:X")
    with pytest.raises(SweepError, match=f"the {kind.word} 'theirs' cannot be loaded: No module named"):
        kind.find("theirs")
