"""The schema of records: what breaks it, units, and the page that is written from it."""

import dataclasses
import math
from dataclasses import replace

from sweep.records.record import problems
from sweep.records.schema import COLLECTED, COLUMNS, table_markdown
from sweep.records.validity import requested
from tests.support.made_records import made_record, made_run


def test_problems_name_what_breaks_the_schema():
    broken = {"dp": "8", "tp": 2**63, "mfu": math.nan, "compile": 1, "outcome": "fine", "losses": [1.0, "x"]}
    found = " ".join(problems(replace(made_record(), **broken)))
    for word in ("dp must be int64", "tp must", "mfu must be double", "compile must be bool", "'fine'", "losses"):
        assert word in found


def test_units_are_told_for_all_that_is_measured():
    for column in COLUMNS + COLLECTED:
        assert column.meaning, column
        if column.name.endswith("_s"):
            assert column.unit == "s", column
        if column.name.endswith("_bytes"):
            assert column.unit == "bytes", column
    assert len({column.name for column in COLUMNS + COLLECTED}) == len(COLUMNS + COLLECTED)


def test_the_requested_names_hold_every_layout_field():
    asked = requested(made_run(dp=1, pp=2))
    assert {f.name for f in dataclasses.fields(made_run().layout)} <= set(asked)
    assert asked["world_size"] == 2


def test_the_docs_hold_the_schema(pytestconfig):
    page = (pytestconfig.rootpath / "docs" / "records.md").read_text()
    assert table_markdown() in page, "write it anew: python -m sweep.records.schema > docs/records.md"
