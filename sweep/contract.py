"""What a rank receives and returns. Standard library only, so that any trainer's rank can import it.

A workload's entry point is ``def main(run: RankRun, progress: Progress) -> None``. It reports progress by
``progress.heartbeat(...)`` between timed regions, and its result by one ``progress.measured(Measurement(...))``.
Whatever it raises is recorded as the failure of the attempt.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

Scalar = str | int | float | bool | None
FILE = "@"
"""what a parameter begins with that names a file instead of being its text: see ``Workload.texts``"""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One way to spread a model over ``dp * tp * pp * cp`` GPUs."""

    dp: int = 1
    """data-parallel replicas (ZeRO shards over them)"""
    tp: int = 1
    """tensor-parallel width, inside a node unless the grid allows more"""
    pp: int = 1
    """pipeline stages"""
    cp: int = 1
    """context-parallel width: the sequence is split into cp parts"""
    ep: int = 1
    """expert-parallel width, taken out of dp * cp * tp"""
    zero: int = 0
    """ZeRO stage: 0 replicate, 1 optimizer states, 2 and gradients, 3 and weights"""
    micro_batch_size: int = 1
    """sequences per micro-batch and replica"""
    grad_accum: int = 1
    """micro-batches per optimizer step"""
    recompute: str = "none"
    """activation recomputation: none, selective or full"""
    pp_schedule: str = "1f1b"
    """pipeline schedule; no effect where pp is 1"""

    etp: int = 0
    """expert-tensor-parallel width: ranks over which each expert is split; 0: the trainer's own (of Megatron, tp)"""
    virtual_stages: int = 1
    """pipeline stages per rank in a looped schedule, where 1 means the trainer's own number, 2"""
    pipeline_layout: str = ""
    """what each pipeline stage has, as the trainer writes it (Megatron: `Et*3|(tt|)*29,mL`); empty: its own split"""
    recompute_modules: str = ""
    """what `recompute: selective` drops: the trainer's names of modules, with commas; empty: its own choice"""
    recompute_layers: int = 0
    """layers of each pipeline stage that are recomputed; 0: all"""
    dispatcher: str = "alltoall"
    """how tokens reach experts on other ranks: allgather, alltoall, deepep, hybridep"""
    tp_overlap: bool = False
    """tensor-parallel collectives run during the products that they feed"""
    ep_overlap: bool = False
    """the exchange of one micro-batch's tokens runs during another's computation"""
    cuda_graphs: str = "none"
    """what is replayed as CUDA graphs: the trainer's scopes, with commas; none"""
    fp8_params: bool = False
    """weights are kept or gathered in the 8 bits of `dtype`'s recipe"""
    routing: str = "natural"
    """how tokens choose experts: natural (the router's choice), balanced, or skewed:S, an expert's share being
    proportional to 1 / rank^S (Zipf), for the same tokens in all layouts"""

    @property
    def gpus(self) -> int:
        """GPUs that the layout takes."""
        return self.dp * self.tp * self.pp * self.cp


LAYOUT = ("dp", "tp", "pp", "cp", "ep", "zero", "micro_batch_size", "grad_accum", "recompute", "pp_schedule")
"""the fields that every run states, in order"""
LAYOUT_WORDS = ("recompute", "pp_schedule")
LAYOUT_NUMBERS = tuple(name for name in LAYOUT if name not in LAYOUT_WORDS)
FURTHER: Mapping[str, Scalar] = {
    own.name: own.default for own in dataclasses.fields(Layout) if own.name not in LAYOUT  # type: ignore[misc]
}  # fmt: skip
"""the other fields -> their defaults, at which a run's JSON leaves them out: a new field changes no run_id"""
LAYOUT_FIELDS = (*LAYOUT, *FURTHER)
DISPATCHERS = ("allgather", "alltoall", "deepep", "hybridep")
ROUTINGS = ("natural", "balanced", "skewed")
DERIVED = ("dp", "grad_accum")
"""follow from the others, by the number of GPUs and by the global batch; a grid may restrict them"""
FREE = tuple(name for name in LAYOUT_FIELDS if name not in DERIVED)
FORMATS: Mapping[str, str] = {
    **dict.fromkeys(("fp8_delayed", "fp8_tensorwise", "fp8_rowwise", "fp8_rowwise_with_gw_hp"), "fp8"),
    "fp8_blockwise": "fp8", "mxfp8": "fp8", "nvfp4": "fp4",
}  # fmt: skip
"""``dtype`` that is a recipe -> the number format of its matrix products. fp8_delayed: scaled by earlier steps' maxima,
fp8_tensorwise: by the tensor's own, fp8_rowwise: by each row's (_with_gw_hp: bf16 for weights' gradients),
fp8_blockwise: per 128 x 128 weights and 1 x 128 inputs, mxfp8: per 32, nvfp4: per 16. Plain: of a table without one"""


