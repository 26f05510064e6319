"""`sweep import`: maps, units, what cannot be true; published tables where they are given."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sweep.errors import SweepError
from sweep.foreign.convert import records_of_rows
from sweep.foreign.files import import_file, read_recorded
from sweep.foreign.mapping import plain_map, read_map
from sweep.foreign.plausible import findings
from sweep.inputs import yaml_lines
from sweep.library.winners import winners
from sweep.records.collect import write_results
from sweep.records.record import problems
from tests.support.paths import REPOSITORY
from tests.support.published import table
from tests.support.refusals import mistakes_of

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
    assert (record.iterations, record.warmup_iterations, record.started_at) == (None,) * 3, "not stated"


def test_unknown_columns_are_stored(tmp_path):
    done = import_of(tmp_path, ROW, {**ROW, "mbs": 1, "colour": "blue"})
    table = pq.read_table(done.path)
    assert done.unmapped == ["colour"]
    assert dict(zip(table["micro_batch_size"].to_pylist(), table["colour"].to_pylist(), strict=True)) == {
        2: "red",
        1: "blue",
    }


def test_a_failed_rows_metrics_may_be_any_text_and_repeats_are_numbered():
    first, second, third = records(ROW, {**ROW, "ktok": 30.1}, {**ROW, "status": "OOM", "ktok": "OOM"})
    assert (first.repeat, second.repeat, third.repeat) == (0, 1, 2)
    assert len({record.run_id for record in (first, second, third)}) == 3
    assert third.outcome == "oom_cuda"
    assert (third.tokens_per_second_per_gpu, third.mfu, third.reported_mfu, third.flops_per_token) == (None,) * 4
    assert third.peak_memory_bytes == 20 * 2**30, "as in our own records"


def test_a_gpu_is_known_in_either_case_as_in_our_own_records():
    text = MAP.replace("gpu: h100", "gpu: H100")
    (record,) = records_of_rows([ROW], mapping(text), "table.csv")
    assert record.mfu == records(ROW)[0].mfu


def test_a_zero_rate_is_reported_and_nothing_is_derived_from_it():
    (record,) = records({**ROW, "ktok": 0.0})
    assert (record.step_time_median_s, record.mfu) == (None, None)
    assert "tokens_per_second_per_gpu is 0.0" in findings([record])[0]


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"status": "maybe"}, "status is no outcome that the map lists"),
        ({"ktok": "fast"}, "ktok is not a number, as tokens_per_second_per_gpu is"),
        ({"dp": 2.5}, "is not a whole number, as dp is"),
        ({"dp": 1e300}, "is larger than any dp"),
        ({"model": "other"}, "neither in the map nor in the catalogue"),
        ({"model": None}, "the model is not stated"),
    ],
)
def test_rows_that_cannot_be_read_are_named_by_line(change, fact):
    (mistake,) = mistakes_of(records, ROW, {**ROW, **change}, ROW, {**ROW, **change})
    assert mistake.line == 3
    assert fact in mistake.fact
    assert mistake.fact.endswith("also line 5")


def test_a_word_for_recomputation_that_the_map_gives_no_meaning_is_named_by_line():
    stated = mapping(MAP.replace(" recompute: none,", "").replace("  dp: dp", "  dp: dp\n  recompute: ac"))
    (mistake,) = mistakes_of(records_of_rows, [{**ROW, "ac": "full"}, {**ROW, "ac": "per layer"}], stated, "table.csv")
    assert (mistake.line, "recompute is none, selective or full" in mistake.fact) == (3, True)


def test_all_bad_columns_of_a_table_are_reported_at_once():
    found = mistakes_of(records, ROW, {**ROW, "status": "maybe", "ktok": "fast", "dp": 2.5})
    assert len(found) == 3
    assert not [word for word in ("maybe", "fast", "2.5") if word in " ".join(map(str, found))], "cells are not quoted"


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
    found = mistakes_of(mapping, text)
    assert {mistake.line for mistake in found} >= {3, 4, 5, 6, 7, 8, 9}
    assert all(words in " ".join(map(str, found)) for words in ("sequence_length", "bytes, KiB"))


def test_columns_that_the_table_lacks_are_all_named():
    with pytest.raises(SweepError, match=r"(?s)'ktok'.*'gib'"):
        records({name: value for name, value in ROW.items() if name not in ("ktok", "gib")})


def notes(**change):
    (record,) = records(ROW)
    return "; ".join(findings([replace(record, **change)])[0])


def test_a_table_without_a_needed_column_is_an_error_with_its_columns_and_the_map():
    """No similar name is suggested: `model` is no remedy for missing nodes."""
    plain = plain_map("t")
    row = {"Model": "1B", "sequence_length": 4096, "tok_s": 1.0}
    needed, measured = map(str, mistakes_of(records_of_rows, [row], plain, "table.csv"))
    assert needed == (
        "table.csv:1: no columns model, nodes (or gpus), which every run needs; the table has Model, "
        "sequence_length, tok_s (a map states what gives it: --suggest-map FILE writes a first one, "
        "and --map FILE reads it)"
    )
    assert "no column has an outcome or a measurement" in measured
    row = {"model": "1B", "sequence_length": 4096, "tokens_per_second_per_gpu": 1000.0}
    with pytest.raises(SweepError, match=r"no column nodes \(or gpus\), which .* --suggest-map FILE"):
        records_of_rows([row], plain, "table.csv")
    assert records_of_rows([{**row, "gpus": 16}], plain, "table.csv")[0].nodes == 2


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"mfu": 1.2}, "no hardware exceeds"),
        ({"mfu": 0.9, "hfu": 0.9}, "the best matrix product on h100 reaches 84%"),
        ({"reported_mfu": 0.2933 * 1.15}, "the source states 33.73% MFU"),
        ({"dp": 8}, "dp*tp*pp*cp = 16, not the 8 GPUs"),
        ({"global_batch_tokens": 1}, "not the 1 tokens of the batch"),
        ({"tflops_per_gpu": 100.0}, "100 TFLOP/s per GPU do not match"),
        ({"tokens_per_second": 1e6}, "are not 30,000 tokens/s/GPU"),
        ({"step_time_median_s": 9.0}, "a step of 9 s"),
    ],
)
def test_implausible_values_are_reported(change, reported):
    assert notes() == ""
    assert reported in notes(**change)


def one_among(others, rate, gpu="h100"):
    """Findings of five neighbours, of which the second has the rate, in K tokens/s/GPU, and the others theirs."""
    sizes = ((1, 8), (2, 4), (4, 2), (8, 1))
    rows = [{**ROW, "mbs": mbs, "gas": gas, "ktok": others, "mfu": None} for mbs, gas in sizes]
    rows.append({**ROW, "dp": 8, "tp": 1, "gas": 2, "ktok": others, "mfu": None})
    rows[1]["ktok"] = rate
    return findings(records_of_rows(rows, mapping(MAP.replace("gpu: h100", f"gpu: {gpu}")), "table.csv"))


def test_a_run_far_from_its_neighbours_is_reported_unless_it_is_a_good_layout():
    slow = one_among(30.0, 3.0)
    assert "10.0 times slower than the median of its" in slow[1][0]
    assert not slow[0] + slow[2] + slow[3]
    assert not any(one_among(3.0, 30.0))
    assert "the best matrix product" in one_among(3.0, 90.0)[1][0], "88 % MFU"
    unknown = one_among(3.0, 30.0, gpu="tomorrow")
    assert "10.0 times faster than the median of its 3 neighbours" in unknown[1][0], "where no MFU is known"


EXECUTED = MAP.replace("flops: playbook", "flops: megatron\nflops_counted: executed").replace(
    "recompute: none", "recompute: full"
)
"""A table as Megatron's of 2021: its TFLOPS and percentages of the peak count what is recomputed."""


