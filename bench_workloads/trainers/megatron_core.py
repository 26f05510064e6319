"""What Megatron-LM and Megatron-Bridge share: a run's axes as fields of Megatron Core, and the axes that fields state;
what Core refuses of them (`TransformerConfig.__post_init__`).

Fields of `transformer/transformer_config.py` and `model_parallel_config.py` of megatron-core 0.16.1 and of main of
August 2026 (d98e8a6).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bench_workloads.decoder import Columns, any_of, where
from bench_workloads.trainers.adapter import ParsedLine, Reader
from sweep.contract import FORMATS, ROUTINGS, Rule, Run, Scalar
from sweep.physics.schedules import looped_stages

DTYPES: dict[str, dict[str, Scalar]] = {
    "bf16": {},
    "fp16": {},
    "fp32": {},
    "fp8_delayed": {"fp8": "hybrid", "fp8_recipe": "delayed"},
    "fp8_tensorwise": {"fp8": "hybrid", "fp8_recipe": "tensorwise"},
    "fp8_blockwise": {"fp8": "e4m3", "fp8_recipe": "blockwise"},
    "mxfp8": {"fp8": "e4m3", "fp8_recipe": "mxfp8"},
    "nvfp4": {"fp4": "e2m1", "fp4_recipe": "nvfp4"},
}
"""formats as Megatron-Bridge pairs them (`training/mixed_precision.py`), of blockwise as `moe/README.md` does"""
DISPATCHERS: dict[str, dict[str, Scalar]] = {
    "allgather": {"moe_token_dispatcher_type": "allgather"},
    "alltoall": {"moe_token_dispatcher_type": "alltoall"},
    "deepep": {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "deepep"},
    "hybridep": {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "hybridep"},
}
CHOICES: dict[str, tuple[Scalar, ...]] = {
    "recompute": ("none", "selective", "full"),
    "pp_schedule": ("1f1b", "interleaved_1f1b"),
    "dispatcher": tuple(DISPATCHERS),
    "routing": ROUTINGS,
    "checkpoint": ("none", "sync", "async"),
}
"""values of axes and parameters that both have"""
PRECISION = frozenset(name for values in DTYPES.values() for name in values)
"""their fields"""
MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
"""of `recompute_modules`"""
FULL_ITERATION = "full_iteration"
LISTS = ("recompute_modules", "cuda_graph_scope")
"""fields whose values are words with commas"""


def fields(run: Run) -> dict[str, Scalar]:
    """The run's axes as fields; None: not set."""
    layout = run.layout
    # 0.16 has full_iteration as a scope of local graphs; main reads that as an implementation of its own.
    graphs = {
        "cuda_graph_impl": "local" if layout.cuda_graphs == FULL_ITERATION else "transformer_engine",
        "cuda_graph_scope": layout.cuda_graphs,
    }
    return {
        **DTYPES[run.dtype],
        "tensor_model_parallel_size": layout.tp,
        "pipeline_model_parallel_size": layout.pp,
        "pipeline_model_parallel_layout": layout.pipeline_layout or None,
        "context_parallel_size": layout.cp,
        **_recompute(run),
        **(_experts(run) if run.shape["num_experts"] else {}),
        **(graphs if layout.cuda_graphs != "none" else {}),
    }


def virtual_stages(run: Run) -> int | None:
    """Stages per rank; None where there is one."""
    layout = run.layout
    if layout.pipeline_layout:
        per_rank = _stages(layout.pipeline_layout) // layout.pp
        return per_rank if per_rank > 1 else None
    looped = layout.pp > 1 and layout.pp_schedule == "interleaved_1f1b"
    return looped_stages(layout.virtual_stages) if looped else None


def _stages(text: str) -> int:
    """Stages of an explicit layout, such as `Et*3|(tt|)*29,mL` (`PipelineParallelLayerLayout.parse_str_to_list`)."""
    while repeated := re.search(r"\(([^()]*)\)\*(\d+)", text):
        text = text.replace(repeated[0], repeated[1] * int(repeated[2]))
    return text.count("|") + 1


def _experts(run: Run) -> dict[str, Scalar]:
    layout = run.layout
    dispatcher = DISPATCHERS[layout.dispatcher]
    return {
        "expert_model_parallel_size": layout.ep,
        "expert_tensor_parallel_size": layout.etp or None,
        **dispatcher,
        "moe_router_dtype": "fp32" if "moe_flex_dispatcher_backend" in dispatcher else None,  # DeepEP has no other
        "moe_router_force_load_balancing": layout.routing == "balanced",
    }


