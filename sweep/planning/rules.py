"""What makes a candidate infeasible for any trainer, and the rules of the grid and the workload.

General rules must not reject what real trainers have run: uneven layers per stage, replicated kv heads, tp wider than
a node where the grid allows it. What only one workload or schedule needs belongs to its declaration.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from sweep.contract import DERIVED, FORMATS, Rule, Run, Workload
from sweep.expressions import holds
from sweep.inputs.grid import AXES, DEFAULTS, Grid
from sweep.inputs.site import Site
from sweep.physics import shapes
from sweep.physics.columns import expert_width
from sweep.physics.groups import WITHOUT_ETP
from sweep.physics.hardware import Gpu
from sweep.physics.profiles import PROFILES
from sweep.physics.schedules import LOOPED
from sweep.planning.effects import with_effect


def layers_by_stages(beyond: int) -> Rule:
    """More stages than what a trainer can place: the layers, and ``beyond`` that it places by themselves."""
    blocks = f" and {beyond} further blocks" if beyond else ""
    return Rule(
        "layers_by_stages",
        lambda c: c["pp"] > c["num_layers"] + beyond,
        f"pp={{pp}} stages for {{num_layers}} layers{blocks}",
    )


GENERAL: tuple[Rule, ...] = (
    Rule(
        "gpu_equation",
        lambda c: ~np.asarray(c["dp is whole"]),
        "tp*pp*cp = {tp}*{pp}*{cp} = {model parallel} does not divide the {gpus} GPUs",
    ),
    Rule(
        "batch_equation",
        lambda c: ~np.asarray(c["batch is near"]),
        "dp*micro_batch_size*sequence_length = {dp tokens:,} tokens: the nearest batch is {nearest tokens:,}, "
        "not {asked tokens:,} (tolerance {tolerance percent:g} %)",
    ),
    Rule(
        "heads_by_tp",
        lambda c: c["num_heads"] % c["tp"] != 0,
        "tp={tp} does not divide the {num_heads} attention heads",
    ),
    Rule(
        "kv_heads_by_tp",
        lambda c: (c["num_kv_heads"] % c["tp"] != 0) & (c["tp"] % c["num_kv_heads"] != 0),
        "tp={tp} and the {num_kv_heads} kv heads: neither divides the other",
    ),
    layers_by_stages(max(profile.stages_beyond_layers for profile in PROFILES.values())),
    Rule(
        "micro_batches_by_pp",
        lambda c: c["grad_accum"] < c["pp"] - 1,
        "grad_accum={grad_accum} micro-batches cannot fill pp={pp} stages (at least pp-1)",
    ),
    Rule(
        "sequence_by_cp",
        lambda c: c["sequence_length"] % c["cp"] != 0,
        "cp={cp} does not divide the sequence of {sequence_length}",
    ),
    Rule(
        "experts_by_ep",
        lambda c: c["num_experts"] % c["ep"] != 0,
        "ep={ep} does not divide the {num_experts} experts",
    ),
    Rule(
        "ep_without_experts",
        lambda c: (c["ep"] > 1) & (c["num_experts"] == 0),
        "ep={ep}, but {model} has no experts",
    ),
    Rule(
        "ep_by_replicas",
        lambda c: c["dp"] * c["cp"] * c["tp"] % c["ep"] != 0,
        "ep={ep} does not divide dp*cp*tp = {dp}*{cp}*{tp}",
    ),
    Rule(
        "etp_by_replicas",
        lambda c: (c["etp"] > 0) & (c["dp"] * c["cp"] * c["tp"] % (c["ep"] * np.maximum(c["etp"], 1)) != 0),
        "ep*etp = {ep}*{etp} does not divide dp*cp*tp = {dp}*{cp}*{tp}",
    ),
    Rule(
        "experts_by_etp",
        lambda c: c["moe_intermediate_size"] % np.maximum(c["etp"], 1) != 0,
        "etp={etp} does not divide an expert's width of {moe_intermediate_size}",
    ),
    Rule(
        "virtual_stages_by_schedule",
        lambda c: (c["virtual_stages"] > 1) & ~np.isin(c["pp_schedule"], LOOPED),
        f"virtual_stages={{virtual_stages}} needs a looped schedule ({', '.join(LOOPED)}), not {{pp_schedule}}",
    ),
    Rule(
        "recompute_layers_by_stages",
        lambda c: c["recompute_layers"] * c["pp"] >= c["num_layers"] + c["pp"] - 1,
        "recompute_layers={recompute_layers} are all of a stage's: {num_layers} layers over pp={pp}; 0 means all",
    ),
)
NVLINK_BYTES_PER_S = 128e9
"""more than PCIe 5.0 has with 16 lanes, both directions together"""
_SUPPORTED_TORCH = (*(Version(f"2.{minor}") for minor in range(11, 60)), Version("9999"))
"""the oldest torch that the project supports"""


def rules_for(grid: Grid, site: Site, workload: Workload) -> tuple[Rule, ...]:
    """Every rule that the candidates of the grid must pass, in the order of their reasons.

    A workload's rule replaces the general one of the same name.
    """
    own = own_rules(workload, site.torch_version)
    return (
        *general_rules(workload), *_tp_in_links(grid, site), *_split(grid, site, workload), *_of_gpu(site.hardware),
        *_not_varied(workload), *own, *_looped_ones(grid), *_stated(grid),
    )  # fmt: skip


def _tp_in_links(grid: Grid, site: Site) -> tuple[Rule, ...]:
    where = "a node" if site.linked_gpus == site.gpus_per_node else "the NVLink domain"
    reason = f"tp={{tp}} is wider than {where} of {site.linked_gpus} GPUs (tp_across_nodes: true allows it)"
    return () if grid.tp_across_nodes else (Rule("tp_within_node", lambda c: c["tp"] > site.linked_gpus, reason),)


def _split(grid: Grid, site: Site, workload: Workload) -> tuple[Rule, ...]:
    """What no domain can hold, where its size is known before the nodes are; the rest a pilot leaves out."""
    if grid.split != "reject" or site.linked_gpus == site.gpus_per_node:
        return ()
    width = 1 if workload.name in WITHOUT_ETP else None
    reason = f"a group of tp={{tp}} or ep={{ep}} (etp={{etp}}) is wider than a domain of {site.linked_gpus} GPUs"

    def wide(c: Mapping[str, Any]) -> Any:
        return np.maximum(c["tp"], np.where(c["ep"] > 1, c["ep"] * (width or expert_width(c)), 1)) > site.linked_gpus

    return (Rule("split", wide, f"{reason} (split: reject)"),)


def general_rules(workload: Workload) -> tuple[Rule, ...]:
    """The general rules without those that the workload replaces; of stages that of its own profile."""
    replaced = {rule.name for rule in workload.rules}
    profile = PROFILES.get(workload.name)
    stages = [layers_by_stages(profile.stages_beyond_layers)] if profile else []
    return tuple(rule for name, rule in {r.name: r for r in (*GENERAL, *stages)}.items() if name not in replaced)


def own_rules(workload: Workload, torch_version: str | None) -> tuple[Rule, ...]:
    """The workload's rules that hold for a version of torch."""
    return tuple(rule for rule in workload.rules if applies(rule, torch_version))


