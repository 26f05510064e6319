"""`sweep import` and `sweep replay`: maps, units, what cannot be true; published tables where they are given."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from sweep.cli.main import cli
from sweep.errors import SweepError
from sweep.foreign.convert import records_of_rows
from sweep.foreign.files import import_file, read_recorded
from sweep.foreign.mapping import read_map
from sweep.foreign.plausible import findings
from sweep.inputs import yaml_lines
from sweep.records.record import problems
from sweep.search.budget import Budget
from sweep.search.replay import replay, report
from sweep.search.strategies import strategy_named
from tests.support.paths import REPOSITORY

MAPS = REPOSITORY / "examples" / "import"
MAP = """
columns:
  model: model
  nodes: nodes
  sequence_length: seq
  dp: dp
  tp: tp
  micro_batch_size: mbs
  grad_accum: gas
  outcome: {from: status, values: {fine: ok, broke: unknown, OOM: oom_cuda}}
  tokens_per_second_per_gpu: {from: ktok, unit: K tokens/s/GPU}
  peak_memory_bytes: {from: gib, unit: GiB}
  reported_mfu: {from: mfu, unit: "%"}
constants: {gpu: h100, gpus_per_node: 8, dtype: bf16, recompute: none, pp_schedule: 1f1b}
models: {small: 1B}
flops: playbook
"""
ROW = {"model": "small", "nodes": 1, "seq": 4096, "dp": 4, "tp": 2, "mbs": 2, "gas": 4, "status": "fine"}
ROW |= {"ktok": 30.0, "gib": 20.0, "mfu": 29.33, "colour": "red"}


def mapping(text=MAP):
    return read_map(yaml_lines.load(text, "map.yaml"))


def records(*rows):
    return records_of_rows(list(rows), mapping(), "table.csv")


def test_units_are_converted_and_the_rest_is_derived():
    (record,) = records(ROW)
    assert record.tokens_per_second_per_gpu == 30_000
    assert record.tokens_per_second == 240_000
    assert record.peak_memory_bytes == 20 * 2**30
    assert record.reported_mfu == pytest.approx(0.2933)
    assert record.global_batch_tokens == 4 * 2 * 4 * 4096
    assert record.step_time_median_s == pytest.approx(4 * 2 * 4 * 4096 / 240_000)
    # 6 N + 12 L h s of the playbook's 1B: 1,342,177,280 weights and norms, 16 layers of 2,048.
    flops = 6 * (1_342_177_280 + 33 * 2048) + 12 * 16 * 2048 * 4096
    assert record.mfu == pytest.approx(30_000 * flops / 989e12, rel=1e-9)
    assert record.flops_convention.startswith("playbook: ")
    assert not problems(record)


def test_unknown_columns_are_stored(tmp_path):
    source, map_file = tmp_path / "t.parquet", tmp_path / "m.yaml"
    map_file.write_text(MAP)
    pq.write_table(pa.Table.from_pylist([ROW, {**ROW, "mbs": 1, "colour": "blue"}]), source)
    done = import_file(source, map_file, tmp_path / "out.parquet")
    table = pq.read_table(done.path)
    assert done.unmapped == ["colour"]
    assert dict(zip(table["micro_batch_size"].to_pylist(), table["colour"].to_pylist(), strict=True)) == {
        2: "red",
        1: "blue",
    }


def test_a_failed_rows_metrics_may_be_any_text_and_repeats_are_numbered():
    first, second, third = records(ROW, ROW, {**ROW, "status": "OOM", "ktok": "OOM", "gib": None})
    assert (first.repeat, second.repeat, third.repeat) == (0, 1, 2)
    assert len({record.run_id for record in (first, second, third)}) == 3
    assert third.outcome == "oom_cuda"
    assert third.tokens_per_second_per_gpu is None
    assert third.mfu is None


def test_what_failed_has_memory_and_no_metrics_as_in_our_own_records():
    (failed,) = records({**ROW, "status": "OOM", "ktok": 3.0})
    assert (failed.tokens_per_second_per_gpu, failed.reported_mfu, failed.flops_per_token) == (None, None, None)
    assert failed.peak_memory_bytes == 20 * 2**30


def test_a_gpu_is_known_in_either_case_as_in_our_own_records():
    text = MAP.replace("gpu: h100", "gpu: H100")
    (record,) = records_of_rows([ROW], mapping(text), "table.csv")
    assert record.mfu == records(ROW)[0].mfu


def test_a_zero_rate_is_reported_and_nothing_is_derived_from_it():
    (record,) = records({**ROW, "ktok": 0.0})
    assert (record.step_time_median_s, record.mfu) == (None, None)
    assert "tokens_per_second_per_gpu is 0.0" in findings([record])[0]


def test_what_the_source_does_not_state_is_null():
    (record,) = records(ROW)
    assert (record.iterations, record.warmup_iterations, record.started_at) == (None, None, None)


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"status": "maybe"}, "status is no outcome that the map lists"),
        ({"ktok": "fast"}, "ktok is not a number, as tokens_per_second_per_gpu is"),
        ({"dp": 2.5}, "is not a whole number, as dp is"),
        ({"model": "other"}, "neither in the map nor in the catalogue"),
    ],
)
def test_rows_that_cannot_be_read_are_named_by_line(change, fact):
    with pytest.raises(SweepError) as error:
        records(ROW, {**ROW, **change}, ROW, {**ROW, **change})
    (mistake,) = error.value.mistakes
    assert mistake.line == 3
    assert fact in mistake.fact
    assert mistake.fact.endswith("also line 5")


def test_all_bad_columns_of_a_table_are_reported_at_once():
    with pytest.raises(SweepError) as error:
        records(ROW, {**ROW, "status": "maybe", "ktok": "fast", "dp": 2.5})
    assert len(error.value.mistakes) == 3
    assert not [word for word in ("maybe", "fast", "2.5") if word in str(error.value)], "a cell is never quoted"


def test_every_mistake_of_a_map_is_reported_with_its_line():
    text = """columns:
  model: model
  nodez: nodes
  peak_memory_bytes: {from: gib, unit: gallons}
  outcome: {from: status, values: {fine: good}}
  mfu: {of: x}
