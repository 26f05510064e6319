"""What Megatron Core refuses of the axes that its two programs share (`TransformerConfig.__post_init__`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench_workloads.decoder import Columns, any_of, where
from bench_workloads.trainers.megatron_core import FULL_ITERATION, MODULES
from sweep.contract import FORMATS, Rule
from sweep.physics.schedules import looped_stages


def _words(name: str, wrong: Callable[[list[str]], bool]) -> Callable[[Columns], Any]:
    """Where the words of a column are wrong."""
    return where(name, lambda text: wrong(text.split(",")))


def _names(name: str, *words: str) -> Callable[[Columns], Any]:
    """Where a column's words have one of these."""
    return _words(name, lambda found: any(word in words for word in found))


def _no_scopes(found: list[str]) -> bool:
    alone = {"none", FULL_ITERATION, "full"}
    scopes = {*found} <= {"attn", "mlp", "moe_router", "moe_preprocess", "mamba"}
    return not ((len(found) == 1 and {*found} <= alone) or scopes) or ("moe_preprocess" in found) > (
        "moe_router" in found
    )


def quantized(c: Columns) -> Any:
    """Where the dtype is a recipe of 8 or 4 bits."""
    return any_of(c["dtype"], FORMATS)


def chunks(c: Columns) -> Any:
    """Stages per rank."""
    interleaved = (c["pp"] > 1) & (c["pp_schedule"] == "interleaved_1f1b")
    return 1 + interleaved * (looped_stages(c["virtual_stages"]) - 1)


RULES = (
    Rule(
        "ep_by_replicas",
        lambda c: (c["etp"] == 0) & (c["dp"] * c["cp"] % c["ep"] != 0),
        "ep={ep} does not divide dp*cp = {dp}*{cp}: each expert is split over tp={tp} ranks, unless etp says otherwise",
    ),
    Rule(
        "layers_by_stages",
        lambda c: (c["pipeline_layout"] == "") & (c["num_layers"] % (c["pp"] * chunks(c)) != 0),
        "{num_layers} layers cannot be split evenly over the stages of pp={pp} ({pp_schedule}): state pipeline_layout",
    ),
    Rule(
        "micro_batches_by_pp",
        lambda c: (c["pp"] > 1) & (c["pp_schedule"] == "interleaved_1f1b") & (c["grad_accum"] % c["pp"] != 0),
        "the interleaved schedule needs grad_accum={grad_accum} to be a multiple of pp={pp}",
    ),
    Rule(
        "recompute_modules",
        lambda c: (
            (c["recompute_modules"] != "")
            & (
                _words("recompute_modules", lambda found: not {*found} <= {*MODULES})(c)
                | ((c["num_experts"] == 0) & _names("recompute_modules", "moe", "moe_act", "shared_experts")(c))
                | ((c["kv_rank"] == 0) & _names("recompute_modules", "mla_up_proj")(c))
                | ((c["dtype"] == "fp8_delayed") & _names("recompute_modules", "moe_act", "layernorm")(c))
            )
        ),
        "recompute_modules: {recompute_modules!r}; Megatron has core_attn, mlp, except in fp8_delayed layernorm and "
        "moe_act, of experts moe_act, moe, shared_experts, and of latent attention mla_up_proj",
    ),
    Rule(
        "recompute_layers",
        lambda c: (c["recompute"] == "selective") & (c["recompute_layers"] > 0),
        "Megatron recomputes {recompute_layers} layers of a stage with recompute: full only",
    ),
    Rule(
        "routing",
        where("routing", lambda text: text.startswith("skewed")),
        "routing: {routing}: Megatron Core forces even loads of the experts, or biases of a normal distribution "
        "(moe_router_force_biased, which params.arguments can set), but no Zipf exponent",
    ),
    Rule(
        "cuda_graphs",
        lambda c: (
            _words("cuda_graphs", _no_scopes)(c)
            | ((c["num_experts"] == 0) & _names("cuda_graphs", "moe_router", "moe_preprocess")(c))
            | ((c["num_experts"] > 0) & (c["dense_layers"] == 0) & _names("cuda_graphs", "mlp")(c))
            | ((c.get("keep", "") == "") & _names("cuda_graphs", "mamba")(c))
        ),
        "cuda_graphs: {cuda_graphs!r}; Megatron has none, full_iteration, full, or some of attn, mlp (dense layers), "
        "moe_router and with it moe_preprocess (of experts), and mamba of a model that a recipe keeps",
    ),
    Rule(
        "recompute_in_cuda_graphs",
        lambda c: (c["recompute"] == "full") & (c["cuda_graphs"] != "none") & (c["cuda_graphs"] != FULL_ITERATION),
        "full recomputation goes with cuda_graphs: full_iteration only, not with {cuda_graphs}",
    ),
    Rule(
        "ep_overlap",
        lambda c: (
            (c["ep_overlap"] == True)  # noqa: E712
            & (
                (c["dispatcher"] == "allgather")
                | (c["dtype"] == "fp32")
                | (c["recompute"] == "full")
                | _names("recompute_modules", "moe")(c)
                | _names("cuda_graphs", "mlp", "moe")(c)
                | ((c["pp"] > 1) & (c["pp_schedule"] != "interleaved_1f1b"))
            )
        ),
        "ep_overlap goes with neither allgather ({dispatcher}) nor fp32, no recomputation in full "
        "or of moe, no graphs of mlp or moe, and with pp the interleaved schedule ({pp_schedule})",
    ),
    Rule(
        "tp_overlap",
        lambda c: (c["tp_overlap"] == True) & ((c["tp"] == 1) | (c["sequence_parallel"] == False)),  # noqa: E712
        "tp_overlap needs tp > 1 and sequence_parallel: true, and is dropped without",
    ),
    Rule(
        "fp8_params",
        lambda c: (c["fp8_params"] == True) & (~quantized(c) | (c["zero"] == 0)),  # noqa: E712
        "fp8_params needs a recipe of 8 or 4 bits (dtype: {dtype}) and the distributed optimizer (zero: {zero})",
    ),
)