def test_a_table_of_hardware_flops_is_checked_as_hfu_and_not_flagged():
    text = EXECUTED.replace('  reported_mfu: {from: mfu, unit: "%"}', "  tflops_per_gpu: tf")
    rows = [{**ROW, "ktok": 20.0, "tf": tf} for tf in (247.0, 178.0)]
    as_model, as_executed = (
        findings(records_of_rows(rows, mapping(words), "table.csv"))
        for words in (text.replace("flops_counted: executed", ""), text)
    )
    assert as_model[0][0] == "247 TFLOP/s per GPU do not match its tokens/s, which give 193"
    assert not as_executed[0]
    assert as_executed[1] == ["the source states 18.00% HFU, its tokens/s give 24.97% (megatron): -27.9%"]
    hardware, _ = records_of_rows(rows, mapping(text), "table.csv")
    assert hardware.reported_hfu == pytest.approx(247 / 989)
    assert hardware.hfu == pytest.approx(hardware.reported_hfu, rel=0.01)
    assert hardware.tflops_per_gpu == pytest.approx(989 * hardware.mfu), "model FLOPs, as in every record"
    assert (hardware.reported_mfu, json.loads(hardware.extra_json)["hardware_tflops_per_gpu"]) == (None, 247.0)


def test_a_percentage_of_the_peak_that_counts_recomputation_is_an_hfu_row_by_row():
    text = EXECUTED.replace(
        "flops_counted: executed", "flops_counted: {from: kind, values: {with recomputation: executed, model: model}}"
    )
    rows = [
        {**ROW, "ktok": 20.0, "mfu": 25.0, "kind": "with recomputation"},
        {**ROW, "ktok": 20.0, "mfu": 19.5, "kind": "model"},
    ]
    found = records_of_rows(rows, mapping(text), "table.csv")
    assert [(r.reported_mfu, r.reported_hfu) for r in found] == [
        (None, pytest.approx(0.25)),
        (pytest.approx(0.195), None),
    ]
    assert not any(findings(found))
    with pytest.raises(SweepError, match="the map's flops_counted names nothing"):
        records_of_rows([{**ROW, "kind": "other"}], mapping(text), "table.csv")


