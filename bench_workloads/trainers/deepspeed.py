"""DeepSpeed: any script that takes its JSON configuration, as `--deepspeed_config FILE`.

Written against deepspeed 0.19.8: configuration keys of `runtime/config.py` and `runtime/zero/config.py`, lines of
`ThroughputTimer` (`utils/timer.py`), of `DeepSpeedEngine._report_progress` and of `DeepSpeedConfig.print`.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from bench_workloads.trainers.adapter import Adapter, Launch, ParsedLine, TrainerParameters, param
from bench_workloads.trainers.driver import trainer
from bench_workloads.trainers.driver.reading import NUMBER, PatternReader
from bench_workloads.trainers.driver.templates import render, variables
from sweep.contract import LAYOUT_FIELDS, Rule, Run

CONFIG = "deepspeed.json"
STARTER = "start_deepspeed.py"
_STARTER = '''"""Written by sweep: DeepSpeed 0.19 logs its steps at level INFO only."""

import logging
import runpy
import sys
from pathlib import Path

from deepspeed.utils import logger

for one in (logger, *logger.handlers):
    one.setLevel(logging.INFO)
del sys.argv[0]
sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
runpy.run_path(sys.argv[0], run_name="__main__")
'''


def configure(run: Run, directory: str, steps: int) -> Launch:
    """DeepSpeed's configuration, and the user's script with it."""
    layout = run.layout
    configuration = {
        "train_batch_size": run.global_batch_sequences,
        "train_micro_batch_size_per_gpu": layout.micro_batch_size,
        "gradient_accumulation_steps": layout.grad_accum,
        "steps_per_print": 1,
        "wall_clock_breakdown": False,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": run.dtype == "bf16"},
        "fp16": {"enabled": run.dtype == "fp16"},
        "zero_optimization": {
            "stage": layout.zero,
            "overlap_comm": param(WORKLOAD, run, "overlap_comm", bool),
            "contiguous_gradients": True,
        },
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": 1e-4, "torch_adam": param(WORKLOAD, run, "torch_adam", bool)},
        },
        "zero_allow_untested_optimizer": True,
    }
    text = json.dumps(configuration, indent=2) + "\n"
    values = {**variables(run, steps), "directory": directory, "config": str(Path(directory) / CONFIG)}
    words = shlex.split(render(run, param(WORKLOAD, run, "script_arguments", str), values, quoted=True))
    script = param(WORKLOAD, run, "script", str)
    program = (str(Path(directory) / STARTER), script, *words, "--deepspeed_config", values["config"])
    return Launch(program=program, files={CONFIG: text, STARTER: _STARTER}, workdir=".")


_FIELD = r"^.*\[config\.py[^\[\]]*\]\s+{} \.+ (\S+)"
_STATED = {
    "global_batch_sequences": (_FIELD.format("train_batch_size"), int),
    "micro_batch_size": (_FIELD.format("train_micro_batch_size_per_gpu"), int),
    "grad_accum": (_FIELD.format("gradient_accumulation_steps"), int),
    "zero": (_FIELD.format("zero_optimization_stage"), int),
    "world_size": (_FIELD.format("world_size"), int),
}


class _Reader(PatternReader):
    """Steps 1 and 2 by the engine's line, later ones by the throughput timer's, which has the time of each.

    The engine's line comes first, and counts all steps that were skipped so far.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(
            r"\b(?:global_step=(?=\d+, RunningAvgSamplesPerSec)|step=(?=[12], skipped=))(\d+)",
            {
                "samples_per_second": rf"CurrSamplesPerSec=({NUMBER})",
                "allocated_gib": rf"MaxMemAllocated=({NUMBER})GB",
                "skipped_iterations": rf"\bstep=\d+, skipped=({NUMBER})",
            },
            _STATED,
        )
        self._sequences = run.global_batch_sequences
        self._skipped = self._counted = 0.0

    def read(self, line: str) -> list[ParsedLine]:
        """What was parsed from the line."""
        return [self._of_step(parsed) for parsed in super().read(line)]

    def _of_step(self, parsed: ParsedLine) -> ParsedLine:
        values = dict(parsed.values)
        self._skipped = values.pop("skipped_iterations", self._skipped)
        if speed := values.get("samples_per_second"):
            values["step_time_s"] = self._sequences / speed
        if parsed.iteration is not None and self._skipped > self._counted:
            values["skipped_iterations"], self._counted = self._skipped - self._counted, self._skipped
        return dataclasses.replace(parsed, values=values)


@dataclass(frozen=True, kw_only=True)
class Settings(TrainerParameters):
    """DeepSpeed's parameters."""

    script: str = ""
    """your script; it gets `--deepspeed_config FILE`"""
    script_arguments: str = ""
    """its further arguments, a jinja2 template"""
    torch_adam: bool = True
    """torch's Adam instead of DeepSpeed's fused one, which is compiled at first use"""
    overlap_comm: bool = False
    """DeepSpeed's `overlap_comm`"""
    frozen_weights: bool = False
    """the script trains adapters only (LoRA)"""
    same_start: bool = False
    """the script has the same weights and data in every layout: losses must agree as those of `transformer`"""


WORKLOAD = trainer(
    Settings,
    axes=frozenset({"dp", "zero", "micro_batch_size", "grad_accum", "dtype"}),
    lacks={
        **dict.fromkeys(LAYOUT_FIELDS, "your script decides it, not DeepSpeed's JSON: use workload: command"),
        "cuda_graphs": "DeepSpeed's graph_harvesting is of the optimizer only",
    },
    preload=("jinja2",),
    choices={"zero": (0, 1, 2, 3), "dtype": ("fp32", "bf16", "fp16")},
    rules=(Rule("script", lambda c: c["script"] == "", "params.script names no script"),),
)
ADAPTER = Adapter(
    workload=WORKLOAD,
    configure=configure,
    reader=_Reader,
    package="deepspeed",
    hints={
        "Check batch related parameters": "train_batch_size is not micro batch * accumulation * world size: the script "
        "changed one of them",
        "CUDAMismatchException|Unable to JIT load": "set params.torch_adam to true, or build the ops",
    },
)
