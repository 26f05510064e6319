"""The schema of records: every column with type, unit and meaning, the same from journal to figure.

A column is a field of ``Record``: its type, its unit (empty where the value has none) and its meaning.
Values without a column of their own are in columns that hold JSON.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, TypeAlias, get_args, get_type_hints

from sweep.outcomes import BY_A_PART, Outcome

if TYPE_CHECKING:
    import pyarrow as pa


SCHEMA_VERSION = 1
"""Increase when a column changes its meaning: results of another version are rebuilt from the journals."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Which attempt of which run, and when."""

    run_id: Annotated[str, "", "readable slug and 16 hex digits of the run's canonical JSON"]
    attempt: Annotated[int, "", "1 for the first execution of the run"]
    repeat: Annotated[int | None, "", "0 for the first measurement of the configuration"] = None
    sweep_name: Annotated[str | None, "", "name of the grid"] = None
    pilot: Annotated[str, "", "pilot that made the attempt"]
    job_id: Annotated[str | None, "", "scheduler's job id, null for a local process"] = None
    started_at: Annotated[float | None, "unix s", "start of the attempt"] = None
    ended_at: Annotated[float | None, "unix s", "end of the attempt, its teardown included"] = None


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """What ran, and on how many GPUs: what makes two records measurements of the same thing."""

    workload: Annotated[str | None, "", "registered name of the workload or trainer"] = None
    model: Annotated[str | None, "", "name that the grid gives"] = None
    shape_json: Annotated[str | None, "", "fields of the model's shape, as JSON"] = None
    parameters_total: Annotated[int | None, "parameters", "parameters of the model, by its shape"] = None
    parameters_active: Annotated[
        int | None, "parameters", "parameters that one token passes (experts: shared and chosen)"
    ] = None
    nodes: Annotated[int | None, "", "nodes of the allocation"] = None
    gpus_per_node: Annotated[int | None, "", "ranks on each node"] = None
    gpus: Annotated[int | None, "", "nodes * gpus_per_node"] = None
    gpu: Annotated[str | None, "", "kind of the accelerator, `cpu` where there is none, null where not known"] = None
    sequence_length: Annotated[int | None, "tokens", "tokens of one sequence"] = None
    dp: Annotated[int | None, "", "data-parallel replicas"] = None
    tp: Annotated[int | None, "", "tensor-parallel width"] = None
    pp: Annotated[int | None, "", "pipeline stages"] = None
    cp: Annotated[int | None, "", "context-parallel width"] = None
    ep: Annotated[int | None, "", "expert-parallel width"] = None
    zero: Annotated[int | None, "", "ZeRO stage, 0 to 3"] = None
    micro_batch_size: Annotated[int | None, "sequences", "per micro-batch and replica"] = None
    grad_accum: Annotated[int | None, "", "micro-batches per optimizer step"] = None
    recompute: Annotated[str | None, "", "none, selective or full"] = None
    pp_schedule: Annotated[str | None, "", "pipeline schedule; no effect where pp is 1"] = None
    dtype: Annotated[str | None, "", "number format of the forward and backward pass, or its recipe"] = None
    etp: Annotated[int | None, "", "expert-tensor-parallel width; 0: the trainer's own"] = None
    virtual_stages: Annotated[int | None, "", "pipeline stages per rank; in a looped schedule 1 means 2"] = None
    pipeline_layout: Annotated[str | None, "", "what each pipeline stage has; empty: the trainer's own split"] = None
    recompute_modules: Annotated[str | None, "", "what selective recomputation drops; empty: its own choice"] = None
    recompute_layers: Annotated[int | None, "", "layers of each stage that are recomputed; 0: all"] = None
    dispatcher: Annotated[str | None, "", "how tokens reach experts on other ranks"] = None
    tp_overlap: Annotated[bool | None, "", "tensor-parallel communication during the products it feeds"] = None
    ep_overlap: Annotated[bool | None, "", "exchange of tokens during another micro-batch's computation"] = None
    cuda_graphs: Annotated[str | None, "", "what is replayed as CUDA graphs"] = None
    fp8_params: Annotated[bool | None, "", "weights kept or gathered in 8 bits"] = None
    routing: Annotated[str | None, "", "how tokens choose experts: natural, balanced or skewed:S"] = None
    compile: Annotated[bool | None, "", "torch.compile"] = None
    global_batch_tokens: Annotated[int | None, "tokens", "dp * micro_batch_size * grad_accum * sequence_length"] = None
    warmup_iterations: Annotated[int | None, "", "untimed iterations"] = None
    iterations: Annotated[int | None, "", "timed iterations that were requested"] = None
    params_json: Annotated[str | None, "", "the workload's own parameters, as JSON"] = None
    env_json: Annotated[str | None, "", "environment variables that the run sets, as JSON"] = None