def test_a_table_that_states_tflops_alone_gives_rates():
    text = EXECUTED.replace('  reported_mfu: {from: mfu, unit: "%"}', "  tflops_per_gpu: tf")
    text = text.replace("  tokens_per_second_per_gpu: {from: ktok, unit: K tokens/s/GPU}\n", "")
    (record,) = records_of_rows([{**ROW, "tf": 247.0}], mapping(text), "table.csv")
    assert record.tokens_per_second_per_gpu == pytest.approx(20_000, rel=0.01)
    assert record.step_time_median_s == pytest.approx(4 * 2 * 4 * 4096 / 8 / record.tokens_per_second_per_gpu)


def test_frozen_weights_of_a_source_count_four_flops_each_and_are_another_run():
    text = MAP.replace("flops: playbook", "flops: nemo\nfrozen_weights: {from: task, values: {LoRA: true, SFT: false}}")
    lora, full = records_of_rows([{**ROW, "task": task} for task in ("LoRA", "SFT")], mapping(text), "table.csv")
    matrices = 1_342_177_280  # the 1B's, whose output projection is its embedding
    assert full.flops_per_token - lora.flops_per_token == 2 * matrices
    assert (lora.repeat, full.repeat) == (0, 0)
    assert json.loads(lora.params_json) == {"frozen_weights": True}


def test_a_source_that_multiplies_its_nominal_size_states_it():
    """The V100 tables' 8 s size: 1.3e9 as the model is called, not the shape's 1.34e9."""
    text = EXECUTED.replace("flops: megatron", "flops: bigscience-v100")
    text = text.replace("  nodes: nodes", "  nodes: nodes\n  parameters_total: {from: size, unit: billion}")
    (record,) = records_of_rows([{**ROW, "size": 1.3}], mapping(text), "table.csv")
    assert record.flops_per_token == 6 * 1.3e9
    assert record.hfu == pytest.approx(30_000 * 8 * 1.3e9 / 989e12)
    assert record.parameters_total > 1.34e9, "by the shape"


