"""A tiny Llama with tokenizer and text, as the Hugging Face hub has them: python tiny_llama.py MODEL_DIR DATA_DIR."""

import json
import random
import sys
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

model, data = map(Path, sys.argv[1:])
data.mkdir()
random.seed(0)
words = ["".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=random.randint(2, 7))) for _ in range(300)]
lines = [" ".join(random.choices(words, k=400)) for _ in range(400)]
(data / "train.jsonl").write_text("\n".join(json.dumps({"text": line}) for line in lines))
tokenizer = Tokenizer(models.BPE(unk_token="<u>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=512, special_tokens=["<u>", "<s>"]))
PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<u>", bos_token="<s>").save_pretrained(model)
config = LlamaConfig(
    hidden_size=64,
    intermediate_size=256,
    vocab_size=512,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=4,
    max_position_embeddings=128,
    tie_word_embeddings=False,
)
LlamaForCausalLM(config).save_pretrained(model)
