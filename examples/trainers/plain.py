"""A plain PyTorch training script, as users have it: DDP by torchrun's variables, one line per step.

It knows nothing of sweep. `examples/trainers/plain.yaml` benchmarks it.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train for some steps on random tokens."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=512)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--seq", type=int, default=64)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()

    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    world = dist.get_world_size()
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(options.hidden, options.heads, 4 * options.hidden, dropout=0.0, batch_first=True)
    model = nn.Sequential(
        nn.Embedding(options.vocab, options.hidden),
        nn.TransformerEncoder(layer, options.layers, enable_nested_tensor=False),
        nn.Linear(options.hidden, options.vocab),
    ).to(device)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    sequences = options.batch * options.accumulate * world
    if dist.get_rank() == 0:
        print(f"world size {world}, {sequences} sequences of {options.seq} tokens per step")  # noqa: T201

    for step in range(1, options.steps + 1):
        begin = time.perf_counter()
        optimizer.zero_grad()
        for _ in range(options.accumulate):
            tokens = torch.randint(options.vocab, (options.batch, options.seq + 1), device=device)
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) / options.accumulate
            loss.backward()
        optimizer.step()
        loss = loss.detach() * options.accumulate
        dist.all_reduce(loss)
        seconds = time.perf_counter() - begin
        if dist.get_rank() == 0:
            rate = sequences * options.seq / seconds
            print(f"step {step} loss {loss.item() / world:.4f} time {1000 * seconds:.3f} ms tok/s {rate:.1f}")  # noqa: T201
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
