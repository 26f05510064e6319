"""A run's parameters of this workload, as one validated value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench_workloads.parameters import Parameters

if TYPE_CHECKING:
    from sweep.contract import Scalar

CHOICES: dict[str, tuple[Scalar, ...]] = {
    "attention": ("auto", "flash", "fa3", "efficient", "cudnn", "math"),
    "compile_mode": ("default", "max-autotune-no-cudagraphs"),
    "weights_dtype": ("fp32", "bf16"),
    "mesh_order": ("pp,dp,cp,tp", "dp,pp,cp,tp"),
    "data_dtype": ("uint16", "uint32", "int32"),
    "checkpoint": ("none", "sync", "async", "async_pinned"),
}
"""valid values of the text parameters"""


@dataclass(frozen=True, kw_only=True)
class Settings(Parameters):
    """The workload's own parameters. Each is a key of a grid's ``params``, and can be an axis."""

    process_group_timeout_s: float = 300.0
    """a collective that takes longer is a failure"""
    threads: int = 0
    """CPU threads of a rank; 0: its share of the node's cores"""
    data: str = "synthetic"
    """synthetic: tokens made on the device, at no cost; or the absolute path of a file of token numbers, whose reading
    is part of each step"""
    data_dtype: str = "uint16"
    """type of the file's numbers: uint16, uint32 or int32"""
    data_workers: int = 0
    """processes of a rank that read the file ahead; 0: the rank reads it itself, within the step"""
    fused_projections: bool = True
    """one matrix product for queries, keys and values, and one for both inner matrices of a gated MLP"""
    loss_chunk_tokens: int = 2048
    """logits and loss of at most so many tokens at once; 0: of the whole micro-batch. Whole in any case under `tp`, and
    in schedules other than 1f1b and interleaved_1f1b"""
    async_tp: bool = False
    """overlap the collectives of `tp` with the products they feed: needs compile, `sequence_parallel`, NVLink"""
    mesh_order: str = "pp,dp,cp,tp"
    """outermost axis first, ranks along the last one are adjacent: `pp,dp,cp,tp` or `dp,pp,cp,tp`"""
    sequence_parallel: bool = True
    """shard the sequence over `tp` outside attention and MLP"""
    loss_parallel: bool = True
    """compute the loss on logits sharded over `tp`"""
    shard_size: int = 0
    """ranks over which ZeRO shards, replicating beyond (hybrid sharding); 0: all of `dp * cp`"""
    reshard_after_forward: bool = True
    """ZeRO 3: free gathered weights between forward and backward"""
    attention: str = "auto"
    """attention kernel: auto, flash, fa3 (FlashAttention 3, if installed), efficient, cudnn or math; the operator that
    ran is `attention_kernel` in `effective_json`"""
    compile_mode: str = "default"
    """mode of torch.compile: default or max-autotune-no-cudagraphs; its modes that record CUDA graphs have not been run
    with collectives"""
    weights_dtype: str = "fp32"
    """dtype of the weights, their gradients and both moments: `fp32` master weights, or `bf16` alone"""
    fused_optimizer: bool = True
    """one kernel for the whole optimizer update"""
    learning_rate: float = 3e-4
    """of AdamW"""
    clip_grad: float = 1.0
    """largest gradient norm; 0: no clipping, the norm is still measured"""

    warmup_seconds: float = 0.0
    """warm up until the steps after the first have taken so long: to a GPU's steady temperature and clocks"""
    steps_per_sync: int = 0
    """optimizer steps between two synchronisations; a timed iteration is their mean. 0: on a GPU, whose clocks rise
    while it waits, as many as keep it busy for nine tenths of the time, at most 16; on a CPU 1"""
    count_flops: bool = True
    """count executed FLOPs in the last of several warm-up iterations (not where layers are compiled)"""
    cpu_memory: bool = True
    """on CPU, profile one further iteration for its peak of tensor bytes"""
    checkpoint: str = "none"
    """after the measurement, write two checkpoints to the site's `checkpoint_dir` while training goes on, restore the
    second, and remove them: `sync` waits until it is written, `async` until it is copied to the host's memory,
    `async_pinned` copies it in the background, on a GPU to page-locked memory, and waits before the weights change"""
    checkpoint_timeout_s: float = 600.0
    """a checkpoint that takes longer to write or to restore is a failure"""
    profile: bool = False
    """after the measurement, save a profiler trace of one further iteration and, on a GPU, a memory snapshot"""
    profile_dir: str = ""
    """destination; empty: the attempt's directory on the node, which is removed after the attempt"""
    straggler_rank: int = -1
    """a rank that sleeps in its steps, to test straggler detection; -1: none"""
    straggler_s: float = 0.02
    """how long it sleeps"""
    straggler_iteration: int = -1
    """the only iteration, warm-up included, in which it sleeps; -1: all"""

    def __post_init__(self) -> None:
        wrong = [
            f"{name} must be one of {', '.join(map(str, values))}, not {getattr(self, name)!r}"
            for name, values in CHOICES.items()
            if getattr(self, name) not in values
        ]
        if wrong:
            raise ValueError("; ".join(wrong))
