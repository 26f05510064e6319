"""`skipped.parquet`: the runs that a sweep will not start, as collect writes them and analysis reads them."""

import json

import analysis
from sweep.outcomes import Outcome
from sweep.records.collect import collect
from sweep.records.skipped import SKIPPED_FILE
from sweep.store.sweep import open_sweep
from tests.support.made_sweeps import GRID, made, pilot_wrote


def test_collect_writes_the_runs_that_the_budget_skips_and_the_plan_has_them(tmp_path):
    created = made(tmp_path / "s", GRID + "budget: {runs: 1}\n")
    pilot_wrote(created, "p0001", (created.runs[0].run_id, 1, Outcome.OK))
    sweep = created.directory
    collect(sweep)
    plan = analysis.load_plan(sweep.path)
    found = plan[plan["skipped"].notna()].set_index("run_id")[["gain", "chance"]]
    assert {run_id: tuple(both) for run_id, both in zip(found.index, found.to_numpy(), strict=True)} == (
        open_sweep(sweep.path).missed()
    )
    assert (found["gain"] != found["chance"]).any()
    reasons = plan["skipped"]
    assert reasons.value_counts().to_dict() == {"budget": len(reasons) - 1}
    table = sweep.path / SKIPPED_FILE
    before = table.stat().st_mtime_ns
    collect(sweep)
    assert table.stat().st_mtime_ns == before, "nothing changed"
    sweep.site.write_text(sweep.site.read_text() + "dollars_per_gpu_hour: 2\n")
    collect(sweep)
    assert table.stat().st_mtime_ns != before
    table.unlink()
    assert analysis.load_plan(sweep.path)["skipped"].isna().all(), "reading computes nothing"
    collect(sweep)
    assert table.exists()


def test_records_are_collected_where_the_sweep_cannot_be_opened(tmp_path, capsys):
    sweep = made(tmp_path / "s").directory
    sweep.provenance.write_text(json.dumps({"executor": "local"}))
    assert collect(sweep).attempts == 0
    assert "note: which runs are skipped is not known: " in capsys.readouterr().err
    assert not (sweep.path / SKIPPED_FILE).exists()
