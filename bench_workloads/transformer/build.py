"""From a run to a trainer: build on meta, apply each axis, materialise.

The order matters: tensor and expert parallelism determine a rank's matrices, recomputation wraps what they
compute, compilation takes in both, and data parallelism shards the result.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bench_workloads.transformer import (
    attention,
    compiling,
    context_parallel,
    data_parallel,
    expert_parallel,
    float8,
    mlp,
    recompute,
    stages,
    tensor_parallel,
    weights,
)
from bench_workloads.transformer.attention import attention_by_head
from bench_workloads.transformer.data import Batches, FileBatches, Share
from bench_workloads.transformer.mesh import Meshes, build_meshes, has_own_width
from bench_workloads.transformer.model import Decoder, mean_loss
from bench_workloads.transformer.optimizer import Optimizer
from bench_workloads.transformer.output import Loss, loss_and_gradient, over_depths
from bench_workloads.transformer.pipeline import PipelineStep, TiedEmbedding
from bench_workloads.transformer.rules import FP8_RECIPES, SYNTHETIC
from sweep.physics.pipeline import output_layers
from sweep.physics.shapes import ModelShape

if TYPE_CHECKING:
    from bench_workloads.transformer.settings import Settings
    from sweep.contract import RankRun

DTYPES = {"fp32": torch.float32, **dict.fromkeys(("bf16", *FP8_RECIPES), torch.bfloat16)}
"""of weights and activations while computing"""


class Trainer:
    """One rank's share of a training job: its parts of the model, its share of the data, its optimizer."""

    def __init__(self, run: RankRun, settings: Settings, device: torch.device) -> None:
        self.run = run
        self.settings = settings
        self.shape = ModelShape(**run.shape)  # type: ignore[arg-type]
        attention.prepare(settings.attention)
        self.meshes = build_meshes(
            device.type,
            run.layout,
            order=settings.mesh_order,
            shard_size=settings.shard_size,
            experts=self.shape.num_experts > 0,
        )
        if settings.async_tp:
            compiling.overlap_tensor_parallel(self.meshes.tp)
        cp_rank = self.meshes.cp.get_local_rank()
        self.positions = context_parallel.positions(run.sequence_length, cp_rank, run.layout.cp).to(device)
        pp, at = run.layout.pp, self.meshes.pp.get_local_rank()
        looped = stages.stages_of_rank(at, pp, run.layout.pp_schedule, run.layout.virtual_stages)
        self.stage_numbers = [0] if pp == 1 else looped
        self.parts = [self._part(number, device) for number in self.stage_numbers]
        self.batches = _source(run, settings, self.meshes, self.positions)
        self.forward_backward = self._step(device)
        self.tied = TiedEmbedding(self.parts, self.meshes.pp)
        self.optimizer = Optimizer(
            [p for part in self.parts for p in part.parameters()],
            settings,
            uncounted=self.tied.last,
            stages=run.layout.pp,
        )

    def compute_gradients(self, tokens: Tensor, targets: Tensor) -> Tensor | None:
        """Forward and backward of one global step. The mean loss, or None on a rank without the last stage."""
        if self.run.layout.fp8_params:
            float8.scale_gathered(self.parts)
        with ExitStack() as stack:
            stack.enter_context(tensor_parallel.loss_context(self.meshes.tp, parallel_loss=self.settings.loss_parallel))
            stack.enter_context(attention.chosen(self.settings.attention))
            loss = self.forward_backward(tokens, targets)
        self.tied.add_gradients()
        return loss

    def attention_operator(self) -> str:
        """The operator that attention is dispatched to, for the shapes, dtype and layout of this rank."""
        block = next(block for part in self.parts for block in part.blocks)
        layout, shape = self.run.layout, self.shape
        keys = shape.num_heads if shape.kv_rank else shape.num_kv_heads
        wide = shape.head_dim + shape.rope_head_dim
        made = {"device": self.positions.device, "dtype": DTYPES[self.run.dtype]}
        inputs = (
            torch.zeros(layout.micro_batch_size, count // layout.tp, self.positions.numel(), width, **made)
            for count, width in ((shape.num_heads, wide), (keys, wide), (keys, shape.head_dim))
        )
        queries, keys, values = (x.requires_grad_() for x in inputs)
        with attention.chosen(self.settings.attention):
            return attention.dispatched(block.attention.core, (queries, keys, values))

    def _part(self, number: int, device: torch.device) -> Decoder:
        """One stage of the model, spread and materialised."""
        run, settings, meshes = self.run, self.settings, self.meshes
        count = run.layout.pp * len(self.stage_numbers)
        depth = self.shape.num_layers
        layers = stages.layers_of_stages(depth, count, last=float(output_layers(depth, self.shape)))
        with torch.device("meta"):
            ends = {"first": number == 0, "last": number == count - 1}
            part = Decoder(self.shape, layers[number], **ends, fused=settings.fused_projections)
        part.to(DTYPES[settings.weights_dtype])
        if self.shape.num_experts:
            # torch compiles the grouped product for GPUs in bf16 only; an all-to-all waits for its sizes
            compilable = device.type == "cuda" and DTYPES[run.dtype] == torch.bfloat16 and meshes.tokens_travel is None
            width = self.shape.moe_intermediate_size // (run.layout.etp or run.layout.tp)
            product = mlp.product_on(device.type, DTYPES[run.dtype], self.shape.hidden_size, width)
            part.group_experts(product, compilable=compilable)
        float8.apply(part, run.dtype, gather=run.layout.fp8_params, emulate=device.type == "cpu")
        tensor_parallel.apply(
            part,
            meshes.tp,
            sequence_parallel=settings.sequence_parallel,
            parallel_loss=settings.loss_parallel,
            own_tokens=has_own_width(run.layout),
        )
        expert_parallel.apply(part, meshes)
        if not attention.takes_groups(settings.attention, device, DTYPES[run.dtype]):
            part.set_attention(attention_by_head)
        context_parallel.apply(part, meshes.cp, run.sequence_length)
        recompute.apply(part, run.layout.recompute, run.layout.recompute_layers)
        compiling.apply(part, on=run.compile, mode=settings.compile_mode, attention=settings.attention)
        data_parallel.apply(
            part,
            meshes,
            zero=run.layout.zero,
            dtype=DTYPES[run.dtype],
            weights_dtype=DTYPES[settings.weights_dtype],
            reshard=settings.reshard_after_forward,
        )
        self._materialise(part, device)
        return part

    def _materialise(self, part: Decoder, device: torch.device) -> None:
        """Allocate the stage's memory and initialise its weights."""
        weights.materialise(part, device, self.run.place.seed, self.run.layout.tp)
        part.set_positions(self.positions)
        layout, tp = self.run.layout, self.meshes.tp
        routed = self.positions.chunk(tp.size())[tp.get_local_rank()] if has_own_width(layout) else self.positions
        part.set_routing(layout.routing, routed, self.run.sequence_length)

    def _step(self, device: torch.device) -> data_parallel.AccumulationStep | PipelineStep:
        layout, loss = self.run.layout, self._loss()
        if layout.pp == 1:
            return data_parallel.AccumulationStep(self.parts[0], layout.zero, layout.grad_accum, loss)
        return PipelineStep(
            self.parts,
            self.stage_numbers,
            self.meshes.pp,
            schedule=layout.pp_schedule,
            micro_batches=layout.grad_accum,
            loss=loss,
            device=device,
        )

    def _loss(self) -> Loss:
        """(What the last stage returns, targets) -> mean loss: from logits, or from hidden states in chunks."""
        layout, settings = self.run.layout, self.settings
        chunk = stages.loss_chunk(layout, settings.loss_chunk_tokens, self.positions.numel())
        output = next((part.output for part in self.parts if part.output is not None), None)
        if not chunk or output is None:
            split_logits = settings.loss_parallel and layout.tp > 1
            loss = torch.compile(mean_loss) if self.run.compile and not split_logits else mean_loss
            return over_depths(loss) if self.shape.mtp_layers else loss
        for part in self.parts:
            part.returns_logits = False
        output.chunk_tokens = chunk
        output.chunk_gradient = torch.compile(loss_and_gradient) if self.run.compile else loss_and_gradient
        return output


def _source(run: RankRun, settings: Settings, meshes: Meshes, positions: Tensor) -> Batches | FileBatches:
    per_replica = run.layout.micro_batch_size * run.layout.grad_accum
    start = meshes.dp.get_local_rank() * per_replica
    share = Share(
        seed=run.place.seed,
        vocab_size=int(run.shape["vocab_size"] or 0),
        sequence_length=run.sequence_length,
        sequences=run.global_batch_sequences,
        mine=slice(start, start + per_replica),
        positions=positions,
        further=int(run.shape.get("mtp_layers") or 0),
    )
    return Batches(**vars(share)) if settings.data == SYNTHETIC else FileBatches(settings, share)
