"""`python bridge_checks.py [CHECKOUT CORE] LAUNCHES.json`: the checks of Megatron-Bridge on recipes with overrides.

Of a checkout of main, with one of Megatron-LM, as its run_recipe.py loads recipes and applies overrides; else of the
package megatron-bridge 0.3.1, which has no run_recipe.py, and names `dataset.seq_length` sequence_length and
`validation.eval_iters` train.eval_iters. Recipes read sizes from the Hugging Face hub: here transformers' own defaults.
"""

import importlib
import json
import os
import re
import sys
import typing
from pathlib import Path

import cuda_stubs
import torch
import typing_extensions

*roots, asked = (one for one in sys.argv[1:] if one != "--show")
if roots:
    typing.override = typing_extensions.override  # of Python 3.12
    sys.path[:0] = [f"{roots[0]}/src", f"{roots[0]}/scripts/training", roots[1]]
    cuda_stubs.NAMES += tuple(f"megatron.bridge.{name}" for name in ("diffusion", "recipes.flux", "recipes.wan"))
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


def changed(model, pairs):
    """Numbers, switches and the recipe of 8 bits that the model has not as they were asked."""
    plain = dict(re.findall(r"^\+\+model\.(\w+)=(\d+|true|false)$", "\n".join(pairs), re.MULTILINE))
    stated = next(pair for pair in pairs if re.match(r"mixed_precision=(?!null)", pair))
    plain |= dict(re.findall(r"(fp8|fp8_recipe|fp8_param):(\w+)", stated))
    has = {name: str(getattr(model, name)).lower() for name in plain}
    return "; ".join(f"{name}: asked {plain[name]}, has {has[name]}" for name in plain if plain[name] != has[name])


found = []
for ranks, env, words in json.loads(Path(asked).read_text()):
    os.environ |= {"WORLD_SIZE": str(ranks), "RANK": "0", **env}
    pairs, recipe = [word for word in words if "=" in word], words[words.index("--recipe") + 1]
    try:
        if roots:
            theirs = importlib.import_module("recipe_runner")
            made = theirs.apply_cli_overrides(theirs.load_recipe(recipe), pairs)
            made = theirs.sync_model_pipeline_layout(made, cli_overrides=pairs)
            made = theirs.sync_model_dataset_sequence_length(made)
        else:
            length = next(int(word.split("=")[1]) for word in pairs if word.startswith("dataset.seq_length="))
            pairs = [word.replace("validation.", "train.") for word in pairs if not word.startswith("dataset.")]
            made = process_config_with_overrides(getattr(recipes, recipe)(), cli_overrides=pairs)
            made.model.seq_length = made.dataset.sequence_length = length
        runtime_config_update(made)  # precision and overlap as at a run's start, then ConfigContainer.validate
        if "--show" in sys.argv:
            made.log_non_default_values()
        saved, later = made.checkpoint, "checkpoint.async_save=true" in pairs
        assert (saved.async_save, bool(saved.save)) == (later, any(".save_interval=" in pair for pair in pairs))
        found.append(changed(made.model, pairs))
    except Exception as error:
        found.append(f"{type(error).__name__}: {error}")
print(json.dumps(found))
