"""Rules of the input pipeline: paths that nodes cannot resolve, and choices that would measure the same twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench_workloads.transformer.rule_parts import param, rule

SYNTHETIC = "synthetic"
"""the value of ``data`` for tokens made on the device"""


def _each(values: Any, holds: Callable[[str], bool]) -> Any:
    """Whether the text, or each of a column, fulfils the condition."""
    import numpy as np

    return np.vectorize(lambda value: holds(str(value)), otypes=[bool])(values)


DATA_RULES = (
    rule(
        "data_path",
        "data={data} must be synthetic or an absolute path, which every node sees",
        lambda c: ~_each(param(c, "data"), lambda text: text == SYNTHETIC or text.startswith("/")),
    ),
    rule(
        "data_workers",
        "data_workers must be 0 or more, not {data_workers}",
        lambda c: param(c, "data_workers") < 0,
    ),
    rule(
        "synthetic_data",
        "synthetic tokens are made on the device: data_workers need data: a file",
        lambda c: (param(c, "data") == SYNTHETIC) & (param(c, "data_workers") > 0),
    ),
)
