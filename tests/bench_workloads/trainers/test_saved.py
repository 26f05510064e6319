"""A trainer's own checkpoint: its lines, what it cost, and when a rank's measurement is complete."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from bench_workloads.trainers.driver.saved import Saved
from bench_workloads.trainers.driver.speakers import Speakers
from sweep.contract import Layout, Progress
from sweep.plugins import TRAINER
from sweep.records.validity import mismatches
from tests.support.made_records import made_measurement
from tests.support.simulated import big, placed
from tests.support.trainers.layouts import run_of

LINES = yaml.safe_load(Path(__file__).with_name("saved.yaml").read_text())
MEGATRON, TITAN = LINES["megatron"], LINES["torchtitan"]


def titan_step(number):
    """The line of another step."""
    return TITAN[0][1].replace("step:  8", f"step: {number:2}")


def costs(trainer, lines, step_s):
    reader, saved = TRAINER.find(trainer).reader(run_of(trainer, params={"checkpoint": "sync"})), Saved(None)
    for at_s, line in lines:
        for parsed in reader.read(line):
            saved.add(parsed, at_s)
    return saved.costs(step_s)


@pytest.mark.parametrize("trainer", ["megatron", "nemo"])
def test_of_a_checkpoint_in_the_background_the_steps_until_it_is_whole_are_slower(trainer):
    found = costs(trainer, MEGATRON, 1.0)
    assert found["checkpoint_stall_s"] == 0.4
    assert found["checkpoint_durable_s"] == pytest.approx(3.0)
    assert found["checkpoint_slowdown"] == pytest.approx((12.9 - 10.1 - 0.4) / 2 - 1)
    assert costs(trainer, MEGATRON[:8], 1.0) == {}, "not whole"


def test_torchtitans_is_whole_once_it_was_saved():
    assert costs("torchtitan", TITAN, 1.0) == pytest.approx(
        {"checkpoint_stall_s": 1.98, "checkpoint_durable_s": 2.0, "checkpoint_slowdown": 0.0, "checkpoint_bytes": 0}
    )


@pytest.mark.parametrize(("trainer", "line"), [
    ("megatron", "  async_save ...................................... False"),
    ("nemo", "  async_save: False"),
    ("torchtitan", TITAN[1][1]),
])  # fmt: skip
def test_a_trainer_that_saved_in_another_way_is_noticed(trainer, line):
    for kind in ("sync", "async", "none"):
        run = replace(run_of(trainer, params={"checkpoint": kind}), iterations=1)
        (parsed,) = TRAINER.find(trainer).reader(run).read(line)
        found = mismatches(run, [made_measurement(1.0, effective=parsed.effective)])
        assert found == (["checkpoint: requested async, ran sync (rank 0)"] if kind == "async" else [])


def test_a_rank_waits_until_the_checkpoint_is_whole(tmp_path):
    reading, writing = os.pipe()
    run = placed(big(Layout(dp=2, grad_accum=1), warmup_iterations=1, iterations=2), 0)
    (tmp_path / "part").write_bytes(b"1234")
    run = replace(run, place=replace(run.place, checkpoint_dir=str(tmp_path)))
    speakers, reader = Speakers(run, Progress(writing), 60.0), TRAINER.find("torchtitan").reader(run)

    def receive(line):
        for parsed in reader.read(line):
            speakers.receive(0, parsed, float(len(line)))

    for number in range(1, 5):
        speakers.receive(0, reader.read(titan_step(number))[0], float(number))
    receive(TITAN[1][1])
    receive(titan_step(5) + " memory: 70.0GiB(90%)")
    assert speakers.unsaved
    assert speakers.chosen(own_is_over=False) is None
    assert json.loads(os.read(reading, 1 << 16).splitlines()[-1])["due_s"] == 60.0
    receive(TITAN[2][1])
    chosen = speakers.chosen(own_is_over=False)
    assert chosen.timed_s() == [1.0, 1.0]
    measured = speakers.measurement(chosen, TRAINER.find("torchtitan"), {})
    assert measured.extra["checkpoint_bytes"] == 4
    assert measured.effective["checkpoint"] == "sync"
    assert measured.peak_reserved_bytes is None, "what it took while saving is not that of training"
