"""The reference: the same model trained by one process with plain torch, without parallelism."""

from __future__ import annotations

import json
from functools import cache

import torch
from torch.func import functional_call

from bench_workloads.transformer.build import DTYPES
from bench_workloads.transformer.data import Batches
from bench_workloads.transformer.model import Decoder, mean_loss
from bench_workloads.transformer.output import over_depths
from bench_workloads.transformer.weights import materialise
from sweep.contract import Run
from sweep.physics.shapes import ModelShape


def truth(run: Run, seed: int = 7, device: str = "cpu") -> tuple[list[float], list[float]]:
    """Loss and gradient norm of each optimizer step of the run's global batch."""
    return _train(
        json.dumps(dict(run.shape)),
        run.global_batch_sequences,
        run.sequence_length,
        run.dtype,
        run.layout.routing,
        run.warmup_iterations + run.iterations,
        seed,
        device,
    )


@cache
def _train(shape_json: str, sequences: int, length: int, dtype: str, routing: str, steps: int, seed: int, device: str):
    torch.set_num_threads(1)
    shape = ModelShape(**json.loads(shape_json))
    with torch.device("meta"):
        model = Decoder(shape, range(shape.num_layers))
    materialise(model, torch.device(device), seed)
    model.set_positions(torch.arange(length, device=device))
    model.set_routing(routing, torch.arange(length, device=device), length)
    batches = Batches(
        seed,
        shape.vocab_size,
        length,
        sequences,
        slice(0, sequences),
        torch.arange(length, device=device),
        further=shape.mtp_layers,
    )
    loss_of = over_depths(mean_loss) if shape.mtp_layers else mean_loss
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, betas=(0.9, 0.95))
    losses, norms = [], []
    for step in range(steps):
        tokens, targets = batches(step)
        optimizer.zero_grad()
        cast = {name: p.to(DTYPES[dtype]) for name, p in model.named_parameters()}
        loss = loss_of(functional_call(model, cast, (tokens,)), targets)
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        optimizer.step()
        losses.append(loss.item())
    return losses, norms
