"""A first map for a foreign table: columns by their usual names, units by their endings, values by what they spell."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sweep.contract import FORMATS
from sweep.foreign.mapping import BY_NAME, cell_text
from sweep.inputs.yaml_lines import dump
from sweep.outcomes import Outcome
from sweep.physics.catalogue import catalogued
from sweep.physics.hardware import gpu_kind

USUAL: Mapping[str, str] = {
    "model": "model|model name|model label|network|net|architecture|arch",
    "gpu": "gpu|gpu type|gpu name|gpu model|accelerator|hardware|device name|system",
    "nodes": "nodes|num nodes|n nodes|nnodes|node count|hosts",
    "gpus_per_node": "gpus per node|num gpus per node|nproc per node|devices per node",
    "gpus": "gpus|num gpus|num gpu|n gpus|ngpus|gpu count|world size|devices|num devices|accelerators",
    "sequence_length": "sequence length|seq length|seq len|seqlen|seq|sequence|context length|context|max seq len",
    "dp": "dp|dp size|dp degree|data parallel|data parallel size|dp replicas",
    "tp": "tp|tp size|tp degree|tensor parallel|tensor parallel size|tensor model parallel size|model parallel size",
    "pp": (
        "pp|pp size|pp degree|pipeline|pipeline parallel|pipeline parallel size|pipeline model parallel size|"
        "pipeline stages"
    ),
    "cp": "cp|cp size|cp degree|context parallel|context parallel size",
    "ep": "ep|ep size|ep degree|expert parallel|expert parallel size|expert model parallel size",
    "etp": "etp|etp size|expert tensor parallel size",
    "virtual_stages": "vp|vpp|vp size|virtual stages|virtual pipeline|virtual pipeline size|interleave",
    "zero": "zero|zero stage|sharding stage",
    "micro_batch_size": (
        "micro batch size|micro batch|microbatch|mbs|mbsz|mbs size|local batch size|per device batch size"
    ),
    "grad_accum": "grad accum|gradient accumulation|gradient accumulation steps|grad accum steps|ga|gas|microbatches",
    "global_batch_tokens": (
        "global batch tokens|batch tokens|tokens per batch|tokens per step|"
        "global batch size|global batch|global batch sequences|train batch size|gbs|gbs sequences|gbs seq"
    ),
    "recompute": "recompute|recomputation|activation checkpointing|gradient checkpointing|activation recomputation",
    "pp_schedule": "schedule|pp schedule|pipeline schedule",
    "dtype": "dtype|precision|data type",
    "compile": "compile|torch compile",
    "tokens_per_second_per_gpu": (
        "tokens per second per gpu|tokens s gpu|tok s gpu|tok per s per gpu|tokens sec gpu|tps gpu|tps per gpu|tgs"
    ),
    "tokens_per_second": "tokens per second|tokens s|tok s|tok per s|tokens sec|tps|throughput",
    "step_time_median_s": (
        "step time|iteration time|iter time|time per step|time per iteration|elapsed time per iteration|"
        "step duration|iteration s|iteration ms|step s|step ms|elapsed s|elapsed ms"
    ),
    "tflops_per_gpu": "tflops|tflops per gpu|tflops gpu|tflop s gpu|model tflops|model tflops per gpu",
    "reported_mfu": "mfu|model flops utilization",
    "reported_hfu": "hfu|hardware flops utilization",
    "peak_memory_bytes": "peak memory|peak mem|max memory|max mem|memory|mem|memory allocated|vram|peak vram|hbm peak",
    "parameters_total": "parameters|params|num params|num parameters|n params",
    "outcome": "outcome|status|result|state|ok|success",
}
"""column of a record -> how tables of trainers and papers name it, in words, the most usual first"""
_ENDINGS: Mapping[str, Mapping[str, str]] = {
    "bytes": {"bytes": "bytes", "kib": "KiB", "mib": "MiB", "gib": "GiB", "mb": "MB", "gb": "GB"},
    "s": {"s": "s", "sec": "s", "seconds": "s", "ms": "ms", "us": "us", "min": "min"},
    "fraction": {"pct": "%", "percent": "%", "perc": "%"},
    "parameters": {"m": "million", "b": "billion", "million": "million", "billion": "billion"},
}
"""unit of a record's column -> last word of a source's name -> its unit"""
_SHORT = {"bs": "batch size", "par": "parallel", "pipe": "pipeline", "ctx": "context", "seqs": "sequences"}
"""words that names of columns are shortened to"""
_MEASURED = ("success", "succeeded", "ok", "done", "completed", "complete", "finished", "pass", "passed", "yes", "true")
_FAILED = {"oom": "oom_cuda", "memory": "oom_cuda", "time": "time_limit"}
"""part of how a table spells an outcome -> the outcome, the first that fits"""
_PLAIN = ("bf16", "fp16", "fp32", "fp8", "fp4")
_DISTINCT = 50
"""values of a column that are read by their spelling; one with more is no column of names"""


def suggested_map(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], name: str) -> str:
    """The YAML text of a map of this table, to be checked and completed by who knows the table.

    What was not recognised is in comments: columns of the source, models that the catalogue lacks, what is missing.
    """
    chosen = _chosen(columns)
    values = {source: list(dict.fromkeys(filter(None, (cell_text(row[source]) for row in rows)))) for source in columns}
    found = {column: _reading(column, source, values[source]) for column, source in chosen.items()}
    names = values[chosen["model"]] if "model" in chosen else []
    models = {text: known for text in names if (known := catalogued(text)) is not None and known != text}
    document = {
        "name": name,
        "columns": found,
        "constants": {"workload": name},
        **({"models": models} if models else {}),
    }
    unused = [column for column in columns if column not in chosen.values()]
    return dump(document) + "".join(f"# {line}\n" for line in _remarks(chosen, unused, names))


def _chosen(columns: Sequence[str]) -> dict[str, str]:
    """Column of the record -> column of the source: the most similar first, each used once."""
    likeness = [(_likeness(name, source), -at, name, source) for at, source in enumerate(columns) for name in USUAL]
    found: dict[str, str] = {}
    for score, _, name, source in sorted(likeness, reverse=True):
        if score > 0 and name not in found and source not in found.values():
            found[name] = source
    return {name: found[name] for name in USUAL if name in found}


def _likeness(name: str, source: str) -> float:
    """2 for a usual name, less the rarer it is; the share of the source's words that such a name makes up; else 0."""
    usual, words = [tuple(one.split()) for one in USUAL[name].split("|")], _words(source)
    if words not in usual and words[-1:] and words[-1] in _ENDINGS.get(BY_NAME[name].unit, {}):
        words = words[:-1]
    if words in usual:
        return 2 - usual.index(words) / len(usual)
    runs = [words[i:j] for i in range(len(words)) for j in range(i + 2, len(words) + 1)]
    share = max((len(run) / len(words) for run in runs if run in usual), default=0.0)
    return share if share > 0.5 else 0.0


