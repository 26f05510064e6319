"""A first map of a table is written from its columns' names, and imports it once it is completed."""

import json
import os
from pathlib import Path

import pytest
import yaml

from sweep.foreign.files import import_file
from sweep.inputs.yaml_lines import load
from tests.support import driving

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
    assert yaml.safe_load(text) == {
        "name": "mine",
        "columns": {
            "model": "Model Name",
            "gpus": "#GPUs",
            "sequence_length": "Seq Len",
            "tp": "TP Size",
            "pp": "PP",
            "micro_batch_size": "MBS",
            "global_batch_tokens": {"from": "GBS", "unit": "sequences"},
            "dtype": {"from": "Precision", "values": {"BF16": "bf16", "FP8_rowwise": "fp8_rowwise"}},
            "tokens_per_second_per_gpu": "Tokens/s/GPU",
            "step_time_median_s": {"from": "Iter Time (ms)", "unit": "ms"},
            "reported_mfu": {"from": "MFU (%)", "unit": "%"},
            "peak_memory_bytes": {"from": "Peak Mem (GB)", "unit": "GB"},
            "outcome": {"from": "Status", "values": {"success": "ok", "CUDA OOM": "oom_cuda"}},
        },
        "constants": {"workload": "mine"},
        "models": {"llama3-8B": "Llama-3-8B"},
    }
    remarks = [line for line in text.splitlines() if line.startswith("#")]
    assert [line.partition(":")[0] for line in remarks] == ["# missing", "# models", "# flops", "# not recognised"]
    assert json.loads(remarks[-1].partition(": ")[2]) == "Who\x1b"
    assert "\x1b" not in text


def test_shortened_words_are_read_too(tmp_path):
    head = "Experiment,Net,#GPU,tensor-par,pipe-par,data-par,mbs,GBS (seqs),ctx,tok/s,HBM peak (GB),OK?"
    text = suggested(
        tmp_path, f'{head}\na1,llama3 8b,8,1,1,8,2,256,4096,"96,412.5",71.2,yes\na2,llama3 8b,8,,,,,,,,,no\n'
    )
    assert load(text, "map.yaml").value["columns"] == {
        "model": "Net",
        "gpus": "#GPU",
        "sequence_length": "ctx",
        "dp": "data-par",
        "tp": "tensor-par",
        "pp": "pipe-par",
        "micro_batch_size": "mbs",
        "global_batch_tokens": {"from": "GBS (seqs)", "unit": "sequences"},
        "tokens_per_second": "tok/s",
        "peak_memory_bytes": {"from": "HBM peak (GB)", "unit": "GB"},
        "outcome": {"from": "OK?", "values": {"yes": "ok", "no": "unknown"}},
    }
    assert next(line for line in text.splitlines() if "missing" in line).startswith("# missing: gpu;")
    (tmp_path / "map.yaml").unlink()
    shorter = suggested(tmp_path, "Model,#GPU,pipe,mbsz,seq,tok/s/GPU\n8B,8,1,2,4096,9000\n")
    found = load(shorter, "map.yaml").value["columns"]
    assert (found["pp"], found["micro_batch_size"], found["sequence_length"]) == ("pipe", "mbsz", "seq")


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


def test_what_it_writes_imports_the_table_once_completed(tmp_path):
    suggested(tmp_path, TABLE)
    given = yaml.safe_load((tmp_path / "map.yaml").read_text())
    given["constants"]["gpu"], given["models"]["mine"] = "h100", "Llama-3-8B"
    (tmp_path / "map.yaml").write_text(yaml.safe_dump(given))
    done = import_file(tmp_path / "mine.csv", tmp_path / "map.yaml", tmp_path / "out.parquet")
    assert (done.rows, dict(done.outcomes), done.suspects) == (2, {"ok": 1, "oom_cuda": 1}, [])


def test_a_micro_batch_is_recognised_or_missing(tmp_path):
    table = "Model,GPUs,Seq Len,Micro BS,tok/s/gpu\nmeta-llama/Meta-Llama-3-8B,8,4096,2,9000\n"
    (tmp_path / "known").mkdir()
    text = suggested(tmp_path / "known", table)
    assert yaml.safe_load(text)["columns"]["micro_batch_size"] == "Micro BS"
    assert yaml.safe_load(text)["models"] == {"meta-llama/Meta-Llama-3-8B": "Llama-3-8B"}
    assert "missing: micro_batch_size (or grad_accum)" in suggested(tmp_path, table.replace("Micro BS", "Colour"))


def test_a_map_that_is_there_is_kept(tmp_path):
    (tmp_path / "map.yaml").write_text("mine")
    (tmp_path / "mine.csv").write_text(TABLE)
    done = driving.run("import", tmp_path / "mine.csv", "--suggest-map", tmp_path / "map.yaml")
    assert done.returncode == 2
    assert "map.yaml: exists, and is not overwritten" in done.stderr
    assert (tmp_path / "map.yaml").read_text() == "mine"


@pytest.mark.skipif("SWEEP_REFERENCE_DATA" not in os.environ, reason="the published tables are not here")
@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        ("vtrain_multi_node", {"model", "gpus", "tp", "pp", "dp", "global_batch_tokens", "step_time_median_s"}),
        ("playbook_runs", {"model", "nodes", "zero", "tokens_per_second_per_gpu", "peak_memory_bytes", "outcome"}),
        ("nemo_performance", {"model", "gpu", "gpus", "dtype", "ep", "virtual_stages", "tokens_per_second_per_gpu"}),
        ("mosaic_mpt_benchmarks", {"model", "gpu", "recompute", "tokens_per_second", "reported_mfu", "reported_hfu"}),
    ],
)
def test_published_tables_are_recognised(tmp_path, table, wanted):
    text = suggested(tmp_path, (Path(os.environ["SWEEP_REFERENCE_DATA"]) / f"{table}.csv").read_text(), table)
    assert wanted <= yaml.safe_load(text)["columns"].keys()
