"""Loading results: units, columns, several sweeps, foreign and broken tables."""

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import analysis
from analysis.derive.best import best_per_cell
from sweep.errors import SweepError
from sweep.outcomes import Outcome
from sweep.records.collect import collect, read_records, write_results
from tests.support.made_records import made_record, made_run, made_sweep, record_event, write_journal


def test_load_gives_what_was_recorded_with_units(tmp_path):
    sweep = made_sweep(tmp_path / "s")
    write_journal(
        sweep, "p", [record_event(made_record()), record_event(made_record(made_run(tp=2, dp=1), outcome=Outcome.HANG))]
    )
    collect(sweep)
    records = analysis.load(sweep.path).sort_values("tp", ignore_index=True)
    assert records["outcome"].tolist() == ["ok", "hang"]
    assert records["tp"].tolist() == [1, 2]
    assert records["dp"].dtype == "Int64"
    assert records["slow_rank"].isna().all()
    assert records["mfu"].isna().all()
    assert records.attrs["units"]["step_time_median_s"] == "s"
    assert list(records["step_times_s"][0]) == [0.1, 0.2, 0.3]


def test_load_reads_only_the_columns_that_are_asked_for(tmp_path):
    write_results(tmp_path / "r.parquet", [made_record()])
    assert list(analysis.load(tmp_path / "r.parquet", ["model", "mfu"]).columns) == ["model", "mfu"]


def test_several_sweeps_are_one_table(tmp_path):
    for name, model in (("a", "1B"), ("b", "3B")):
        write_results(tmp_path / f"{name}.parquet", [made_record(made_run(model=model))])
    assert analysis.load([tmp_path / "a.parquet", tmp_path / "b.parquet"])["model"].tolist() == ["1B", "3B"]


def test_an_attempt_of_a_sweep_and_of_its_copy_counts_once_and_another_sweeps_of_the_same_run_too(tmp_path):
    first, second = made_record(), made_record(started_at=200.0)
    for name, records in (("a", [first]), ("copy", [first]), ("b", [second])):
        write_results(tmp_path / f"{name}.parquet", records)
    sources = [tmp_path / f"{name}.parquet" for name in ("a", "copy", "b")]
    assert analysis.load(sources)["started_at"].tolist() == [100.0, 200.0]
    assert analysis.load(sources, ["model"])["model"].tolist() == ["1B", "1B"]


def test_rows_without_a_start_are_not_taken_for_one_another(tmp_path):
    rows = pd.DataFrame({"run_id": ["x"], "attempt": [1], "model": ["m"], "nodes": [1], "tokens_per_second": [5.0]})
    rows.to_parquet(tmp_path / "f.parquet")
    assert len(analysis.load([tmp_path / "f.parquet"] * 2)) == 2


def test_a_foreign_table_may_lack_columns_and_hold_whole_numbers_as_fractions(tmp_path):
    pd.DataFrame({"model": ["x"], "nodes": [2.0], "tokens_per_second_per_gpu": [5.0], "note": ["n"]}).to_parquet(
        tmp_path / "f.parquet"
    )
    records = analysis.load(tmp_path / "f.parquet")
    assert records["nodes"].tolist() == [2]
    assert records["tp"].isna().all()
    assert records["note"].tolist() == ["n"]
    assert best_per_cell(records)["value"].tolist() == [5.0]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"a": [1]}, "no column model, nodes"),
        ({"model": ["x"], "nodes": [2.5]}, "nodes should be int64"),
        ({"model": ["x"], "nodes": ["many"]}, "nodes should be int64"),
    ],
)
def test_a_table_without_results_is_refused(tmp_path, table, words):
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    with pytest.raises(SweepError, match=words):
        analysis.load(tmp_path / "t.parquet")


def test_of_two_columns_of_one_name_that_is_read_none_is_chosen(tmp_path):
    one = pa.table({"model": ["x"], "nodes": [2], "tokens_per_second_per_gpu": [5.0]})
    pq.write_table(one.append_column("note", [["a"]]).append_column("note", [["b"]]), tmp_path / "t.parquet")
    assert analysis.load(tmp_path / "t.parquet", ["model", "nodes"])["nodes"].tolist() == [2]
    with pytest.raises(SweepError, match="2 columns are named 'note'"):
        analysis.load(tmp_path / "t.parquet")


def test_what_a_file_tells_pandas_of_an_index_is_not_read(tmp_path):
    table = pa.table({"model": ["x"], "nodes": [2], "tokens_per_second_per_gpu": [5.0]})
    pq.write_table(table.replace_schema_metadata({b"pandas": b"{no JSON"}), tmp_path / "t.parquet")
    assert analysis.load(tmp_path / "t.parquet")["model"].tolist() == ["x"]
    assert read_records(tmp_path / "t.parquet")["model"].tolist() == ["x"]


def test_missing_files_and_other_formats_are_refused(tmp_path):
    (tmp_path / "t.parquet").write_text("model,nodes\n")
    for place, words in (
        ("t.parquet", "not a readable Parquet"),
        ("no.parquet", "no such results"),
        ("", "sweep collect"),
    ):
        with pytest.raises(SweepError, match=words):
            analysis.load(tmp_path / place)