@dataclass(frozen=True, kw_only=True)
class Rates:
    """How fast it ran."""

    tokens_per_second: Annotated[float | None, "tokens/s", "global_batch_tokens / step_time_median_s"] = None
    tokens_per_second_per_gpu: Annotated[float | None, "tokens/s/GPU", "tokens_per_second / gpus"] = None
    step_time_median_s: Annotated[float | None, "s", "median over iterations of step_times_s"] = None
    step_time_min_s: Annotated[float | None, "s", "smallest of step_times_s"] = None
    step_time_max_s: Annotated[float | None, "s", "largest of step_times_s"] = None
    step_times_s: Annotated[list[float] | None, "s", "per timed iteration, the slowest rank's time"] = None
    warmup_times_s: Annotated[list[float] | None, "s", "per warm-up iteration, the first rank's time"] = None
    rank_step_time_median_s: Annotated[list[float] | None, "s", "per rank, the median of its own times"] = None


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """How much of the hardware it used."""

    tflops_per_gpu: Annotated[float | None, "1e12 FLOP/s", "model FLOPs per second and GPU"] = None
    mfu: Annotated[float | None, "fraction", "model FLOP/s over the dense peak FLOP/s; 0.42 is 42 %"] = None
    hfu: Annotated[float | None, "fraction", "executed FLOP/s (with recomputation) over the dense peak FLOP/s"] = None
    mfu_of_bf16: Annotated[
        float | None, "fraction", "of a run in 8 bits or fewer: model FLOP/s over the dense bf16 peak FLOP/s"
    ] = None
    flops_per_token: Annotated[float | None, "FLOP", "model FLOPs of one token, forward and backward"] = None
    peak_tflops_per_gpu: Annotated[
        float | None, "1e12 FLOP/s", "the dense peak FLOP/s that mfu and hfu are relative to"
    ] = None
    flops_convention: Annotated[str | None, "", "how FLOPs were counted"] = None
    energy_j_per_token: Annotated[
        float | None, "J", "energy of the GPUs per token in timed steps, by their own counters; null if one has none"
    ] = None
    reported_mfu: Annotated[float | None, "fraction", "MFU as an imported source reports it"] = None
    reported_hfu: Annotated[float | None, "fraction", "HFU as an imported source reports it"] = None


@dataclass(frozen=True, kw_only=True)
class MemoryColumns:
    """What it took of the devices' memory."""

    peak_memory_bytes: Annotated[int | None, "bytes", "largest over ranks of the peak, as memory_kind states"] = None
    peak_memory_reserved_bytes: Annotated[
        int | None, "bytes", "largest over ranks of the allocator's reserved peak"
    ] = None
    rank_peak_memory_bytes: Annotated[list[int | None] | None, "bytes", "per rank"] = None
    memory_kind: Annotated[str | None, "", "what peak_memory_bytes counts"] = None


@dataclass(frozen=True, kw_only=True)
class Training:
    """The model, and its training."""

    losses: Annotated[list[float] | None, "", "mean loss of each iteration, warm-up included"] = None
    grad_norms: Annotated[list[float] | None, "", "gradient norm of each iteration, warm-up included"] = None
    rank_parameters: Annotated[list[int | None] | None, "", "parameters built on each rank"] = None
    simulated: Annotated[bool | None, "", "true: no model was trained, the times are simulated"] = None


