"""A small decoder trained by DeepSpeed on random tokens. It knows nothing of sweep.

DeepSpeed's own JSON configuration says batch, ZeRO stage and number format; `examples/trainers/deepspeed.yaml`
benchmarks it.
"""

import argparse

import deepspeed
import torch
from torch import nn


class Decoder(nn.Module):
    """Embedding, layers with causal attention, output projection; gives the loss."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.embedding = nn.Embedding(options.vocab, options.hidden)
        layer = nn.TransformerEncoderLayer(
            options.hidden, options.heads, options.intermediate, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, options.layers, enable_nested_tensor=False)
        self.output = nn.Linear(options.hidden, options.vocab, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(options.seq), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Mean loss of (batch, sequence + 1) tokens."""
        hidden = self.embedding(tokens[:, :-1])
        logits = self.output(self.layers(hidden, mask=self.mask.to(hidden.dtype), is_causal=True))
        return nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())


def main() -> None:
    """Train for some steps."""
    parser = argparse.ArgumentParser()
    for name in ("layers", "hidden", "heads", "intermediate", "vocab", "seq", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--local_rank", type=int, default=0)
    parser = deepspeed.add_config_arguments(parser)
    options = parser.parse_args()
    deepspeed.init_distributed()
    torch.manual_seed(0)
    model = Decoder(options)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=options.deepspeed_config)
    rows = engine.train_micro_batch_size_per_gpu()
    for _ in range(options.steps * engine.gradient_accumulation_steps()):
        loss = engine(torch.randint(options.vocab, (rows, options.seq + 1), device=engine.device))
        engine.backward(loss)
        engine.step()
    engine.destroy()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
