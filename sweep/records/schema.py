"""The schema of records: every column with type, unit and meaning, the same from journal to figure."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sweep.outcomes import Outcome

if TYPE_CHECKING:
    import pyarrow as pa


SCHEMA_VERSION = 1
"""Rises where a column changes its meaning: results of another version are built anew from the journals."""


@dataclass(frozen=True)
class Column:
    """One column of a record."""

    name: str
    type: str
    """string, bool, int64, double, or list<one of these>"""
    unit: str
    """empty where the value has none"""
    meaning: str


def arrow_type(name: str) -> pa.DataType:
    """The arrow type of a column's ``type``."""
    import pyarrow as pa

    simple = {"string": pa.string(), "bool": pa.bool_(), "int64": pa.int64(), "double": pa.float64()}
    return pa.list_(simple[name[5:-1]]) if name.startswith("list<") else simple[name]


def _columns(text: str) -> tuple[Column, ...]:
    """One column a line: name | type | unit | meaning."""
    rows = [[part.strip() for part in line.split("|", 3)] for line in text.strip().splitlines()]
    return tuple(Column(*row) for row in rows)


IDENTITY = _columns("""
    run_id | string | | readable slug and 16 hex digits of the run's canonical JSON
    attempt | int64 | | 1 for the first execution of the run
    repeat | int64 | | 0 for the first measurement of the configuration
    sweep_name | string | | name of the grid
    pilot | string | | pilot that made the attempt
    job_id | string | | scheduler's job id, null for a local process
    started_at | double | unix s | start of the attempt
    ended_at | double | unix s | end of the attempt, its teardown included
""")

CONFIGURATION = _columns("""
    workload | string | | registered name of the workload or trainer
    model | string | | name that the grid gives
    shape_json | string | | fields of the model's shape, as JSON
    parameters_total | int64 | | parameters of the model, by its shape
    parameters_active | int64 | | parameters that one token passes (experts: shared and chosen)
    nodes | int64 | | nodes of the allocation
    gpus_per_node | int64 | | ranks on each node
    gpus | int64 | | nodes * gpus_per_node
    gpu | string | | kind of the accelerator, `cpu` where there is none, null where not known
    sequence_length | int64 | tokens | tokens of one sequence
    dp | int64 | | data-parallel replicas
    tp | int64 | | tensor-parallel width
    pp | int64 | | pipeline stages
    cp | int64 | | context-parallel width
    ep | int64 | | expert-parallel width
    zero | int64 | | ZeRO stage, 0 to 3
    micro_batch_size | int64 | sequences | per micro-batch and replica
    grad_accum | int64 | | micro-batches per optimizer step
    recompute | string | | none, selective or full
    pp_schedule | string | | pipeline schedule; of no effect where pp is 1
    dtype | string | | number format of the forward and backward pass
    compile | bool | | torch.compile
    global_batch_tokens | int64 | tokens | dp * micro_batch_size * grad_accum * sequence_length
    warmup_iterations | int64 | | untimed iterations
    iterations | int64 | | timed iterations that were asked for
    params_json | string | | the workload's own parameters, as JSON
    env_json | string | | environment variables that the run sets, as JSON
""")

METRICS = _columns("""
    tokens_per_second | double | tokens/s | global_batch_tokens / step_time_median_s
    tokens_per_second_per_gpu | double | tokens/s/GPU | tokens_per_second / gpus
    step_time_median_s | double | s | median over iterations of step_times_s
    step_time_min_s | double | s | least of step_times_s
    step_time_max_s | double | s | greatest of step_times_s
    step_times_s | list<double> | s | per timed iteration, the slowest rank's time
    rank_step_time_median_s | list<double> | s | per rank, the median of its own times
    tflops_per_gpu | double | 1e12 FLOP/s | model FLOPs per second and GPU
    mfu | double | fraction | model FLOP/s over the dense peak; 0.42 is 42 %
    hfu | double | fraction | executed FLOP/s (with recomputation) over the dense peak
    flops_per_token | double | FLOP | model FLOPs of one token, forward and backward
    peak_tflops_per_gpu | double | 1e12 FLOP/s | the dense peak that mfu and hfu are relative to
    flops_convention | string | | how FLOPs were counted
    reported_mfu | double | fraction | what an imported source calls MFU
    peak_memory_bytes | int64 | bytes | greatest over ranks of the peak, as memory_kind says
    peak_memory_reserved_bytes | int64 | bytes | greatest over ranks of the allocator's reserved peak
    rank_peak_memory_bytes | list<int64> | bytes | per rank
    memory_kind | string | | what peak_memory_bytes counts
    losses | list<double> | | mean loss of each iteration, warm-up included
    grad_norms | list<double> | | gradient norm of each iteration, warm-up included
    rank_parameters | list<int64> | | parameters built on each rank
    simulated | bool | | true: no model was trained, the times are acted out
""")

