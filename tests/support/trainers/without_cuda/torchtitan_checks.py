"""`python torchtitan_checks.py FOLDERS.json`: torchtitan's ConfigManager, and its models on the meta device.

Prints the parameters of each, or what was raised.
"""

import importlib
import json
import sys
from pathlib import Path

import cuda_stubs
import torch

cuda_stubs.NAMES += ("torchtitan.distributed.deepep",)  # of DeepEP and HybridEP; needs a torch after 2.13
cuda_stubs.use()
for name in ("float8", "mx", "nvfp4"):
    importlib.import_module(f"torchtitan.components.quantization.{name}").has_cuda_capability = lambda *_: True
from torchtitan.config import ConfigManager  # noqa: E402

found = []
folders = json.loads(Path(sys.argv[1]).read_text())
for folder in folders:
    sys.path.insert(0, folder)
    sys.modules.pop("sweep_torchtitan", None)
    try:
        made = ConfigManager().parse_args(["--module", "sweep_torchtitan", "--config", "configuration"])
        made.model_spec.model.update_from_config(config=made)
        made._validate_cuda_graphs()
        asked, made_of = sys.modules["sweep_torchtitan"].RUN, made.checkpoint
        modes = {"": "disabled"}.get(asked.checkpoint, asked.async_mode)
        assert (made_of.enable, made_of.async_mode, made_of._owner) == (
            bool(asked.checkpoint),
            modes,
            sys.modules["sweep_torchtitan"].Checkpoints,
        )
        with torch.device("meta"):
            model = made.model_spec.model.build()
        found.append(sum(one.numel() for one in model.parameters()))
    except Exception as error:
        found.append(f"{type(error).__name__}: {error}")
    sys.path.remove(folder)
print(json.dumps(found))
