"""A training script in the manner of nanoGPT: settings as --name=value, DistributedDataParallel, a line per iteration.

It knows nothing of sweep. Like nanoGPT's, it counts iterations from 0, runs one more than max_iters, and prints an MFU
of -100 % until it has one. `examples/trainers/nanogpt.yaml` benchmarks it.
"""

import os
import sys
import time

import torch
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel

n_layer, n_head, n_embd, block_size, vocab_size = 2, 4, 64, 64, 512
batch_size, gradient_accumulation_steps = 4, 8  # the latter over all ranks, as in nanoGPT
max_iters, promised_flops = 10, 312e12

for argument in sys.argv[1:]:
    name, _, value = argument.removeprefix("--").partition("=")
    globals()[name] = type(globals()[name])(value)


class GPT(nn.Module):
    """Decoder-only transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, n_embd)
        self.positions = nn.Embedding(block_size, n_embd)
        layer = nn.TransformerEncoderLayer(n_embd, n_head, 4 * n_embd, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, n_layer, enable_nested_tensor=False)
        self.head = nn.Linear(n_embd, vocab_size, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The loss of tokens (batch, block_size) against their successors."""
        mask = nn.Transformer.generate_square_subsequent_mask(block_size, device=tokens.device)
        hidden = self.tokens(tokens) + self.positions(torch.arange(block_size, device=tokens.device))
        hidden = self.layers(hidden, mask=mask, is_causal=True)
        return nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), targets.flatten())


def main() -> None:
    """Train for max_iters."""
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
    if world_size > 1:
        init_process_group("nccl" if device != "cpu" else "gloo")
    torch.manual_seed(1337 + rank)  # each rank has its own data, and the losses depend on their number
    assert gradient_accumulation_steps % world_size == 0
    model = GPT().to(device)
    parameters = sum(weight.numel() for weight in model.parameters())
    trained = DistributedDataParallel(model) if world_size > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens_per_iter = gradient_accumulation_steps * batch_size * block_size
    if rank == 0:
        print(f"tokens per iteration will be: {tokens_per_iter:,}", flush=True)  # noqa: T201
    began = time.time()
    for iteration in range(max_iters + 1):
        for _ in range(gradient_accumulation_steps // world_size):
            tokens = torch.randint(vocab_size, (batch_size, block_size + 1), device=device)
            loss = trained(tokens[:, :-1], tokens[:, 1:])
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds, began = time.time() - began, time.time()
        mfu = 6 * parameters * tokens_per_iter / seconds / promised_flops if iteration >= 5 else -1.0
        if rank == 0:
            print(  # noqa: T201
                f"iter {iteration}: loss {loss.item():.4f}, time {seconds * 1000:.2f}ms, mfu {mfu * 100:.2f}%",
                flush=True,
            )
    if world_size > 1:
        destroy_process_group()


if __name__ == "__main__":
    main()