VERDICT = _columns("""
    outcome | string | | how the attempt ended; ok or a named failure
    message | string | | what happened, in words
    evidence | string | | the line that proves the outcome
    advice | string | | what to try
    suspect | bool | | true: the numbers contradict something; notes say what
    notes | list<string> | | everything odd about the attempt
    node_names | list<string> | | nodes of the attempt, in node rank order
    slow_rank | int64 | | rank whose own steps take clearly longer than the others'
    versions_json | string | | versions of python, torch, cuda, nccl, as JSON
    effective_json | string | | layout and batch as read back from the live objects, as JSON
""")

TIMES = _columns("""
    start_s | double | s | from the order to the first iteration: import, rendezvous, build
    first_iteration_s | double | s | the first warm-up iteration
    measure_s | double | s | further warm-up and the timed iterations
    teardown_s | double | s | from the last rank's result to a clean node
    total_s | double | s | the attempt, from order to clean node
    pilot_idle_s | double | s | how long the attempt's nodes were allocated but idle just before it
    extra_json | string | | further numbers and facts, as JSON; units in their names
""")

COLUMNS: tuple[Column, ...] = IDENTITY + CONFIGURATION + METRICS + VERDICT + TIMES
"""What a record holds. A missing value is null, never 0 or -1."""

COLLECTED = _columns("""
    final | bool | | the attempt that counts for its run: the ok one, else the last
    surplus | bool | | an earlier attempt of the run is ok; this one counts for nothing
""")
"""What `collect` adds, since it depends on the run's other attempts."""

OUT_OF_MEMORY = frozenset({str(Outcome.OOM_CUDA), str(Outcome.OOM_HOST)})
"""Outcomes that say: it does not fit"""

TIME_NAMES: tuple[str, ...] = tuple(column.name for column in TIMES if column.type == "double")
"""Keys of ``build_record``'s ``times_s``."""

CONFIGURATION_NAMES: tuple[str, ...] = tuple(column.name for column in CONFIGURATION)
"""What makes two records measurements of the same thing."""

_PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "bool": bool,
    "int64": int,
    "double": (int, float),
}


def columns_by_name() -> dict[str, Column]:
    """Every column of a results table, by name, those that collect adds included."""
    return {column.name: column for column in COLUMNS + COLLECTED}


def problems(record: Mapping[str, Any]) -> list[str]:
    """What breaks the schema: unknown names, wrong types, values that are not finite. Empty if sound."""
    known = {column.name: column for column in COLUMNS}
    found = [f"unknown column {name!r}" for name in record if name not in known]
    found += [f"column {name!r} is missing" for name in known if name not in record]
    for name, column in known.items():
        value = record.get(name)
        if value is not None and not _fits(value, column.type):
            found.append(f"{name} must be {column.type}, not {reprlib.repr(value)}")
    outcomes = {str(outcome) for outcome in Outcome}
    if record.get("outcome") not in outcomes:
        found.append(f"outcome {record.get('outcome')!r} is none of {', '.join(sorted(outcomes))}")
    return found


def _fits(value: Any, type_name: str) -> bool:
    if type_name.startswith("list<"):
        inner = type_name[5:-1]
        return isinstance(value, list) and all(item is None or _fits(item, inner) for item in value)
    if isinstance(value, bool) and type_name != "bool":
        return False
    if not isinstance(value, _PYTHON_TYPES[type_name]):
        return False
    if isinstance(value, int):
        return abs(value) < (2**63 if type_name == "int64" else 2**53)  # an Arrow column refuses larger ones
    return not isinstance(value, float) or math.isfinite(value)


def table_markdown(columns: Iterable[Column] = COLUMNS + COLLECTED) -> str:
    """The schema as a Markdown table, for the docs."""
    rows = [f"| `{c.name}` | {c.type} | {c.unit} | {c.meaning} |" for c in columns]
    return "\n".join(["| column | type | unit | meaning |", "|---|---|---|---|", *rows])


PAGE = """\
# Records

Every attempt leaves one record: a JSON line in a journal, and after `sweep collect` a row of `results.parquet`. Missing
is null, never 0 or -1. Only attempts that are `ok` have metrics. The Parquet file states each column's unit and meaning
in the column's metadata; `analysis.load(DIR).attrs["units"]` has them too.

{table}

This page is written by `python -m sweep.records.schema > docs/records.md`.
"""


if __name__ == "__main__":
    print(PAGE.format(table=table_markdown()), end="")  # noqa: T201
