"""An artificial straggler, to test its detection. Sleeps inside the step, where a slow GPU would lose time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench_workloads.transformer.build import Trainer


def install(trainer: Trainer) -> None:
    """Let the requested rank sleep at the start of its steps: of all, or of the requested iteration."""
    settings = trainer.settings
    if settings.straggler_rank != trainer.run.place.rank:
        return
    compute, count = trainer.compute_gradients, 0

    def late(*args: Any) -> Any:
        nonlocal count
        if settings.straggler_iteration in (-1, count):
            time.sleep(settings.straggler_s)
        count += 1
        return compute(*args)

    trainer.compute_gradients = late  # type: ignore[method-assign, assignment]
