"""The truth table: layouts whose training must equal the single process, and those that torch cannot do.

Every line: shape, layout, and other fields of the run. The global batch is 8 sequences throughout.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sweep.contract import Layout, Run
from tests.support.ranks.harness import SHAPES, a_run

SCHEDULES = (
    "gpipe",
    "1f1b",
    "interleaved_1f1b",
    "looped_bfs",
    "interleaved_zero_bubble",
    "zbv_zero_bubble",
    "dualpipev",
)


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    name: str
    layout: Layout
    shape: str = "dense"
    values: dict = field(default_factory=dict)
    params: dict = field(default_factory=dict)

    def run(self, **values) -> Run:
        return a_run(self.layout, shape=SHAPES[self.shape], params=self.params, **{**self.values, **values})

    def __str__(self) -> str:
        return self.name


def case(text: str, shape: str = "dense", *, params: dict | None = None, **values) -> Case:
    """``dp=2 tp=2 zero=3``: a layout as text. Without a micro-batch size, 8 sequences in micro-batches of 2."""
    fields = {}
    for word in text.split():
        key, value = word.split("=")
        fields[key] = int(value) if value.isdigit() else value
    fields.setdefault("micro_batch_size", 2)
    fields.setdefault("grad_accum", max(1, 4 // fields.get("dp", 1)))
    name = " ".join([text, *(f"{k}={v}" for k, v in {**(params or {}), **values}.items())])
    name += f" {shape}" * (shape != "dense")
    return Case(name, Layout(**fields), shape, values, params or {})


def _grid() -> list[Case]:
    alone = [case("dp=1"), case("dp=1 micro_batch_size=8 grad_accum=1"), case("dp=4"), case("tp=2"), case("cp=2")]
    alone += [case(f"dp=2 zero={z}") for z in range(4)]
    alone += [case(f"dp=2 zero={z} micro_batch_size=1 grad_accum=4") for z in range(4)]
    alone += [
        case("dp=4 zero=3", params={"shard_size": 2}),
        case("dp=4 zero=1", params={"shard_size": 2}),
        case("dp=2 zero=3", params={"reshard_after_forward": False}),
        case("tp=4", "wide"),
        case("cp=4"),
        case("cp=2", params={"cp_kind": "ulysses"}),
        case("tp=2", params={"sequence_parallel": False}),
        case("tp=2", params={"loss_parallel": False}),
        case("dp=2", params={"fused_optimizer": False}),
        case("pp=2", "wide", params={"last_stage_load": 0.0}),
        case("pp=2", "wide", params={"pp_layers": "3,5"}),
        case("pp=2 pp_schedule=interleaved_1f1b", "wide", params={"pp_layers": "1,4,2,1"}),
        case("pp=2 pp_schedule=zbv_zero_bubble", "wide", params={"pp_layers": "3,2,2,1"}),
        case("dp=2 pp=2 zero=1", params={"pp_layers": "1,3"}),
        case("dp=2", params={"attention": "math"}),
        *(case(text, params={"fused_projections": False}) for text in ("dp=2", "tp=2")),
        *(
            case(text, params={"loss_chunk_tokens": 24})
            for text in ("dp=1", "dp=2 zero=0", "dp=2 zero=3", "cp=2", "pp=2")
        ),
        case("dp=2 zero=3", "tied", params={"loss_chunk_tokens": 24}),
        case("pp=2 pp_schedule=interleaved_1f1b", "tied", params={"loss_chunk_tokens": 24}),
        case("dp=2 zero=3", "tied"),
        case("tp=2", "tied"),
        case("dp=2 recompute=full"),
        case("dp=2 recompute=selective"),
    ]
    alone += [case(f"pp=2 pp_schedule={s}") for s in SCHEDULES]
    alone += [case(f"pp=4 pp_schedule={s} micro_batch_size=1 grad_accum=8", "wide") for s in SCHEDULES]
    return alone


def _pairs() -> list[Case]:
    found = [case(f"dp=2 tp=2 zero={z}") for z in range(4)]
    found += [case(f"dp=2 pp=2 zero={z}") for z in range(4)]
    found += [case(f"dp=2 cp=2 zero={z}") for z in range(4)]
    found += [case(text, params={"cp_kind": "ulysses"}) for text in ("dp=2 cp=2 zero=3", "pp=2 cp=2")]
    found += [case("cp=2 recompute=selective", params={"cp_kind": "ulysses"})]
    found += [case("cp=2 ep=2", "moe", params={"cp_kind": "ulysses"})]
    found += [case(f"dp=2 pp=2 zero=2 pp_schedule={s} micro_batch_size=1 grad_accum=4") for s in SCHEDULES]
    found += [case(f"dp=2 pp=2 zero=3 pp_schedule={s}") for s in ("gpipe", "interleaved_1f1b", "looped_bfs")]
    found += [
        case(
            f"dp=2 pp=2 zero=3 pp_schedule={s} micro_batch_size=1 grad_accum=4",
            params={"reshard_after_forward": False},
        )
        for s in ("interleaved_zero_bubble", "zbv_zero_bubble", "dualpipev")
    ]
    found += [
        *(case(f"pp=2 pp_schedule={s}", "tied") for s in ("1f1b", "interleaved_1f1b", "zbv_zero_bubble")),
        case("dp=2 pp=2 zero=3", "tied"),
        case("tp=2 pp=2", "tied"),
        case("tp=2 pp=2"),
        case("tp=2 pp=2", params={"sequence_parallel": False}),
        case("tp=2 pp=2 pp_schedule=zbv_zero_bubble"),
        case("tp=2 cp=2"),
        case("tp=2 cp=2", "wide", params={"cp_kind": "ulysses"}),
        case("pp=2 cp=2"),
        case("tp=2 recompute=full"),
        case("tp=2 recompute=selective"),
        case("pp=2 recompute=full pp_schedule=zbv_zero_bubble"),
        case("pp=2 recompute=selective"),
        case("cp=2 recompute=full"),
        case("cp=2 recompute=selective"),
        case("dp=2 pp=2 zero=3", params={"mesh_order": "dp,pp,cp,tp"}),
    ]
    return found


def _three_and_four() -> list[Case]:
    return [
        case("dp=2 tp=2 pp=2"),
        case("dp=2 tp=2 pp=2 zero=1"),
        case("dp=2 tp=2 pp=2 zero=2 pp_schedule=zbv_zero_bubble micro_batch_size=1 grad_accum=4"),
        case("dp=2 tp=2 pp=2 zero=3"),
        case("dp=2 tp=2 pp=2 zero=3 recompute=full"),
        case("dp=2 tp=2 zero=3 recompute=full"),
        case("dp=2 tp=2 zero=3 recompute=selective"),
        case("dp=2 cp=2 tp=2 zero=3"),
        case("dp=2 cp=2 pp=2 zero=3"),
        case("cp=2 tp=2 pp=2 pp_schedule=interleaved_1f1b"),
        case("dp=4 tp=2 zero=3", params={"shard_size": 2}),
        case("dp=2 tp=2 pp=2 zero=2", params={"mesh_order": "dp,pp,cp,tp"}),
    ]


def _experts() -> list[Case]:
    found = [case(text, "moe") for text in ("dp=1", "dp=2", "tp=2", "cp=2", "pp=2")]
    found += [case(f"dp=2 ep=2 zero={z}", "moe") for z in range(4)]
    found += [case(f"dp=4 ep=2 zero={z} micro_batch_size=1 grad_accum=2", "moe") for z in range(4)]
    found += [
        case("dp=1", "moe", params={"grouped_experts": False}),
        case("dp=2 ep=2 zero=3", "moe", params={"grouped_experts": False}),
        case("dp=2 ep=2 recompute=full", "moe"),
        case("dp=2 ep=2 recompute=selective", "moe"),
        case("dp=2 ep=2 tp=2", "moe"),
        case("dp=2 ep=2 tp=2 zero=3", "moe"),
        case("tp=2", "moe", params={"sequence_parallel": False}),
        case("dp=2 ep=2 pp=2", "moe"),
        case("dp=2 ep=2 pp=2 zero=2", "moe"),
        case("dp=2 ep=2 pp=2 pp_schedule=zbv_zero_bubble", "moe"),
        case("cp=2 ep=2", "moe"),
        case("dp=2 cp=2 ep=4 zero=3", "moe"),
        case("dp=2 ep=2 tp=2 pp=2 zero=3", "moe"),
        case("dp=2 ep=2 tp=2 zero=2 recompute=selective", "moe"),
    ]
    return found


TABLE: list[Case] = [*_grid(), *_pairs(), *_three_and_four(), *_experts()]
"""each equals one process, in fp32 and in bf16"""

CHOSEN = (
    "dp=2 zero=0",
    "dp=2 zero=3",
    "dp=2 zero=2 micro_batch_size=1 grad_accum=4",
    "tp=2",
    "pp=2 pp_schedule=1f1b",
    "pp=2 pp_schedule=zbv_zero_bubble",
    "cp=2",
    "dp=2 recompute=selective",
    "dp=2 tp=2 zero=3",
    "dp=2 pp=2 zero=1",
    "dp=2 ep=2 zero=3 moe",
    "dp=2 cp=2 zero=3",
)
"""the lines checked in every test run"""

COMPILED: list[Case] = [
    case("dp=1", compile=True),
    case("dp=2 zero=3", compile=True),
    case("tp=2", compile=True),
    case("dp=2 tp=2 zero=3", compile=True),
    case("pp=2", compile=True),
    case("cp=2", compile=True),
    case("dp=2 zero=3 recompute=full", compile=True),
    case("dp=2 zero=3 recompute=selective", compile=True),
    case("dp=2 ep=2 zero=2", "moe", compile=True),
    case("tp=2", "moe", compile=True),
]

IMPOSSIBLE: list[tuple[str, Case]] = [
    ("zero3_by_zero_bubble", case("dp=2 pp=2 zero=3 pp_schedule=zbv_zero_bubble")),
    ("zero3_by_zero_bubble", case("dp=2 pp=2 zero=3 pp_schedule=interleaved_zero_bubble")),
    ("zero3_by_zero_bubble", case("dp=2 pp=2 zero=3 pp_schedule=dualpipev micro_batch_size=1 grad_accum=4")),
    ("selective_by_zero_bubble", case("pp=2 recompute=selective pp_schedule=zbv_zero_bubble")),
    ("selective_by_zero_bubble", case("pp=2 recompute=selective pp_schedule=interleaved_zero_bubble")),
    ("compile_by_zero_bubble", case("pp=2 pp_schedule=zbv_zero_bubble", compile=True)),
    ("compile_by_recompute_by_zero3_by_tp", case("dp=2 tp=2 zero=3 recompute=full", compile=True)),
]
"""rule -> a layout that torch 2.13 fails at, or computes wrongly without an error"""
