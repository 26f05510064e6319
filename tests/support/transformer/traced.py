"""Peak memory of one rank from the code itself: its training step on fake tensors, in a process group of fake ranks.

The oracle of the memory model: the same build, step and optimizer as on a cluster, but tensors have no memory and
collectives carry nothing. A storage counts from the operator that made it until nothing refers to it.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.pipelining import stage as pipelining
from torch.distributed.tensor import DTensor, _sharding_prop
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bench_workloads.transformer.build import DTYPES, Trainer
from bench_workloads.transformer.mesh import ranks_in_order
from bench_workloads.transformer.pipeline import PipelineStep
from bench_workloads.transformer.settings import Settings
from sweep.contract import RankRun, Run
from tests.support.simulated import place


def traced(run: Run, stage: int = 0, *, gpu_kernels: bool = True) -> int:
    """Peak bytes of the second step, when the optimizer states exist, of the first rank of a stage.

    ``gpu_kernels``: count RMSNorm as the one kernel that it is on a GPU; False: as what it is composed of on CPU.
    """
    settings = Settings.of(run)
    rank = int(ranks_in_order(run.layout, settings.mesh_order)[stage, 0, 0, 0])
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(_fake_group(rank, run.layout.gpus))
        if gpu_kernels:
            stack.enter_context(patch.object(functional, "rms_norm", _fused_rms_norm))
        node, local = divmod(rank, run.gpus_per_node)
        where = {"local_rank": local, "local_world_size": run.gpus_per_node, "node_rank": node}
        here = place(rank, run.layout.gpus, **where)
        fake = FakeTensorMode(allow_non_fake_inputs=True)
        counter = _LiveBytes(fake)
        trainer = _TracedTrainer(RankRun.of(run, here), settings, fake, counter)
        _inform_stages(trainer)
        with fake, counter:
            for iteration in range(2):
                counter.peak = counter.live
                trainer.compute_gradients(*trainer.batches(iteration))
                trainer.optimizer.step()
        return counter.peak


class _LiveBytes(TorchDispatchMode):
    """Counts inside its ``with`` block. Distributed tensors are counted where their local ones are made."""

    def __init__(self, fake: FakeTensorMode) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._fake = fake
        self._bytes: dict[int, int] = {}
        """of the live storages, by address of the storage's object"""

    def __enter__(self) -> _LiveBytes:
        """Count from here on. FSDP resizes storages past any dispatch, so the method itself is watched."""
        resize = self._resize = torch.UntypedStorage.resize_

        def watched(storage: torch.UntypedStorage, size: int) -> Any:
            out = resize(storage, size)
            if storage._cdata in self._bytes:
                self._set(storage._cdata, size)
            return out

        torch.UntypedStorage.resize_ = watched
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize
        super().__exit__(*raised)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        out = func(*args, **(kwargs or {}))
        for leaf in (out,) if isinstance(out, Tensor) else tree_leaves(out):
            if isinstance(leaf, FakeTensor) and leaf.fake_mode is self._fake:
                storage = leaf.untyped_storage()
                if storage._cdata not in self._bytes:
                    weakref.finalize(storage, self._gone, storage._cdata).atexit = False
                self._set(storage._cdata, storage.nbytes())
        return out

    def _gone(self, address: int) -> None:
        self.live -= self._bytes.pop(address)

    def _set(self, address: int, size: int) -> None:
        self.live += size - self._bytes.get(address, 0)
        self._bytes[address] = size
        self.peak = max(self.peak, self.live)


class _TracedTrainer(Trainer):
    """A trainer whose weights are fake. Meshes and plans are real: they are made outside the fake mode."""

    def __init__(self, run: RankRun, settings: Settings, fake: FakeTensorMode, counter: _LiveBytes) -> None:
        self._modes = fake, counter
        super().__init__(run, settings, torch.device("cpu"))

    def _materialise(self, part: Any, device: torch.device) -> None:
        with self._modes[0], self._modes[1]:
            part.to_empty(device=device)
            part.tie()
            part.set_positions(self.positions)


def _inform_stages(trainer: Trainer) -> None:
    """Let pipeline stages receive the tensor metadata of fake neighbours: hidden states, and gradients."""
    step, run = trainer.forward_backward, trainer.run
    if not isinstance(step, PipelineStep):
        return
    length = trainer.positions.numel() // (run.layout.tp if trainer.settings.sequence_parallel else 1)
    size = (run.layout.micro_batch_size, length, trainer.shape.hidden_size)
    sent = torch.empty(size, dtype=DTYPES[run.dtype], device="meta", requires_grad=True)
    metas = pipelining.extract_tensor_metas((sent,))
    forward, backward = pipelining._StageForwardMeta(metas), pipelining._StageBackwardMeta(metas)
    schedule: Any = step._schedule
    stages = getattr(schedule, "_stages", None) or [schedule._stage]

    def infer_shapes(*_: Any) -> None:
        for stage in stages:
            stage._inference_mode = pipelining.InferenceMode.DYNAMIC

    schedule._warmup_p2p = infer_shapes
    for stage in stages:
        number = stage.stage_index
        stage._recv_meta = lambda source, number=number: forward if source < number else backward
        stage._send_meta = lambda _meta, _destination: None


@contextmanager
def _fake_group(rank: int, ranks: int) -> Iterator[None]:
    """A process group whose other ranks do not exist.

    Distributed tensors infer shapes on fake tensors of global size. They must not be those of the counting mode.
    """
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    try:
        with patch.object(_sharding_prop, "detect_fake_mode", lambda *_args, **_kwargs: None):
            yield
    finally:
        dist.destroy_process_group()
        _clear_sharding_prop_cache()  # it refers to the groups


class _FusedRMSNorm(torch.autograd.Function):
    """Memory of a GPU's kernel for RMSNorm, without its arithmetic: its output, its input and one number per row.

    On CPU torch composes the norm of several operators, which keep copies in fp32.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight, x.select(-1, 0).float())
        return x * weight

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        _, weight, _ = ctx.saved_tensors
        return gradient * weight, gradient.sum(dim=tuple(range(gradient.dim() - 1)))


def _fused_rms_norm(x: Tensor, _shape: Any, weight: Tensor, _eps: float | None = None) -> Tensor:
    return _FusedRMSNorm.apply(x, weight)