def _words(source: str) -> tuple[str, ...]:
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", source).lower().replace("%", " pct ").replace("#", " num ")
    found = re.findall(r"[a-z]+|\d+", apart)
    return tuple(word for one in found for word in _SHORT.get(one, one).split())


def _reading(column: str, source: str, values: Sequence[str]) -> str | dict[str, Any]:
    reading: dict[str, Any] = {"from": source}
    if (unit := _unit(column, source, values)) is not None:
        reading["unit"] = unit
    if (meaning := _MEANINGS.get(column)) is not None and len(values) <= _DISTINCT:
        meant = {text: word for text in values if (word := meaning(text)) not in (None, text)}
        reading |= {"values": meant} if meant else {}
    return source if len(reading) == 1 else reading


def _unit(column: str, source: str, values: Sequence[str]) -> str | None:
    words, unit = _words(source), BY_NAME[column].unit
    if column == "global_batch_tokens":
        return None if {"tokens", "tok"} & set(words) else "sequences"
    if unit == "fraction" and any(re.fullmatch(r"([2-9]|\d\d+)(\.\d*)?", text) for text in values):
        return "%"
    return _ENDINGS.get(unit, {}).get(words[-1] if words else "")


def _outcome(text: str) -> str | None:
    low = text.lower()
    if low in map(str, Outcome):
        return low
    return "ok" if low in _MEASURED else next((word for part, word in _FAILED.items() if part in low), "unknown")


def _dtype(text: str) -> str | None:
    found = re.sub(r"[^a-z0-9_]", "", text.lower()).replace("bfloat", "bf").replace("float", "fp")
    return found if found in (*FORMATS, *_PLAIN) else None


def _recompute(text: str) -> str | None:
    low = text.lower()
    return "full" if low in ("true", "yes", "1", "full") else "none" if low in ("false", "no", "0", "none") else None


_MEANINGS: Mapping[str, Callable[[str], str | None]] = {
    "outcome": _outcome,
    "dtype": _dtype,
    "recompute": _recompute,
    "gpu": lambda text: gpu_kind([text]),
}
"""column -> what a value of the source means; None where it is not known"""


def _remarks(chosen: Mapping[str, str], unused: Sequence[str], names: Sequence[str]) -> list[str]:
    """What is left to do. Texts of the table are quoted, on one line each."""
    missing = [name for name in ("model", "sequence_length") if name not in chosen]
    missing += ["nodes (or gpus)"] * chosen.keys().isdisjoint({"nodes", "gpus"})
    missing += ["gpu"] * ("gpu" not in chosen)
    missing += ["micro_batch_size (or grad_accum)"] * chosen.keys().isdisjoint({"micro_batch_size", "grad_accum"})
    lines = [
        f"missing: {name}; name its column above, or state one value for all rows in constants" for name in missing
    ]
    unknown = [text for text in names[:_DISTINCT] if catalogued(text) is None]
    lines += [f"models: {json.dumps(text)}: a model of the catalogue, or its shape" for text in unknown]
    if {"reported_mfu", "reported_hfu", "tflops_per_gpu"} & chosen.keys():
        lines.append("flops: the convention by which the source counts FLOPs; without it, its MFU is not checked")
    return lines + [f"not recognised: {json.dumps(column)}" for column in unused]
