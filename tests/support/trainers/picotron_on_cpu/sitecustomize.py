"""What picotron's CPU mode lacks, on the path of its ranks: names of flash-attn, and CUDA where it counts or waits.

Its models import flash-attn where they do not use it; it counts parameters in a tensor on CUDA, and synchronises with
CUDA around its messages. Its computation is unchanged.
"""

import os
import sys
import types


def _absent(*_: object, **__: object) -> None:
    raise RuntimeError("flash-attn is not installed")


def _replace(module: str, name: str) -> None:
    parts = module.split(".")
    for length in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:length]), types.ModuleType(".".join(parts[:length])))
    setattr(sys.modules[module], name, _absent)


if "RANK" in os.environ and any(word.endswith("train.py") for word in sys.orig_argv):
    import torch

    _replace("flash_attn.flash_attn_interface", "flash_attn_func")
    _replace("flash_attn.layers.rotary", "apply_rotary_emb")
    _replace("flash_attn.ops.triton.layer_norm", "layer_norm_fn")
    plain = torch.tensor

    def on_cpu(*values: object, **options: object) -> torch.Tensor:
        if options.get("device") == "cuda":
            options["device"] = "cpu"
        return plain(*values, **options)

    torch.tensor = on_cpu
    torch.cuda.synchronize = lambda *_: None
