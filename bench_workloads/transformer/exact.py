"""Peak memory of one rank from the code itself: its training step on fake tensors, in a process group of fake ranks.

Everything runs as on the cluster (the same build, the same step, the same optimizer), but tensors have no memory and
collectives carry nothing. So a rank of 512 is traced by one process without a GPU. Experts get equally many tokens.
What differs from a GPU is in docs/measurement.md.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import stage as pipelining
from torch.distributed.tensor import _sharding_prop
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.testing._internal.distributed.fake_pg import FakeStore

from bench_workloads.transformer import mlp
from bench_workloads.transformer.build import DTYPES, Trainer
from bench_workloads.transformer.live_bytes import LiveBytes
from bench_workloads.transformer.mesh import ranks_in_order
from bench_workloads.transformer.pipeline import PipelineStep
from bench_workloads.transformer.settings import Settings
from sweep.contract import Place, RankRun

if TYPE_CHECKING:
    from bench_workloads.transformer.model import Decoder
    from sweep.contract import Layout, Run


@dataclass(frozen=True)
class Traced:
    """One rank's memory at its peak, in the second step, when the optimizer states exist."""

    rank: int
    peak_bytes: int
    parts: Mapping[str, int]
    """bytes by kind (``live_bytes.KINDS``) at the peak; their sum is the peak"""
    parameters: int
    """weights that the rank holds"""
    micro_batches: int
    """of a step, as traced: further ones would need no more"""


class NotTraceableError(Exception):
    """This run, or this torch, cannot be traced. The message states why."""


def trace(run: Run, stage: int = 0, *, gpu_kernels: bool = True) -> Traced:
    """Two steps of the first rank of a pipeline stage (0 where there is no pipeline), without a GPU or memory.

    ``gpu_kernels``: count RMSNorm as the one kernel that it is on a GPU; False: as what it is composed of on CPU.
    Raises NotTraceableError, also where this process is in a process group already.
    """
    if dist.is_initialized():
        raise NotTraceableError("this process has a process group of its own")
    settings = Settings.of(run)
    traced = dataclasses.replace(run, layout=_shortened(run.layout))
    rank = int(ranks_in_order(run.layout, settings.mesh_order)[stage, 0, 0, 0])
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(_fake_group(rank, run.layout.gpus))
        stack.enter_context(_even_routing())
        if gpu_kernels:
            stack.enter_context(_replaced(functional, "rms_norm", _fused_rms_norm))
        return _trace(_placed(traced, rank), settings, run.layout.grad_accum)


def _shortened(layout: Layout) -> Layout:
    """The layout with just enough micro-batches to reach the peak.

    Without a pipeline the first, one between and the last; in 1F1B those that fill the pipeline, and one.
    """
    enough = layout.grad_accum
    if layout.pp == 1:
        enough = 3
    elif layout.pp_schedule == "1f1b":
        enough = layout.pp + 1
    return dataclasses.replace(layout, grad_accum=min(layout.grad_accum, enough))


def _placed(run: Run, rank: int) -> RankRun:
    place = Place(
        rank=rank,
        world_size=run.layout.gpus,
        local_rank=rank % run.gpus_per_node,
        local_world_size=run.gpus_per_node,
        node_rank=rank // run.gpus_per_node,
        master_addr="",
        master_port=0,
    )
    return RankRun.of(run, place)


def _trace(run: RankRun, settings: Settings, micro_batches: int) -> Traced:
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    counter = LiveBytes(fake)
    trainer = _TracedTrainer(run, settings, fake, counter)
    _inform_stages(trainer)
    left_out = micro_batches - run.layout.grad_accum
    with fake, counter:
        _step(trainer, counter, 0)
        counter.watch()
        further = torch.empty(left_out * _bytes_per_micro_batch(trainer), dtype=torch.uint8)
        _step(trainer, counter, 1)
        del further
    shards = trainer.optimizer.shards()
    counter.name("gathered_weights", _gathered(trainer.parts))
    counter.name("optimizer_states", trainer.optimizer.states())
    counter.name("weights", shards)
    parts = counter.peak()
    return Traced(
        rank=run.place.rank,
        peak_bytes=sum(parts.values()),
        parts=parts,
        parameters=sum(shard.numel() for shard in shards),
        micro_batches=run.layout.grad_accum,
    )


class _TracedTrainer(Trainer):
    """A trainer whose weights are fake. Meshes and plans are real: they are made outside the fake mode."""

    def __init__(self, run: RankRun, settings: Settings, fake: FakeTensorMode, counter: LiveBytes) -> None:
        self._fake = fake
        self._counter = counter
        super().__init__(run, settings, torch.device("cpu"))

    def _materialise(self, part: Decoder, device: torch.device) -> None:
        with self._fake, self._counter:
            part.to_empty(device=device)
            part.tie()
            part.set_positions(self.positions)