def of_two_sizes(**models):
    """One layout of the 80B and of the 70B (8 kv heads), both called big: MFU and tokens/s as each model has them."""
    text = MAP.replace("models: {small: 1B}", f"models: {json.dumps({'big': models['big']})}")
    found = []
    for name, rate in (("80B", 0.5), ("70B", 0.55), ("80B", 0.51)):
        alone = MAP.replace("models: {small: 1B}", f"models: {{big: {name}}}")
        row = {**ROW, "model": "big", "ktok": rate}
        (record,) = records_of_rows([row], mapping(alone), "table.csv")
        found.append({**row, "mfu": 100 * record.mfu})
    return records_of_rows(found, mapping(text), "table.csv")


def test_one_layout_recorded_for_two_model_sizes_under_one_label_becomes_two_models():
    first, other, again = of_two_sizes(big="80B")
    assert (first.model, other.model, again.model) == ("big", "big (70.6B)", "big")
    assert (first.repeat, other.repeat, again.repeat) == (0, 0, 1)
    (note,) = other.notes
    assert note.startswith("one layout is recorded for two sizes of big, or its MFU is wrong: with tokens/s it gives")
    assert note.endswith("in line 2")
    assert (other.mfu, other.flops_per_token) == (None, None), "the map's shape is not its"
    assert other.reported_mfu is not None
    assert not first.notes + again.notes


def test_a_label_of_several_shapes_has_for_each_row_the_one_whose_size_it_states():
    first, other, again = of_two_sizes(big=["80B", "70B"])
    assert [r.model for r in (first, other, again)] == ["big", "big (70.6B)", "big"]
    assert other.parameters_total == pytest.approx(70.6e9, rel=1e-2)
    assert other.mfu == pytest.approx(other.reported_mfu)
    assert not any(findings([first, other, again]))
    text = MAP.replace("models: {small: 1B}", "models: {big: [80B, 70B]}")
    text = text.replace("  nodes: nodes", "  nodes: nodes\n  parameters_total: {from: size, unit: billion}")
    rows = [{**ROW, "model": "big", "size": 70.6, "ktok": 0.5, "mfu": None, "status": s} for s in ("fine", "broke")]
    assert [r.model for r in records_of_rows(rows, mapping(text), "table.csv")] == ["big (70.6B)"] * 2


def test_two_measurements_of_one_model_are_repeats_and_a_corrected_mfu_is_no_other_model():
    base = records(ROW)[0]
    rows = [{**ROW, "ktok": rate, "mfu": 100 * base.mfu * rate / 30} for rate in (30.0, 7.0)]
    assert [(r.model, r.repeat) for r in records(*rows)] == [("small", 0), ("small", 1)]
    corrected = records(ROW, {**ROW, "mfu": ROW["mfu"] * 1.15})
    assert [(r.model, r.repeat, r.attempt) for r in corrected] == [("small", 0, 1), ("small", 0, 2)]


def import_of(tmp_path, *rows, text=MAP):
    source, map_file = tmp_path / "t.parquet", tmp_path / "m.yaml"
    map_file.write_text(text)
    pq.write_table(pa.Table.from_pylist(list(rows)), source)
    return import_file(source, map_file, tmp_path / "out.parquet")


def test_equal_figures_are_one_measurement_and_make_nothing_clear(tmp_path):
    """Two copies of every row: a spread of 0 between them would make any lead clear."""
    slower = {**ROW, "dp": 2, "tp": 4, "gas": 8, "ktok": 29.0}
    done = import_of(tmp_path, ROW, ROW, slower, slower, {**slower, "gib": None})
    assert done.stated_again == 3
    (row,) = winners([done.path])
    assert (row["verdict"], row["repeats"]) == ("unknown", 1)
    table = pq.read_table(done.path, columns=["run_id", "attempt", "final", "colour"]).to_pylist()
    assert [(row["attempt"], row["final"]) for row in table if "-dp4-" in row["run_id"]] == [(1, True), (2, False)]
    assert {row["colour"] for row in table} == {"red"}
    assert import_of(tmp_path, ROW, {**ROW, "gib": 21.0}).stated_again == 0, "another peak memory"


