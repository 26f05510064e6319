"""Published step times: NeMo's mixtures of experts and adapters, and runs of BigScience.

Nothing in the model was chosen by BigScience's first tests. The others were so until mechanisms of experts, context
parallelism and adapters were added (2026-11-24), and versions of Megatron: those come from measurements of components
and from sources, but the mean error of these tables was looked at between them, of adapters and of BigScience's two
training runs each row's. A change of the model in view of a table adds its name to
``sweep.physics.constants.ALL_SEEN_TABLES``, and ``python -m benchmarks.accuracy`` prints it with the others.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from benchmarks.nemo_recipes import dtype, recipe
from benchmarks.reference_tables import STORED_SCORES, Row, Table, gpt, interleaved, nemo, read, table_of
from sweep.physics.catalogue import MODELS
from sweep.physics.shapes import ModelShape

_MIXTURES = {
    "DeepSeekV3": MODELS["DeepSeek-V3"],
    "Qwen3_30B_a3B": MODELS["Qwen3-30B-A3B"],
    "Qwen3_235B_a22B": MODELS["Qwen3-235B-A22B"],
    "GPT OSS 120B": MODELS["GPT-OSS-120B"],
}
_LATER = {"Kimi_K2": MODELS["Kimi-K2"]}


def unseen_tables() -> list[Table]:
    """Every table of this module."""
    return [
        table_of("NeMo experts", _nemo(_MIXTURES), trainer="NeMo"),
        table_of("NeMo experts, Kimi K2", _nemo(_LATER), trainer="NeMo"),
        table_of("NeMo LoRA", nemo(adapters=True), trainer="NeMo"),
        table_of("BigScience", _bigscience(), trainer="Megatron-LM 2021"),
        table_of("BigScience, first tests", _bigscience_tests(), trainer="Megatron-LM 2021"),
    ]


def _nemo(models: dict[str, ModelShape]) -> Iterator[Row]:
    """What the table does not state is that of its container's recipes; multi-token prediction is left out."""
    for row in read("nemo_performance.csv"):
        name, gpu = row["model"].split(" (")[0], row["system"].removeprefix("DGX-").lower()
        if name not in models or "w/ MTP" in row["model"] or row["malformed_row"] == "True":
            continue
        ways = {axis: int(float(row[axis] or 1)) for axis in ("tp", "pp", "cp", "vp", "ep")}
        gpus, batch, micro, sequence = (int(row[column]) for column in ("num_gpus", "gbs", "mbs", "seq_len"))
        dp = gpus // (ways["tp"] * ways["pp"] * ways["cp"])
        chunks = ways.pop("vp") if ways["pp"] > 1 else 1
        yield {
            "gpu": gpu,
            "trainer": "megatron",
            "dp": dp,
            **{axis: size for axis, size in ways.items() if axis != "vp"},
            "zero": 1,
            "micro_batch_size": micro,
            "grad_accum": max(batch // (dp * micro), 1),
            "sequence_length": sequence,
            "dtype": dtype(row["precision"], row["container"]),
            "gpus_per_node": 72 if gpu.startswith("gb") else 8,
            "tp_overlap": True,
            "etp": 1,  # expert_tensor_parallel_size in scripts/performance of NVIDIA-NeMo/Megatron-Bridge
            **interleaved(chunks),
            **recipe(row["container"][:5], name, gpu, narrow=row["precision"] != "BF16"),
            "shape": models[name],
            "seconds": batch * sequence / float(row["tok_s_gpu"]) / gpus,
            "label": f"{row['container'][:5]} {gpu} {row['model']} {row['precision']} pp {ways['pp']} ep {ways['ep']} "
            f"micro-batch {micro}",
        }


def _bigscience() -> Iterator[Row]:
    """Medians of the logged iterations. Layouts: train/tr11-176B-ml/tr11-176B-ml.slurm and
    experiments/gpt2-meg/meg_gpt2_perf_n16.slurm of bigscience-workshop/bigscience. Network of Jean Zay: four Omni-Path
    links of 100 Gb/s per node, of 8 A100 or 4 V100.
    """
    common = {"trainer": "megatron", "tp": 4, "recompute": "full", "profile": STORED_SCORES, "dp_overlap": 0.0}
    yield common | {
        "gpu": "a100",
        "dp": 8,
        "pp": 12,
        "zero": 1,
        "micro_batch_size": 2,
        "grad_accum": 128,
        "sequence_length": 2048,
        "network_bytes_per_s": 6.25e9,
        "shape": gpt(70, 14336, 112, 250880, 2048),
        "seconds": _median_s("train/tr11-176B-ml/chronicles.md", "2048.0"),
        "label": "176B on 384 A100",
    }
    yield common | {
        "gpu": "v100",
        "dp": 1,
        "pp": 16,
        "micro_batch_size": 4,
        "grad_accum": 256,
        "sequence_length": 1024,
        "dtype": "fp16",
        "gpus_per_node": 4,
        "network_bytes_per_s": 12.5e9,
        "shape": gpt(64, 8192, 32, 51200, 1024),
        "seconds": _median_s("experiments/gpt2-meg/meg_gpt2_perf_n16", "1024.0"),
        "label": "52B on 64 V100",
    }


_TESTS = {4: (40, 6144), 8: (48, 7168), 16: (64, 9216), 32: (64, 12288), 64: (64, 16384)}
"""nodes -> layers, hidden size"""


def _bigscience_tests() -> Iterator[Row]:
    """The largest models that fit 4 to 64 nodes of 4 V100, with four sequences per step; and 52B by two engines, of
    Megatron and of DeepSpeed. Layouts: experiments/gpt2-meg/meg_gpt2_base_n*.slurm and
    experiments/gpt2-meg-ds-3d/meg_ds_3d_gpt2_perf_n16.slurm of the same repository.
    """
    common = {
        "trainer": "megatron", "gpu": "v100", "dp": 1, "tp": 4, "recompute": "full", "profile": STORED_SCORES,
        "dtype": "fp16", "gpus_per_node": 4, "network_bytes_per_s": 12.5e9, "dp_overlap": 0.0, "sequence_length": 1024,
    }  # fmt: skip
    for nodes, (layers, hidden) in _TESTS.items():
        yield common | {
            "pp": nodes,
            "micro_batch_size": 1,
            "grad_accum": 4,
            "shape": gpt(layers, hidden, 32, 50688, 1024),
            "seconds": _median_s(f"experiments/gpt2-meg/meg_gpt2_base_n{nodes}_", "4.0"),
            "label": f"hidden {hidden} on {4 * nodes} V100",
        }
    for engine in ("off", "on"):
        yield common | {
            "pp": 16,
            "micro_batch_size": 4,
            "grad_accum": 256,
            "shape": gpt(64, 8192, 32, 50688, 1024),
            "seconds": _median_s(f"experiments/gpt2-meg-ds-3d/meg_ds_3d_gpt2_perf_n16-ds-{engine}", "1024.0"),
            "label": f"52B on 64 V100, DeepSpeed {engine}",
        }


def _median_s(path: str, batch: str) -> float:
    found = [
        float(row["elapsed_ms"])
        for row in read("bigscience_iterations.csv")
        if row["source_path"].startswith(path) and row["global_batch_size"] == batch
    ]
    return statistics.median(found) / 1000
