"""A LightningModule on random tokens, trained by Lightning's Trainer. It knows nothing of sweep.

`examples/trainers/lightning.yaml` benchmarks it by the JSON lines that a callback prints.
"""

import argparse
import json
import os
import time

import lightning
import torch
from torch import nn


class LanguageModel(lightning.LightningModule):
    """Decoder-only transformer."""

    def __init__(self, layers: int, hidden: int, heads: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden)
        layer = nn.TransformerEncoderLayer(hidden, heads, 4 * hidden, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(hidden, vocabulary, bias=False)

    def training_step(self, tokens: torch.Tensor) -> torch.Tensor:
        """The loss of tokens (batch, sequence + 1)."""
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1] - 1, device=tokens.device)
        hidden = self.layers(self.tokens(tokens[:, :-1]), mask=mask, is_causal=True)
        return nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), tokens[:, 1:].flatten())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class StepTimes(lightning.Callback):
    """Prints a line after each step of the optimizer."""

    def on_train_start(self, *_: object) -> None:
        """Start the clock."""
        self.began, self.step = time.perf_counter(), 0

    def on_train_batch_end(
        self, trainer: lightning.Trainer, _: lightning.LightningModule, outputs: dict, *__: object
    ) -> None:
        """Print, on the first rank."""
        if trainer.global_step == self.step:
            return  # gradients are still accumulated
        self.step, now = trainer.global_step, time.perf_counter()
        values = {"step": self.step, "loss": outputs["loss"].item() * trainer.accumulate_grad_batches}
        if trainer.is_global_zero:
            print(json.dumps(values | {"seconds": now - self.began, "ranks": trainer.world_size}), flush=True)  # noqa: T201
        self.began = now


def main() -> None:
    """Train for some steps."""
    parser = argparse.ArgumentParser()
    for name in ("layers", "hidden", "heads", "vocab", "seq", "batch", "accumulate", "steps", "nodes"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    lightning.seed_everything(0)
    trainer = lightning.Trainer(
        accelerator="auto",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        num_nodes=options.nodes,
        strategy="ddp",
        max_steps=options.steps,
        accumulate_grad_batches=options.accumulate,
        callbacks=[StepTimes()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    count = options.steps * options.accumulate * options.batch * trainer.world_size
    loader = torch.utils.data.DataLoader(torch.randint(options.vocab, (count, options.seq + 1)), options.batch)
    trainer.fit(LanguageModel(options.layers, options.hidden, options.heads, options.vocab), loader)


if __name__ == "__main__":
    main()