def test_rows_that_differ_in_what_the_map_does_not_distinguish_are_noted(tmp_path):
    """As torchtitan's rows with and without async TP: their median is no configuration's speed."""
    rows = [{**ROW, "kernel": kernel, "ktok": rate, "mfu": None} for kernel, rate in (("plain", 20.0), ("fused", 30.0))]
    rows += [{**row, "mbs": 1, "gas": 8, "ktok": row["ktok"] / 2} for row in rows]
    done = import_of(tmp_path, *rows)
    (row,) = winners([done.path])
    assert row["notes"] == ["2 rows of the source have this configuration, but differ in kernel"]
    assert (row["suspect"], row["value"]) == (False, 25_000)
    done = import_of(tmp_path, *rows, text=MAP + "params: {kernel: kernel}\n")
    (row,) = winners([done.path])
    assert (row["notes"], row["params"], row["value"]) == ([], {"kernel": "fused"}, 30_000)
    assert row["swept"] == ["kernel=fused"]


def test_a_parameter_is_read_as_a_column_is():
    text = MAP + "params: {async_tp: {from: colour, match: '(red)', values: {red: true}, otherwise: false}}\n"
    found = records_of_rows([ROW, {**ROW, "colour": "blue"}], mapping(text), "table.csv")
    assert [json.loads(record.params_json) for record in found] == [{"async_tp": True}, {"async_tp": False}]
    assert len({record.run_id for record in found}) == 2
    with pytest.raises(SweepError, match=r"no column 'shade', which gives params\.shade"):
        records_of_rows([ROW], mapping(MAP + "params: {shade: shade}\n"), "table.csv")
    with pytest.raises(SweepError, match="a parameter has no unit"):
        mapping(MAP + "params: {shade: {from: colour, unit: GiB}}\n")


def test_a_row_without_outcome_and_measurement_is_not_a_success():
    text = MAP.replace("  outcome: {from: status, values: {fine: ok, broke: unknown, OOM: oom_cuda}}\n", "")
    (record,) = records_of_rows([{**ROW, "ktok": None, "gib": None, "mfu": None}], mapping(text), "table.csv")
    assert (record.outcome, record.message) == ("unknown", "the source states neither outcome nor measurement")
    assert records_of_rows([ROW], mapping(text), "table.csv")[0].outcome == "ok"
    (record,) = records({**ROW, "ktok": None, "gib": None, "mfu": None})
    assert record.outcome == "ok", "as its source states"


def test_a_source_without_a_flops_convention_is_not_checked_by_ours(tmp_path):
    row = {**ROW, "mfu": 40.0}
    assert import_of(tmp_path, row).suspects
    assert not import_of(tmp_path, row, text=MAP.replace("flops: playbook", "")).suspects