def further_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the FURTHER fields that are not at their default. ``values``: a layout's, a record's or a plan's; what
    is absent or None there is at its default.
    """
    return {name: values[name] for name, plain in FURTHER.items() if values.get(name) not in (None, plain)}


@dataclass(frozen=True, kw_only=True)
class Run:
    """A feasible candidate to be measured. Its identity is its canonical JSON."""

    workload: str
    model: str
    """the name that the grid gives, with @ and the node group on a site that has some; figures group by it"""
    shape: Mapping[str, Scalar]
    """fields of ``sweep.physics.shapes.ModelShape``"""
    nodes: int
    gpus_per_node: int
    sequence_length: int
    layout: Layout
    dtype: str = "bf16"
    """number format of the forward and backward pass, or its recipe: see FORMATS"""
    compile: bool = False
    warmup_iterations: int = 2
    iterations: int = 5
    """timed iterations, after the warm-up"""
    repeat: int = 0
    """0 for the first measurement of this configuration, 1 for the next, and so on"""
    params: Mapping[str, Scalar] = field(default_factory=dict)
    """the workload's own parameters"""
    env: Mapping[str, str] = field(default_factory=dict)
    """environment variables, set before the ranks' program starts"""

    @property
    def gpus(self) -> int:
        """GPUs of the allocation, all of which the layout must use."""
        return self.nodes * self.gpus_per_node

    @property
    def global_batch_sequences(self) -> int:
        """Sequences per optimizer step."""
        return self.layout.dp * self.layout.micro_batch_size * self.layout.grad_accum

    @property
    def global_batch_tokens(self) -> int:
        """Tokens per optimizer step: dp * mbs * gas * sequence_length."""
        return self.global_batch_sequences * self.sequence_length

    def canonical_json(self) -> str:
        """The run as JSON with sorted keys and no blanks: equal for equal runs, whatever the order of keys."""
        values = dataclasses.asdict(self)
        mine = {own.name: values[own.name] for own in dataclasses.fields(Run)}  # a rank's place is not part of its run
        mine["layout"] = {**{name: values["layout"][name] for name in LAYOUT}, **further_of(values["layout"])}
        return json.dumps(mine, sort_keys=True, separators=(",", ":"))

    @property
    def run_id(self) -> str:
        """Readable slug and 16 hex digits of the canonical JSON. Safe as a file name."""
        layout, name = self.layout, "".join(c if c.isascii() and (c.isalnum() or c == ".") else "-" for c in self.model)
        slug = f"{name[:40].strip('-.') or 'model'}-n{self.nodes}-dp{layout.dp}-tp{layout.tp}-pp{layout.pp}"
        slug += f"-cp{layout.cp}" * (layout.cp > 1) + f"-ep{layout.ep}" * (layout.ep > 1)
        slug += f"-mbs{layout.micro_batch_size}-gas{layout.grad_accum}-z{layout.zero}"
        digest = hashlib.sha256(self.canonical_json().encode()).hexdigest()[:16]
        return f"{slug}-{digest}"

    @classmethod
    def from_json(cls, text: str) -> Run:
        """The inverse of ``canonical_json``."""
        values = json.loads(text)
        return cls(**{**values, "layout": Layout(**values["layout"])})


@dataclass(frozen=True, kw_only=True)
class StatedRun(Run):
    """A run as a record states it, which others may have written: none of its texts is evaluated or opened."""


class SlowBound(NamedTuple):
    """The fastest run of the cell so far, in seconds for as many tokens as this run's; infinite where not known."""

    step_s: float
    warmup_s: tuple[float, ...]
    factor: float
    set_by: str

    def lost(self, warmup_s: Sequence[float], timed_s: Sequence[float]) -> bool:
        """By these iterations (0: not known; the first compiles) twice as slow in one, or by the factor in two."""
        pairs = [(own, max(other, self.step_s)) for own, other in zip(warmup_s[1:], self.warmup_s[1:], strict=False)]
        ratios = [own / other for own, other in (*pairs, *((own, self.step_s) for own in timed_s))]
        return max(ratios, default=0) > max(2.0, self.factor) or sum(ratio > self.factor for ratio in ratios) > 1


