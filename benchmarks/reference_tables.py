"""Published step times as columns that the physics reads: one ``Table`` per source, from SWEEP_REFERENCE_DATA.

Throughputs and TFLOPS are turned into seconds per step by the convention that reproduces the table (see
``sweep.physics.flops``). What a table does not state is in ``Table.unknown``:
values that its trainer's published scripts use, the first of which is assumed.
"""

from __future__ import annotations

import csv
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.nemo_recipes import dtype
from sweep.physics import flops
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS, Gpu
from sweep.physics.profiles import PROFILES, MemoryProfile
from sweep.physics.shapes import ModelShape

Row = dict[str, Any]
"""columns of one layout, with gpu, trainer, what its profile differs in, label, seconds"""


SEND_POLL_S = 0.1
"""huggingface/nanotron, branch nouamane/bench2 (67c5ebb, 2024-12-27, the playbook's benchmark),
parallel/pipeline_parallel/p2p.py: time.sleep(0.1) until a transfer of metadata is complete"""
SEND_POLLS = (5.0, 10.0)
"""Sleeps of a micro-batch with two stages and with more, from the same source: a tensor has two transfers of metadata;
a forward sends two tensors, a backward one; a stage in the middle receives and sends. What the first transfer of each
exchange waits for ends half a sleep late on average, each further one takes a whole one."""
NOT_STATED = "not stated"
"""a fact's value that leaves the model's own assumption"""