def test_what_was_imported_is_read_as_runs_of_its_models(tmp_path):
    sizes = {1: ("OOM", None), 2: ("fine", 12.0), 4: ("broke", None), 8: ("fine", 18.0), 16: ("fine", 26.0)}
    rows = [{**ROW, "mbs": mbs, "gas": 64 // mbs, "status": s, "ktok": ktok} for mbs, (s, ktok) in sizes.items()]
    out = tmp_path / "out.parquet"
    write_results(out, records(*rows))
    found = read_recorded(out, ["small"])
    worked = dict(zip(found.candidates.columns["micro_batch_size"].tolist(), found.worked.tolist(), strict=True))
    assert worked == {1: False, 2: True, 4: False, 8: True, 16: True}
    with pytest.raises(SweepError, match="there are no runs of 9B"):
        read_recorded(out, ["9B"])


# Published tables, read from where the environment says.


def published(tmp_path, name, source):
    return import_file(table(f"{name}.csv"), MAPS / f"{source}.yaml", tmp_path / f"{source}.parquet")


def test_what_a_source_counts_otherwise_in_many_rows_is_said_once_and_flags_none(tmp_path):
    for rows, suspects, notes in ((3, 3, 0), (30, 0, 1)):
        done = import_of(tmp_path, *[{**ROW, "mfu": 40.0}] * rows)
        assert (len(done.suspects), len(done.notes)) == (suspects, notes)
    (note,) = done.shown()
    assert note.startswith("30 of 30 rows state MFU of ")


def test_of_torchtitans_table_the_best_is_as_published_and_the_three_retracted_mfu_values_alone_are_caught(tmp_path):
    """Its rows differ in async TP, the scaling of float8, compile and schedule, none of which is a layout's."""
    done = published(tmp_path, "torchtitan_performance", "torchtitan")
    assert [line for line, _ in done.suspects] == [12, 13, 14]
    found = {(row["model"], row["nodes"]): (row["value"], row["swept"]) for row in winners([done.path])}
    value, words = found["llama3-8B", 8]
    assert value == 5570.1
    assert {"fp8", "async_tp=true", "float8=tensorwise"} <= set(words)
    value, words = found["llama3.1-405B", 64]
    assert (value, "interleaved" in words) == (128, True)
    assert found["llama3.1-8B", 1][0] == 8532


def test_llm_foundrys_table_is_sound_and_its_mfu_reproduced(tmp_path):
    done = published(tmp_path, "mosaic_mpt_benchmarks", "llm-foundry")
    assert not done.suspects
    table = pq.read_table(done.path).to_pylist()
    worst = max(abs(row["reported_mfu"] / row["mfu"] - 1) for row in table)
    assert worst < 3e-3  # tokens/s/GPU are printed as whole numbers; H100 is taken to do 989.5 there


def test_an_import_writes_here_and_points_to_the_heatmap_only_where_it_has_a_speed(tmp_path, monkeypatch, command):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "map.yaml").write_text(MAP)
    for name, status in (("fine", "fine"), ("bad", "OOM")):
        row = {**ROW, "status": status, **({} if status == "fine" else {"ktok": "", "mfu": ""})}
        (tmp_path / f"{name}.csv").write_text(",".join(row) + "\n" + ",".join(map(str, row.values())) + "\n")
    code, _, err = command("import", "../fine.csv", "--map", "../map.yaml")
    assert code == 0, err
    assert [path.name for path in Path.cwd().iterdir()] == ["fine.results.parquet"]
    assert err.splitlines()[-1].startswith("next: `sweep heatmap fine.results.parquet` draws it")
    code, _, err = command("import", "../bad.csv", "--map", "../map.yaml")
    assert code == 0, err
    assert "sweep heatmap" not in err
    assert err.splitlines()[-1].startswith("no run has a speed: there is no best to draw; `sweep report bad.results")
    document = command.json("import", "../bad.csv", "--map", "../map.yaml", "--out", "again.parquet")
    assert (document["rows"], document["outcomes"]) == (1, {"oom_cuda": 1})


@pytest.mark.parametrize(
    ("column", "sizes", "notes"),
    [("grad_accum: n, ", (16, 2), 0), ("micro_batch_size: n, ", (2, 16), 0), ("", (1, 32), 1)],
)
def test_what_follows_from_the_equations_is_derived_not_flagged_and_not_invented_in_silence(
    tmp_path, column, sizes, notes
):
    """Both were 1, and each row suspect."""
    (tmp_path / "t.csv").write_text('model,N,tp,n,batch,rate\nLlama-3-8B,1,2,2,128,"9,367.5"\n')
    (tmp_path / "map.yaml").write_text(
        f"columns: {{model: model, nodes: N, tp: tp, {column}tokens_per_second_per_gpu: rate,\n"
        "  global_batch_tokens: {from: batch, unit: sequences}}\n"
        "constants: {sequence_length: 4096, gpu: h100}\n"
    )
    done = import_file(tmp_path / "t.csv", tmp_path / "map.yaml", tmp_path / "r.parquet")
    (row,) = pq.read_table(done.path).to_pylist()
    assert (row["micro_batch_size"], row["grad_accum"]) == sizes
    assert (row["dp"], row["global_batch_tokens"], row["tokens_per_second_per_gpu"]) == (4, 128 * 4096, 9367.5)
    begin = "neither micro_batch_size nor grad_accum is stated"
    assert [note.startswith(begin) for note in row["notes"] or []] == [True] * notes
    assert len(done.suspects) == notes
