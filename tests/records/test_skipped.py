"""`skipped.parquet`: the runs that a sweep will not start, as collect writes them and analysis reads them."""

import json

import analysis
from sweep.records.collect import collect
from sweep.records.skipped import SKIPPED_FILE
from tests.support.made_sweeps import GRID, made


def test_collect_writes_the_runs_that_the_budget_skips_and_the_plan_has_them(tmp_path):
    sweep = made(tmp_path / "s", GRID + "budget: {runs: 1}\n").directory
    collect(sweep)
    plan = analysis.load_plan(sweep.path)
    reasons = plan["skipped"]
    assert reasons.value_counts().to_dict() == {"budget": len(reasons) - 1}
    assert plan["chance"].notna().sum() == plan["gain"].notna().sum() == len(reasons) - 1
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
