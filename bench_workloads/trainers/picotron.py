"""picotron: `train.py` with a JSON configuration.

Written against picotron main of 2025 (59714b1): keys of `template/base_config.json`, the line of `train.py`.
`params.root` is a checkout. The model is one of the Hugging Face hub by name, or a directory with its `config.json`,
tokenizer and weights' file: picotron takes width, vocabulary and MLP from there, and layers and heads from us. What it
counts as the model's parameters shows whether that is the run's model.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_workloads import decoder
from bench_workloads.trainers.adapter import Adapter, Launch, Reader, TrainerParameters, param
from bench_workloads.trainers.driver import trainer
from bench_workloads.trainers.driver.reading import NUMBER, PatternReader, number
from sweep.contract import LAYOUT_FIELDS, Rule, Run
from sweep.physics.shapes import ModelShape, total_parameters

CONFIG = "picotron.json"
_UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))
_ENGINES = {"1f1b": "1f1b", "gpipe": "afab"}


def configure(run: Run, directory: str, steps: int) -> Launch:
    """The configuration, and picotron's own entry point with it."""
    root = param(WORKLOAD, run, "root", str)
    text = json.dumps(configuration(run, directory, steps), indent=2) + "\n"
    program = (str(Path(root) / "train.py"), "--config", str(Path(directory) / CONFIG))
    env = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    return Launch(program=program, files={CONFIG: text}, env=env, workdir=root)


def configuration(run: Run, directory: str, steps: int) -> dict[str, Any]:
    """The JSON configuration of a run."""
    layout, cpu = run.layout, param(WORKLOAD, run, "use_cpu", bool)
    return {
        "distributed": {
            "tp_size": layout.tp,
            "cp_size": layout.cp,
            "pp_size": layout.pp,
            "dp_size": layout.dp,
            "pp_engine": _ENGINES[layout.pp_schedule],
            "backend": "gloo" if cpu else "nccl",
            "use_cpu": cpu,
        },
        "model": {
            "name": param(WORKLOAD, run, "model_name", str),
            "num_hidden_layers": run.shape["num_layers"],
            "num_attention_heads": run.shape["num_heads"],
            "num_key_value_heads": run.shape["num_kv_heads"],
            "dtype": "bfloat16" if run.dtype == "bf16" else "float32",
            "use_flash_attention": not cpu,
            "use_fused_adam": True,
        },
        "training": {
            "seed": 42,
            "learning_rate": 0.0001,
            "total_train_steps": steps,
            "seq_length": run.sequence_length,
            "micro_batch_size": layout.micro_batch_size,
            "gradient_accumulation_steps": layout.grad_accum,
            "num_samples": None,
            "max_tokens": None,
        },
        "dataset": {
            "name": param(WORKLOAD, run, "dataset", str),
            "subset_name": None,
            "num_workers": 0,
            "num_proc": 1,
        },
        "checkpoint": {"save_dir": f"{directory}/checkpoints", "save_frequency": 10 * steps + 1000, "load_path": ""},
        "logging": {"use_wandb": False, "project_name": "sweep", "run_name": "sweep"},
        "environment": {
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "FLASH_ATTEN": "0" if cpu else "1",
            "HF_TOKEN": "",
        },
    }


def reader(run: Run) -> Reader:
    """The line of a step: rates have two decimals and a suffix. Before it, the number of the model's parameters."""
    return PatternReader(
        r"\bStep:\s*(\d+)\s*\|",
        {
            "loss": rf"Loss:\s*({NUMBER})",
            "tokens_per_second": rf"Tokens/s:\s*({NUMBER})",
            "tokens_per_second_per_gpu": rf"Tokens/s/GPU:\s*({NUMBER})",
            "mfu_percent": rf"MFU:\s*({NUMBER})%",
            "reserved_gb": rf"Memory usage:\s*({NUMBER})GB",
        },
        {"parameters_total": (r"Number of parameters: ([\d.]+[KMBT]?)", functools.partial(_parameters, run))},
    )


def _parameters(run: Run, printed: str) -> int:
    """The parameters of the run's model where picotron prints those, else as many as it prints.

    Its count (`get_num_params`) adds up what tensor parallelism splits, by parts of names: so it has the norms before
    the MLPs, which are whole on each rank, once per rank (`post_attention_layernorm`).
    """
    shape = ModelShape(**run.shape)  # type: ignore[arg-type]
    parameters = int(total_parameters(shape))
    counted = parameters + (run.layout.tp - 1) * shape.num_layers * shape.hidden_size
    unit, suffix = next((unit for unit in _UNITS if counted >= unit[0]), (1.0, ""))
    readable = f"{counted / unit:.2f}{suffix}"  # `to_readable_format`
    return parameters if printed == readable else round(number(printed) or 0)


@dataclass(frozen=True, kw_only=True)
class Settings(TrainerParameters):
    """picotron's parameters."""

    root: str = "picotron"
    """a checkout; a relative path is relative to where `sweep launch` was called"""
    model_name: str = ""
    """required: the model of its tokenizer and width"""
    dataset: str = "roneneldan/TinyStories"
    """a data set's name, or a local directory: it has no synthetic data"""
    use_cpu: bool = False
    """its CPU mode, which computes in fp32"""


WORKLOAD = trainer(
    Settings,
    axes=frozenset({"dp", "tp", "pp", "cp", "micro_batch_size", "grad_accum", "pp_schedule", "dtype"}),
    lacks=dict.fromkeys(LAYOUT_FIELDS, "picotron's configuration has no such setting"),
    choices={"pp_schedule": tuple(_ENGINES), "dtype": ("bf16", "fp32")},
    rules=(
        *decoder.LLAMA,
        decoder.KV_HEADS_BY_TP,
        decoder.VOCABULARY_BY_TP,
        Rule(
            "tied_embeddings",
            lambda c: c["tied_embeddings"] == True,  # noqa: E712
            "the trainer's output projection has weights of its own: tied embeddings are not those",
        ),
        Rule(
            "model_name",
            lambda c: c["model_name"] == "",
            "params.model_name names no model for its tokenizer and width",
        ),
        Rule(
            "dtype_by_device",
            lambda c: (c["use_cpu"] == True) != (c["dtype"] == "fp32"),  # noqa: E712
            "picotron computes in bf16 on GPUs and in fp32 on CPU, not in {dtype}",
        ),
    ),
)
ADAPTER = Adapter(
    workload=WORKLOAD,
    configure=configure,
    reader=reader,
    hints={
        "No module named 'flash_attn'": "picotron imports flash-attn even on CPU",
        r"can't open file [^ ]*train\.py": "params.root must name a checkout of picotron",
    },
)