def _recompute(run: Run) -> dict[str, Scalar]:
    layout = run.layout
    full = layout.recompute == "full"
    return {
        "recompute_granularity": None if layout.recompute == "none" else layout.recompute,
        "recompute_modules": (layout.recompute == "selective" and layout.recompute_modules) or None,
        "recompute_method": ("block" if layout.recompute_layers else "uniform") if full else None,
        "recompute_num_layers": (layout.recompute_layers or 1) if full else None,
    }


def axes(stated: Mapping[str, str], run: Run) -> dict[str, Scalar]:
    """The axes that a program's own list of its fields states. What is absent there has Core's default.

    Of axes that a run leaves to the trainer, nothing is stated.
    """
    texts = {name: text.strip("'\" ").removeprefix("torch.") for name, text in stated.items()}
    field = {name: text for name, text in texts.items() if text not in ("None", "null", "[]", "")}
    found: dict[str, Scalar] = {
        "dtype": _dtype(field),
        "fp8_params": any(
            _true(field, name) for name in ("fp8_param_gather", "fp8_param", "fp4_param_gather", "fp4_param")
        ),
        "recompute_layers": int(field.get("recompute_num_layers", 0)) * (field.get("recompute_method") == "block"),
        "tp_overlap": _true(field, "tp_comm_overlap"),
        "cuda_graphs": _graph_scopes(field),
    }
    layout = run.layout
    if layout.virtual_stages > 1:
        found["virtual_stages"] = int(field.get("virtual_pipeline_model_parallel_size", 1))
    if layout.recompute_modules:
        found["recompute_modules"] = ",".join(re.findall(r"\w+", field.get("recompute_modules", "")))
    if layout.pipeline_layout:
        found["pipeline_layout"] = field.get("pipeline_model_parallel_layout", "")
    if layout.etp:
        found["etp"] = int(field.get("expert_tensor_parallel_size", 0))
    if not run.shape["num_experts"]:
        return found
    flex = field.get("moe_token_dispatcher_type") == "flex"
    return found | {
        "dispatcher": field.get("moe_flex_dispatcher_backend" if flex else "moe_token_dispatcher_type", "allgather"),
        "ep_overlap": _true(field, "overlap_moe_expert_parallel_comm"),
        "routing": "balanced" if _true(field, "moe_router_force_load_balancing") else "natural",
    }


class StatedAxes:
    """Reads what ``lines`` does, and a program's own list of its fields: at its end the axes are stated."""

    def __init__(self, run: Run, lines: Reader, begins: str, field: str, ends: str) -> None:
        self._run, self._lines = run, lines
        self._begins, self._field, self._ends = map(re.compile, (begins, field, ends))
        self._found: dict[str, str] | None = None

    def read(self, line: str) -> list[ParsedLine]:
        """What was parsed from the line."""
        return [*self._lines.read(line), *self._axes(line)]

    def _axes(self, line: str) -> Iterator[ParsedLine]:
        if self._begins.search(line):
            self._found = {}
        elif self._found is not None and self._ends.search(line):
            found, self._found = self._found, None
            yield ParsedLine(effective=axes(found, self._run))
        elif self._found is not None and (match := self._field.search(line)):
            self._found[match[1]] = match[2]


def _true(field: Mapping[str, str], name: str) -> bool:
    return field.get(name, "").lower() == "true"


def _dtype(field: Mapping[str, str]) -> str:
    if "fp4" in field:
        return field.get("fp4_recipe", "nvfp4")
    if "fp8" in field:
        recipe = field.get("fp8_recipe", "delayed")
        return recipe if recipe in FORMATS else f"fp8_{recipe}"
    return next((name for name in ("bf16", "fp16") if _true(field, name)), "fp32")


def _graph_scopes(field: Mapping[str, str]) -> str:
    """As text: of enumerations (`<CudaGraphModule.attn: 2>`) the names."""
    text = field.get("cuda_graph_modules", field.get("cuda_graph_scope", ""))
    scopes = re.findall(r"\.(\w+)", text) or re.findall(r"[a-z]\w*", text)
    implementation = field.get("cuda_graph_impl", "none")
    if implementation in ("none", FULL_ITERATION):
        return implementation
    return ",".join(scopes) or "full"


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
