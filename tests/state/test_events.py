"""Each kind of event: its form in a file, which never changes, and what is no event."""

import contextlib
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.state import events
from sweep.state.events import LATEST, Event, EventError, Extended, decode, decoder, encode

LINES = (Path(__file__).parent / "events.jsonl").read_bytes().splitlines()
"""an event of each kind, in the order of their definitions, in which no field is at its default"""
EXAMPLES = [decode(line) for line in LINES]
each_kind = pytest.mark.parametrize("whole", LINES, ids=[type(event).__name__ for event in EXAMPLES])


def line(form):
    return json.dumps(form, separators=(",", ":")).encode()


def changed(whole, **changes):
    return line({**json.loads(whole), **changes})


def with_record(**changes):
    form = next(form for form in map(json.loads, LINES) if form["event"] == "record")
    return line({**form, "record": {**form["record"], **changes}})


def test_there_is_an_example_of_every_kind_and_none_of_its_fields_is_at_its_default():
    assert [type(event) for event in EXAMPLES] == Event.__subclasses__()
    for event in EXAMPLES:
        for field in (*msgspec.structs.fields(event), *msgspec.structs.fields(getattr(event, "record", event))):
            holder = event if hasattr(event, field.name) else event.record
            assert getattr(holder, field.name) != field.default, (type(event), field.name)
            if field.default is not msgspec.NODEFAULT:  # no line holds it: it is a part of the form, too
                assert field.default == (1 if field.name in ("pp", "ep") else type(field.default)())


@each_kind
def test_the_form_is_fixed_and_a_line_that_is_cut_anywhere_is_refused(whole):
    assert encode(decode(whole)) == whole
    for end in range(len(whole)):
        with pytest.raises(EventError):
            decode(whole[:end])


@each_kind
def test_what_a_newer_version_adds_is_ignored(whole):
    assert decode(changed(whole, newer={"x": [1, None, "é"]})) == decode(whole)
    assert decode(with_record(newer=[1.5])) == decode(with_record())


def test_a_name_that_is_not_utf_8_is_written_with_a_question_mark():
    event = Extended(time=1.5, plan="plan-0002.parquet", runs=1, argv=("sweep", "extend", "gr\udce9d.yaml"))
    assert decode(encode(event)).argv == ("sweep", "extend", "gr?d.yaml")


def test_a_line_longer_than_any_event_is_refused(monkeypatch):
    assert events.MAX_LINE_BYTES == 64 << 20
    longest = line({"event": "pilot_ended", "time": 1.5, "pilot": "p0001", "reason": "x" * 1000})
    monkeypatch.setattr(events, "MAX_LINE_BYTES", len(longest))
    assert decode(longest).pilot == "p0001"
    with pytest.raises(EventError, match=f"{len(longest) + 1} bytes are more than any event has"):
        decode(longest + b" ")


PASSED_OVER = (
    b'{"event":"record","time":1.0,"record":{"run_id":"r","attempt":1,"pilot":"p","outcome":"ok","notes":"%s"}}'
)
"""the notes are in a field that a reader passes over"""
GARBAGE = [
    b"", b"\0" * 4096, b"\xff\xfe", b"null", b"[]", b"{}", b'{"event":"cancel","time":1.5}\0', b"[" * 100_000,
    b'{"event":"cancel","time":1.5}{"event":"cancel","time":1.5}', b'{"event":"node_released","node":"\xff","time":1}',
    b'{"event":"cancel","time":1.5,"newer":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"event":"session","time":1.5,"pid":' + b"9" * 10_000 + b"}", b'{"event":"from the future","time":1.5}',
    b'{"event":"session","time":1.5,"host":7}', PASSED_OVER % b"\xff\xfe", PASSED_OVER % b"\0\0",
    *(b'{"event":"alive","time":%s}' % time for time in (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-0.5")),
    b'{"event":"alive","time":%d}' % (LATEST + 1),
]  # fmt: skip


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda garbage: repr(garbage[:60]))
def test_garbage_is_refused(garbage):
    for decode_line in (decode, decoder(dict)):
        with pytest.raises(EventError):
            decode_line(garbage)


def test_a_column_of_the_wrong_type_or_that_no_table_holds_is_refused_with_its_place():
    for name, value in (("outcome", "fine"), ("attempt", 2**31), ("attempt", -(2**31) - 1), ("pilot", None)):
        with pytest.raises(EventError, match=rf"\$\.record\.{name}"):
            decode(with_record(**{name: value}))
    assert decode(with_record(attempt=-(2**31))).record.attempt == -(2**31)


@given(st.binary(max_size=60), st.integers(0, len(EXAMPLES) - 1), st.integers(0, 300), st.integers(0, 20))
def test_whatever_a_line_holds_nothing_else_is_raised(noise, example, at, length):
    whole = LINES[example]
    for damaged in (noise, whole[:at] + noise + whole[at + length :]):
        with contextlib.suppress(EventError):
            assert isinstance(decode(damaged), Event)


@pytest.mark.parametrize("time", [0, 0.5, LATEST])
def test_a_time_is_unix_seconds_up_to_the_year_9999(time):
    assert decode(json.dumps({"event": "alive", "time": time}).encode()).time == time
    assert decode(PASSED_OVER % b"all well")
