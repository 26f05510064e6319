"""Hugging Face's Trainer on a small Llama with random tokens. It knows nothing of sweep.

`examples/trainers/hf_trainer.yaml` benchmarks it by the progress bar that the Trainer draws.
"""

import argparse

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed


class RandomTokens(torch.utils.data.Dataset):
    """Sequences of random tokens, made when they are asked for."""

    def __init__(self, count: int, length: int, vocabulary: int) -> None:
        self.count, self.length, self.vocabulary = count, length, vocabulary

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(self.vocabulary, (self.length,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    """Train for some steps."""
    parser = argparse.ArgumentParser()
    for name in ("layers", "hidden", "heads", "intermediate", "vocab", "seq", "batch", "accumulate", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    set_seed(0)  # the same initial weights for every number of ranks
    model = LlamaForCausalLM(
        LlamaConfig(
            num_hidden_layers=options.layers,
            hidden_size=options.hidden,
            num_attention_heads=options.heads,
            intermediate_size=options.intermediate,
            vocab_size=options.vocab,
            max_position_embeddings=options.seq,
        )
    )
    arguments = TrainingArguments(
        output_dir="unused",
        per_device_train_batch_size=options.batch,
        gradient_accumulation_steps=options.accumulate,
        max_steps=options.steps,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=not torch.cuda.is_available(),
    )
    print(f"world size {arguments.world_size}")  # noqa: T201
    Trainer(model, arguments, train_dataset=RandomTokens(10_000, options.seq, options.vocab)).train()


if __name__ == "__main__":
    main()
