"""Layouts of one model whose losses differ are distinguished from rounding."""

import math
from dataclasses import replace
from importlib.metadata import EntryPoint

import pyarrow.parquet as pq
import pytest

from sweep.records.agreement import disagreements, tolerance_of

BASE = [5.5, 5.4, 5.3, 5.2, 5.1]


def off(factor):
    return [value * factor for value in BASE]


def test_rounding_is_no_disagreement():
    assert disagreements(["m"] * 3, [BASE, off(1 + 1e-7), off(1 - 1e-7)], [tolerance_of("fp32")] * 3) == {}


def test_the_one_that_differs_is_reported():
    found = disagreements(["m"] * 4, [BASE, BASE, off(1.01), BASE], [tolerance_of("fp32")] * 4)
    assert list(found) == [2]
    assert "the other 3 layouts" in found[2]
    assert "1.0e-02" in found[2]


def test_a_gradient_lost_in_one_layout_shows_from_the_second_iteration():
    wrong = [BASE[0], *off(1.003)[1:]]
    assert list(disagreements(["m"] * 3, [wrong, BASE, BASE], [tolerance_of("fp32")] * 3)) == [0]


def test_of_two_that_differ_both_are_reported():
    assert set(disagreements(["m"] * 2, [BASE, off(1.001)], [tolerance_of("fp32")] * 2)) == {0, 1}
    assert disagreements(["m"] * 2, [BASE, off(1 + 5e-5)], [tolerance_of("fp32")] * 2) == {}


def test_bf16_may_differ_more():
    assert disagreements(["m"] * 3, [BASE, BASE, off(1.005)], [tolerance_of("bf16")] * 3) == {}
    assert list(disagreements(["m"] * 3, [BASE, BASE, off(1.05)], [tolerance_of("bf16")] * 3)) == [2]


def test_where_each_layout_has_its_own_weights_only_gross_errors_are_reported():
    loosely = [tolerance_of("fp32", same_start=False)] * 3
    assert disagreements(["m"] * 3, [BASE, BASE, off(1.01)], loosely) == {}
    assert list(disagreements(["m"] * 3, [BASE, BASE, off(0.5)], loosely)) == [2]


def test_other_models_and_records_without_losses_are_not_compared():
    assert disagreements(["a", "b", "a"], [BASE, off(2), None], [tolerance_of("fp32")] * 3) == {}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_nan_loss_disagrees(bad):
    assert list(disagreements(["m"] * 3, [BASE, BASE, [bad] * 5], [tolerance_of("fp32")] * 3)) == [2]


def test_collect_marks_the_layout_that_trains_something_else(tmp_path):
    from sweep.records.collect import collect
    from tests.support.made_records import made_record, made_run, made_sweep, record_event, write_journal

    sweep = made_sweep(tmp_path)
    runs = [made_run(dp=2), made_run(dp=1, tp=2, grad_accum=8), made_run(dp=1, pp=2, grad_accum=8)]
    records = [replace(made_record(run), losses=BASE) for run in runs]
    write_journal(sweep, "pilot-1", [record_event(record) for record in records[:2]])
    collect(sweep)
    write_journal(sweep, "pilot-2", [record_event(records[2], losses=off(1.05))])
    path = collect(sweep).path
    rows = pq.read_table(path, columns=["pp", "suspect", "notes"]).to_pylist()
    marks = {row["pp"]: (row["suspect"], row["notes"]) for row in rows}
    marked = [row for row in rows if row["suspect"]]
    assert [row["pp"] for row in marked] == [2], marks
    assert marked[0]["notes"][0].startswith("losses differ")


def test_a_note_of_another_kind_stays_a_note_where_losses_differ(tmp_path):
    """Such as a GPU's power cap, which each long run on a GPU reaches: the figures are not to be doubted for it."""
    from sweep.records.collect import collect
    from tests.support.made_records import made_record, made_run, made_sweep, record_event, write_journal

    sweep = made_sweep(tmp_path)
    runs = [made_run(dp=2), made_run(dp=1, tp=2, grad_accum=8), made_run(dp=1, pp=2, grad_accum=8)]
    capped = ["the GPU's clocks were lowered while it was timed: power cap"]
    records = [replace(made_record(run), losses=BASE, notes=capped, suspect=False) for run in runs]
    write_journal(sweep, "pilot-1", [record_event(records[0]), record_event(records[1])])
    write_journal(sweep, "pilot-2", [record_event(records[2], losses=off(1.05))])
    rows = pq.read_table(collect(sweep).path, columns=["pp", "suspect", "notes"]).to_pylist()
    assert {row["pp"] for row in rows if row["suspect"]} == {2}
    assert all(row["notes"][0] == capped[0] for row in rows)


def test_collect_expects_equal_starts_only_of_trainers_that_declare_them(tmp_path):
    from sweep.records.collect import collect
    from tests.support.made_records import made_record, made_run, made_sweep, record_event, write_journal

    sweep = made_sweep(tmp_path)
    runs = [made_run(workload="picotron", dp=1, grad_accum=8, **{axis: 2}) for axis in ("tp", "pp", "cp")]
    off_by = (1, 1.01, 1)
    records = [replace(made_record(run), losses=off(by)) for run, by in zip(runs, off_by, strict=True)]
    write_journal(sweep, "pilot-1", [record_event(record) for record in records])
    assert not any(pq.read_table(collect(sweep).path, columns=["suspect"])["suspect"].to_pylist())


