"""The layout that really ran, read from the live objects, to compare with the requested one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from bench_workloads.transformer import float8
from bench_workloads.transformer.mlp import MixtureOfExperts
from bench_workloads.transformer.model import PredictionBlock
from sweep.physics.schedules import LOOPED

if TYPE_CHECKING:
    from bench_workloads.transformer.build import Trainer
    from sweep.contract import Scalar


class Observer:
    """Counts the micro-batches and tokens that really pass the first part of a rank, while it is entered."""

    def __init__(self, trainer: Trainer) -> None:
        self._part = trainer.parts[0]
        self.calls = 0
        self.micro_batch_size: int | None = None
        self.tokens = 0
        """batch * sequence positions seen by the embedding, on ranks that hold it"""

    def __enter__(self) -> Observer:
        self._handle = self._part.register_forward_pre_hook(self._count)
        return self

    def __exit__(self, *_error: object) -> None:
        self._handle.remove()

    def _count(self, _module: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        self.calls += 1
        self.micro_batch_size = inputs[0].shape[0]
        if self._part.embedding is not None:
            self.tokens += inputs[0].shape[:2].numel()


def effective_configuration(trainer: Trainer, observer: Observer, iterations: int) -> dict[str, Scalar]:
    """Mesh sizes, wrapped modules, stages, micro-batches and tokens, under the names that a layout has."""
    meshes, schedule = trainer.meshes, getattr(trainer.forward_backward, "schedule_name", None)
    blocks = [block for part in trainer.parts for block in part.blocks]
    routings = [block.mlp.routing for block in blocks if isinstance(block.mlp, MixtureOfExperts)]
    return {
        "dp": meshes.dp.size(),
        "tp": meshes.tp.size(),
        "pp": meshes.pp.size(),
        "cp": meshes.cp.size(),
        **dict(zip(("ep", "etp"), meshes.experts.shape if meshes.experts is not None else (1,), strict=False)),
        "zero": _zero_stage(trainer),
        **_recomputed(trainer),
        **({"routing": _common(routings)} if routings else {}),
        "compile": _common([block.compiled for block in blocks]),
        **({"pp_schedule": schedule} if schedule else {}),
        **({"virtual_stages": len(trainer.stage_numbers)} if schedule in LOOPED else {}),
        **(_batch(trainer, observer, iterations) if iterations else {}),
        **_model(trainer, layers := sum(not isinstance(block, PredictionBlock) for block in blocks)),
        "layers_here": layers,
        "stages_here": ",".join(map(str, trainer.stage_numbers)),
        "sequence_positions_here": trainer.positions.numel(),
        "parameters_whole": sum(p.numel() for part in trainer.parts for p in part.parameters()),
        "attention_kernel": trainer.attention_operator(),
        "dtype": _compute_dtype(trainer),
        **float8.observed(trainer.parts),
        "weights_dtype": str(trainer.optimizer.shards()[0].dtype).removeprefix("torch."),
    }


def _recomputed(trainer: Trainer) -> dict[str, Scalar]:
    """The kind, and of how many layers of a stage where it is not of all."""
    kinds = [block.recomputed for part in trainer.parts for block in part.blocks if block.recomputed != "none"]
    most = max(sum(block.recomputed != "none" for block in part.blocks) for part in trainer.parts)
    whole = len(kinds) in (0, sum(len(part.blocks) for part in trainer.parts))
    return {"recompute": _common(kinds) if kinds else "none", **({} if whole else {"recompute_layers": most})}


def _model(trainer: Trainer, layers: int) -> dict[str, Scalar]:
    """The model that all stages together are: parameters (a tied weight on two stages twice), layers, sequence."""
    parameters = sum(p.numel() for part in trainer.parts for p in part.parameters())
    held = torch.tensor([parameters, layers], device=trainer.positions.device, dtype=torch.int64)
    dist.all_reduce(held)
    whole = (held // (dist.get_world_size() // trainer.meshes.pp.size())).tolist()
    length = trainer.positions.numel() * trainer.meshes.cp.size()
    return {"parameters": whole[0], "num_layers": whole[1], "sequence_length": length}


def _zero_stage(trainer: Trainer) -> int:
    """By the class that torch gave the modules, and by whether they free their weights after forward.

    Stages 1 and 2 differ in when gradients are reduced only, which leaves no trace: either is reported as requested.
    """
    asked = trainer.run.layout.zero
    part = trainer.parts[0]
    if not isinstance(part, FSDPModule):
        return 0
    if any(kind.__name__ == "ReplicateModule" for kind in type(part).__mro__):
        return 0
    states = [m._get_fsdp_state() for m in part.modules() if isinstance(m, FSDPModule) and m is not part]
    if any(group.post_forward_mesh_info is not None for state in states for group in _groups(state)):
        return 3
    unsharded = asked in (1, 2) or (asked == 3 and not trainer.settings.reshard_after_forward)
    return asked if unsharded else 2


def _groups(state: Any) -> list[Any]:
    """The parameter groups of an FSDP module; torch 2.11 has one at most."""
    several = getattr(state, "_fsdp_param_groups", None)
    if several is not None:
        return list(several)
    return [state._fsdp_param_group] if state._fsdp_param_group else []


def _common(values: list[Any]) -> Any:
    """The value that all share, or all of them as text."""
    return values[0] if len(set(values)) == 1 else ",".join(map(str, values))


def _compute_dtype(trainer: Trainer) -> str:
    part = trainer.parts[0]
    plain = next(part.parameters()).dtype
    dtype = part._get_fsdp_state()._mp_policy.param_dtype if isinstance(part, FSDPModule) else plain
    return {torch.float32: "fp32", torch.bfloat16: "bf16"}.get(dtype, str(dtype))


def _batch(trainer: Trainer, observer: Observer, iterations: int) -> dict[str, Scalar]:
    """Micro-batches, and tokens per optimizer step: summed over the ranks that embed them."""
    device = trainer.positions.device
    seen = torch.tensor(observer.tokens, device=device, dtype=torch.int64)
    dist.all_reduce(seen)
    return {
        "micro_batch_size": observer.micro_batch_size,
        "grad_accum": observer.calls // iterations,
        "global_batch_tokens": int(seen.item()) // (iterations * trainer.run.layout.tp),
    }