models: {small: 1C, odd: {num_layers: 2}}
flops: guesswork
colour: red
"""
    with pytest.raises(SweepError) as error:
        mapping(text)
    reported = {(mistake.line, mistake.fact.split(" ")[0]) for mistake in error.value.mistakes}
    assert {line for line, _ in reported} >= {3, 4, 5, 6, 7, 8, 9}
    assert "sequence_length" in str(error.value)
    assert "bytes, KiB" in str(error.value)


def test_columns_that_the_table_lacks_are_all_named():
    with pytest.raises(SweepError, match=r"(?s)'ktok'.*'gib'"):
        records({name: value for name, value in ROW.items() if name not in ("ktok", "gib")})


def notes(**change):
    (record,) = records(ROW)
    return "; ".join(findings([replace(record, **change)])[0])


def test_a_sound_record_has_no_notes():
    assert notes() == ""


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"mfu": 1.2}, "no hardware exceeds"),
        ({"mfu": 0.9, "hfu": 0.9}, "the best matrix product on h100 reaches 81%"),
        ({"reported_mfu": 0.2933 * 1.15}, "the source states 33.73% MFU"),
        ({"dp": 8}, "dp*tp*pp*cp = 16, not the 8 GPUs"),
        ({"global_batch_tokens": 1}, "not the 1 tokens of the batch"),
        ({"tflops_per_gpu": 100.0}, "100 TFLOP/s per GPU do not match"),
        ({"tokens_per_second": 1e6}, "are not 30,000 tokens/s/GPU"),
        ({"step_time_median_s": 9.0}, "a step of 9 s"),
    ],
)
def test_implausible_values_are_reported(change, reported):
    assert reported in notes(**change)


def test_a_run_far_from_its_neighbours_is_reported():
    rows = [{**ROW, "mbs": mbs, "gas": gas, "mfu": None} for mbs, gas in ((1, 8), (2, 4), (4, 2), (8, 1))]
    rows[1]["ktok"] = 3.0
    rows.append({**ROW, "dp": 8, "tp": 1, "gas": 2, "mfu": None})
    found = findings(records(*rows))
    assert "10.0 times slower than the median of its" in found[1][0]
    assert not found[0] + found[2] + found[3]


def test_replay_of_what_was_imported_by_the_command_line(tmp_path):
    source, map_file, out = tmp_path / "t.parquet", tmp_path / "m.yaml", tmp_path / "out.parquet"
    map_file.write_text(MAP)
    rows = [{**ROW, "mbs": mbs, "gas": 64 // mbs, "ktok": 10.0 + mbs} for mbs in (1, 2, 4, 8, 16)]
    rows += [{**ROW, "mbs": 32, "gas": 2, "status": "broke", "ktok": None}]
    pq.write_table(pa.Table.from_pylist(rows), source)
    runner = CliRunner()
    done = runner.invoke(cli, ["import", str(source), "--map", str(map_file), "--out", str(out), "--json"])
    assert json.loads(done.stdout)["rows"] == 6
    shown = runner.invoke(cli, ["replay", str(out), "--strategy", "exhaustive", "--json"])
    document = json.loads(shown.stdout)
    assert set(document["overall"]) == {
        "runs_total", "runs_spent", "failures_avoided_share", "successes_rejected", "cell_bests_rejected",
        "mean_regret", "worst_regret", "runs_to_within_2pct_share",
    }  # fmt: skip
    assert document["overall"]["runs_spent"] == 6
    assert document["overall"]["failures_avoided_share"] == 0
    assert document["cells"][0] | {"model": "small", "nodes": 1, "regret": 0.0} == document["cells"][0]


def test_a_source_without_a_flops_convention_is_not_checked_by_ours(tmp_path):
    source, map_file = tmp_path / "t.parquet", tmp_path / "m.yaml"
    pq.write_table(pa.Table.from_pylist([{**ROW, "mfu": 40.0}]), source)
    map_file.write_text(MAP)
    assert import_file(source, map_file, tmp_path / "out.parquet").suspects
    map_file.write_text(MAP.replace("flops: playbook", ""))
    assert not import_file(source, map_file, tmp_path / "out.parquet").suspects


@pytest.mark.parametrize("options", [["--strategy", "clever"], ["--budget", "2"], ["--model", "9B"]])
def test_replay_refuses_what_makes_no_sense(tmp_path, options):
    from sweep.records.collect import write_results

    out = tmp_path / "out.parquet"
    write_results(out, records(ROW))
    found = CliRunner().invoke(cli, ["replay", str(out), *options])
    assert isinstance(found.exception, SweepError)


# Published tables, read from where the environment says.

reference = pytest.mark.skipif("SWEEP_REFERENCE_DATA" not in os.environ, reason="SWEEP_REFERENCE_DATA is not set")


def published(tmp_path, table, name):
    out = tmp_path / f"{name}.parquet"
    return import_file(Path(os.environ["SWEEP_REFERENCE_DATA"]) / f"{table}.csv", MAPS / f"{name}.yaml", out)


@reference
def test_the_three_retracted_mfu_values_of_torchtitan_are_caught_and_nothing_else(tmp_path):
    done = published(tmp_path, "torchtitan_performance", "torchtitan")
    assert [line for line, _ in done.suspects] == [12, 13, 14]


@reference
def test_llm_foundrys_table_is_sound_and_its_mfu_reproduced(tmp_path):
    done = published(tmp_path, "mosaic_mpt_benchmarks", "llm-foundry")
    assert not done.suspects
    table = pq.read_table(done.path).to_pylist()
    worst = max(abs(row["reported_mfu"] / row["mfu"] - 1) for row in table)
    assert worst < 3e-3  # tokens/s/GPU are printed as whole numbers; H100 is taken to do 989.5 there


@reference
@pytest.mark.parametrize("models", [(), ("1B",), ("8B",)])
def test_guided_on_the_playbooks_runs_and_without_each_model(tmp_path, models):
    recorded = read_recorded(published(tmp_path, "playbook_runs", "playbook").path, models)
    runs = len(recorded.candidates) // 10
    overall = report(replay(recorded, strategy_named("guided"), Budget(runs=runs)))["overall"]
    assert overall["mean_regret"] <= 0.01
    assert overall["worst_regret"] <= 0.03
    assert overall["runs_to_within_2pct_share"] <= 0.09
    assert overall["successes_rejected"] == 0


@reference
def test_prune_misses_no_cells_best(tmp_path):
    recorded = read_recorded(published(tmp_path, "playbook_runs", "playbook").path)
    overall = report(replay(recorded, strategy_named("prune"), Budget()))["overall"]
    assert overall["cell_bests_rejected"] == 0
    assert overall["successes_rejected"] <= 0.01 * len(recorded.candidates)
    assert overall["worst_regret"] == 0
