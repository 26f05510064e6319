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
    "model": "model|model name|model label|network|net|architecture|arch|model size",
    "gpu": "gpu|gpu type|gpu name|gpu model|accelerator|hardware|device name|system",
    "nodes": "nodes|num nodes|nnodes|node count|hosts",
    "gpus_per_node": "gpus node|num gpus node|nproc node|devices node",
    "gpus": "gpus|num gpus|num gpu|ngpus|gpu count|world size|devices|num devices|accelerators",
    "sequence_length": "sequence length|seq length|seq len|seqlen|seq|sequence|context length|context|max seq len",
    "dp": "dp|dp size|data parallel|data parallel size|dp replicas",
    "tp": "tp|tp size|tensor parallel|tensor parallel size|tensor model parallel size|model parallel size",
    "pp": "pp|pp size|pipeline|pipeline parallel|pipeline parallel size|pipeline model parallel size|pipeline stages",
    "cp": "cp|cp size|context parallel|context parallel size",
    "ep": "ep|ep size|expert parallel|expert parallel size|expert model parallel size",
    "etp": "etp|etp size|expert tensor parallel size",
    "virtual_stages": "vp|vpp|vp size|virtual stages|virtual pipeline|virtual pipeline size|interleave",
    "zero": "zero|zero stage|sharding stage",
    "micro_batch_size": (
        "micro batch size|micro batch|microbatch|mbs|mbsz|mbs size|local batch size|local batch|device batch size|"
        "device batch|device train batch size"
    ),
    "grad_accum": "grad accum|grad acc|gradient accumulation|gradient accumulation steps|grad accum steps|ga|gas",
    "global_batch_tokens": (
        "global batch tokens|batch tokens|tokens batch|tokens step|gbs tokens|"
        "global batch size|global batch|global batch sequences|train batch size|gbs|gbs sequences|gbs seq"
    ),
    "recompute": "recompute|recomputation|activation checkpointing|gradient checkpointing|activation recomputation",
    "pp_schedule": "schedule|pp schedule|pipeline schedule",
    "dtype": "dtype|precision|data type",
    "compile": "compile|torch compile",
    "tokens_per_second_per_gpu": "tokens s gpu|sequences s gpu|tps gpu|tgs|tokens s device|device tokens s",
    "tokens_per_second": "tokens s|sequences s|tps|throughput",
    "step_time_median_s": (
        "step time|iteration time|iter time|time step|time iteration|elapsed time iteration|step duration|"
        "iteration s|iteration ms|iter s|iter ms|step s|step ms|elapsed s|elapsed ms"
    ),
    "tflops_per_gpu": "tflops|tflops gpu|tflop s gpu|model tflops|model tflops gpu",
    "reported_mfu": "mfu|model flops utilization",
    "reported_hfu": "hfu|hardware flops utilization",
    "peak_memory_bytes": "peak memory|max memory|memory|memory allocated|vram|peak vram|hbm peak",
    "parameters_total": "parameters|params|num params|num parameters",
    "outcome": "outcome|status|result|state|ok|success",
}
"""column of a record -> how tables of trainers and papers name it, in ``_words``, the most usual first"""
_ENDINGS: Mapping[str, Mapping[str, str]] = {
    "bytes": {"bytes": "bytes", "kib": "KiB", "mib": "MiB", "gib": "GiB", "mb": "MB", "gb": "GB"},
    "s": {"s": "s", "ms": "ms", "us": "us", "min": "min"},
    "fraction": {"pct": "%", "percent": "%", "perc": "%"},
    "parameters": {"m": "million", "b": "billion", "million": "million", "billion": "billion"},
}
"""unit of a record's column -> last word of a source's name -> its unit"""
_MANY_TOKENS = re.compile(r"\b([km]) ?(?=tok)", re.IGNORECASE)
"""K tok/s"""
_OF_TRACKERS = re.compile(r"^(?:config|params|metrics|summary)\.")
"""before a name, in tables of MLflow and Weights & Biases"""
_WORDS = {
    "bs": "batch size", "par": "parallel", "pipe": "pipeline", "ctx": "context", "mem": "memory", "degree": "size",
    "n": "num", "number": "num", "of": "", "per": "", "seqs": "sequences", "sample": "sequences",
    "samples": "sequences", "tok": "tokens", "token": "tokens", "toks": "tokens",
    "sec": "s", "second": "s", "seconds": "s",
}  # fmt: skip
"""how names of columns shorten or spell a word -> the word"""
_RATES = ("tokens_per_second_per_gpu", "tokens_per_second", "step_time_median_s", "tflops_per_gpu")
_DEGREES = {name: re.compile(rf"(?i)(?<![a-z]){name}[ =:_-]*(\d+)") for name in ("dp", "tp", "pp", "cp", "ep", "etp")}
"""degree -> how a text such as TP4PP8 states it"""
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
    values = {source: list(dict.fromkeys(cell_text(row[source]) for row in rows)) for source in columns}
    found = {column: _reading(column, source, values[source]) for column, source in chosen.items()}
    found |= _from_layouts(found, {column: values[column] for column in columns if column not in chosen.values()})
    if "outcome" not in found and (failures := _failures(chosen, rows)) is not None:
        found["outcome"] = failures
    names = [text for text in values[chosen["model"]] if text] if "model" in chosen else []
    models = {text: known for text in names if (known := catalogued(text)) is not None and known != text}
    document = {"name": name, "columns": found, "constants": {"workload": name}} | (
        {"models": models} if models else {}
    )
    used = {reading if isinstance(reading, str) else reading["from"] for reading in found.values()}
    unused = [column for column in columns if column not in used]
    unknown = [
        f"{column}: {json.dumps(text)} is not known"
        for column in chosen.keys() & _MEANINGS.keys()
        for text in values[chosen[column]][:_DISTINCT]
        if text and _MEANINGS[column](text) is None
    ]
    return dump(document) + "".join(f"# {line}\n" for line in [*_remarks(found, unused, names), *sorted(unknown)])


