"""What the user wants to measure: models, node counts, axes, constraints. A document in, value or problems out."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PlainValidator,
    PrivateAttr,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from sweep.contract import DERIVED, FREE, Layout, Run, Scalar
from sweep.errors import Mistake, SweepError, nearest
from sweep.expressions import names_in
from sweep.inputs.axes import Counts, Sizes, Stages, Stated, Switches, Texts, Values, Words, listed, scalars, shown
from sweep.inputs.site import NodeGroup, SafeName, Seconds, Site, StatedFile, Tuple, environment_value
from sweep.inputs.validation import amount, check, describe, share
from sweep.inputs.yaml_lines import Document, Path, Problem, dump
from sweep.physics.groups import PLACEMENT
from sweep.physics.measured import Fabric, MeasuredCollective, MeasuredRates
from sweep.physics.shapes import ModelShape
from sweep.physics.statistics import LEAST_FACTOR
from sweep.plugins import STRATEGY, WORKLOAD, Kind

AXES = (*FREE, "dtype", "compile")
"""the axes of every workload; parameters and environment variables are axes too"""
DEFAULTS: dict[str, Scalar] = {
    name: getattr(kind, name) for kind in (Layout, Run) for name in AXES if name in kind.__dataclass_fields__
}
"""the value of an axis that a workload cannot vary"""
REMEASURE = 0.1
"""default share of a cell's configurations that are measured again at the end"""
FACTS = ("nodes", "gpus", "gpus_per_node", "sequence_length", "global_batch_tokens")
"""further columns that rules and constraints see, in addition to the fields of the model's shape"""
COLUMNS = frozenset(
    {"model", "node_group", *AXES, *DERIVED, *FACTS, *(field.name for field in dataclasses.fields(ModelShape))}
)

Count = Annotated[int, BeforeValidator(amount), WithJsonSchema({"type": ["integer", "string"]})]
Share = Annotated[float, BeforeValidator(share), WithJsonSchema({"type": ["number", "string"]})]


def _binary(length: Any) -> Any:
    if isinstance(length, str) and re.search(r"[KMGT]\s*$", length, re.IGNORECASE):
        raise ValueError(f"{length[:40]!r} would be thousands: write 4Ki for 4096, or 4000")
    return length


def _of_guided(miss: float, info: ValidationInfo) -> float:
    if info.data.get("strategy") != "guided":
        raise ValueError("only `strategy: guided` ends cells by it: leave it out")
    return miss


def _factor(value: Any) -> str | float:
    if value not in ("auto", "off") and not (type(value) in (int, float) and LEAST_FACTOR <= value < math.inf):
        raise ValueError(f"expected auto, off or a factor of at least {LEAST_FACTOR:g}, found {shown(value)}")
    return value  # type: ignore[no-any-return]


def _condition(text: str, info: ValidationInfo) -> str:
    data = info.data
    known = COLUMNS.union(data.get("params", ()), data.get("env", ()), _parameters(data.get("workload")))
    if unknown := sorted(set(names_in(text)) - known):
        raise ValueError("; ".join(f"unknown name {name!r} ({nearest(name, known)})" for name in unknown))
    return text


