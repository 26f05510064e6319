"""Shared code of all trainer adapters: starting the command, reading its lines, finding iterations, ranks' exchange.

Code for a single trainer belongs to its own file, one folder up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench_workloads.trainers.adapter import SHARED_CHOICES, TrainerParameters
from sweep.contract import Scalar, Workload


def trainer(
    settings: type[TrainerParameters],
    *,
    preload: tuple[str, ...] = (),
    choices: Mapping[str, tuple[Scalar, ...]] = {},
    **declared: Any,
) -> Workload:
    """The declaration of a trainer of this package, named after the module of its settings: each rank runs the driver.

    Its layouts start from weights of their own, unless a parameter of the user's says otherwise.
    """
    driver, module = f"{__name__}.driver", settings.__module__
    return Workload(
        name=module.rpartition(".")[2], main=f"{driver}:main", preload=(driver, *preload, module), takes_listener=True,
        same_start=False, params=settings.defaults(), choices={**SHARED_CHOICES, **choices}, **declared,
    )  # fmt: skip
