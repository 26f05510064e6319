"""A pilot's order: written by a launcher, read by a leader that may be of a later version."""

import json
from dataclasses import replace

import pytest

from sweep.pilot.order import FILE_NAME, PilotOrder
from tests.support.paths import REPOSITORY
from tests.support.pilot_parts import LIMITS, order

RECORDED = sorted((REPOSITORY / "tests/compatibility/recorded").rglob(FILE_NAME))


def test_it_is_read_as_it_was_written(tmp_path):
    written = order(
        srun=("--a", "b"), budget={"runs": 5, "share": 0.5}, limits=replace(LIMITS, steady_s=1.5), transfer=False
    )
    written.write(tmp_path)
    assert PilotOrder.read(tmp_path) == written


def test_what_an_older_launcher_did_not_write_has_its_default(tmp_path):
    order().write(tmp_path)
    path = tmp_path / FILE_NAME
    values = json.loads(path.read_text())
    for name in ("srun", "budget", "isolate", "transfer"):
        del values[name]
    path.write_text(json.dumps(values))
    assert PilotOrder.read(tmp_path) == order()


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_recorded_orders_are_read(path):
    assert PilotOrder.read(path.parent).name == path.parent.name