@dataclass(frozen=True, kw_only=True)
class Place:
    """A rank's position among the ranks of its attempt."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    master_addr: str
    master_port: int
    master_listen_fd: int | None = None
    """rank 0 only, where the workload takes it: a socket that listens on master_port (torch's TCPStore takes it)"""
    scratch_dir: str = ""
    """node-local directory of this attempt, removed after it"""
    checkpoint_dir: str = ""
    """directory of this attempt under the site's ``checkpoint_dir``, which all nodes see, removed after it; not made
    before; empty where the run writes no checkpoints"""
    compiled_dir: str = ""
    """of the sweep, for compiled code that its pilots share, which all nodes see; empty: they share none"""
    seed: int = 0
    token: str = field(default="", repr=False)
    """of this attempt, random: the ranks' own connections can demand it, since their ports are open to all users"""
    ranks_in_process: int = 1
    """ranks in this process, each in its own thread: see ``Workload.one_process_param``"""
    gpu: str = ""
    """kind of GPU that the site states (a name of ``sweep.physics.hardware.GPUS``), or cpu; empty: not known, the rank
    takes what it finds"""
    bound: SlowBound | None = None  # the run may end once it has lost, all ranks after the same iteration

    def torchrun_variables(self) -> dict[str, str]:
        """What torchrun sets in the environment of this rank; not set for a process of several ranks."""
        own = {"RANK": self.rank, "LOCAL_RANK": self.local_rank} if self.ranks_in_process == 1 else {}
        common = {
            "WORLD_SIZE": self.world_size,
            "LOCAL_WORLD_SIZE": self.local_world_size,
            "GROUP_RANK": self.node_rank,
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": self.master_port,
        }
        return {name: str(value) for name, value in {**own, **common}.items()}

    def slurm_variables(self) -> dict[str, str]:
        """What srun would set for this rank if it were a task of its own: that by which programs find their place."""
        values = {
            "SLURM_PROCID": self.rank,
            "SLURM_LOCALID": self.local_rank,
            "SLURM_NODEID": self.node_rank,
            "SLURM_NTASKS": self.world_size,
            "SLURM_NPROCS": self.world_size,
            "SLURM_NTASKS_PER_NODE": self.local_world_size,
            "SLURM_NNODES": self.world_size // self.local_world_size,
        }
        return {name: str(value) for name, value in values.items()}


@dataclass(frozen=True, kw_only=True)
class RankRun(Run):
    """A run as one rank receives it."""

    place: Place

    @classmethod
    def of(cls, run: Run, place: Place) -> RankRun:
        """The run with its place."""
        values = {f.name: getattr(run, f.name) for f in dataclasses.fields(Run)}
        return cls(**values, place=place)


def node_group_of(model: str) -> str:
    """The node group of a run, by its model's name: of MODEL@GROUP the latter; empty on a site without groups."""
    return model.partition("@")[2]


class Phase(str, Enum):
    """What a rank is doing. Each phase has its own deadline."""

    START = "start"
    """import, rendezvous, model build"""
    FIRST_ITERATION = "first_iteration"
    """the first step: compilation, allocator, lazy connections"""
    STEADY = "steady"
    """every later iteration"""
    FINISH = "finish"
    """measured; tearing down"""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One rank's measurement. Missing is None, never 0 or -1."""

    step_times_s: list[float]
    """host-clock seconds of each timed iteration, synchronised, no barrier inside"""
    warmup_times_s: list[float] = field(default_factory=list)
    peak_allocated_bytes: int | None = None
    """peak of the tensors that are live at once, as memory_kind states"""
    peak_reserved_bytes: int | None = None
    memory_kind: str = "the allocator's peak over the timed iterations"
    """what the peaks count, and when"""
    losses: list[float] | None = None
    """the global mean loss of each iteration, warm-up included"""
    grad_norms: list[float] | None = None
    parameters: int | None = None
    """parameters built on this rank"""
    device: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    """python, torch, cuda, nccl"""
    phases_s: Mapping[str, float] = field(default_factory=dict)
    """seconds per part: device, rendezvous, build (of the start: ``sweep.state.parts``), and others"""
    effective: Mapping[str, Scalar] = field(default_factory=dict)
    """layout and batch as read back from the live objects; compared with the request"""
    stopped: int | None = None  # how many were timed of a run that had lost; 0: ``step_times_s`` has its last warm-up
    simulated: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)
    """further numbers, JSON values, units in their names; ``notes``: what the workload found odd, as text"""


