"""Predictions in a plan: what cannot fit and why, predicted values, and cases without a prediction."""

import dataclasses
import re

import numpy as np
import pytest

from sweep.contract import FREE, Workload
from sweep.inputs.load import parse_grid
from sweep.physics import memory, pipeline, step_time
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.profiles import PROFILES, profile_of
from sweep.planning.build import build
from sweep.planning.expand import chunks, products
from sweep.planning.predict import Physics
from sweep.search.candidates import from_plan
from sweep.search.memory_model import UNKNOWN_TRAINER
from tests.support.made_plans import rows_of

AXES = frozenset({*FREE, "dtype", "compile"})
CHOICES = {"recompute": ("none", "selective", "full"), "weights_dtype": ("fp32", "bf16")}
NANOTRON = Workload(name="nanotron", main="x:y", axes=AXES, choices=CHOICES)
OURS = Workload(name="transformer", main="x:y", axes=AXES, choices=CHOICES, params={"weights_dtype": "fp32"})
TEXT = """\
models: [1B, 8B]
nodes: [1, 4]
sequence_length: 4096
global_batch: 1Mi
tp: [1, 2, 8]
pp: [1, 2, 4]
zero: [0, 1, 3]
micro_batch_size: [1, 3, 4, 16]
recompute: [none, full]
site: {gpu: h100, gpus_per_node: 8}
"""


def columns_of(row):
    return MODELS[row["model"]].as_dict() | {name: value for name, value in row.items() if value is not None}


@pytest.mark.parametrize("workload", [NANOTRON, OURS], ids=lambda workload: workload.name)
def test_a_candidate_is_rejected_by_memory_where_it_alone_is_predicted_not_to_fit(workload):
    rows = rows_of(TEXT, workload)
    profile, over = PROFILES[workload.name], 0
    for row in [row for row in rows if row["grad_accum"] is not None][::3]:
        columns = columns_of(row)
        fit = memory.fits(columns, GPUS["h100"], profile)
        reasons = [reason for reason in row["reasons"] if reason.startswith("memory: ")]
        assert bool(reasons) == (not fit.fits), row
        assert row["predicted_peak_bytes"] == int(memory.peak_bytes(columns, profile))
        for reason in reasons:
            over += 1
            needed = float(re.search(r"needs ([\d,.]+) GiB", reason)[1].replace(",", ""))
            assert needed == pytest.approx(float(fit.needed_bytes) / memory.GIB, rel=0.006)
            assert "the h100 has 79.6 GiB" in reason
    assert 20 < over < len(rows)


def test_the_reason_names_the_rank_that_needs_most():
    rows = rows_of(TEXT, NANOTRON)
    for row in rows:
        for reason in (r for r in row["reasons"] if r.startswith("memory: ")):
            columns = columns_of(row)
            present = [stage for stage in pipeline.STAGES if pipeline.exists(columns, stage)]
            heaviest = max(present, key=lambda stage: memory.breakdown(columns, PROFILES["nanotron"], stage)["total"])
            words = "a rank needs" if row["pp"] == 1 else f"a rank of the {heaviest} stage needs"
            assert words in reason


def test_what_has_no_layout_has_no_predicted_memory():
    """tp=3 does not divide eight GPUs, and micro-batches of 3 do not divide the batch."""
    rows = rows_of(TEXT.replace("tp: [1, 2, 8]", "tp: [1, 3]"), OURS, "models=[1B]", "nodes=[1]")
    assert {(row["tp"], row["micro_batch_size"]) for row in rows if row["predicted_peak_bytes"] is not None} == {
        (1, mbs) for mbs in (1, 4, 16)
    }
    assert {row["grad_accum"] is None for row in rows if row["predicted_peak_bytes"] is None} == {True}


def test_every_run_has_predictions():
    rows = rows_of(TEXT, NANOTRON)
    runs = [row for row in rows if row["status"] == "run"]
    assert len(runs) > 50
    for row in runs:
        alone = float(step_time.step_time_s(columns_of(row), GPUS["h100"], PROFILES["nanotron"]))
        assert row["predicted_step_s"] == pytest.approx(alone)
        assert row["predicted_s"] == pytest.approx(30 + 7 * alone)
    assert {row["predicted_step_s"] for row in rows if row["status"] == "rejected"} == {None}


def test_runs_that_may_not_fit_come_last_in_their_cell():
    rows = rows_of(TEXT, OURS, "models=[8B]", "nodes=[1]")
    limit = memory.usable_bytes(GPUS["h100"])
    runs = [columns_of(row) for row in rows if row["status"] == "run"]
    near = [bool(memory.fits(run, GPUS["h100"]).needed_bytes > limit) for run in runs]
    assert any(near)
    assert not all(near)
    assert near == sorted(near)


def test_nothing_is_rejected_by_memory_where_it_is_not_known():
    rows = rows_of(TEXT.replace("h100", "cpu"), NANOTRON)
    assert not [row for row in rows if any(reason.startswith("memory") for reason in row["reasons"])]
    assert {row["predicted_s"] for row in rows} == {row["predicted_step_s"] for row in rows} == {None}
    assert any(row["predicted_peak_bytes"] for row in rows)


def test_nothing_is_rejected_by_memory_without_a_memory_profile():
    rows = rows_of(TEXT, dataclasses.replace(NANOTRON, name="strange"))
    assert not [row for row in rows if any(reason.startswith("memory") for reason in row["reasons"])]
    assert {row["predicted_peak_bytes"] for row in rows} == {None}
    assert all(row["predicted_s"] for row in rows if row["status"] == "run")


