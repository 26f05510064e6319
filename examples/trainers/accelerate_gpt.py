"""A training loop with Hugging Face's accelerate on random tokens. It knows nothing of sweep.

`examples/trainers/accelerate.yaml` benchmarks it by the lines that it prints.
"""

import argparse
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn


class LanguageModel(nn.Module):
    """Decoder-only transformer."""

    def __init__(self, layers: int, hidden: int, heads: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden)
        layer = nn.TransformerEncoderLayer(hidden, heads, 4 * hidden, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The loss of tokens (batch, sequence + 1)."""
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1] - 1, device=tokens.device)
        hidden = self.layers(self.tokens(tokens[:, :-1]), mask=mask, is_causal=True)
        return nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), tokens[:, 1:].flatten())


def main() -> None:
    """Train for some steps."""
    parser = argparse.ArgumentParser()
    for name in ("layers", "hidden", "heads", "vocab", "seq", "batch", "accumulate", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    set_seed(0)
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), gradient_accumulation_steps=options.accumulate)
    count = options.steps * options.accumulate * options.batch * accelerator.num_processes
    loader = torch.utils.data.DataLoader(torch.randint(options.vocab, (count, options.seq + 1)), options.batch)
    model = LanguageModel(options.layers, options.hidden, options.heads, options.vocab)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    accelerator.print(f"processes: {accelerator.num_processes}", flush=True)
    step, began = 0, time.perf_counter()
    for tokens in loader:
        with accelerator.accumulate(model):
            loss = model(tokens)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            step += 1
            value, seconds, began = loss.item(), time.perf_counter() - began, time.perf_counter()
            accelerator.print(f"step {step} loss {value:.4f} seconds {seconds:.4f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
