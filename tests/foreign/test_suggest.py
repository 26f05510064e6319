"""A first map of a table is written from its columns' names, and imports it once it is completed."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from sweep.foreign.files import import_file
from sweep.inputs.yaml_lines import load
from tests.support import driving
from tests.support.refusals import mistakes_of

SUGGESTED, NAMES = (
    yaml.safe_load((Path(__file__).parent / name).read_text()) for name in ("suggested.yaml", "column_names.yaml")
)
TABLE = """\
Model Name,#GPUs,Seq Len,TP Size,PP,MBS,GBS,Precision,Iter Time (ms),Tokens/s/GPU,Peak Mem (GB),MFU (%),Status,Who\x1b
llama3-8B,16,8192,2,1,1,128,BF16,"6,553.6",10000,61.2,43.1,success,ann
mine,16,8192,4,1,1,128,FP8_rowwise,,,,,CUDA OOM,bob
"""


def suggested(folder, table, name="mine"):
    (folder / f"{name}.csv").write_text(table)
    driving.succeeds("import", folder / f"{name}.csv", "--suggest-map", folder / "map.yaml")
    return (folder / "map.yaml").read_text()


def test_odd_names_units_and_values_are_recognised(tmp_path):
    text = suggested(tmp_path, TABLE)
    assert yaml.safe_load(text) == SUGGESTED
    remarks = [line for line in text.splitlines() if line.startswith("#")]
    assert [line.partition(":")[0] for line in remarks] == ["# missing", "# models", "# flops", "# not recognised"]
    assert json.loads(remarks[-1].partition(": ")[2]) == "Who\x1b"
    assert "\x1b" not in text


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_usual_names_of_columns_are_recognised(tmp_path, names):
    text = suggested(tmp_path, ",".join(names) + "\n" + ",".join("1" * len(names)) + "\n")
    found = {reading if isinstance(reading, str) else reading["from"]: name for name, reading in load(
        text, "map.yaml").value["columns"].items()}  # fmt: skip
    assert {name: found.get(name) for name in names} == names


def test_what_no_column_gives_is_named_as_missing(tmp_path):
    text = suggested(tmp_path, "GBS (seqs),HBM peak (GB),OK?\n256,71.2,yes\n,,no\n")
    assert load(text, "map.yaml").value["columns"] == {
        "global_batch_tokens": {"from": "GBS (seqs)", "unit": "sequences"},
        "peak_memory_bytes": {"from": "HBM peak (GB)", "unit": "GB"},
        "outcome": {"from": "OK?", "values": {"yes": "ok", "no": "unknown"}},
    }
    missing = [line.removeprefix("# missing: ").partition(";")[0] for line in text.splitlines() if "missing" in line]
    assert missing == ["model", "sequence_length", "nodes (or gpus)", "gpu", "micro_batch_size (or grad_accum)"]


def test_a_batch_that_no_column_gives_is_named_once(tmp_path):
    table = "model,gpus,seq len,mbs,tokens/s\n8B,8,4096,1,9000\n8B,8,4096,2,9500\n"
    suggested(tmp_path, table)
    given = yaml.safe_load((tmp_path / "map.yaml").read_text())
    given["constants"]["gpu"] = "h100"
    for constants, number in (({}, 1), ({"global_batch_tokens": 131072}, 0)):
        given["constants"] |= constants
        (tmp_path / "map.yaml").write_text(yaml.safe_dump(given))
        done = import_file(tmp_path / "mine.csv", tmp_path / "map.yaml", tmp_path / "out.parquet")
        assert "\n".join(done.notes).count("one micro-batch per step is taken") == number
        assert not done.suspects


PUBLISHED = """\
Net\tgpu\tworld_size\tSeq\tParallel Config\tZeRO Stage\tsamples_per_sec\tPeak mem (GiB)\tMFU\tThroughput (K tok/s)
llama3-8b\th100\t8\t8192\tTP4PP2\tZeRO-1\t2.5\t61.5\t10.66%\t20.48
llama3-8b\tGaudi3\t8\t8192\tdp4-tp2\tZeRO-3\t5\t61,952 MiB\t0.2\t40.96
llama3-8b\tH100 SXM\t8\t8192\ttp=8\tstage2\tOOM\t-\t-\t
llama3-8b\tH100 SXM\t8\t8192\ttp=1\tstage2\t-1\t-\t-\t
"""
"""Spellings of Alpa's, torchtitan's and Hugging Face's tables and of a W&B export"""