@dataclass(frozen=True, kw_only=True)
class JobCosts:
    """What a job has to do besides its steps, as the first rank states it; null where it does not."""

    checkpoint_stall_s: Annotated[float | None, "s", "for how long training waited for it"] = None
    checkpoint_slowdown: Annotated[float | None, "fraction", "how much longer steps took while it was written"] = None
    checkpoint_durable_s: Annotated[float | None, "s", "from its start until all ranks had flushed it"] = None
    graphs_compiled: Annotated[int | None, "", "by torch.compile on a rank; 0: all were in the cache on disk"] = None
    checkpoint_restore_s: Annotated[float | None, "s", "to read it into the same layout"] = None


@dataclass(frozen=True, kw_only=True)
class Metrics(JobCosts, Training, MemoryColumns, Efficiency, Rates):  # the fields of the last base come first
    """What was measured. Only attempts that are ok have rates and efficiency."""


@dataclass(frozen=True, kw_only=True)
class VerdictColumns:
    """How it ended, and what is odd about it."""

    outcome: Annotated[Outcome, "", "how the attempt ended; ok or a named failure"]
    message: Annotated[str | None, "", "what happened, as text"] = None
    evidence: Annotated[str | None, "", "the line that proves the outcome"] = None
    advice: Annotated[str | None, "", "what to try"] = None
    stopped: Annotated[
        str | None, "", "`slow`: ended early, since it had lost to a faster run of its cell; null: measured in full"
    ] = None
    suspect: Annotated[bool | None, "", "true: the numbers contradict something; see notes"] = None
    notes: Annotated[list[str] | None, "", "all oddities of the attempt"] = None
    node_names: Annotated[list[str] | None, "", "nodes of the attempt, in node rank order"] = None
    leaf_switches: Annotated[
        list[str | None] | None, "", "leaf switch, or block, of each of node_names, as Slurm's topology states it"
    ] = None
    domains: Annotated[
        list[str | None] | None, "", "NVLink domain, or block, of each of node_names: by site, fabric or Slurm"
    ] = None
    split_groups: Annotated[
        list[str] | None, "", "axes (tp, ep, cp, pp) of which a group spans several domains; null: domains not known"
    ] = None
    slow_rank: Annotated[int | None, "", "rank whose own steps take clearly longer than the others'"] = None
    versions_json: Annotated[str | None, "", "versions of python, torch, cuda, nccl, as JSON"] = None
    effective_json: Annotated[str | None, "", "layout and batch as read back from the live objects, as JSON"] = None


@dataclass(frozen=True, kw_only=True)
class Times:
    """How long its parts took, and facts without a column of their own."""

    imports_s: Annotated[
        float | None, "s", "before the start, once per pilot: of the process that ranks are forked from"
    ] = None
    start_s: Annotated[float | None, "s", "from start order to first iteration: import, rendezvous, build"] = None
    first_iteration_s: Annotated[float | None, "s", "the first warm-up iteration"] = None
    measure_s: Annotated[float | None, "s", "further warm-up and the timed iterations"] = None
    teardown_s: Annotated[float | None, "s", "from the last rank's result to a clean node"] = None
    total_s: Annotated[float | None, "s", "the attempt, from start order to clean nodes"] = None
    pilot_idle_s: Annotated[
        float | None, "s", "how long the attempt's nodes were allocated but idle just before it"
    ] = None
    extra_json: Annotated[str | None, "", "further numbers and facts, as JSON; units in their names"] = None


@dataclass(frozen=True, kw_only=True)
class Record(Times, VerdictColumns, Metrics, Configuration, Identity):
    """The record of an attempt: one row of a results table. A missing value is null, never 0 or -1."""


@dataclass(frozen=True)
class Column:
    """One column of a results table."""

    name: str
    type: str
    """string, bool, int64, double, or list<one of these>"""
    unit: str
    """empty where the value has none"""
    meaning: str


_ARROW_TYPES = {
    str: "string",
    Outcome: "string",
    bool: "bool",
    int: "int64",
    float: "double",
    list[float]: "list<double>",
    list[int | None]: "list<int64>",
    list[str]: "list<string>",
    list[str | None]: "list<string>",
}


def columns_of(group: type) -> tuple[Column, ...]:
    """The columns that a class of fields defines, in its order."""
    hints = get_type_hints(group, include_extras=True)
    columns = []
    for field in fields(group):
        kind, unit, meaning = get_args(hints[field.name])
        known = next(_ARROW_TYPES[one] for one in get_args(kind | None) if one in _ARROW_TYPES)
        columns.append(Column(field.name, known, unit, meaning))
    return tuple(columns)


