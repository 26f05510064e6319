"""`python bridge_checks.py LAUNCHES.json`: the checks of megatron-bridge 0.3.1 on recipes with overrides.

Its recipes read sizes from the Hugging Face hub: here transformers' own defaults. The package has no run_recipe.py, and
names `dataset.seq_length` sequence_length and `validation.eval_iters` train.eval_iters.
"""

import json
import os
import sys
from pathlib import Path

import cuda_stubs
import torch

cuda_stubs.use()
import transformers  # noqa: E402

KINDS = {"deepseek": "DeepseekV3", "-a3b": "Qwen3Moe", "qwen3": "Qwen3"}


def configuration(_, name, **__):
    kind = next((kind for word, kind in KINDS.items() if word in str(name).lower()), "Llama")
    made = getattr(transformers, f"{kind}Config")()
    made.architectures, made.torch_dtype, made.scoring_func = [f"{kind}ForCausalLM"], torch.bfloat16, "sigmoid"
    return made


transformers.AutoConfig.from_pretrained = classmethod(configuration)
import megatron.bridge.recipes as recipes  # noqa: E402
from megatron.bridge.training.config import runtime_config_update  # noqa: E402
from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides  # noqa: E402

found = []
launches = json.loads(Path(sys.argv[1]).read_text())
for ranks, _, words in launches:
    os.environ |= {"WORLD_SIZE": str(ranks), "RANK": "0"}
    pairs = [word.replace("validation.", "train.") for word in words if "=" in word and not word.startswith("dataset.")]
    length = next(int(word.split("=")[1]) for word in words if word.startswith("dataset.seq_length="))
    try:
        made = getattr(recipes, words[words.index("--recipe") + 1])()
        made = process_config_with_overrides(made, cli_overrides=pairs)
        made.model.seq_length = made.dataset.sequence_length = length
        runtime_config_update(made)  # precision and overlap as at a run's start, then ConfigContainer.validate
        if "--show" in sys.argv:
            made.log_non_default_values()
        found.append("")
    except Exception as error:
        found.append(f"{type(error).__name__}: {error}")
print(json.dumps(found))