def _variables(value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise ValueError("expected NAME: value lines")
    return {k: tuple(environment_value(k, item) for item in listed(value[k])) for k in sorted(value)}


def _point(value: Any) -> dict[str, tuple[Scalar, ...]]:
    """One include or exclude: each key with one value or several."""
    if not isinstance(value, dict) or not value:
        raise ValueError("expected `axis: value` pairs")
    return {key: scalars(value[key]) for key in sorted(value)}


def variables_of(grid: Grid) -> dict[str, tuple[str, ...]]:
    """``env``, and the one of ``placement``."""
    return {**grid.env, **({PLACEMENT: grid.placement} if grid.placement else {})}


def _placements(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not re.fullmatch(r"packed|spread|segment-[1-9]\d{0,4}", value):
            raise ValueError(f"{value[:40]!r} is no placement (packed, spread, or such as segment-16)")
    return values


_FACTOR_SCHEMA = {"anyOf": [{"enum": ["auto", "off"]}, {"type": "number", "minimum": LEAST_FACTOR}]}
_VALUES_SCHEMA = {"type": "object", "additionalProperties": {}}
Variables = Annotated[dict[str, tuple[str, ...]], PlainValidator(_variables), WithJsonSchema(_VALUES_SCHEMA)]
Point = Annotated[dict[str, tuple[Scalar, ...]], PlainValidator(_point), WithJsonSchema(_VALUES_SCHEMA)]


class Timeouts(StatedFile):
    """Longest time without a heartbeat, per phase. Seconds once read; written 300, 90s or 5m."""

    start: Seconds = 300.0
    """import, rendezvous, model build"""
    first_iteration: Seconds = 300.0
    """the first step, with compilation"""
    steady: Seconds = 20.0
    """every later iteration: at least this, and more if the steps themselves are long"""


class BudgetLimits(StatedFile):
    """What a sweep may spend. Each is a limit of its own; the first that is reached counts."""

    share: Share | None = Field(default=None, gt=0, le=1)
    """runs that may start, as a fraction of all runs of the plan"""
    runs: Count | None = None
    """the same as a number"""
    node_hours: float | None = Field(default=None, gt=0)
    """of all runs: measured so far, plus the prediction for the next"""
    wall_time: Seconds | None = None
    """no run starts that would end later than this after the first one started"""
    runs_per_cell: Count | None = None
    """`runs` for each (model, nodes) cell"""
    node_hours_per_cell: float | None = Field(default=None, gt=0)
    """`node_hours` for each cell"""


class Grid(BaseModel):
    """One sweep as the user writes it. Each field is a key of the grid file; an omitted axis has one value."""

    model_config = StatedFile.model_config

    name: SafeName = "sweep"
    """letters, digits and `. _ + -`, at most 64; names the sweep directory and its jobs"""
    workload: SafeName = "transformer"
    """what the ranks run; others can be registered under the entry-point group `sweep.workloads`"""
    params: dict[str, Values] = Field(default_factory=dict)
    """parameters of the workload; a list is an axis"""
    env: Variables = Field(default_factory=dict)
    """environment variables of the ranks; a list is an axis. Records, and so exports, reports and trackers, have
    `<redacted>` for values whose names say that they are secret (`HF_TOKEN`); the sweep directory's grid and plan have
    the values. `setup` can read a secret from a file instead"""
    models: dict[SafeName, ModelShape] = Field(min_length=1)
    """names of the catalogue, or `name: shape` with the fields of `sweep.physics.shapes.ModelShape`"""
    nodes: Counts
    """node counts"""
    sequence_length: Annotated[Count, BeforeValidator(_binary)] = Field(le=2**26)
    """tokens per sequence: 4096 or 4Ki"""
    global_batch: Count | None = None
    """tokens per optimizer step: 1048576, 1M (1,000,000) or 1Mi (1,048,576)"""
    tokens_per_gpu: Count | None = None
    """weak scaling: tokens per step and GPU, instead of `global_batch`"""
    global_batch_tolerance: Share = Field(default=0.0, ge=0, lt=1)
    """how far, as a fraction, a layout's batch may be from the requested one"""
    tp: Sizes = (1,)
    """tensor parallelism. auto: the divisors of a node's GPUs; of all, up to the NVLink domain on GB200 and GB300, and
    with `tp_across_nodes`"""
    pp: Sizes = (1,)
    """pipeline stages. auto: the divisors of the GPUs, up to the number of layers"""
    cp: Sizes = (1,)
    """context parallelism. auto: the divisors of the GPUs that divide the sequence"""
    ep: Sizes = (1,)
    """expert parallelism. auto: the divisors of the number of experts"""
    zero: Stages = (0,)
    """ZeRO stage 0 to 3. auto: every stage of the workload"""
    micro_batch_size: Sizes = (1,)
    """in sequences. auto: 1 to 16"""
    recompute: Words = ("none",)
    """none, selective, full. auto: every kind of the workload"""
    pp_schedule: Words = ("1f1b",)
    """ignored if pp is 1. auto: every schedule of the workload"""
    dtype: Words = ("bf16",)
    """bf16, fp16, fp32, or a recipe: fp8_delayed, fp8_tensorwise, fp8_rowwise, fp8_rowwise_with_gw_hp, fp8_blockwise,
    mxfp8, nvfp4. auto: every type of the workload"""
    fp8_params: Switches = (False,)
    """keep or gather weights in the recipe's 8 bits; ignored in other types"""
    etp: Stated = (0,)
    """expert tensor parallelism: ranks over which each expert is split; 0: the trainer's own"""
    virtual_stages: Counts = (1,)
    """pipeline stages per rank in a looped schedule (there 1 means 2); ignored if pp is 1"""
    pipeline_layout: Texts = ("",)
    """what each pipeline stage has, as the trainer writes it; empty: its own split"""
    recompute_modules: Texts = ("",)
    """of `recompute: selective`: the trainer's names of modules, with commas; empty: its own choice"""
    recompute_layers: Stated = (0,)
    """layers of each pipeline stage that are recomputed; 0: all"""
    dispatcher: Words = ("alltoall",)
    """how tokens reach experts: allgather, alltoall, deepep, hybridep; ignored if ep is 1"""
    tp_overlap: Switches = (False,)
    """overlap tensor-parallel communication with products"""
    ep_overlap: Switches = (False,)
    """overlap the exchange of tokens with another micro-batch's computation"""
    cuda_graphs: Texts = ("none",)
    """what is replayed as CUDA graphs: the trainer's scopes, with commas; or none"""
    routing: Texts = ("natural",)
    """how tokens choose experts: natural, balanced, or skewed:S by a Zipf exponent S, such as `skewed:1.2`"""
    compile: Switches | None = None
    """torch.compile. auto: false and true. Default: true on a GPU for `transformer`, else false"""
    dp: Counts | None = None
    """data parallelism. A filter: only these values, since it follows from the two equations"""
    grad_accum: Counts | None = None
    """micro-batches per step. A filter: only these values, since it follows from the two equations"""
    constraints: Annotated[tuple[Annotated[str, AfterValidator(_condition)], ...], Tuple] = ()
    """conditions that every candidate must satisfy, such as `tp * pp <= 16`"""
    include: Annotated[tuple[Point, ...], Tuple] = ()
    """candidates in addition to the product, kept whatever time is predicted for them"""
    exclude: Annotated[tuple[Point, ...], Tuple] = ()
    """candidates that match all the given values are dropped"""
    max_memory_share: Share | None = Field(default=None, gt=0, le=2)
    """reject what is predicted to need more than this share of a GPU's memory; default: 1 and the margin of error of
    the prediction"""
    tp_across_nodes: bool = False
    """tensor parallelism may span nodes"""
    warmup_iterations: int = Field(default=2, ge=0, le=10_000)
    """untimed iterations"""
    iterations: int = Field(default=5, ge=1, le=100_000)
    """timed iterations, after the warm-up"""
    repeats: int = Field(default=1, ge=1, le=1000)
    """measurements of each configuration; all first ones run before any second. Of the free nodes a repeat takes those
    that its configuration used least, then those on the leaf switch used least; it waits for none"""
    remeasure: Share | None = Field(default=None, ge=0, le=1)
    """repeats at the end, as a share of the runs that were started: of the best two configurations of every cell, then
    of others within 3 % of the best, then of the best two until their order is decided. A small sweep may have up to
    8, for at most half of its runs; 0: none. They are beyond a `budget` of runs, and within one of time. Default: 0.1,
    and 0 for the simulated workload"""
    strategy: str = "guided"
    """which runs to measure, in which order: `guided` ends a cell by itself (`miss`), `prune` measures all that can
    work, `exhaustive` every run; or playbook"""
    miss: Annotated[Share, Field(gt=0, lt=1), AfterValidator(_of_guided)] | None = None
    """`guided` only: it ends a cell once what its other runs are expected to gain over its best, all together, is at
    most this; and, until repeats have shown the noise, the chance that one of them is over 3 % faster. Default: 1%"""
    stop_slow: Annotated[str | float, PlainValidator(_factor), WithJsonSchema(_FACTOR_SCHEMA)] | None = None
    """end a run once two of its iterations were slower than its cell's best by this factor, or one by twice: `auto`
    (the fastest is ended in fewer than 1 of 10,000 cells, by the spread of the sweep's own runs), a factor of at least
    1.1, `off`. Its record is ok and marked `stopped`: it is no cell's best. Repeats of the best are measured in full.
    Default: auto, and off for `exhaustive`"""
    budget: BudgetLimits = BudgetLimits()
    """limits on runs, node-hours and wall time"""
    isolate: bool = False
    """a multi-node run has its pilot's fabric to itself"""
    preflight: Literal["quick", "node", "perf", "off"] | None = None
    """checks of a pilot's nodes before its first run; unfit nodes are excluded: `quick` (under 5 s), `node`, `perf`
    (with the speeds of processors and memory, about 30 s), `off`. Default: quick on Slurm, else off"""
    split: Literal["mark", "reject"] = "mark"
    """runs whose tp or ep groups no choice of nodes keeps inside one NVLink domain: `mark` measures them, their records
    say so; `reject` leaves them out"""
    placement: Annotated[Texts, AfterValidator(_placements)] | None = None
    """an axis: `packed` into as few NVLink domains as hold it (default), `spread`, `segment-16` side by side in each"""
    seed: int = Field(default=0, ge=0, lt=2**32)
    """of the weights and the synthetic data, the same for all runs"""
    timeouts: Timeouts = Timeouts()
    """heartbeat timeout per phase"""
    max_run_time: Seconds | None = None
    """an attempt is ended after this, whatever its phase, as `time_limit`; that is not retried. A plan leaves out what
    is predicted to take longer. Default: 15m"""
    site: Site | None = None
    """the site, written inline instead of in a file"""

    _source: Document = PrivateAttr(default_factory=lambda: Document(None, "grid"))

    @field_validator("workload", "strategy")
    @classmethod
    def _known_plugin(cls, name: str, info: ValidationInfo) -> str:
        kind: Kind[Any] = WORKLOAD if info.field_name == "workload" else STRATEGY
        if not kind.has(name):
            raise ValueError(f"unknown {info.field_name} {name!r} ({nearest(name, kind.names())})")
        return name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Grid) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def located(self, problems: Iterable[Problem]) -> list[Mistake]:
        """The problems as mistakes of the file that the grid was read from."""
        return self._source.located(problems)

    def mistake(self, fact: str, path: Path = (), remedy: str | None = None) -> Mistake:
        """A mistake at a path of the file that the grid was read from."""
        return self._source.mistake(fact, path, remedy)

    def global_batch_for(self, gpus: int) -> int:
        """Requested tokens per optimizer step for this many GPUs."""
        return self.global_batch if self.global_batch is not None else (self.tokens_per_gpu or 0) * gpus

    @property
    def limits(self) -> dict[str, int | float]:
        """``budget``, with ``repeats``, beyond which runs are re-measured ones; and ``miss``. Empty: none given."""
        given = self.budget.model_dump(exclude_none=True)
        given |= {"repeats": self.repeats} if given else {}
        return given | ({} if self.miss is None else {"miss": self.miss})

    @property
    def stops_slow(self) -> str | float:
        """``stop_slow``, or its default: a strategy that measures every run measures each in full."""
        plain = "off" if self.strategy == "exhaustive" else "auto"
        return plain if self.stop_slow is None else self.stop_slow

    @property
    def remeasure_share(self) -> float:
        """``remeasure``, or its default: simulated times are made up, so a repeat says nothing."""
        plain = 0.0 if self.simulated else REMEASURE
        return plain if self.remeasure is None else self.remeasure

    @property
    def simulated(self) -> bool:
        """Whether no model is trained: the times are made up."""
        return self.workload == "simulated"

    @property
    def text(self) -> str:
        """What the user wrote, without overrides; empty where it was not read from a file."""
        return self._source.text

    def to_yaml(self) -> str:
        """The grid with every default, overrides applied: ``parse_grid`` of it gives an equal grid."""
        return dump({k: v for k, v in self.model_dump(warnings=False).items() if v is not None})


def max_run_s(grid: Grid) -> float:
    """``max_run_time``; by default 300 s each for start and first iteration, as ``Timeouts``, and for the rest."""
    return grid.max_run_time or 900.0


def read_grid(document: Document) -> tuple[Grid | None, list[Problem]]:
    """The grid that a document states, its models read already; or None, and everything that is wrong with it."""
    grid, problems = check(Grid, document.value)
    if grid is not None:
        grid._source = document
    of_site = "a key of the site: write it below `site:`, or in the site's file"
    wrong = {(key,) for key in Site.model_fields.keys() - Grid.model_fields.keys()}
    problems = [replace(problem, remedy=of_site) if problem.path in wrong else problem for problem in problems]
    # The batch must be given exactly once. Read from the plain values, so that it is reported with other mistakes.
    value = document.value if isinstance(document.value, dict) else None
    given = [key for key in ("global_batch", "tokens_per_gpu") if value and value.get(key) is not None]
    if len(given) == 2:
        fact = "global_batch and tokens_per_gpu exclude each other"
        problems = [*problems, Problem(("tokens_per_gpu",), fact, "keep one")]
    elif not given and value is not None:
        remedy = "add global_batch: 1Mi, or tokens_per_gpu: 8Ki for weak scaling"
        problems = [*problems, Problem((), "neither global_batch nor tokens_per_gpu is given", remedy)]
    return grid, problems


def _parameters(workload: str | None) -> set[str]:
    """The names of a workload's parameters; none if it cannot be loaded, which the plan reports."""
    try:
        return set(WORKLOAD.find(workload).params) if workload else set()
    except SweepError:
        return set()


def json_schema() -> Mapping[str, Any]:
    """The grid's JSON schema, for editors."""
    schema = Grid.model_json_schema()
    parts = (BudgetLimits, Fabric, MeasuredCollective, MeasuredRates, ModelShape, NodeGroup, Site, Timeouts)
    describe(schema, Grid, parts)
    shapes = schema["properties"]["models"]
    name = {"type": "string"}
    shape = {"anyOf": [shapes["additionalProperties"], name, {"type": "null"}]}
    named = {"type": "object", "additionalProperties": shape, "minProperties": 1}
    listed_models = {"type": "array", "items": {"anyOf": [name, named]}, "minItems": 1}
    schema["properties"]["models"] = {"anyOf": [name, listed_models, named], "description": shapes["description"]}
    return schema
