"""Each kind of event: its JSON form, which the next version reads too, and what is no event."""

import contextlib
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.outcomes import Outcome
from sweep.state import events
from sweep.state.events import (
    LATEST,
    AttemptStarted,
    CancelRequested,
    Event,
    EventError,
    Extended,
    LauncherAlive,
    NodeBad,
    NodeCleared,
    NodeFit,
    PilotAlive,
    PilotEnded,
    PilotGone,
    PilotIntended,
    PilotStarted,
    PilotSubmitted,
    PilotUnresponsive,
    Recorded,
    RecordFacts,
    RerunRequested,
    SessionBegan,
    SessionEnded,
    SubmitDelayed,
    Tracked,
    TrackingAlive,
    TrackingBegan,
    TrackingEnded,
    decode,
    decoder,
    encode,
)

FACTS = RecordFacts(
    run_id="run-1",
    attempt=2,
    pilot="p0001",
    outcome=Outcome.NODE_FAIL,
    message="n2 does not answer",
    node_names=("n1", "n2"),
    started_at=1.5,
    ended_at=2.5,
    tokens_per_second_per_gpu=1000.5,
    peak_memory_bytes=2.0**33,
    pp=2,
    ep=4,
    start_s=3.5,
    first_iteration_s=4.5,
)
FACTS_FORM = {
    "run_id": "run-1", "attempt": 2, "pilot": "p0001", "outcome": "node_fail", "message": "n2 does not answer",
    "node_names": ["n1", "n2"], "started_at": 1.5, "ended_at": 2.5, "tokens_per_second_per_gpu": 1000.5,
    "peak_memory_bytes": 2**33, "pp": 2, "ep": 4, "start_s": 3.5, "first_iteration_s": 4.5,
}  # fmt: skip

EXAMPLES: list[tuple[Event, dict]] = [
    (
        SessionBegan(time=1.5, epoch=2, host="login", pid=14),
        {"event": "session", "time": 1.5, "epoch": 2, "host": "login", "pid": 14},
    ),
    (SessionEnded(time=1.5), {"event": "session_end", "time": 1.5}),
    (LauncherAlive(time=1.5), {"event": "alive", "time": 1.5}),
    (CancelRequested(time=1.5), {"event": "cancel", "time": 1.5}),
    (
        PilotIntended(
            time=1.5,
            pilot="p0001",
            token="s-p0001",
            nodes=2,
            time_limit_s=1800,
            node_group="fast",
            elsewhere=True,
            cluster="a",
        ),
        {
            "event": "pilot_intent",
            "time": 1.5,
            "pilot": "p0001",
            "token": "s-p0001",
            "nodes": 2,
            "time_limit_s": 1800,
            "node_group": "fast",
            "elsewhere": True,
            "cluster": "a",
        },
    ),
    (
        PilotSubmitted(time=1.5, pilot="p0001", job_id="77"),
        {"event": "pilot_submitted", "time": 1.5, "pilot": "p0001", "job_id": "77"},
    ),
    (
        SubmitDelayed(time=1.5, pilot="p0001", reason="QOSMaxSubmitJobPerUserLimit"),
        {"event": "submit_delayed", "time": 1.5, "pilot": "p0001", "reason": "QOSMaxSubmitJobPerUserLimit"},
    ),
    (
        PilotUnresponsive(time=1.5, pilot="p0001", silent_s=61.5),
        {"event": "pilot_silent", "time": 1.5, "pilot": "p0001", "silent_s": 61.5},
    ),
    (
        PilotGone(time=1.5, pilot="p0001", word="NODE_FAIL", reason="n2", ended_at=1.25),
        {
            "event": "pilot_gone",
            "time": 1.5,
            "pilot": "p0001",
            "word": "NODE_FAIL",
            "reason": "n2",
            "ended_at": 1.25,
        },
    ),
    (
        PilotStarted(time=1.5, pilot="p0001", job_id="77", nodes=("n1", "n2"), time_limit_s=1800),
        {
            "event": "pilot_started",
            "time": 1.5,
            "pilot": "p0001",
            "job_id": "77",
            "nodes": ["n1", "n2"],
            "time_limit_s": 1800,
        },
    ),
    (PilotAlive(time=1.5, pilot="p0001"), {"event": "pilot_alive", "time": 1.5, "pilot": "p0001"}),
    (
        PilotEnded(time=1.5, pilot="p0001", reason="drained"),
        {"event": "pilot_ended", "time": 1.5, "pilot": "p0001", "reason": "drained"},
    ),
    (
        AttemptStarted(time=1.5, pilot="p0001", run_id="run-é", attempt=2, nodes=("n1",)),
        {
            "event": "attempt_started",
            "time": 1.5,
            "pilot": "p0001",
            "run_id": "run-é",
            "attempt": 2,
            "nodes": ["n1"],
        },
    ),
    (
        Recorded(time=1.5, record=FACTS, pilot="p0001", accused=("n2",), slow_node="n1"),
        {
            "event": "record",
            "time": 1.5,
            "pilot": "p0001",
            "record": FACTS_FORM,
            "accused": ["n2"],
            "slow_node": "n1",
        },
    ),
    (
        NodeBad(time=1.5, node="n1", reason="not clean", pilot="p0001"),
        {"event": "node_bad", "time": 1.5, "pilot": "p0001", "node": "n1", "reason": "not clean"},
    ),
    (
        NodeFit(time=1.5, node="n1", pilot="p0001"),
        {"event": "node_fit", "time": 1.5, "node": "n1", "pilot": "p0001"},
    ),
    (NodeCleared(time=1.5, node="n1"), {"event": "node_pardoned", "time": 1.5, "node": "n1"}),
    (
        RerunRequested(time=1.5, run_id="run-1", after=2),
        {"event": "rerun", "time": 1.5, "run_id": "run-1", "after": 2},
    ),
    (
        Extended(time=1.5, plan="plan-0002.parquet", runs=7, argv=("sweep", "extend")),
        {"event": "extend", "time": 1.5, "plan": "plan-0002.parquet", "runs": 7, "argv": ["sweep", "extend"]},
    ),
    (
        TrackingBegan(time=1.5, host="login", pid=14, boot_id="b", process_started=0.5),
        {"event": "track_session", "time": 1.5, "host": "login", "pid": 14, "boot_id": "b", "process_started": 0.5},
    ),
    (
        Tracked(time=1.5, destination="wandb here", run_id="run-1", attempt=2, outcome="ok"),
        {
            "event": "tracked",
            "time": 1.5,
            "destination": "wandb here",
            "run_id": "run-1",
            "attempt": 2,
            "outcome": "ok",
        },
    ),
    (TrackingAlive(time=1.5), {"event": "track_alive", "time": 1.5}),
    (TrackingEnded(time=1.5), {"event": "track_end", "time": 1.5}),
]
"""an event of each kind in which no field is at its default, and its JSON"""

