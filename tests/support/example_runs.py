"""Small runs of a workload, for its checks."""

from collections.abc import Mapping
from typing import Any

from sweep.contract import Layout, Run, Scalar, Workload
from sweep.physics.catalogue import MODELS


def example_run(workload: Workload, params: Mapping[str, Any]) -> Run:
    """A run of a tiny model that fits any CPU: two ranks if the workload can vary ``dp``, two timed iterations."""
    wanted: dict[str, Scalar] = {"dp": 2, "grad_accum": 2, "zero": 0, "recompute": "none", "pp_schedule": "1f1b"}
    layout = Layout(**{name: _valid(workload, name, value) for name, value in wanted.items() if name in workload.axes})
    return Run(
        workload=workload.name,
        model="tiny-1M",
        shape=MODELS["tiny-1M"].as_dict(),
        nodes=1,
        gpus_per_node=layout.gpus,
        sequence_length=128,
        layout=layout,
        dtype=_valid(workload, "dtype", "fp32") if "dtype" in workload.axes else "bf16",
        warmup_iterations=1,
        iterations=2,
        params=params,
    )


def _valid(workload: Workload, name: str, wanted: Scalar) -> Scalar:
    choices = workload.choices.get(name, (wanted,))
    return wanted if wanted in choices else choices[0]
