"""What a checkpoint costs a training run: measured after the timed iterations, which know nothing of it.

Two are written while training goes on, and the second is measured: the first also allocates the buffers for staging.
Then the state is restored, and the steps since are trained again: their losses must be the same.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from bench_workloads.transformer import checkpoint
from bench_workloads.transformer.checkpoint import Checkpoints, pieces
from bench_workloads.transformer.measure import Samples, Stopwatch, synchronise
from sweep.contract import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench_workloads.transformer.build import Trainer
    from sweep.contract import Progress

STEPS_AFTER = 2
"""at least, after a checkpoint, and again after its restore: the second has restored moments in its weights"""
SAME = {"fp32": 1e-6, "bf16": 1e-3}
"""relative distance of losses that count as equal, in 8 bits as in bf16: docs/research/parallel-truth.md"""


def measured(trainer: Trainer, progress: Progress, number: int, steps: int, step_s: float) -> dict[str, Any]:
    """Seconds, bytes and losses of a checkpoint, for the record, the same on all ranks except for bytes.

    ``number``: of the next iteration, ``steps``: of each; ``step_s``: of a step while none is written. Raises OSError
    where the directory cannot be written.
    """
    run, settings = trainer.run, trainer.settings
    if not run.place.checkpoint_dir:
        raise ValueError(f"checkpoint={settings.checkpoint} needs checkpoint_dir in the site")
    directory = Path(run.place.checkpoint_dir)
    directory.mkdir(mode=0o700, exist_ok=True)  # not its parents: a path that is not there is a mistake
    dist.barrier()
    checkpoints = Checkpoints(directory, settings.checkpoint, trainer.positions.device, settings.checkpoint_timeout_s)
    measurement = _Measuring(trainer, checkpoints, progress, steps)
    try:
        measurement.write(measurement.write(number))
        return measurement.results(step_s) | measurement.restored(directory)
    finally:
        checkpoints.close()
        if run.place.rank == 0:
            shutil.rmtree(directory, ignore_errors=True)


class _Measuring:
    """A trainer that writes checkpoints, and what the last one cost."""

    def __init__(self, trainer: Trainer, checkpoints: Checkpoints, progress: Progress, steps: int) -> None:
        self._trainer, self._checkpoints, self._progress, self._steps = trainer, checkpoints, progress, steps
        self._device, self._limit_s = trainer.positions.device, trainer.settings.checkpoint_timeout_s
        self._stopwatch = Stopwatch(trainer, progress, self._device, steps=steps)
        self._samples, self._waited_s = Samples(), 0.0
        self._update = trainer.optimizer.step
        trainer.optimizer.step = self._step_once_staged  # type: ignore[method-assign]

    def write(self, number: int) -> int:
        """Write a checkpoint and train until it is whole, and for STEPS_AFTER at least. The next iteration's number."""
        self._samples, self._waited_s, self._number, self._while_writing = Samples(), 0.0, number, 0
        begin, self._called_s = self._timed(lambda: self._checkpoints.start(number, pieces(self._trainer)))
        while (writing := not self._checkpoints.done()) or len(self._samples.step_s) < STEPS_AFTER:
            if writing and time.perf_counter() - begin > self._limit_s:
                raise TimeoutError(f"the checkpoint is not written after {self._limit_s:g} s (checkpoint_timeout_s)")
            self._while_writing += writing
            self._progress.heartbeat(Phase.STEADY, number)
            self._stopwatch.iteration(number, self._samples)
            number += self._steps
        assert self._checkpoints.ended is not None
        self._durable_s = self._slowest(self._checkpoints.ended - begin)
        return number

    def results(self, step_s: float) -> dict[str, Any]:
        """What the last one cost. ``step_s``: of a step while none is written."""
        stall_s, steps = self._slowest(self._called_s + self._waited_s), self._while_writing * self._steps
        written_s = sum(self._samples.slowest_s[: self._while_writing]) * self._steps - self._slowest(self._waited_s)
        everyone = torch.tensor(self._checkpoints.bytes, device=self._device)
        dist.all_reduce(everyone)
        return {
            "checkpoint_bytes": int(everyone.item()),
            "checkpoint_rank_bytes": self._checkpoints.bytes,
            "checkpoint_stall_s": stall_s,
            "checkpoint_slowdown": written_s / (steps * step_s) - 1 if steps else 0.0,
            "checkpoint_durable_s": self._durable_s,
        }

    def restored(self, directory: Path) -> dict[str, Any]:
        """Restore the last one, as this layout has it and as ZeRO 3 over all ranks has, and train the same steps."""
        place = self._trainer.run.place
        path, _ = checkpoint.newest(directory)
        checkpoint.forget_cached(path)
        other = checkpoint.cut_evenly(path, place.rank, place.world_size)
        other_s = self._slowest(self._timed(lambda: self._checkpoints.restore(other))[1])
        checkpoint.forget_cached(path)
        own = pieces(self._trainer)
        own_s = self._slowest(self._timed(lambda: self._checkpoints.restore(own))[1])
        before = self._samples.losses[: STEPS_AFTER * self._steps]
        again = self._stopwatch.run(self._number, STEPS_AFTER).losses
        apart = max(abs(a / b - 1) for a, b in zip(again, before, strict=True))
        wrong = apart > SAME.get(self._trainer.run.dtype, SAME["bf16"])
        note = f"after a restored checkpoint losses are {apart:.1e} apart from those without"
        return {
            "checkpoint_restore_s": own_s,
            "checkpoint_restore_other_layout_s": other_s,
            "checkpoint_loss_difference": apart,
            **({"notes": [note]} if wrong else {}),
        }

    def _step_once_staged(self) -> torch.Tensor:
        begin = time.perf_counter()
        self._checkpoints.staged.result()
        self._waited_s += time.perf_counter() - begin
        return self._update()

    def _timed(self, call: Callable[[], object]) -> tuple[float, float]:
        """(when it began on this rank, its seconds), all ranks together."""
        self._progress.heartbeat(Phase.STEADY, self._number, due_s=self._limit_s)
        synchronise(self._device)
        dist.barrier()
        begin = time.perf_counter()
        call()
        synchronise(self._device)
        return begin, time.perf_counter() - begin

    def _slowest(self, seconds: float) -> float:
        found = torch.tensor(seconds, device=self._device, dtype=torch.float64)
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return float(found.item())
