"""The schema of records: what breaks it, and units."""

import typing

import msgspec
import pytest

from sweep.contract import LAYOUT
from sweep.outcomes import Outcome
from sweep.records import schema
from sweep.records.record import record_from
from sweep.records.schema import COLLECTED, COLUMNS, CONFIGURATION_NAMES, Record
from sweep.records.validity import requested
from sweep.state.events import RecordFacts
from tests.support.made_records import made_run


def test_all_measured_columns_have_units():
    for column in COLUMNS + COLLECTED:
        assert column.meaning, column
        if column.name.endswith("_s"):
            assert column.unit == "s", column
        if column.name.endswith("_bytes"):
            assert column.unit == "bytes", column
    assert len({column.name for column in COLUMNS + COLLECTED}) == len(COLUMNS + COLLECTED)


def test_every_layout_field_is_a_column_and_a_requested_name():
    asked = requested(made_run(dp=1, pp=2))
    assert set(LAYOUT) <= set(asked)
    assert tuple(name for name in CONFIGURATION_NAMES if name in LAYOUT) == LAYOUT
    assert asked["world_size"] == 2


def test_what_the_state_reads_of_a_record_is_in_it_with_the_same_type():
    """``sweep.state`` is below the records and cannot name their class."""
    columns = typing.get_type_hints(Record)
    for name, kind in typing.get_type_hints(RecordFacts).items():
        assert kinds_of(columns[name]) <= kinds_of(kind), name


def kinds_of(hint):
    """The types of a hint; a whole number may be read as a float, a list as a tuple."""
    kinds = {typing.get_origin(kind) or kind for kind in typing.get_args(hint | None)}
    return kinds | ({int} if float in kinds else set()) | ({list} if tuple in kinds else set())


def test_a_record_is_decoded_from_what_older_and_newer_versions_write():
    needed = {"run_id": "r", "attempt": 1, "pilot": "p", "outcome": "ok"}
    record = record_from(needed | {"column_of_tomorrow": 1, "mfu": 1})
    assert (record.run_id, record.outcome, record.mfu, record.notes) == ("r", Outcome.OK, 1.0, None)
    assert msgspec.json.decode(msgspec.json.encode(record), type=Record) == record
    for name in needed:
        with pytest.raises(ValueError, match=f"missing required field `{name}`"):
            record_from({key: value for key, value in needed.items() if key != name})
    with pytest.raises(ValueError, match=r"got `str` - at `\$.dp`"):
        record_from(needed | {"dp": "8"})


@pytest.mark.parametrize(("value", "numbers"), [
    ([1, 2.5], [1, 2.5]), ([], []), ([1, True], ()), ([1, "2"], ()), ("12", ()), ((1, 2), ()), (None, ()),
])  # fmt: skip
def test_only_a_list_of_numbers_is_one(value, numbers):
    assert schema.numbers_of(value) == numbers