@dataclass(frozen=True)
class Rows:
    """Measured layouts of one trainer on one kind of GPU."""

    gpu: Gpu
    profile: MemoryProfile
    columns: Mapping[str, Any]
    seconds: Any
    labels: tuple[str, ...]

    def assuming(self, facts: Mapping[str, Any]) -> Rows:
        """The same rows with another gpu, version of the trainer or tensor-parallel mode, or other values of columns;
        the batch stays, so other micro-batches are more or fewer. ``polled_from``: runs on so many nodes and more
        polled their sends.
        """
        columns, gpu, profile = dict(facts), self.gpu, self.profile
        if "micro_batch_size" in columns:
            sequences = self.columns["micro_batch_size"] * self.columns["grad_accum"]
            columns["grad_accum"] = np.maximum(sequences // columns["micro_batch_size"], 1)
        if "gpu" in columns:
            gpu = KINDS[columns.pop("gpu")]
        if "version" in columns:
            profile = replace(profile, name=columns.pop("version"))
        if "tp_mode" in columns:
            profile = replace(profile, sequence_parallel=columns.pop("tp_mode") == "REDUCE_SCATTER")
        if (min_nodes := columns.pop("polled_from", NOT_STATED)) != NOT_STATED:
            polled = self.columns["nodes"] >= (np.inf if min_nodes == "no run" else min_nodes)
            columns["send_wait_s"] = polled * SEND_POLL_S * np.where(self.columns["pp"] > 2, *SEND_POLLS[::-1])
            columns["send_wait_s"] = columns["send_wait_s"] * (self.columns["pp"] > 1)
        return Rows(gpu, profile, {**self.columns, **columns}, self.seconds, self.labels)


@dataclass(frozen=True)
class Table:
    """One published table."""

    name: str
    rows: tuple[Rows, ...]
    unknown: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """fact that the table does not state -> values of it, the assumed one first"""
    trainer: str = ""
    """as users call it"""

    def possible(self) -> list[dict[str, Any]]:
        """Every combination of such values; the assumed one first."""
        return [dict(zip(self.unknown, one, strict=True)) for one in itertools.product(*self.unknown.values())]


def folder() -> Path:
    """The folder of reference data. Raises SystemExit if it is not named."""
    if "SWEEP_REFERENCE_DATA" not in os.environ:
        raise SystemExit("SWEEP_REFERENCE_DATA is not set: it names the folder with the published tables")
    return Path(os.environ["SWEEP_REFERENCE_DATA"])


def tables() -> list[Table]:
    """Every table."""
    interleaving: dict[str, tuple[Any, ...]] = {
        "pp_schedule": ("interleaved_1f1b", "1f1b"),
        "micro_batch_size": (1, 2),
    }
    return [
        table_of("Megatron 2020", _megatron_2020(), trainer="Megatron-LM 2021"),
        table_of("Megatron 2021 (April)", _megatron_2021(), trainer="Megatron-LM 2021"),
        table_of(
            "Megatron 2021 (January)", _megatron_january(), {"micro_batch_size": (1, 2, 4)}, trainer="Megatron-LM 2021"
        ),
        table_of("Megatron 2024", _megatron_2024(), interleaving, trainer="Megatron-LM"),
        table_of("vTrain 3.6B", _vtrain(), _VTRAIN_UNKNOWN, trainer="Megatron-LM 2021"),
        table_of("torchtitan", _torchtitan(), trainer="torchtitan"),
        table_of("NeMo dense", nemo(), trainer="NeMo"),
        table_of("llm-foundry A100", _llm_foundry(), trainer="llm-foundry"),
        table_of("playbook", _playbook(), _PLAYBOOK_UNKNOWN, trainer="nanotron"),
    ]


def read(name: str) -> list[dict[str, str]]:
    with (folder() / name).open() as file:
        return list(csv.DictReader(file))


def table_of(
    name: str, found: Iterator[Row], unknown: Mapping[str, tuple[Any, ...]] | None = None, *, trainer: str
) -> Table:
    groups: dict[tuple[str, MemoryProfile], list[Row]] = {}
    for row in found:
        profile = replace(PROFILES[row.pop("trainer")], **row.pop("profile", {}))
        groups.setdefault((row.pop("gpu"), profile), []).append(row)
    found_rows = tuple(_rows(KINDS[gpu], profile, rows) for (gpu, profile), rows in groups.items())
    return Table(name, found_rows, unknown or {}, trainer)


_AT_500_W = 0.87
"""clock of a GPU at 500 W over that at its usual 700 W: by the square root to the cube root of power"""
_H100 = GPUS["h100"]
KINDS: dict[str, Gpu] = GPUS | {
    "h100-500w": replace(
        _H100,
        peaks_flops={dtype: _AT_500_W * peak for dtype, peak in _H100.peaks_flops.items()},
        memory_bytes_per_s=2.4e12,
    )
}
"""kinds of the tables; torchtitan's H100 has 96 GB of HBM2e and is limited to 500 W"""
STORED_SCORES = {
    "name": "megatron-2021", "flash_attention": False, "sequence_parallel": False, "dropout": True,
}  # fmt: skip
"""Megatron-LM before 2022: scores through memory, dropout, no sequence parallelism, no communication under products"""


FROZEN = {"frozen_weights": True, "gradient_bytes": 0, "master_bytes": 0, "optimizer": "sgd"}
"""only adapters are trained"""


_DEFAULTS: Row = {
    **dict.fromkeys(("tp", "pp", "cp", "ep", "micro_batch_size", "grad_accum", "virtual_stages"), 1),
    "zero": 0,
    "recompute": "none",
    "pp_schedule": "1f1b",
    "dtype": "bf16",
    "gpus_per_node": 8,
    "compile": False,
    "recompute_modules": "",
    "dispatcher": "alltoall",
    "ep_overlap": False,
    "cuda_graphs": "none",
}


def _rows(gpu: Gpu, profile: MemoryProfile, found: list[Row]) -> Rows:
    names = {name for row in found for name in row} - {"seconds", "label", "shape"}
    columns = {name: np.array([row.get(name, _DEFAULTS.get(name)) for row in found]) for name in {*names, *_DEFAULTS}}
    shapes = [row["shape"].as_dict() for row in found]
    columns |= {name: np.array([shape[name] for shape in shapes]) for name in shapes[0]}
    gpus = columns["dp"] * columns["tp"] * columns["pp"] * columns["cp"]
    columns["nodes"] = np.maximum(gpus // columns["gpus_per_node"], 1)
    seconds = np.array([row["seconds"] for row in found], dtype=np.float64)
    return Rows(gpu, profile, columns, seconds, tuple(row["label"] for row in found))


def gpt(layers: int, hidden: int, heads: int, vocabulary: int, sequence_length: int) -> ModelShape:
    """A GPT as of 2020: plain MLP of 4 h, learned positions, tied embedding, biases."""
    return ModelShape(
        num_layers=layers,
        hidden_size=hidden,
        num_heads=heads,
        intermediate_size=4 * hidden,
        vocab_size=vocabulary,
        tied_embeddings=True,
        gated_mlp=False,
        norm="layernorm",
        qkv_bias=True,
        attention_output_bias=True,
        mlp_bias=True,
        learned_positions=sequence_length,
    )


def interleaved(stages: int) -> Row:
    return {"pp_schedule": "interleaved_1f1b", "virtual_stages": stages} if stages > 1 else {}


def _megatron_2020() -> Iterator[Row]:
    """fp16, 1,024 tokens, every layer recomputed, one micro-batch per replica, 16 GPUs in a DGX-2."""
    for row in read("megatron_2020_iteration_times.csv"):
        tp, gpus, batch = (int(row[name]) for name in ("model_parallel", "num_gpus", "global_batch_size"))
        volta = "V100" in row["system"]
        yield {
            "gpu": "v100" if volta else "a100-40gb",
            "trainer": "megatron",
            "tp": tp,
            "dp": gpus // tp,
            "dtype": "fp16",
            "micro_batch_size": batch * tp // gpus,
            "sequence_length": 1024,
            "recompute": "full",
            "gpus_per_node": 16 if volta else 8,
            "profile": STORED_SCORES,
            "dp_overlap": 0.0,
            "shape": gpt(int(row["num_layers"]), int(row["hidden_size"]), int(row["num_heads"]), 51200, 1024),
            "seconds": float(row["iteration_time_ms"]) / 1000,
            "label": f"{row['system']} {row['case']} {gpus}",
        }


_SC21_STAGES = {"76B": 3, "145B": 2, "310B": 2, "530B": 3}
"""chunks per rank: NVIDIA/Megatron-LM examples/sc21/run_table_1.sh, --num-layers-per-virtual-pipeline-stage"""


def _megatron_2021() -> Iterator[Row]:
    for row in read("megatron_scaling.csv"):
        if row["table"].startswith("april2021"):
            yield _megatron_old(row, int(float(row["tp"])), int(float(row["pp"])), int(float(row["micro_batch_size"])))


def _megatron_january() -> Iterator[Row]:
    """Before interleaving. tp: 8 or all of the model-parallel size. The micro-batch is not stated."""
    for row in read("megatron_scaling.csv"):
        if row["table"].startswith("jan2021"):
            ways = int(row["num_gpus"]) // int(row["dp"])
            april = {"1.7B": 16, "3.6B": 16, "7.5B": 16, "18B": 8, "39B": 4, "76B": 2, "145B": 2}
            found = _megatron_old(row, min(ways, 8), max(ways // 8, 1), april.get(row["model"], 1))
            yield found | {"pp_schedule": "1f1b", "virtual_stages": 1}


def _megatron_old(row: dict[str, str], tp: int, pp: int, micro: int) -> Row:
    gpus, batch, dp, sequence = (int(row[name]) for name in ("num_gpus", "global_batch_size", "dp", "seq_len"))
    shape = gpt(
        int(row["num_layers"]), int(row["hidden_size"]), int(row["num_heads"]), int(row["vocab_size"]), sequence
    )
    per_token = flops.hardware_flops_per_token(shape, sequence, "full", flops.CONVENTIONS["megatron"])
    return {
        "gpu": "a100",
        "trainer": "megatron",
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "micro_batch_size": micro,
        "dtype": "fp16",
        "grad_accum": batch // (dp * micro),
        "sequence_length": sequence,
        "recompute": "full",
        "shape": shape,
        "profile": STORED_SCORES,
        "dp_overlap": 1.0 * (pp == 1),
        **interleaved(_SC21_STAGES.get(row["model"], 1)),
        "seconds": batch * sequence * per_token / (float(row["tflops_per_gpu"]) * 1e12 * gpus),
        "label": row["model"],
    }


def _megatron_2024() -> Iterator[Row]:
    for row in read("megatron_scaling.csv"):
        if row["table"].startswith("2024"):
            gpus, batch, dp, sequence = (int(row[n]) for n in ("num_gpus", "global_batch_size", "dp", "seq_len"))
            layers, pp = int(row["num_layers"]), int(float(row["pp"]))
            shape = gpt(layers, int(row["hidden_size"]), int(row["num_heads"]), int(row["vocab_size"]), sequence)
            per_token = flops.model_flops_per_token(shape, sequence, flops.CONVENTIONS["megatron"])
            yield {
                "gpu": "h100",
                "trainer": "megatron",
                "tp": int(float(row["tp"])),
                "pp": pp,
                "dp": dp,
                "zero": 1,
                "grad_accum": batch // dp,
                "sequence_length": sequence,
                "shape": shape,
                **interleaved(layers // pp if pp > 1 else 1),
                "label": row["model"],
                "seconds": batch * sequence * per_token / (float(row["tflops_per_gpu"]) * 1e12 * gpus),
            }


_VTRAIN_UNKNOWN = {
    "gpu": ("a100", "a100-40gb"),
    "zero": (0, 1),
    "version": ("megatron-2021", "megatron"),
}
"""The version is not stated: the authors' simulator has all-reduces of a backward one after the other with its kernels
(src/predictor.py), as Megatron-LM until August 2021"""


def _vtrain() -> Iterator[Row]:
    """Network 800 Gb/s per node, as the source's configuration says."""
    for row in read("vtrain_multi_node.csv"):
        micro, dp = int(row["micro_batch_size"]), int(row["dp"])
        shape = gpt(int(row["layers"]), int(row["hidden"]), int(row["heads"]), 51200, int(row["sequence_length"]))
        yield {
            "gpu": "a100",
            "trainer": "megatron",
            "tp": int(row["tp"]),
            "pp": int(row["pp"]),
            "dp": dp,
            "micro_batch_size": micro,
            "grad_accum": int(row["global_batch_sequences"]) // (dp * micro),
            "sequence_length": int(row["sequence_length"]),
            "recompute": "full",
            "dtype": "fp16",
            "profile": STORED_SCORES,
            "dp_overlap": 0.0,
            "network_bytes_per_s": 12.5e9,
            "shape": shape,
            "seconds": float(row["iteration_ms"]) / 1000,
            "label": f"tp{row['tp']} pp{row['pp']} mbs{micro}",
        }


_TITAN = {
    "llama2-13B": "Llama-2-13B",
    "llama2-70B": "Llama-2-70B",
    "llama3-8B": "Llama-3-8B",
    "llama3.1-8B": "Llama-3-8B",
    "llama3-70B": "Llama-3-70B",
    "llama3.1-70B": "Llama-3-70B",
    "llama3.1-405B": "Llama-3.1-405B",
}


_TITAN_KINDS = {"A100": "a100", "H200": "h200", "HBM2e": "h100-500w", "H100": "h100"}


def _torchtitan() -> Iterator[Row]:
    for row in read("torchtitan_performance.csv"):
        if row["tps_per_gpu"] in ("", "OOM") or "first, corrected" in row["table"]:
            continue
        ways = {name: int(size) for name, size in re.findall(r"(FSDP|TP|PP|CP) (\d+)", row["parallelism"])}
        local, sequence, gpus = int(row["local_batch_size"]), int(row["seq_len"]), int(row["num_gpus"])
        techniques, saved = row["techniques"], row["activation_checkpointing"]
        pp = ways.get("PP", 1)
        micro = max(local // pp, 1) if pp > 1 else local
        tokens = local * ways.get("FSDP", 1) * sequence
        yield {
            "gpu": next(kind for name, kind in _TITAN_KINDS.items() if name in row["gpu"]),
            "trainer": "torchtitan",
            "dp": ways.get("FSDP", 1),
            "tp": ways.get("TP", 1),
            "pp": pp,
            "cp": ways.get("CP", 1),
            "zero": 3,
            "micro_batch_size": micro,
            "grad_accum": local // micro,
            "sequence_length": sequence,
            "dtype": "fp8" if "loat8" in techniques else "bf16",
            "compile": "compile" in techniques or row["table"].startswith(("2025", "2024-08")),
            "recompute": {"no": "none", "full": "full", "selective layer": "full"}.get(saved, "selective"),
            "recompute_share": 0.5 if saved == "selective layer" else 1.0,
            "tp_overlap": "async" in techniques.lower(),
            **interleaved(2 if "Interleaved" in techniques else 1),
            "shape": MODELS[_TITAN[row["model"]]],
            "seconds": tokens / float(row["tps_per_gpu"]) / gpus,
            "label": f"{row['table'][:7]} {row['model']} {techniques or saved}",
        }


_OLD_KERNEL = "NeMo24.03"
"""containers whose launcher disables cuDNN's attention: NVTE_FUSED_ATTN: 0 in launcher_scripts/conf/config.yaml of
NVIDIA/NeMo-Framework-Launcher for 24.03.01"""
_STAGES = {"LLAMA2-13B": 10, "LLAMA2-70B": 20}
"""chunks per rank of the same table's pre-training rows, where a fine-tuning row leaves them blank"""


def nemo(*, adapters: bool = False) -> Iterator[Row]:
    """Dense models; ``adapters``: the fine-tuning rows that train adapters, and not the others."""
    models = {row["model"]: nemo_shape(row) for row in read("nemo_models.csv")}
    for row in read("nemo_performance.csv"):
        gpu = row["system"].removeprefix("DGX-").lower()
        frozen = row["task"] == "LoRA" or row["section"].startswith("LoRA")
        if row["model"] not in models or gpu not in GPUS or frozen != adapters or row["malformed_row"] == "True":
            continue
        ways = {name: int(float(row[name] or 1)) for name in ("tp", "pp", "cp", "vp")}
        gpus, batch, micro, sequence = (int(row[name]) for name in ("num_gpus", "gbs", "mbs", "seq_len"))
        dp = gpus // (ways["tp"] * ways["pp"] * ways["cp"])
        sharded = float(row["fsdp"] or 0) >= 1
        yield {
            "gpu": gpu,
            "trainer": "megatron",
            "profile": FROZEN if frozen else {},
            "dp": dp,
            "tp": ways["tp"],
            "pp": ways["pp"],
            "cp": ways["cp"],
            "zero": 3 if sharded else 1,
            "micro_batch_size": micro,
            "grad_accum": max(batch // (dp * micro), 1),
            "sequence_length": sequence,
            "dtype": dtype(row["precision"], row["container"]),
            "gpus_per_node": 72 if gpu.startswith("gb") else 8,
            "tp_overlap": True,
            "attention_kernel": "flash-2" if row["container"].startswith(_OLD_KERNEL) else "cudnn",
            **interleaved((ways["vp"] if row["vp"] else _STAGES.get(row["model"], 1)) if ways["pp"] > 1 else 1),
            "shape": models[row["model"]],
            "seconds": batch * sequence / float(row["tok_s_gpu"]) / gpus,
            "label": f"{row['container'][:7]} {gpu} {row['model']} {row['precision']}",
        }


def nemo_shape(row: dict[str, str]) -> ModelShape:
    return ModelShape(
        num_layers=int(row["num_layers"]),
        hidden_size=int(row["hidden_size"]),
        num_heads=int(row["num_heads"]),
        num_kv_heads=int(row["num_kv_heads"]),
        intermediate_size=int(row["ffn_hidden"]),
        vocab_size=int(row["vocab_size"]),
        gated_mlp=row["gated_mlp"] == "1",
    )


def _llm_foundry() -> Iterator[Row]:
    shapes = {row["model"]: row for row in read("mosaic_mpt_architectures.csv")}
    for row in read("mosaic_mpt_benchmarks.csv"):
        shape, gpus, sequence = shapes[row["model"]], int(row["num_gpus"]), int(row["seq_len"])
        yield {
            "gpu": "a100" if "80gb" in row["gpu"] else "a100-40gb",
            "trainer": "torchtitan",
            "profile": {"name": "llm-foundry"},
            "dp": gpus,
            "zero": 3,
            "micro_batch_size": int(row["micro_batch_size"]),
            "grad_accum": int(row["grad_accum"]),
            "sequence_length": sequence,
            "recompute": "full" if row["activation_checkpointing"] == "True" else "none",
            "shape": gpt(
                int(shape["n_layers"]), int(shape["d_model"]), int(shape["n_heads"]), int(shape["vocab_size"]), sequence
            ),
            "seconds": int(row["global_batch_tokens"]) / float(row["throughput_tok_per_s_per_gpu"]) / gpus,
            "label": f"{row['gpu']} {row['model']} seq {sequence} gpus {gpus}",
        }


_PLAYBOOK_UNKNOWN = {
    "polled_from": (NOT_STATED, "no run", 64, 32, 16, 8, 4, 2, 1),
    "tp_mode": ("REDUCE_SCATTER", "ALL_REDUCE"),
}
"""Stated by the benchmark's own script (huggingface/nanotron, scripts/scaling_benchmarks.py, with the configuration and
job of branch nouamane/bench2): 1F1B, gradients in fp32, buckets of 25 MB, one step measured, the third; by the playbook
EFA. Not stated for a run: which of two versions of p2p.py it ran, with sleeps or without. The script measured pipelines
again that were older than a certain job, fewest GPUs first. It has both modes of tensor parallelism."""


def _playbook() -> Iterator[Row]:
    for row in read("playbook_runs.csv"):
        if row["status"] == "success":
            layout = {name: int(row[name]) for name in ("dp", "tp", "pp", "micro_batch_size", "grad_accum")}
            yield layout | {
                "gpu": "h100",
                "trainer": "nanotron",
                "zero": int(row["zero_stage"]),
                "sequence_length": int(row["seq_len"]),
                "shape": MODELS[row["model_label"]],
                "seconds": int(row["global_batch_tokens"]) / float(row["tok_s"]),
                "label": f"{row['model_label']} {row['nodes']}",
            }