each_kind = pytest.mark.parametrize(
    ("event", "form"), [pytest.param(event, form, id=form["event"]) for event, form in EXAMPLES]
)
each_field = pytest.mark.parametrize(
    ("form", "field"),
    [
        pytest.param(form, field, id=f"{form['event']}.{field.encode_name}")
        for event, form in EXAMPLES
        for field in msgspec.structs.fields(event)
    ],
)
each_column = pytest.mark.parametrize("column", msgspec.structs.fields(RecordFacts), ids=lambda column: column.name)


def line(form):
    return json.dumps(form, separators=(",", ":")).encode()


def with_record(**changes):
    return {"event": "record", "time": 1.5, "record": {**FACTS_FORM, **changes}}


def test_there_is_an_example_of_every_kind():
    assert [type(event) for event, _ in EXAMPLES] == Event.__subclasses__()


@each_kind
def test_no_field_of_an_example_is_at_its_default(event, form):
    for field in msgspec.structs.fields(event):
        assert getattr(event, field.name) != field.default, field.name


# --- the form


@each_kind
def test_an_event_is_read_as_it_was_written(event, form):
    assert decode(encode(event)) == event
    assert b"\n" not in encode(event)


@each_kind
def test_the_form_is_fixed(event, form):
    assert json.loads(encode(event)) == form
    assert decode(line(form)) == event


def test_a_name_that_is_not_utf_8_is_written_with_a_question_mark():
    event = Extended(time=1.5, plan="plan-0002.parquet", runs=1, argv=("sweep", "extend", "gr\udce9d.yaml"))
    assert decode(encode(event)).argv == ("sweep", "extend", "gr?d.yaml")


# --- what is no event


@each_field
def test_a_missing_field_is_refused_unless_it_has_a_default(form, field):
    lacking = line({name: value for name, value in form.items() if name != field.encode_name})
    if field.required:
        with pytest.raises(EventError, match=f"missing required field `{field.encode_name}`"):
            decode(lacking)
    else:
        assert getattr(decode(lacking), field.name) == field.default


VALUES = ("null", "true", "7", "1.5", '"x"', '["x"]', "[7]", '{"x": 1}', "[]")
FITTING = {
    str: {'"x"'},
    str | None: {'"x"', "null"},
    int: {"7"},
    int | None: {"7", "null"},
    float: {"7", "1.5"},
    float | None: {"7", "1.5", "null"},
    bool: {"true"},
    tuple[str, ...]: {'["x"]', "[]"},
    tuple[str, ...] | None: {'["x"]', "[]", "null"},
    Outcome: set(),
}
"""which of these JSON values a field of the type takes"""


def plain(value):
    return tuple(value) if isinstance(value, list) else value


