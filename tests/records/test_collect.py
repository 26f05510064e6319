"""From journals to results.parquet: one row per attempt, with whether it counts; only new lines are read."""

import dataclasses
import json

import pandas as pd
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.cli.results import collect as collect_command
from sweep.errors import SweepError
from sweep.outcomes import Outcome
from sweep.records.collect import collect, table_of, write_results
from sweep.records.schema import COLLECTED, COLUMNS, arrow_types, columns_by_name
from sweep.state.events import RerunRequested, SessionAlive, encode
from tests.support.made_records import (
    as_json,
    made_measurement,
    made_record,
    made_run,
    made_sweep,
    record_event,
    write_journal,
)


@pytest.fixture
def sweep(tmp_path):
    return made_sweep(tmp_path / "s")


def rows(sweep):
    return pq.read_table(sweep.results).to_pylist()


def attempt(number, outcome=Outcome.OK, started_at=None, **changes):
    at = float(10 * number) if started_at is None else started_at
    return made_record(attempt=number, outcome=outcome, started_at=at, ended_at=at + 1, **changes)


def line_of(record):
    return encode(record_event(record)).decode() + "\n"


def test_a_record_comes_back_as_it_was_written_and_without_a_message(sweep, capfd):
    record = made_record(gpu="h100", facts={"a": 1})
    write_journal(sweep, "p1", [SessionAlive(time=1.0), record_event(record)])
    done = collect(sweep)
    (row,) = rows(sweep)
    assert {column.name: row[column.name] for column in COLUMNS} == as_json(record)
    assert (row["final"], row["surplus"]) == (True, False)
    assert (done.attempts, done.new, done.runs, done.outcomes) == (1, 1, 1, {"ok": 1})
    assert capfd.readouterr() == ("", "")


def test_a_sweep_without_records_has_an_empty_table(sweep):
    assert collect(sweep).attempts == 0
    assert rows(sweep) == []
    assert table_of([]).num_rows == 0


def test_of_several_reruns_the_latest_counts_in_whatever_order_they_are_read(sweep):
    first, second = (RerunRequested(time=1e9 + after, run_id=made_run().run_id, after=after) for after in (1, 2))
    write_journal(sweep, "p", [record_event(attempt(number)) for number in (1, 2)])
    write_journal(sweep, "rerun-a", [second])
    write_journal(sweep, "rerun-b", [first])
    collect(sweep)
    write_journal(sweep, "p", [record_event(attempt(3))])
    collect(sweep)
    assert [(r["attempt"], r["final"]) for r in rows(sweep)] == [(1, False), (2, False), (3, True)]


def test_a_record_that_breaks_the_schema_is_reported_by_its_column(sweep, capfd):
    write_journal(sweep, "p", [record_event(attempt(1), dp="eight"), record_event(attempt(2))])
    assert collect(sweep).attempts == 1
    assert "Expected `int | null`, got `str` - at `$.record.dp`" in capfd.readouterr().err


def test_only_what_was_appended_is_read(sweep):
    write_journal(sweep, "p", [record_event(attempt(1)), record_event(attempt(2))])
    collect(sweep)
    read = sweep.journal("p").stat().st_size
    sweep.journal("p").write_bytes(b"x" * read)
    write_journal(sweep, "p", [record_event(attempt(3))])
    assert collect(sweep).new == 1
    assert len(rows(sweep)) == 3


def test_with_nothing_new_nothing_is_written(sweep):
    write_journal(sweep, "p", [record_event(attempt(1))])
    collect(sweep)
    before = sweep.results.stat()
    assert collect(sweep).new == 0
    assert sweep.results.stat().st_mtime_ns == before.st_mtime_ns
    assert sweep.results.stat().st_ino == before.st_ino


@pytest.mark.parametrize("harm", ["removed", "damaged", "not ours", "journal shrunk"])
def test_an_unusable_table_is_rebuilt(sweep, harm):
    write_journal(sweep, "p", [record_event(attempt(1)), record_event(attempt(2))])
    collect(sweep)
    if harm == "removed":
        sweep.results.unlink()
    elif harm == "damaged":
        sweep.results.write_bytes(b"PAR1 broken")
    elif harm == "not ours":
        pd.DataFrame({"a": [1]}).to_parquet(sweep.results)
    else:
        sweep.journal("p").write_text(line_of(attempt(1)))
    expected = 1 if harm == "journal shrunk" else 2
    assert collect(sweep).attempts == expected
    assert len(rows(sweep)) == expected


OUTCOMES = [Outcome.OK, Outcome.LOST, Outcome.HANG]


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from(OUTCOMES), st.integers(0, 1)), max_size=12
    ),
    st.integers(0, 12),
)
def test_collecting_bit_by_bit_gives_what_collecting_at_once_gives(tmp_path_factory, made, cut):
    folder = tmp_path_factory.mktemp("c")
    bits, whole = made_sweep(folder / "bits"), made_sweep(folder / "whole")
    events = []
    seen = set()
    for run, number, outcome, journal in made:
        if (run, number, outcome is Outcome.LOST) in seen:
            continue
        seen.add((run, number, outcome is Outcome.LOST))
        record = attempt(number, outcome, run=made_run(model=f"m{run}"))
        events.append((f"j{journal}", record_event(record)))
    for at, (journal, event) in enumerate(events):
        write_journal(bits, journal, [event])
        write_journal(whole, journal, [event])
        if at == cut:
            collect(bits)
    collect(bits)
    collect(whole)
    assert rows(bits) == rows(whole)