def broken_by_run(run: Run, workload: Workload) -> list[str]:
    """Why a workload cannot run a run that another one measured. Its shape has every field."""
    layout = run.layout
    facts = {name: getattr(run, name) for name in ("model", "nodes", "gpus", "gpus_per_node", "sequence_length")}
    columns = {
        **dict.fromkeys(shapes.FURTHER, 0), **run.shape, **facts, **dataclasses.asdict(layout), "dtype": run.dtype,
        "compile": run.compile, **workload.params, **run.params, "model parallel": layout.tp * layout.pp * layout.cp,
        "dp is whole": layout.gpus == run.gpus, "batch is near": True,
    }  # fmt: skip
    columns = with_effect(columns, workload)
    rules = (*general_rules(workload), *own_rules(workload, None))
    return [rule.reason.format_map(columns) for rule in rules if np.any(rule.broken(columns))]


def applies(rule: Rule, torch_version: str | None) -> bool:
    """Whether a rule about torch versions holds. For an unknown version: whether it holds for any supported one."""
    versions = _SUPPORTED_TORCH if torch_version is None else (Version(torch_version),)
    return not rule.torch or any(SpecifierSet(rule.torch).contains(v, prereleases=True) for v in versions)


def _of_gpu(gpu: Gpu) -> tuple[Rule, ...]:
    """What the site's kind of GPU cannot do. Nothing where its speeds are unknown."""
    if not gpu.peaks_flops:
        return ()
    lacking = {name for name, kind in FORMATS.items() if kind not in gpu.peaks_flops}
    # Scales of 16 or 32 elements are applied by matrix units that have 4-bit products too (NVIDIA Blackwell, CDNA 4).
    lacking |= {"mxfp8", "nvfp4"} if "fp4" not in gpu.peaks_flops else set()
    slow = gpu.link_bytes_per_s is not None and gpu.link_bytes_per_s <= NVLINK_BYTES_PER_S
    # Megatron-Bridge, training/flex_dispatcher_backend.py: DeepEP on Ampere, Hopper, B200 and B300, not on GB200.
    unfit = {"deepep", "hybridep"} if slow else {"deepep"} if gpu.link_domain else set()
    why = (
        "which needs NVLink or Infinity Fabric"
        if slow
        else "which is not made for racks of one NVLink domain (hybridep is)"
    )
    return (
        Rule(
            "dtype_by_gpu",
            lambda c: np.isin(c["dtype"], sorted(lacking)),
            f"the {gpu.name} has no matrix products in {{dtype}}",
        ),
        Rule(
            "dispatcher_by_gpu",
            lambda c: np.isin(c["dispatcher"], sorted(unfit)),
            f"dispatcher={{dispatcher}}, {why}: not on the {gpu.name}",
        ),
    )