def test_a_table_as_it_is_published_imports_by_what_is_suggested(tmp_path):
    text = suggested(tmp_path, PUBLISHED)
    assert '# gpu: "Gaudi3" is not known' in text
    given = yaml.safe_load(text)
    assert given["columns"]["tokens_per_second"] == {"from": "samples_per_sec", "unit": "sequences/s"}
    given["constants"]["micro_batch_size"] = 1
    for reading in (None, {"from": "Throughput (K tok/s)", "unit": "K tokens/s"}):
        given["columns"] |= {"tokens_per_second": reading} if reading else {}
        (tmp_path / "map.yaml").write_text(yaml.safe_dump(given))
        done = import_file(tmp_path / "mine.csv", tmp_path / "map.yaml", tmp_path / "out.parquet")
        assert dict(done.outcomes) == {"ok": 2, "unknown": 1, "oom_cuda": 1}
        found = {row["outcome"] + str(row["gpu"]): row for row in pq.read_table(tmp_path / "out.parquet").to_pylist()}
        first, second = found["okh100"], found["okGaudi3"]
        assert [first[name] for name in ("dp", "tp", "pp", "zero")] == [1, 4, 2, 1]
        assert [second[name] for name in ("dp", "tp", "pp", "zero")] == [4, 2, 1, 3]
        assert first["tokens_per_second_per_gpu"] == pytest.approx(2.5 * 8192 / 8)
        assert (first["reported_mfu"], second["reported_mfu"]) == (pytest.approx(0.1066), 0.2)
        assert (first["peak_memory_bytes"], second["peak_memory_bytes"]) == (61.5 * 2**30, 61952 * 2**20)


def test_a_row_that_has_another_measurement_did_not_fail(tmp_path):
    table = "model,gpus,seq,zero,Mtok/s/GPU,TFLOPS\n8B,8,4096,2.0,0.01,\n8B,16,4096,none,,400\n8B,8,8192,3,OOM,-\n"
    columns = yaml.safe_load(suggested(tmp_path, table))["columns"]
    assert columns["outcome"] == {"from": "Mtok/s/GPU", "values": {"OOM": "oom_cuda"}, "otherwise": "ok"}
    given = {"columns": columns, "constants": {"micro_batch_size": 1, "gpu": "h100"}, "models": {"8B": "Llama-3-8B"}}
    (tmp_path / "map.yaml").write_text(yaml.safe_dump(given))
    done = import_file(tmp_path / "mine.csv", tmp_path / "map.yaml", tmp_path / "out.parquet")
    assert dict(done.outcomes) == {"ok": 2, "oom_cuda": 1}
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert {(row["gpus"], row["sequence_length"]): row["zero"] for row in rows} == {
        (8, 4096): 2,
        (16, 4096): None,
        (8, 8192): 3,
    }
    assert max(row["tokens_per_second_per_gpu"] or 0 for row in rows) >= 10_000


@pytest.mark.parametrize(("cell", "unit"), [("4M tokens", "sequences"), ("1024 sequences", "tokens")])
def test_a_cell_in_a_unit_that_counts_something_else_is_refused(tmp_path, cell, unit):
    (tmp_path / "mine.csv").write_text(f"model,gpus,sequence_length,gbs,tokens_per_second\n1B,8,4096,{cell},1000\n")
    columns = {name: name for name in ("model", "gpus", "sequence_length", "tokens_per_second")}
    given = {"columns": {**columns, "global_batch_tokens": {"from": "gbs", "unit": unit}}}
    (tmp_path / "map.yaml").write_text(yaml.safe_dump(given))
    (mistake,) = mistakes_of(import_file, tmp_path / "mine.csv", tmp_path / "map.yaml", tmp_path / "out.parquet")
    assert mistake.fact == "gbs is not a number, as global_batch_tokens is"


@pytest.mark.parametrize("table", ["rate\n1000\n", '"rate","a\tb"\n1000,2\n'])
def test_one_column_or_a_tab_in_a_name_still_is_a_table(tmp_path, table):
    (tmp_path / "mine.csv").write_text(table)
    constants = {"model": "1B", "gpus": 8, "sequence_length": 4096}
    given = {"columns": {"tokens_per_second": "rate"}, "constants": constants}
    (tmp_path / "map.yaml").write_text(yaml.safe_dump(given))
    done = import_file(tmp_path / "mine.csv", tmp_path / "map.yaml", tmp_path / "out.parquet")
    assert dict(done.outcomes) == {"ok": 1}


@pytest.mark.parametrize(
    ("table", "fact"),
    [
        ("model,tp,tp,tok/s\n8B,1,2,3\n", "column 3 has the name of an earlier one"),
        ("| model | tok/s |\n|---|---|\n", "not a CSV table"),
        ('{"model": "8B", "tp": 1}\n', "not a CSV table"),
    ],
)
def test_what_is_no_table_of_named_columns_is_refused(tmp_path, table, fact):
    (tmp_path / "mine.csv").write_text(table)
    (mistake,) = mistakes_of(import_file, tmp_path / "mine.csv", None, tmp_path / "out.parquet")
    assert mistake.fact == fact


def test_a_map_that_is_there_is_kept(tmp_path):
    (tmp_path / "map.yaml").write_text("mine")
    (tmp_path / "mine.csv").write_text(TABLE)
    done = driving.run("import", tmp_path / "mine.csv", "--suggest-map", tmp_path / "map.yaml")
    assert done.returncode == 2
    assert "map.yaml: exists, and is not overwritten" in done.stderr
    assert (tmp_path / "map.yaml").read_text() == "mine"