def _from_layouts(found: Mapping[str, Any], unused: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Readings of the degrees that columns such as TP4PP8, dp2-tp4 or "TP 4, PP 8" state in one text."""
    readings: dict[str, Any] = {}
    for source, texts in unused.items():
        degrees = [{axis for axis in _DEGREES if _DEGREES[axis].search(text)} for text in texts]
        if all(degrees):
            stated = set().union(*degrees)
            readings |= {
                a: {"from": source, "match": _DEGREES[a].pattern} for a in _DEGREES if a in stated and a not in found
            }
    return readings


def _failures(chosen: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """An outcome by what stands in place of a measurement: OOM, -1, nothing; None where every row has a number."""
    sources = [chosen[name] for name in _RATES if name in chosen]
    cells = [[cell_text(row[source]) for source in sources] for row in rows if sources]
    measured = {texts[0] for texts in cells if not all(re.fullmatch(r"-.*|[^1-9]*", text) for text in texts)}
    meant = {texts[0]: _outcome(texts[0]) for texts in cells if texts[0] not in measured}
    return {"from": sources[0], "values": meant, "otherwise": "ok"} if meant else None


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
    spelled = _MANY_TOKENS.sub("", _OF_TRACKERS.sub("", source)).replace("%", " pct ").replace("#", " num ")
    apart = re.sub(r"(?<=[a-z]{2})(?=[A-Z])", " ", spelled).lower()
    found = re.findall(r"[a-z]+|\d+", apart)
    return tuple(word for one in found for word in _WORDS.get(one, one).split())


def _reading(column: str, source: str, texts: Sequence[str]) -> str | dict[str, Any]:
    reading: dict[str, Any] = {"from": source}
    values = [text for text in texts if text]
    if (unit := _unit(column, source, values)) is not None:
        reading["unit"] = unit
    if (meaning := _MEANINGS.get(column)) is not None and len(values) <= _DISTINCT:
        meant = {text: meaning(text) or text for text in values}  # what a map does not list is dropped
        reading |= {"values": meant} if any(text != word for text, word in meant.items()) else {}
    elif column == "zero" and not all(text.isdigit() for text in values):
        reading["match"] = r"(\d)(?:\.0)?$"  # ZeRO-3
    return source if len(reading) == 1 else reading


def _unit(column: str, source: str, values: Sequence[str]) -> str | None:
    words, unit = _words(source), BY_NAME[column].unit
    if unit.startswith("tokens") and (
        "sequences" in words or (column == "global_batch_tokens" and "tokens" not in words)
    ):
        return unit.replace("tokens", "sequences")
    if unit.startswith("tokens") and (many := _MANY_TOKENS.search(source)):
        return f"{many[1].upper()} {unit}"
    if unit == "fraction" and any(re.fullmatch(r"([2-9]|\d\d+)(\.\d*)?", text) for text in values):
        return "%"
    return _ENDINGS.get(unit, {}).get(words[-1] if words else "")


def _outcome(text: str) -> str | None:
    low = text.lower()
    if low in map(str, Outcome):
        return low
    return "ok" if low in _MEASURED else next((word for part, word in _FAILED.items() if part in low), "unknown")


def _dtype(text: str) -> str | None:
    low = text.lower().replace("bfloat", "bf").replace("float", "fp")
    found = re.sub(r"torch|mixed|[^a-z0-9]+", "_", low).strip("_")
    return found if found in (*FORMATS, *_PLAIN) else None


_RECOMPUTE = {
    **dict.fromkeys(("true", "yes", "on", "1", "full"), "full"),
    **dict.fromkeys(("false", "no", "off", "0", "none"), "none"),
    "selective": "selective",
}


_MEANINGS: Mapping[str, Callable[[str], str | None]] = {
    "outcome": _outcome,
    "dtype": _dtype,
    "recompute": lambda text: _RECOMPUTE.get(text.lower()),
    "gpu": lambda text: gpu_kind([text]),
}
"""column -> what a value of the source means; None where it is not known"""


def _remarks(chosen: Mapping[str, Any], unused: Sequence[str], names: Sequence[str]) -> list[str]:
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