def test_records_without_a_journal_can_be_written(tmp_path):
    write_results(tmp_path / "r.parquet", [made_record(), made_record(made_run(model="3B"))])
    assert pq.read_table(tmp_path / "r.parquet")["final"].to_pylist() == [True, True]


def test_the_command_reports_what_it_did(sweep):
    write_journal(
        sweep, "p", [record_event(attempt(1)), record_event(attempt(1, Outcome.HANG, run=made_run(dp=1, tp=2)))]
    )
    done = CliRunner().invoke(collect_command, [str(sweep.path), "--json"])
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    assert document["outcomes"] == {"ok": 1, "hang": 1}
    assert document["path"] == str(sweep.results)
    result = CliRunner().invoke(collect_command, [str(sweep.path)])
    assert "2 attempts of 2 runs (1 hang, 1 ok)" in result.stderr


@pytest.mark.parametrize("own", [False, True])
def test_a_record_is_as_suspect_as_before_once_its_losses_agree_again(sweep, own):
    """Its own note, which is no accusation, stays; the majority that it differed from turns out to be the odd one."""

    def record(repeat, loss):
        made = made_record(made_run(repeat=repeat), measurements=[made_measurement(losses=[loss] * 3)] * 2)
        return dataclasses.replace(made, suspect=own, notes=["the host was busy"]) if repeat == 0 else made

    def of_first():
        return next((row["suspect"], len(row["notes"])) for row in rows(sweep) if row["repeat"] == 0)

    write_journal(sweep, "p1", [record_event(record(repeat, 5.0 if repeat else 7.0)) for repeat in (0, 1, 2)])
    collect(sweep)
    assert of_first() == (True, 2)
    write_journal(sweep, "p1", [record_event(record(repeat, 7.0)) for repeat in (3, 4, 5, 6)])
    collect(sweep)
    assert of_first() == (own, 1)


@pytest.mark.parametrize("value", ["8", 2**63, [1], object()])
def test_a_record_whose_column_no_table_can_hold_is_refused_by_its_name(value):
    with pytest.raises(SweepError, match="dp must be int64"):
        table_of([made_record(), dataclasses.replace(made_record(), dp=value)])


def test_every_column_of_a_table_has_a_type_by_its_name_a_unit_and_a_meaning():
    schema = table_of([made_record()]).schema
    assert list(columns_by_name()) == schema.names == [column.name for column in (*COLUMNS, *COLLECTED)]
    assert {name: schema.field(name).type for name in schema.names} == arrow_types()
    assert schema.field("step_time_median_s").metadata[b"unit"] == b"s"
    assert schema.field("tokens_per_second").metadata[b"meaning"]


SITE = "gpu: h100\ngpus_per_node: 8\n"


@pytest.fixture
def models(sweep):
    """A sweep with one record of a model, and of it on two groups of nodes."""
    records = [made_record(made_run(model=model)) for model in ("8B", "8B@new", "8B@old")]
    write_journal(sweep, "p1", [record_event(record) for record in records])
    return sweep


def prices(models):
    collect(models)
    return [(row["model"], row["dollars_per_gpu_hour"], row["co2_g_per_kwh"]) for row in rows(models)]


def test_a_price_changed_after_the_measurement_holds_for_what_was_measured_before(models):
    models.site.write_text(SITE + "dollars_per_gpu_hour: 2.5\n")
    assert prices(models)[0] == ("8B", 2.5, None)
    models.site.write_text(SITE + "dollars_per_gpu_hour: 4.0\nco2_g_per_kwh: 50.0\n")
    assert prices(models)[0] == ("8B", 4.0, 50.0)
    models.site.write_text(SITE)
    assert prices(models)[0] == ("8B", None, None)


def test_each_node_group_has_its_own_price_or_the_sites(models):
    groups = "node_groups:\n  new: {gpu: b200, dollars_per_gpu_hour: 6.0}\n  old: {gpu: h100}\n"
    models.site.write_text(SITE + "dollars_per_gpu_hour: 2.0\n" + groups)
    assert prices(models)[1:] == [("8B@new", 6.0, None), ("8B@old", 2.0, None)]


def test_the_sites_rate_of_failures_is_a_column_too(models):
    models.site.write_text(SITE + "failures_per_gpu_day: 0.5\nrestart_time: 10m\n")
    collect(models)
    row = rows(models)[0]
    assert (row["failures_per_gpu_day"], row["restart_time"]) == (0.5, 600.0)


def test_a_price_that_is_no_number_is_the_users_error(models):
    models.site.write_text(SITE + "dollars_per_gpu_hour: cheap\n")
    with pytest.raises(SweepError, match="dollars_per_gpu_hour") as error:
        collect(models)
    assert error.value.mistakes[0].line == 3