METRICS = columns_of(Metrics)

COLUMNS: tuple[Column, ...] = columns_of(Record)
"""The columns of a record."""

COLLECTED = (
    Column("final", "bool", "", "the attempt that counts for its run: the ok one, else the last"),
    Column("surplus", "bool", "", "an earlier attempt of the run is ok; this one does not count"),
    Column("dollars_per_gpu_hour", "double", "$", "the price that the sweep's site file states now"),
    Column("co2_g_per_kwh", "double", "g", "the carbon intensity that the sweep's site file states now"),
    Column("failures_per_gpu_day", "double", "1/day", "the failures of a job that the sweep's site file states now"),
    Column("restart_time", "double", "s", "before a failed job starts again, as the sweep's site file states now"),
)
"""Columns that `collect` adds: they depend on the run's other attempts, or on prices that may change afterwards."""

OUT_OF_MEMORY = frozenset({str(Outcome.OOM_CUDA), str(Outcome.OOM_HOST)})
"""Outcomes that mean: it does not fit in memory"""
HARDWARE = frozenset({str(Outcome.NODE_FAIL), str(Outcome.XID_HARDWARE)})
"""Outcomes that a node or a GPU is at fault for, whatever ran on it"""
NODE_FAULTS = frozenset(map(str, BY_A_PART | {Outcome.LOST}))
"""Outcomes that a node may have caused"""
INTERRUPTED = frozenset({str(Outcome.CANCELLED), str(Outcome.PREEMPTED)})
"""Outcomes of what the user or the scheduler ended: neither a measurement nor a failure"""

SLOW = "slow"
"""why a run was stopped: it had lost. Its figures are of few iterations: it is no cell's best, nor evidence for one"""

OVERSUBSCRIBED = "the host had more work than cores while it was timed"
"""A note. Such load comes in spells, which may cover all repeats of one configuration and none of another's"""

TIME_NAMES: tuple[str, ...] = tuple(field.name for field in fields(Times) if field.name != "extra_json")
"""The durations of an attempt's parts."""

MEASURED = frozenset({"outcome", *(f.name for group in (Rates, Efficiency, MemoryColumns) for f in fields(group))})
"""A table with none of these columns is no table of results."""

CONFIGURATION_NAMES: tuple[str, ...] = tuple(field.name for field in fields(Configuration))
"""What makes two records measurements of the same thing."""


def arrow_type(name: str) -> pa.DataType:
    """The arrow type of a column's ``type``."""
    import pyarrow as pa

    simple = {"string": pa.string(), "bool": pa.bool_(), "int64": pa.int64(), "double": pa.float64()}
    return pa.list_(simple[name[5:-1]]) if name.startswith("list<") else simple[name]


def columns_by_name() -> dict[str, Column]:
    """Every column of a results table, by name, those that collect adds included."""
    return {column.name: column for column in COLUMNS + COLLECTED}


def arrow_types() -> dict[str, pa.DataType]:
    """The arrow type of every column of a results table, by name."""
    return {name: arrow_type(column.type) for name, column in columns_by_name().items()}


Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A value that JSON can write"""


def json_text(value: Mapping[str, Json]) -> str:
    """Sorted JSON; a number that JSON cannot represent becomes null."""
    return json.dumps(_finite(value), sort_keys=True, separators=(",", ":"), default=str)


def over_ranks(values: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """Merge many ranks' values: equal values once, numbers as their spread, else the first rank's."""
    return {key: _spread([v[key] for v in values if key in v]) for key in dict.fromkeys(k for v in values for k in v)}


def numbers_of(value: object) -> Sequence[float]:
    """A list of numbers that a record states; empty where that is anything else."""
    return value if isinstance(value, list) and all(type(one) in (int, float) for one in value) else ()


def _spread(values: Sequence[Json]) -> Json:
    numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    if len(numbers) < len(values) or all(value == values[0] for value in values):
        return values[0]
    most = max(range(len(numbers)), key=numbers.__getitem__)
    return {"min": min(numbers), "median": statistics.median(numbers), "max": numbers[most], "max_rank": most}


def _finite(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