@pytest.mark.parametrize(("params", "marked"), [({}, False), ({"same_start": True}, True)])
def test_a_script_of_the_users_is_compared_where_the_grid_has_same_start(tmp_path, params, marked):
    from sweep.records.collect import collect
    from tests.support.made_records import made_record, made_run, made_sweep, record_event, write_journal

    sweep = made_sweep(tmp_path)
    axes = ("tp", "pp", "cp")
    runs = [made_run(workload="command", params=params, dp=1, grad_accum=8, **{axis: 2}) for axis in axes]
    records = [replace(made_record(run), losses=off(by)) for run, by in zip(runs, (1, 1.03, 1), strict=True)]
    write_journal(sweep, "pilot-1", [record_event(record) for record in records])
    assert any(pq.read_table(collect(sweep).path, columns=["suspect"])["suspect"].to_pylist()) == marked


def test_layouts_of_a_workload_that_is_not_installed_here_are_expected_to_start_equal(tmp_path):
    """A sweep of another machine: most workloads do."""
    from sweep.records.collect import collect
    from tests.support.made_records import made_record, made_run, made_sweep, record_event, write_journal

    sweep = made_sweep(tmp_path)
    runs = [made_run(workload="of-another-machine", dp=1, grad_accum=8, **{axis: 2}) for axis in ("tp", "pp", "cp")]
    records = [replace(made_record(run), losses=off(by)) for run, by in zip(runs, (1, 1.03, 1), strict=True)]
    write_journal(sweep, "pilot-1", [record_event(record) for record in records])
    rows = pq.read_table(collect(sweep).path, columns=["pp", "suspect"]).to_pylist()
    assert {row["pp"] for row in rows if row["suspect"]} == {2}


def test_a_workload_that_cannot_be_loaded_here_does_not_prevent_collect(tmp_path, monkeypatch):
    from sweep.records.collect import collect
    from tests.support.made_records import made_record, made_run, made_sweep, record_event, write_journal

    (tmp_path / "broken_plug_in.py").write_text("raise RuntimeError('no GPU on this login node')")
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("theirs", "broken_plug_in:WORKLOAD", "sweep.workloads")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point])
    sweep = made_sweep(tmp_path)
    write_journal(sweep, "pilot-1", [record_event(made_record(made_run(workload="theirs")), losses=BASE)])
    assert pq.read_table(collect(sweep).path, columns=["workload"])["workload"].to_pylist() == ["theirs"]


def test_a_note_about_losses_is_made_again_at_each_collect(tmp_path):
    """Of two that differ both are marked; a third shows which of them is off, and clears the other."""
    from sweep.records.collect import collect
    from tests.support.made_records import made_record, made_run, made_sweep, record_event, write_journal

    sweep = made_sweep(tmp_path)
    runs = [made_run(dp=2), made_run(dp=1, tp=2, grad_accum=8), made_run(dp=1, pp=2, grad_accum=8)]
    records = [replace(made_record(run), losses=BASE) for run in runs]
    write_journal(sweep, "pilot-1", [record_event(records[0]), record_event(records[1], losses=off(1.05))])
    assert pq.read_table(collect(sweep).path, columns=["suspect"])["suspect"].to_pylist() == [True, True]
    write_journal(sweep, "pilot-2", [record_event(records[2])])
    rows = pq.read_table(collect(sweep).path, columns=["tp", "suspect", "notes"]).to_pylist()
    marked = [row for row in rows if row["suspect"]]
    assert [row["tp"] for row in marked] == [2]
    assert len(marked[0]["notes"]) == 1, "not one of each collect"


@pytest.mark.parametrize(("off", "reported"), [(0.0099, False), (0.0101, True)])
def test_of_three_the_one_off_the_median_by_more_than_the_tolerance_is_reported(off, reported):
    found = disagreements(["g"] * 3, [[2.0], [2.0], [2.0 * (1 + off)]], [0.01] * 3)
    assert list(found) == [2] * reported


@pytest.mark.parametrize(("off", "reported"), [(0.0099, False), (0.0103, True)])
def test_of_two_their_whole_difference_counts(off, reported):
    found = disagreements(["g"] * 2, [[2.0], [2.0 * (1 + off)]], [0.01] * 2)
    assert list(found) == [0, 1] * reported


@pytest.mark.parametrize(("at", "reported"), [(4, True), (5, False)])
def test_the_first_five_iterations_are_compared(at, reported):
    other = [2.0] * 8
    other[at] = 3.0
    assert list(disagreements(["g"] * 3, [[2.0] * 8, [2.0] * 8, other], [0.01] * 3)) == [2] * reported


def test_the_shortest_of_a_group_states_what_is_compared():
    assert disagreements(["g"] * 3, [[2.0], [2.0, 9.0], [2.0, 1.0, 5.0]], [0.01] * 3) == {}


def test_a_loss_of_exactly_zero_agrees_with_itself():
    assert disagreements(["m"] * 3, [[0.0, 0.0]] * 3, [tolerance_of("fp32")] * 3) == {}
    assert list(disagreements(["m"] * 3, [[0.0], [0.0], [1.0]], [tolerance_of("fp32")] * 3)) == [2]