def _step(trainer: Trainer, counter: LiveBytes, iteration: int) -> None:
    tokens, targets = trainer.batches(iteration)
    trainer.compute_gradients(tokens, targets)
    counter.name("gradients", trainer.optimizer.gradients())
    counter.optimizing = True
    trainer.optimizer.step()
    counter.optimizing = False


def _gathered(parts: Iterable[Decoder]) -> Iterator[Tensor]:
    """The buffers into which FSDP gathers weights."""
    for module in (m for part in parts for m in part.modules() if isinstance(m, FSDPModule)):
        group = module._get_fsdp_state()._fsdp_param_group
        for parameter in group.fsdp_params if group else ():
            yield from parameter.all_gather_outputs
            if hasattr(parameter, "_unsharded_param"):
                yield parameter._unsharded_param


def _bytes_per_micro_batch(trainer: Trainer) -> int:
    """Bytes that each micro-batch holds during a whole step.

    Its tokens and targets; in a pipeline (1F1B) also the buffers that torch keeps for what each neighbour sends.
    """
    numbers = 2 * torch.int64.itemsize * trainer.run.layout.micro_batch_size * trainer.positions.numel()
    neighbours = sum(0 <= trainer.stage_numbers[0] + step < trainer.run.layout.pp for step in (-1, 1))
    sent = _sent_between_stages(trainer)
    return int(numbers + neighbours * sent.numel() * sent.element_size())


def _sent_between_stages(trainer: Trainer) -> Tensor:
    """The hidden states of one micro-batch, without memory."""
    layout = trainer.run.layout
    length = trainer.positions.numel() // (layout.tp if trainer.settings.sequence_parallel else 1)
    size = (layout.micro_batch_size, length, trainer.shape.hidden_size)
    return torch.empty(size, dtype=DTYPES[trainer.run.dtype], device="meta", requires_grad=True)


def _inform_stages(trainer: Trainer) -> None:
    """Let pipeline stages receive the tensor metadata of fake neighbours: hidden states, and gradients."""
    step = trainer.forward_backward
    if not isinstance(step, PipelineStep):
        return
    if not hasattr(pipelining, "_StageForwardMeta"):
        raise NotTraceableError("pipelines are traced with torch 2.13 or newer")
    metas = pipelining.extract_tensor_metas((_sent_between_stages(trainer),))
    forward, backward = pipelining._StageForwardMeta(metas), pipelining._StageBackwardMeta(metas)
    schedule: Any = step._schedule
    schedule._warmup_p2p = _infer_shapes
    for stage in getattr(schedule, "_stages", None) or [schedule._stage]:
        number = stage.stage_index
        stage._recv_meta = lambda source, number=number: forward if source < number else backward
        stage._send_meta = lambda _meta, _destination: None


def _infer_shapes(stages: Iterable[Any], *_further: Any) -> None:
    """The stages' vote: shapes are inferred from a first micro-batch."""
    for stage in stages:
        stage._inference_mode = pipelining.InferenceMode.DYNAMIC


@contextmanager
def _fake_group(rank: int, ranks: int) -> Iterator[None]:
    """A process group whose other ranks do not exist.

    Distributed tensors infer shapes on fake tensors of global size. They must not be those of the counting mode.
    """
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    try:
        with _replaced(_sharding_prop, "detect_fake_mode", lambda *_args, **_kwargs: None):
            yield
    finally:
        dist.destroy_process_group()
        _clear_sharding_prop_cache()  # it refers to the groups


@contextmanager
def _even_routing() -> Iterator[None]:
    """Every expert gets as many tokens as any other: how many it gets depends on data, which is fake."""
    with (
        _replaced(torch, "bincount", lambda chosen, minlength: chosen.new_empty(minlength)),
        _replaced(mlp, "numbers_of", _even_numbers),
        _replaced(mlp, "product_on", lambda *_: mlp.by_loop),  # the grouped one has no fp32 without data
    ):
        yield


def _even_numbers(counts: Tensor, expected: int) -> list[int]:
    parts = counts.numel()
    return [expected // parts + (part < expected % parts) for part in range(parts)]


@contextmanager
def _replaced(module: Any, name: str, value: Callable[..., Any]) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


class _FusedRMSNorm(torch.autograd.Function):
    """Memory of a GPU's kernel for RMSNorm, without its arithmetic: its output, its input and one number per row.

    On CPU torch composes the norm of several operators, which keep copies in fp32.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """(…, hidden) and (hidden,) -> (…, hidden)."""
        ctx.save_for_backward(x, weight, x.select(-1, 0).float())
        return x * weight

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of input and weight."""
        _, weight, _ = ctx.saved_tensors
        return gradient * weight, gradient.sum(dim=tuple(range(gradient.dim() - 1)))


def _fused_rms_norm(x: Tensor, _shape: Any, weight: Tensor, _eps: float | None = None) -> Tensor:
    out: Tensor = _FusedRMSNorm.apply(x, weight)
    return out
