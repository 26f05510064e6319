"""The reference: the same model trained by one process with plain torch, without parallelism."""

from dataclasses import replace
from functools import cache

import torch
from torch.func import functional_call

from bench_workloads.transformer.build import DTYPES
from bench_workloads.transformer.data import Batches
from bench_workloads.transformer.model import Decoder, mean_loss
from bench_workloads.transformer.output import over_depths
from bench_workloads.transformer.rules import FP8_RECIPES
from bench_workloads.transformer.weights import materialise
from sweep.contract import Layout, Run
from sweep.physics.shapes import ModelShape


def truth(run: Run, seed: int = 7, device: str = "cpu") -> tuple[list[float], list[float]]:
    """Loss and gradient norm of each optimizer step of the run's global batch.

    In 8 bits scales belong to a matrix of a micro-batch: there the reference has the run's micro-batches and its fused
    matrices, and rounds weights from fp32 where the run gathers them in 8 bits.
    """
    size = run.layout.micro_batch_size if run.dtype in FP8_RECIPES else run.global_batch_sequences
    alone = Layout(
        micro_batch_size=size,
        grad_accum=run.global_batch_sequences // size,
        routing=run.layout.routing,
        fp8_params=run.layout.fp8_params,
    )
    return _train(replace(run, layout=alone, gpus_per_node=1, compile=False, params={}).canonical_json(), seed, device)


def convert(model: Decoder, dtype: str) -> None:
    """By torchao's own words: every linear of the layers but routers, in products emulated on a CPU."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    config = replace(Float8LinearConfig.from_recipe_name(dtype.removeprefix("fp8_")), emulate=True)
    wide = lambda module, name: "router" not in name and all(width % 16 == 0 for width in module.weight.shape)  # noqa: E731
    convert_to_float8_training(model.layers, config=config, module_filter_fn=wide)


@cache
def _train(run_json: str, seed: int, device: str) -> tuple[list[float], list[float]]:
    run = Run.from_json(run_json)
    dtype, length, sequences = run.dtype, run.sequence_length, run.global_batch_sequences
    positions = torch.arange(length, device=device)
    torch.set_num_threads(1)
    shape = ModelShape(**run.shape)
    with torch.device("meta"):
        model = Decoder(shape, range(shape.num_layers), fused=dtype in FP8_RECIPES)
    if dtype in FP8_RECIPES:
        convert(model, dtype)
    materialise(model, torch.device(device), seed)
    converted = {f"{name}.weight" for name, m in model.named_modules() if type(m).__name__ == "Float8Linear"}
    model.set_positions(positions)
    model.set_routing(run.layout.routing, positions, length)
    batches = Batches(
        seed, shape.vocab_size, length, sequences, slice(0, sequences), positions, further=shape.mtp_layers
    )
    loss_of = over_depths(mean_loss) if shape.mtp_layers else mean_loss
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, betas=(0.9, 0.95))
    losses, norms = [], []
    for step in range(run.warmup_iterations + run.iterations):
        tokens, targets = batches(step)
        optimizer.zero_grad()
        mean = 0.0
        for inputs, wanted in zip(
            tokens.chunk(run.layout.grad_accum), targets.chunk(run.layout.grad_accum), strict=True
        ):
            cast = {
                n: p if run.layout.fp8_params and n in converted else p.to(DTYPES[dtype])
                for n, p in model.named_parameters()
            }
            loss = loss_of(functional_call(model, cast, (inputs,)), wanted) * (len(inputs) / sequences)
            loss.backward()
            mean += loss.item()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        optimizer.step()
        losses.append(mean)
    return losses, norms
