"""Entry points of ranks that save a training run in one layout, and go on from it in another."""

import os
import signal
from pathlib import Path

import torch

from bench_workloads import process
from bench_workloads.transformer import checkpoint
from bench_workloads.transformer.build import Trainer
from bench_workloads.transformer.checkpoint import Checkpoints, pieces
from bench_workloads.transformer.measure import Samples, Stopwatch
from bench_workloads.transformer.settings import Settings
from sweep.contract import Measurement, Progress, RankRun

SAVED_AT = 2
"""steps before the checkpoint; as many after it"""
CPU = torch.device("cpu")


class Job:
    """One rank of a training run that has taken a step, of data that no other step has."""

    def __init__(self, run: RankRun, progress: Progress) -> None:
        settings = Settings.of(run)
        process.set_threads(run.place, 1, own_cores=False)
        process.join(run.place, CPU, settings.process_group_timeout_s)
        self.trainer = Trainer(run, settings, CPU)
        self.checkpoints = Checkpoints(Path(run.place.checkpoint_dir), settings.checkpoint, CPU, 60.0)
        self._watch, self._progress = Stopwatch(self.trainer, progress, CPU), progress

    def train(self, first: int, last: int) -> list[float]:
        samples = Samples()
        for number in range(first, last):
            self._watch.iteration(number, samples)
        return samples.losses

    def write(self, step: int) -> None:
        self.checkpoints.start(step, pieces(self.trainer))
        self.checkpoints.staged.result()

    def end(self, losses: list[float], **extra) -> None:
        self._progress.measured(Measurement(step_times_s=[], losses=losses, extra=extra))
        self.checkpoints.close()


def save(run: RankRun, progress: Progress) -> None:
    """Report the losses of the steps after the checkpoint, trained while it is written."""
    job = Job(run, progress)
    job.train(0, SAVED_AT)
    job.write(SAVED_AT)
    losses = job.train(SAVED_AT, 2 * SAVED_AT)
    while not job.checkpoints.done():
        pass
    job.end(losses)


def restore(run: RankRun, progress: Progress) -> None:
    """Go astray, restore, and report the losses of the same steps."""
    job = Job(run, progress)
    job.train(90, 91)
    torn = job.checkpoints.restore(pieces(job.trainer))
    job.end(job.train(SAVED_AT, 2 * SAVED_AT), torn=[path.name for path in torn])


def killed(run: RankRun, progress: Progress) -> None:
    """Save; then the last rank is killed as it has written a part of the next checkpoint."""
    job = Job(run, progress)
    job.train(0, SAVED_AT)
    job.write(SAVED_AT)
    while not job.checkpoints.done():
        pass
    job.train(SAVED_AT, SAVED_AT + 1)
    resolve, left = checkpoint._Save.resolve_data, 5

    def resolve_few(self, item):
        nonlocal left
        left -= 1
        if not left and run.place.rank == run.place.world_size - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return resolve(self, item)

    checkpoint._Save.resolve_data = resolve_few
    job.write(SAVED_AT + 1)
    while not job.checkpoints.done():
        pass
