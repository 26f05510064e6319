"""Layouts of one model whose losses differ are distinguished from rounding."""

import math
from dataclasses import replace
from importlib.metadata import EntryPoint

import pyarrow.parquet as pq
import pytest

from sweep.records.collect import collect
from sweep.records.validity import disagreements, tolerance_of
from tests.support.made_records import made_record, made_run, made_sweep, record_event, write_journal

BASE = [5.5, 5.4, 5.3, 5.2, 5.1]
FP32, BF16 = tolerance_of("fp32"), tolerance_of("bf16")
OWN_WEIGHTS = tolerance_of("fp32", same_start=False)


def off(factor):
    return [value * factor for value in BASE]


def changed(at):
    """Eight losses, one of them another."""
    return [3.0 if place == at else 2.0 for place in range(8)]


@pytest.mark.parametrize(("losses", "tolerance", "reported"), [
    ([BASE, off(1 + 1e-7), off(1 - 1e-7)], FP32, []),  # rounding
    ([[BASE[0], *off(1.003)[1:]], BASE, BASE], FP32, [0]),  # a gradient lost in one layout, from the second iteration
    ([BASE, off(1.001)], FP32, [0, 1]),  # of two their whole difference counts
    ([BASE, off(1 + 5e-5)], FP32, []),
    ([[2.0], [2.0 * 1.0099]], 0.01, []),
    ([[2.0], [2.0 * 1.0103]], 0.01, [0, 1]),
    ([[2.0], [2.0], [2.0 * 1.0099]], 0.01, []),  # of three, the one off the median by more than the tolerance
    ([[2.0], [2.0], [2.0 * 1.0101]], 0.01, [2]),
    ([[2.0], [2.0], [2.5]], 0.25, []),  # by just the tolerance
    ([BASE, BASE, off(1.005)], BF16, []),
    ([BASE, BASE, off(1.05)], BF16, [2]),
    ([BASE, BASE, off(1.01)], OWN_WEIGHTS, []),  # only gross errors
    ([BASE, BASE, off(0.5)], OWN_WEIGHTS, [2]),
    ([BASE, BASE, [math.nan] * 5], FP32, [2]), ([BASE, BASE, [math.inf] * 5], FP32, [2]),
    ([[math.nan] * 5], FP32, []),  # with no other there is nothing to compare
    ([changed(None), changed(None), changed(4)], 0.01, [2]),  # the first five iterations are compared
    ([changed(None), changed(None), changed(5)], 0.01, []),
    ([[2.0], [2.0, 9.0], [2.0, 1.0, 5.0]], 0.01, []),  # as many as the shortest has
    ([[0.1], [0.1], [0.1 * 1.05]], 0.01, [2]),  # of a small loss too
    ([[0.0, 0.0]] * 3, FP32, []),
    ([[0.0], [0.0], [1.0]], FP32, [2]),
])  # fmt: skip
def test_losses_that_differ_by_more_than_the_tolerance_are_reported(losses, tolerance, reported):
    assert list(disagreements(["m"] * len(losses), losses, [tolerance] * len(losses))) == reported


def test_the_one_that_differs_is_reported():
    found = disagreements(["m"] * 4, [BASE, BASE, off(1.01), BASE], [FP32] * 4)
    assert list(found) == [2]
    assert "the other 3 layouts" in found[2]
    assert "1.0e-02" in found[2]


def test_other_models_and_records_without_losses_are_not_compared():
    assert disagreements(["a", "b", "a"], [BASE, off(2), None], [FP32] * 3) == {}


def layouts(**values):
    """Runs of three layouts."""
    return [made_run(**{"dp": 1, "grad_accum": 8, axis: 2, **values}) for axis in ("tp", "pp", "cp")]


def collected(sweep, journal, *ends, **changes):
    """What is collected once these ended too: (a run, its losses)."""
    records = [replace(made_record(run), losses=losses, **changes) for run, losses in ends]
    write_journal(sweep, journal, [record_event(record) for record in records])
    return pq.read_table(collect(sweep).path).to_pylist()


def test_a_note_about_losses_is_made_again_at_each_collect(tmp_path):
    """Of two that differ both are marked; a third shows which of them is off, and clears the other. A note of another
    kind stays a note, such as a GPU's power cap, which each long run on a GPU reaches."""
    sweep, (tp, pp, cp) = made_sweep(tmp_path), layouts()
    capped = ["the GPU's clocks were lowered while it was timed: power cap"]
    rows = collected(sweep, "pilot-1", (tp, BASE), (pp, off(1.05)), notes=capped, suspect=False)
    assert [row["suspect"] for row in rows] == [True, True]
    rows = collected(sweep, "pilot-2", (cp, BASE), notes=capped, suspect=False)
    (marked,) = (row for row in rows if row["suspect"])
    assert marked["pp"] == 2
    assert marked["notes"][1].startswith("losses differ")
    assert len(marked["notes"]) == 2, "not one of each collect"
    assert [row["notes"] for row in rows if not row["suspect"]] == [capped] * 2


@pytest.mark.parametrize(("workload", "params", "marked"), [
    ("picotron", {}, []), ("command", {}, []), ("command", {"same_start": True}, [2]),
    ("of-another-machine", {}, [2]),  # most workloads start equal
])  # fmt: skip
def test_collect_expects_equal_starts_of_trainers_and_grids_that_declare_them(tmp_path, workload, params, marked):
    ends = zip(layouts(workload=workload, params=params), (BASE, off(1.03), BASE), strict=True)
    rows = collected(made_sweep(tmp_path), "pilot-1", *ends)
    assert [row["pp"] for row in rows if row["suspect"]] == marked


def test_a_workload_that_cannot_be_loaded_here_does_not_prevent_collect(tmp_path, monkeypatch):
    (tmp_path / "broken_plug_in.py").write_text("raise RuntimeError('no GPU on this login node')")
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("theirs", "broken_plug_in:WORKLOAD", "sweep.workloads")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point])
    rows = collected(made_sweep(tmp_path), "pilot-1", (made_run(workload="theirs"), BASE))
    assert [row["workload"] for row in rows] == ["theirs"]