@pytest.mark.parametrize("text", VALUES)
@each_field
def test_a_value_of_the_wrong_type_is_refused(form, field, text):
    value = json.loads(text)
    other = line({**form, field.encode_name: value})
    if field.name != "record" and text in FITTING[field.type]:
        assert getattr(decode(other), field.name) == plain(value)
    else:
        with pytest.raises(EventError, match=rf"\$\.{field.encode_name}|missing required field .* - at `\$\.record`"):
            decode(other)


@each_column
def test_a_missing_column_of_a_record_is_refused_unless_it_has_a_default(column):
    form = with_record()
    del form["record"][column.name]
    if column.required:
        with pytest.raises(EventError, match=f"missing required field `{column.name}`"):
            decode(line(form))
    else:
        assert getattr(decode(line(form)).record, column.name) == column.default


@pytest.mark.parametrize("text", VALUES)
@each_column
def test_a_column_of_the_wrong_type_is_refused(column, text):
    value = json.loads(text)
    other = line(with_record(**{column.name: value}))
    if text in FITTING[column.type]:
        assert getattr(decode(other).record, column.name) == plain(value)
    else:
        with pytest.raises(EventError, match=rf"\$\.record\.{column.name}"):
            decode(other)


@each_kind
def test_a_field_of_a_newer_version_is_ignored(event, form):
    assert decode(line({**form, "newer": {"x": [1, None, "é"]}})) == event


def test_a_column_of_a_newer_version_is_ignored():
    assert decode(line(with_record(newer=[1.5]))).record == FACTS


@pytest.mark.parametrize("kind", ["from the future", "", "SessionBegan", "Session", None, 7, ["session"]])
def test_an_unknown_kind_is_refused(kind):
    with pytest.raises(EventError):
        decode(line({"event": kind, "time": 1.5}))


def test_an_event_without_a_kind_is_refused():
    with pytest.raises(EventError, match="missing required field `event`"):
        decode(line({"time": 1.5}))


def test_an_unknown_outcome_is_refused():
    with pytest.raises(EventError, match=r"\$\.record\.outcome"):
        decode(line(with_record(outcome="tired")))


def test_a_line_longer_than_any_event_is_refused(monkeypatch):
    assert events.MAX_LINE_BYTES == 64 << 20
    longest = line({"event": "pilot_ended", "time": 1.5, "pilot": "p0001", "reason": "x" * 1000})
    monkeypatch.setattr(events, "MAX_LINE_BYTES", len(longest))
    assert decode(longest).pilot == "p0001"
    with pytest.raises(EventError, match=f"{len(longest) + 1} bytes are more than any event has"):
        decode(longest + b" ")


@pytest.mark.parametrize(
    "garbage",
    [
        b"", b" ", b"\0", b"\0" * 4096, b"rubbish", b"\xff\xfe", b"null", b"7", b'"session"', b"[]", b"{}", b"NaN",
        b'{"event":"cancel","time":1.5}\0', b'{"event":"cancel","time":1.5}{"event":"cancel","time":1.5}',
        b'{"event":"node_pardoned","time":1.5,"node":"\xff"}', b"[" * 100_000, b'{"event":' * 100_000,
        b'{"event":"cancel","time":1.5,"newer":' + b"[" * 100_000,
        b'{"event":"cancel","time":1.5,"newer":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"event":"session","time":1.5,"pid":' + b"9" * 10_000 + b"}", b'{"event":"session","time":NaN}',
    ],
    ids=lambda garbage: repr(garbage[:60]),
)  # fmt: skip
def test_garbage_is_refused(garbage):
    for decode_line in (decode, decoder(dict)):
        with pytest.raises(EventError):
            decode_line(garbage)


@each_kind
def test_a_line_that_is_cut_anywhere_is_refused(event, form):
    whole = encode(event)
    for end in range(len(whole)):
        with pytest.raises(EventError):
            decode(whole[:end])


@given(st.binary(max_size=60), st.integers(0, len(EXAMPLES) - 1), st.integers(0, 300), st.integers(0, 20))
def test_whatever_a_line_holds_nothing_else_is_raised(noise, example, at, length):
    whole = encode(EXAMPLES[example][0])
    for damaged in (noise, whole[:at] + noise + whole[at + length :]):
        with contextlib.suppress(EventError):
            assert isinstance(decode(damaged), Event)


@pytest.mark.parametrize(("time", "read"), [(0, True), (0.5, True), (-0.5, False), (LATEST, True), (LATEST + 1, False)])
def test_a_time_is_unix_seconds_up_to_the_year_9999(time, read):
    line = json.dumps({"event": "alive", "time": time}).encode()
    if read:
        assert decode(line).time == time
    else:
        with pytest.raises(EventError, match="not unix seconds"):
            decode(line)
