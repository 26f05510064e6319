"""A first grid and a site as commented text: known values filled in, every other key commented out with its meaning."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sweep.files import shipped_folder
from sweep.inputs.validation import amount_text
from sweep.inputs.yaml_lines import dump
from sweep.physics.hardware import GPUS

_LINE = re.compile(r"# (\w+): (?:(?!# ).)*?  # (.*)")
"""of a template: a key, commented out, an example of its value, and what it means"""
WIDTH = 36
"""of a line up to what its key means"""
WIDEST = 4
"""most nodes in a first grid"""
SITE_TEMPLATES = {path.stem: path for path in sorted((shipped_folder("templates") / "sites").glob("*.yaml"))}
"""name -> a site of a usual kind of cluster, to be changed where it says so"""
SEQUENCES = 256
"""sequences in a step of a first grid on GPUs, at least"""
SMALL_GPU_BYTES = 40 * 10**9
SMALL_NODE_BYTES = 200 * 10**9
"""an 8B model's weights, gradients and optimizer take 144 GB, and a layer's activations and buffers some more"""


def site_text(facts: Mapping[str, object], others: Sequence[str] = ()) -> str:
    """A site file. ``facts``: detected keys. ``others``: remarks on what else was detected."""
    known = dict(facts)
    if isinstance(seconds := known.get("pilot_time"), int):
        size, unit = next(pair for pair in ((3600, "h"), (60, "m"), (1, "s")) if seconds % pair[0] == 0)
        known["pilot_time"] = f"{seconds // size}{unit}"
    head, *lines = _filled("first_site.yaml", known).replace("GPUS", ", ".join(GPUS)).splitlines()
    return "\n".join([head, *(f"# {remark}" for remark in others), *lines, ""])


def grid_text(facts: Mapping[str, Any]) -> str:
    """A grid file that plans on the site of these facts, small enough as a first sweep."""
    gpus, gpu = int(facts["gpus_per_node"]), GPUS[str(facts["gpu"])]
    widest = min(int(facts.get("max_nodes", 1)), WIDEST)
    nodes = [2**power for power in range(widest.bit_length())]
    values: dict[str, Any] = {"name": "first", "nodes": nodes, "pp": [1, 2], "tp": "auto", "micro_batch_size": [1, 2]}
    if gpu.memory_bytes is None:  # CPUs: small enough for any machine
        values |= {"models": ["tiny-1M"], "sequence_length": 128, "dtype": "fp32", "zero": [0, 3]}
        values |= {"global_batch": amount_text(128 * _sequences(gpus * nodes[-1], 16))}
    else:
        small = gpu.memory_bytes < SMALL_GPU_BYTES or gpus * gpu.memory_bytes < SMALL_NODE_BYTES
        model = "Llama-3.2-1B" if small else "Llama-3-8B"
        values |= {"models": [model], "sequence_length": 4096, "zero": [0, 1, 3]}
        values |= {"recompute": ["none", "full"], "dtype": "bf16" if gpu.peak_flops("bf16") else "fp32"}
        values |= {"global_batch": amount_text(4096 * _sequences(gpus * nodes[-1], SEQUENCES))}
    return _filled("first_grid.yaml", values)


def _filled(template: str, known: Mapping[str, Any]) -> str:
    """The template, in which each known key has its value and is no comment."""

    def filled(line: re.Match[str]) -> str:
        key, meaning = line.groups()
        return f"{f'{key}: {_inline(known[key])}':{WIDTH}}  # {meaning}" if key in known else line[0]

    return _LINE.sub(filled, (shipped_folder("templates") / template).read_text(encoding="utf-8"))


def _sequences(ranks: int, min_sequences: int) -> int:
    """A number of sequences that data parallelism over all ranks divides."""
    return ranks * -(-min_sequences // ranks)


def _inline(value: Any) -> str:
    """A value as YAML on one line."""
    if isinstance(value, list):
        return f"[{', '.join(_inline(item) for item in value)}]"
    return dump({"k": value}).removeprefix("k:").strip()