def _looped_ones(grid: Grid) -> tuple[Rule, ...]:
    """In a looped schedule 1 means the trainer's own number: beside others it would be one of them again."""
    return () if len(grid.virtual_stages) == 1 else (
        Rule(
            "virtual_stages_by_schedule",
            lambda c: (c["virtual_stages"] == 1) & np.isin(c["pp_schedule"], LOOPED),
            "virtual_stages=1 is no number of stages for {pp_schedule}",
        ),
    )  # fmt: skip


def _not_varied(workload: Workload) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            f"{axis}_not_varied",
            lambda c, axis=axis: c[axis] != DEFAULTS[axis],  # type: ignore[misc]
            f"the workload {workload.name} cannot vary {axis}: {{{axis}}} asked, only {DEFAULTS[axis]} possible"
            + (f" ({workload.lacks[axis]})" if axis in workload.lacks else ""),
        )
        for axis in AXES
        if axis not in workload.axes
    )


def _stated(grid: Grid) -> Iterator[Rule]:
    """The grid's own limits: on what is derived, its constraints, and the points that it excludes."""
    for name in DERIVED:
        if (values := getattr(grid, name)) is not None:
            asked = functools.partial(lambda c, name, values: ~np.isin(c[name], values), name=name, values=values)
            yield Rule(f"{name}_asked", asked, f"{name}={{{name}}} is not among the grid's {name}")
    for i, text in enumerate(grid.constraints):
        fails = functools.partial(lambda c, text: np.logical_not(holds(text, c)), text=text)
        yield Rule(f"constraints[{i}]", fails, f"{_literal(text)} does not hold")
    for i, point in enumerate(grid.exclude):
        words = ", ".join(f"{name}={'|'.join(map(str, values))}" for name, values in point.items())
        yield Rule(f"exclude[{i}]", functools.partial(_matches, point=point), f"{_literal(words)} is excluded")


def included(columns: Mapping[str, Any], grid: Grid) -> Any:
    """The candidates that ``include`` states."""
    return functools.reduce(np.logical_or, (_matches(columns, point) for point in grid.include), np.False_)


def _matches(columns: Mapping[str, Any], point: Mapping[str, tuple[Any, ...]]) -> Any:
    matched: Any = np.True_
    for name, values in point.items():
        column = np.asarray(columns[name])
        equal: Any = np.False_
        for value in values:
            equal = equal | (column == value)
        matched = matched & equal
    return matched


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