@dataclass(frozen=True)
class Rule:
    """A condition under which a candidate cannot work, as column arithmetic over all candidates at once."""

    name: str
    broken: Callable[[Mapping[str, Any]], Any]
    """columns (numpy arrays or scalars) -> boolean array, True where the candidate cannot work"""
    reason: str
    """format string over the candidate's columns: why it cannot"""
    torch: str = ""
    """PEP 440 specifier of the torch versions that the rule holds for; empty for all"""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A workload's declaration, read before any rank starts. Cheap to import: no torch at its top level."""

    name: str
    main: str
    """"module:function" of ``main(run, progress)``, imported in the rank"""
    axes: frozenset[str]
    """layout fields (and dtype, compile) that it can vary; any other must stay at its default"""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """field that it cannot vary -> why, for the plan's reason"""
    preload: tuple[str, ...] = ()
    """modules that the fork server imports before it forks ranks"""
    params: Mapping[str, Scalar] = field(default_factory=dict)
    """its own parameters and their defaults"""
    choices: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)
    """valid values of axes and parameters that are not plain numbers (recompute, pp_schedule, dtype, …)"""
    texts: frozenset[str] = frozenset()
    """parameters that are a file's text: a grid may give ``@FILE`` instead, which is read with the grid"""
    rules: tuple[Rule, ...] = ()
    takes_listener: bool = False
    """its rank 0 takes the listening socket of its place; else master_port is freed as the ranks start, for
    ``init_process_group`` to bind it"""
    one_process_param: str = ""
    """the parameter by which a run puts all its ranks of a node in one process, as threads that call ``main``
    each; empty: every rank has its own process"""
    slurm_variables: bool = False
    """its ranks find their place by Slurm's variables (SLURM_PROCID, SLURM_NTASKS, …): each rank gets them, as if it
    were a task of srun. Else ranks see none of them, and find their place by torchrun's"""
    compiles_on_gpu: bool = False
    """on a GPU ``compile`` is true unless the grid states otherwise"""
    effects: Mapping[str, Callable[[Mapping[str, Any]], Any]] = field(default_factory=dict)
    """parameter or axis -> columns, as a rule's -> where it has an effect. Elsewhere its value is the default, and
    candidates that differ by it alone are one. Axes have general ones (``sweep.planning.effects``), which these
    replace. A condition reads neither its own column, nor that of a later name, nor ``dp`` and ``grad_accum``"""
    same_start: bool = True
    """all layouts of a model start from the same weights and use the same data, so that their losses agree"""

    def in_one_process(self, run: Run) -> bool:
        """Whether the run's ranks of a node share a process."""
        name = self.one_process_param
        return bool(name and run.params.get(name, self.params.get(name)))


class Progress:
    """A rank's pipe to its agent: JSON lines on a pipe. Never blocks on the shared file system."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def heartbeat(self, phase: Phase, iteration: int | None = None, due_s: float | None = None) -> None:
        """Report progress from the main thread, between timed regions.

        ``iteration`` counts from 0, warm-up included. ``due_s``: the next heartbeat comes within this many seconds,
        where the rank knows better than the watchdog's limits.
        """
        self._send({"kind": "beat", "phase": str(phase), "iteration": iteration, "due_s": due_s})

    def measured(self, measurement: Measurement) -> None:
        """Report the result. Once, after the last iteration."""
        self._send({"kind": "measurement", **dataclasses.asdict(measurement)})

    def failed(self, error: BaseException) -> None:
        """Report the failure as a structured exception: type, message and traceback."""
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
        self._send({"kind": "failure", "type": name, "message": str(error)[:4000], "traceback": text[-16000:]})

    def _send(self, message: Mapping[str, Any]) -> None:
        line = (json.dumps(message, separators=(",", ":")) + "\n").encode()
        view = memoryview(line)
        while view:
            view = view[os.write(self._fd, view) :]
