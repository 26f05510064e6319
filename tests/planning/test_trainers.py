"""What a plan accepts of a trainer, and what not: where trainers differ, the rule is the trainer's."""

import json

import pytest

from tests.support.made_plans import rows_of

THREE_B = (
    "{num_layers: 28, hidden_size: 3072, num_heads: 32, intermediate_size: 8192, vocab_size: 131072, "
    "tied_embeddings: %s}"
)


def plan_of(trainer, further="", tied="false", **axes):
    words = "".join(f"{name}: {json.dumps(value)}\n" for name, value in axes.items())
    text = (
        f"workload: {trainer}\nmodels: {{m: {THREE_B % tied}}}\nnodes: [16]\nsequence_length: 4096\n"
        f"global_batch: {2**20}\nmicro_batch_size: 1\nsite: {{gpu: h100, gpus_per_node: 8}}\n{words}{further}"
    )
    return {row["pp"]: row["reasons"] for row in rows_of(text)}


def test_nanotron_pipelines_more_stages_than_layers_since_norm_head_cast_and_loss_are_blocks_too():
    found = plan_of("nanotron", pp=[16, 32, 64], tp=1, tied="true")
    assert found[16] == found[32] == []
    assert found[64] == ["layers_by_stages: pp=64 stages for 28 layers and 4 further blocks"]


def test_torchtitan_counts_embedding_and_output_as_a_layer_each_and_two_stages_on_a_rank():
    found = plan_of("torchtitan", pp=[16, 32], tp=1)
    assert not found[16]
    assert found[32] == [
        "layers_by_stages: 28 layers, embedding and output projection are fewer than the stages of pp=32 (1f1b)"
    ]
    looped = plan_of("torchtitan", pp=[8, 16], tp=1, pp_schedule="interleaved_1f1b")
    assert not looped[8]
    assert looped[16][0].startswith("layers_by_stages: 28 layers, embedding and output projection are fewer than")


@pytest.mark.parametrize(
    ("trainer", "further"),
    [("picotron", "params: {model_name: m}\n"), ("megatron", ""), ("nemo", ""), ("transformer", "")],
)
def test_other_trainers_need_a_layer_for_each_stage(trainer, further):
    (reasons,) = plan_of(trainer, further, pp=[32], tp=1).values()
    assert "layers_by_stages" in {reason.split(":")[0] for reason in reasons}


def peak_of(trainer, model, micro_batch, params):
    """Of eight GPUs under tp, by the plan."""
    text = (
        f"workload: {trainer}\nmodels: [{model}]\nnodes: [1]\nsequence_length: 4096\nglobal_batch: {2**20}\ntp: 8\n"
        f"micro_batch_size: {micro_batch}\nparams: {{{params}}}\nsite: {{gpu: h200, gpus_per_node: 8}}\n"
    )
    (row,) = rows_of(text)
    return row["predicted_peak_bytes"]


@pytest.mark.parametrize("trainer", ["megatron", "nemo"])
def test_megatron_without_sequence_parallelism_needs_more_memory_by_the_plan(trainer):
    """What sequence parallelism splits, 10 s b h a layer (arXiv 2205.05198, table 2), is whole on each rank."""
    split, whole = (peak_of(trainer, "Llama-2-13B", 2, f"sequence_parallel: {on}") for on in ("true", "false"))
    layers, tokens, hidden = 40, 2 * 4096, 5120
    norms_and_residual = 8 * tokens * hidden * layers  # no dropout, so without its two bytes
    assert whole - split == pytest.approx(norms_and_residual * (1 - 1 / 8), rel=0.02)


def test_nanotrons_all_reduce_mode_is_no_sequence_parallelism():
    split, whole = (peak_of("nanotron", "8B", 1, f"tp_mode: {mode}") for mode in ("REDUCE_SCATTER", "ALL_REDUCE"))
    assert whole > 1.1 * split


def test_megatron_trains_experts_under_tp_only_with_sequence_parallelism():
    text = (
        "workload: megatron\nmodels: [Mixtral-8x7B]\nnodes: [8]\nsequence_length: 4096\nglobal_batch: 1048576\n"
        "tp: [1, 2]\nep: 8\nzero: 1\nrecompute: full\nparams: {sequence_parallel: false}\n"
        "site: {gpu: h200, gpus_per_node: 8}\n"
    )
    reasons = {row["tp"]: row["reasons"] for row in rows_of(text)}
    assert not reasons[1]
    assert reasons[2] == [
        "experts_without_sequence_parallelism: Megatron trains experts under tp=2 only with sequence_parallel: true"
    ]


@pytest.mark.parametrize("trainer", ["megatron", "nemo"])
def test_context_parallelism_of_megatron_cuts_the_sequence_into_twice_cp(trainer):
    """Each rank has a part from the front and one from the back, so that causal attention is balanced."""
    for sequence, works in ((4096, True), (4100, False)):
        text = (
            f"workload: {trainer}\nmodels: [1B]\nnodes: [1]\nsequence_length: {sequence}\n"
            f"global_batch: {sequence * 8}\ncp: 4\nmicro_batch_size: 1\nsite: {{gpu: h100, gpus_per_node: 8}}\n"
        )
        (row,) = rows_of(text)
        assert (row["status"] == "run") == works
        assert works or [reason.split(":")[0] for reason in row["reasons"]] == ["sequence_by_cp"]