RECIPE = """\
workload: nemo
params: {recipe: llama3_70b_pretrain_64gpu_gb300_fp8cs_config, keep: [model, all]}
models: [Llama-3-70B]
nodes: 16
sequence_length: 8192
global_batch: 2Mi
zero: 3
micro_batch_size: 2
dtype: fp8_tensorwise
site: {gpu: gb300, gpus_per_node: 4}
"""


def test_a_recipe_that_keeps_all_of_its_own_is_not_rejected_by_memory():
    """This one has 20 layers' activations on the host: measured in NVIDIA's container 26.04.01, 5,248 tokens/s."""
    grid = parse_grid(RECIPE, "grid.yaml")
    plan = build(grid, grid.site)
    assert [run.run().params["keep"] for run in plan.runs] == ["all"]
    ((reason,),) = [row for row in plan.table.column("reasons").to_pylist() if row]
    assert reason.endswith("up to 10 % more is accepted: the model's error)")
    assert len(build(parse_grid(f"{RECIPE}max_memory_share: 0.9\n", "grid.yaml"), grid.site).runs) == 1
    assert from_plan(plan.runs, GPUS["gb300"]).peaks.spreads == [UNKNOWN_TRAINER]


SIZED = """\
models: [1B]
nodes: [1]
sequence_length: 4096
global_batch: 1Mi
site: {gpu: h100, gpus_per_node: 8}
"""


def sized(share=None, times=1.0):
    """What is predicted of one candidate on a GPU with so many ``times`` its need: whether it is over, whether it is
    rejected, the columns of the reason, and the need in bytes."""
    grid = parse_grid(SIZED, "grid.yaml")
    (product,) = products(grid, grid.site, OURS)
    (columns,) = chunks(product)
    (row,) = rows_of(SIZED, OURS)
    needed = float(memory.fits(columns_of(row), GPUS["h100"]).needed_bytes)
    gpu = dataclasses.replace(GPUS["h100"], memory_bytes=times * needed / memory.GIB / memory.USABLE * 1e9)
    _, over = Physics(OURS.name, gpu, share).check(columns)
    return bool(over[0]), bool(np.any(columns["over memory"])), columns, needed


def test_what_needs_more_than_the_gpu_has_comes_late_and_more_than_the_models_error_is_rejected():
    margin = profile_of(OURS.name, {"weights_dtype": "fp32"}).margin
    for times, late, rejected in ((1.0, False, False), (0.99, True, False), (0.99 / (1 + margin), True, True)):
        over, broken, _, _ = sized(times=times)
        assert (over, broken) == (late, rejected), times


@pytest.mark.parametrize(("share", "rejected"), [(0.49, True), (0.5, False), (0.51, False)])
def test_a_grid_can_allow_less_than_the_gpus_memory(share, rejected):
    """max_memory_share replaces the model's error: of a GPU with twice the need, half is enough."""
    over, broken, columns, _ = sized(share, times=2.0)
    assert broken == rejected
    assert not over
    assert columns["memory allowance"] == f", max_memory_share allows {100 * share:g} % of it"


def test_a_memory_reason_states_what_is_allowed_for():
    _, _, columns, needed = sized()
    margin = profile_of(OURS.name, {"weights_dtype": "fp32"}).margin
    assert columns["memory allowance"] == (
        f", up to {100 * margin:g} % more is accepted: the model's error" if margin else ""
    )
    assert columns["usable GiB"] == round(needed / memory.GIB, 1)
    assert columns["gpu name"] == "the h100"
    assert columns["heaviest rank"] == "a rank"


def test_every_combination_of_what_changes_memory_is_predicted_by_its_own_profile():
    """Three sizes of the loss's chunks, compiled or not: six profiles in one plan."""
    text = TEXT + "params: {loss_chunk_tokens: [0, 1024, 2048]}\ncompile: [false, true]\n"
    workload = dataclasses.replace(OURS, params=OURS.params | {"loss_chunk_tokens": 2048})
    rows = rows_of(text, workload, "nodes=[1]", "models=[1B]", "tp=[1]", "pp=[1]", "micro_batch_size=[1]")
    seen = {}
    for row in [row for row in rows if row["grad_accum"] is not None]:
        chunk = next(size for size in (1024, 2048, 0) if str(size) in row["params"])
        profile = profile_of("transformer", {"loss_chunk_tokens": chunk}, compiled=row["compile"])
        assert row["predicted_peak_bytes"] == int(memory.peak_bytes(columns_of(row), profile))
        seen.setdefault((chunk, row["compile"]), row["predicted_peak_bytes"])
    assert len(seen) == 6
    assert seen[0, False] > 1.2 * seen[1024, False], "logits are not whole"


def test_the_kernel_of_attention_that_a_grid_chooses_is_the_one_predicted():
    """On an H100 cuDNN's, which torch takes by default, needs less time than FlashAttention 2."""
    workload = dataclasses.replace(OURS, params=OURS.params | {"attention": "auto"})
    text = TEXT + "params: {attention: [auto, flash, cudnn]}\n"
    rows = rows_of(text, workload, "nodes=[1]", "models=[1B]", "tp=[1]", "pp=[1]", "micro_batch_size=[1]", "dp=8")
    found = {}
    for row in rows:
        found.setdefault(next(name for name in ("cudnn", "flash", "auto") if name in row["params"]), row)
    seconds = {name: row["predicted_step_s"] for name, row in found.items()}
    assert seconds["auto"] == seconds["cudnn"] < seconds["flash"]
