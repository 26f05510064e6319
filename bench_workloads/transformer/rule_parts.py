"""What every rule of this workload is made of: columns, parameters with their defaults, a rule with its reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bench_workloads.transformer.settings import Settings
from sweep.contract import Rule

Columns = Mapping[str, Any]
_DEFAULTS = Settings.defaults()


def param(c: Columns, name: str) -> Any:
    """The column of a parameter, or its default where the grid does not state it."""
    return c[name] if name in c else _DEFAULTS[name]


def rule(name: str, reason: str, broken: Callable[[Columns], Any], torch: str = "") -> Rule:
    """``broken``: where it rejects. ``torch``: the specifier of the torch whose limit it is; empty: of any."""
    return Rule(name=name, broken=broken, reason=reason, torch=torch)


def any_of(column: Any, values: tuple[str, ...]) -> Any:
    """Where a column has one of the values."""
    found = column == values[0]
    for value in values[1:]:
        found = found | (column == value)
    return found


def with_experts(c: Columns) -> Any:
    """Where the model is a mixture of experts."""
    return c["num_experts"] > 0


def dense_somewhere(c: Columns) -> Any:
    """Where a layer of the model has a dense MLP."""
    return (c["num_experts"] == 0) | (c["dense_layers"] > 0)
