"""What a sweep ran on and from: versions, hardware, the grid, and how to run it again."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from analysis.tables import items_of, versions_of
from sweep.errors import first_names
from sweep.redaction import without_secrets
from sweep.stated import Stated, shell_word

if TYPE_CHECKING:
    import pandas as pd

SHARED = {
    "gpu": "accelerator",
    "gpus_per_node": "ranks per node",
    "workload": "workload",
    "dtype": "number format",
    "memory_kind": "memory is",
    "flops_convention": "FLOPs are",
}
"""column -> what the page calls it"""
MUST_AGREE = ("gpu", "memory_kind", "flops_convention")


Fact = tuple[str, str, bool]
"""(name, value, whether attempts differ in it, so that they may not be comparable)"""


def environment_of(records: pd.DataFrame, provenance: Mapping[str, Any]) -> tuple[Fact, ...]:
    """Hardware and versions, with what differs between attempts marked."""
    columns = {name: records[name].dropna().astype(str).value_counts().to_dict() for name in SHARED if name in records}
    known = [_fact(SHARED[name], counts, name in MUST_AGREE) for name, counts in columns.items() if counts]
    known += [
        _fact(name, dict(versions.most_common()), True) for name, versions in sorted(versions_of(records).items())
    ]
    named = {"slurm": "Slurm", "host": "launched from", "executor": "executor", "sweep": "sweep"}
    known += [(label, str(provenance[key]), False) for key, label in named.items() if provenance.get(key)]
    return tuple(known)


def how_to_reproduce(provenance: Mapping[str, Any]) -> tuple[str, ...]:
    """Shell lines that run the same sweep again; empty where that is unknown."""
    lines = []
    if commit := provenance.get("git_commit"):
        lines.append(f"git checkout {shell_word(str(commit))}   # the directory that it was launched from")
    if version := provenance.get("sweep"):
        lines.append(f"sweep --version   # {Stated(version).line()}")
    if provenance.get("grid"):
        executor = provenance.get("executor")
        chosen = f" --executor {shell_word(str(executor))}" if executor else ""
        words = [str(word) for word in provenance.get("argv") or ()]
        given = [after for word, after in itertools.pairwise(words) if word == "-o"]
        chosen += "".join(f" -o {shell_word(_override(item))}" for item in given)
        lines.append(f"sweep launch grid.yaml{chosen}   # the grid below, saved as grid.yaml")
    return tuple(lines)


def _override(text: str) -> str:
    """``key=value`` without a secret: a value is YAML, as in a grid."""
    key, equals, value = text.partition("=")
    return key + equals + without_secrets(f"{key}: {value}").removeprefix(f"{key}: ")


def rejections_of(plan: pd.DataFrame | None, most: int = 8) -> str:
    """Why candidates were not run, most frequent reason first: `memory (80), divides (60); several reasons, each
    counted: 20`. Empty where none was rejected.
    """
    if plan is None or "reasons" not in plan:
        return ""
    rejected = plan.loc[plan["status"] == "rejected", "reasons"]
    named = [{str(reason).partition(":")[0] for reason in items_of(reasons)} for reasons in rejected]
    counts = Counter(reason for reasons in named for reason in reasons)
    shown = ", ".join(f"{reason} ({count:,})" for reason, count in counts.most_common(most))
    shown += f" and {len(counts) - most} rarer" if len(counts) > most else ""
    several = sum(len(reasons) > 1 for reasons in named)
    return f"{shown}; several reasons, each counted: {several:,}" if several else shown


def _fact(name: str, counts: Mapping[Any, int], differs: bool) -> Fact:
    """The one value, or the most frequent ones with how many attempts had each. ``differs``: several are a warning."""
    shown = list(counts) if len(counts) == 1 else [f"{value} ({count:,})" for value, count in counts.items()]
    return name, first_names(shown, 6), differs and len(counts) > 1
