"""The examples of 2026 on a real Slurm, to a heatmap: what trainers print is played in their place."""

import json
import sys
from pathlib import Path

import pandas as pd
import pytest

import analysis
from analysis.heatmap.draw import draw
from sweep.physics import flops
from sweep.physics.catalogue import MODELS
from sweep.plugins import TRAINER
from tests.support import driving
from tests.support.drawn_heatmaps import sound, words
from tests.support.paths import REPOSITORY
from tests.support.slurm.cluster import Cluster

pytestmark = [pytest.mark.long, pytest.mark.slurm, pytest.mark.timeout(1500)]
PLAY = REPOSITORY / "tests/support/trainers/recorded/play.py"
TITAN = ("workload=torchtitan", "zero=3", "etp=0", "ep_overlap=false", "dtype=[bf16,fp8_rowwise]")
TITAN += ("dispatcher=[alltoall,deepep]", "params={}")
"""as the example's own comment says"""


@pytest.fixture(scope="module")
def wide_cluster():
    with Cluster(nodes=64, gpus_per_node=8) as cluster:
        yield cluster


def launched(tmp_path, cluster, example, *overrides, trainer, model, rate):
    """The sweep's records; its heatmap is beside them. Few sequences per step: it takes a second or less."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {PLAY} "$@"\n')
    python.chmod(0o755)
    convention = flops.CONVENTIONS[TRAINER.find(trainer).convention]
    per_token = flops.model_flops_per_token(MODELS[model], 8192 if model == "Llama-3-8B" else 4096, convention)
    given = ("global_batch=null", "tokens_per_gpu=8Ki", "iterations=3", "remeasure=0", "stop_slow=off", *overrides)
    given += (f"params.python={python}", f"env={{PLAYED_RATE: '{rate}', PLAYED_FLOPS: '{per_token}'}}")
    words = [word for one in given for word in ("-o", one)]
    launch = ("launch", REPOSITORY / "examples" / example, "--dir", tmp_path / "s", "--executor", "slurm", "--yes")
    done = driving.succeeds(*launch, "--json", *words, env=cluster.env, timeout=1400)
    summary = json.loads(done.stdout)
    assert set(summary["counts"]) <= {"ok", "not_run_budget", "not_run_strategy"}, summary
    assert Path(summary["heatmap"]).read_bytes().startswith(b"\x89PNG")
    assert not any(record["suspect"] for record in driving.records_of(tmp_path / "s"))
    return analysis.load(tmp_path / "s")


def shown(records):
    """What a heatmap of 7 columns shows; each text is legible and within its cell."""
    columns = range(1, 8)
    if records["nodes"].nunique() == 1:
        records = pd.concat([records.assign(nodes=count) for count in columns])
    assert sorted(records["nodes"].unique()) == list(columns)
    drawn = draw(records)
    sound(drawn)
    return words(drawn)


def test_qwen3_in_megatron_over_seven_node_counts(tmp_path, wide_cluster):
    few = ("nodes={from: 1, to: 7}", "ep=8", "etp=1", "tp=2", "micro_batch_size=1", "ep_overlap=true")
    few += ("routing=balanced",)
    about = {"trainer": "megatron", "model": "Qwen3-30B-A3B", "rate": 9000}
    found = launched(tmp_path, wide_cluster, "qwen3-30b-a3b.yaml", *few, **about)
    text = shown(found)
    for part in ("EP8", "FP8-block", "deepep", "balanced", "ETP1", "ep-overlap"):
        assert part in text


def test_qwen3_in_torchtitan(tmp_path, wide_cluster):
    about = {"trainer": "torchtitan", "model": "Qwen3-30B-A3B", "rate": 9000}
    found = launched(tmp_path, wide_cluster, "qwen3-30b-a3b.yaml", *TITAN, "tp=1", "budget.runs=6", **about)
    text = shown(found)
    for part in ("EP", "FP8-row", "alltoall", "balanced"):  # DeepEP goes with bf16 only, which is slower here
        assert part in text


def test_llama3_in_torchtitan(tmp_path, wide_cluster):
    about = {"trainer": "torchtitan", "model": "Llama-3-8B", "rate": 9000}
    few = ("tp=1", "zero=3", "micro_batch_size=1", "recompute=none")
    found = launched(tmp_path, wide_cluster, "llama3-8b-fp8.yaml", *few, **about)
    assert set(found["dtype"]) == {"bf16", "fp8_rowwise"}
    assert "FP8-row" in shown(found)


def test_deepseek_in_bridge_on_256_ranks(tmp_path, wide_cluster):
    about = {"trainer": "nemo", "model": "DeepSeek-V3", "rate": 2500}
    few = ("pp=2", "ep=32", "virtual_stages=[4, 8]", "dtype=mxfp8", "routing=balanced", "tokens_per_gpu=4Ki")
    found = launched(tmp_path, wide_cluster, "deepseek-v3.yaml", *few, "budget.runs=4", **about)
    text = shown(found)
    for part in ("PP2", "mxfp8", "interleaved", "VP8", "EP32", "balanced"):
        assert part in text
