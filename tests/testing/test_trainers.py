"""`check_trainer`: our own adapters pass, and each deviation of another is found."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench_workloads.trainers import TRAINERS
from bench_workloads.trainers.adapter import SHARED_CHOICES, SHARED_PARAMS, Adapter, Hint, Launch, ParsedLine
from bench_workloads.trainers.driver.reading import NUMBER, PatternReader
from sweep.contract import Workload
from sweep.plugins import TRAINER
from sweep.testing import ConformanceError, check_trainer, example_run
from tests.support.trainers.layouts import PARAMS

ITERATIONS = {
    "command": ["step 1", "step 2"],
    "deepspeed": [
        "[2026-11-21 14:00:00,001] [INFO] [logging.py:96:log_dist] [Rank 0] step=1, skipped=0, lr=[0.001], mom=[0.9]",
        "[2026-11-21 14:00:01,001] [INFO] [logging.py:96:log_dist] [Rank 0] step=2, skipped=0, lr=[0.001], mom=[0.9]",
    ],
    "nanotron": [
        "iteration: 1 / 8 | time_per_iteration_ms: 250 | tokens_per_sec: 1.02K | lm_loss: 2.5",
        "iteration: 2 / 8 | time_per_iteration_ms: 240 | tokens_per_sec: 1.07K | lm_loss: 2.4",
    ],
}
"""output of two iterations; the readers of the others are tested on more lines in test_reading.py"""
EVERY_AXIS = {
    "command": "python train.py {{ dp }} {{ tp }} {{ pp }} {{ cp }} {{ ep }} {{ zero }} {{ micro_batch_size }} "
    "{{ grad_accum }} {{ recompute }} {{ pp_schedule }} {{ dtype }} {{ compile }}"
}


@pytest.mark.parametrize("name", sorted(TRAINERS))
def test_our_own_conform(name):
    params = {**PARAMS.get(name, {}), **(EVERY_AXIS if name == "command" else {})}
    if name == "picotron":
        params["use_cpu"] = True
    run = example_run(TRAINER.find(name).workload, params=params)
    check_trainer(name, run, output="\n".join(ITERATIONS.get(name, ())))


def configure(run, directory, steps):
    layout = json.dumps([run.layout.dp, run.layout.grad_accum])
    return Launch(program=("train.py", "--steps", str(steps)), files={"config.json": layout})


def reader(_run):
    return PatternReader(r"step (\d+)", {"loss": rf"loss ({NUMBER})"}, {"dp": (r"dp=(\d+)", int)})


class Raises:
    def read(self, line):
        return [ParsedLine(iteration=int(line.split()[1]))] if line else []


class Unknown:
    def read(self, line):
        return [ParsedLine(iteration=len(line), values={"speed": 1.0}, effective={"width": 2})]


WORKLOAD = Workload(
    name="theirs",
    main="tests.testing.test_workloads:main",
    axes=frozenset({"dp", "grad_accum"}),
    params={**SHARED_PARAMS},
    choices={**SHARED_CHOICES},
)
ADAPTER = Adapter(workload=WORKLOAD, versions="theirs 1.0", configure=configure, reader=reader)
OUTPUT = "dp=2\nstep 1 loss 2.5\nstep 2 loss 2.4"


def test_a_minimal_one_conforms():
    check_trainer(ADAPTER, output=OUTPUT)


def writes(run, directory, steps):
    (Path(directory) / "config.json").write_text("{}")
    return configure(run, directory, steps)


def differing(run, directory, steps, count=[]):  # noqa: B006
    count.append(0)
    return replace(configure(run, directory, steps), env={"COUNT": str(len(count))})


def outside(run, directory, steps):
    return replace(configure(run, directory, steps), files={"../config.json": "", "a": 1}, env={"PORT": 1}, program=())


def refusing(run, directory, steps):
    raise OSError("no checkout")


@pytest.mark.parametrize(
    ("changes", "output", "found"),
    [
        ({"configure": writes}, "", ["configure: wrote config.json itself: return them as files"]),
        ({"configure": differing}, "", ["configure: gives another result for the same run"]),
        ({"configure": refusing}, "", ["configure: raised OSError: no checkout for the run that is checked"]),
        (
            {"configure": outside},
            "",
            [
                "the file '../config.json' is not inside the directory",
                "the file 'a' is a int, not text",
                "the variable PORT is 1, not text",
                "program is (), not a command",
            ],
        ),
        (
            {"workload": replace(WORKLOAD, axes=WORKLOAD.axes | {"tp"})},
            "",
            ["axes: tp is declared, but changing it changes neither files, command nor environment"],
        ),
        (
            {"workload": replace(WORKLOAD, params={}, choices={})},
            "",
            ["params: 'workdir' of SHARED_PARAMS is missing", "choices: 'start' of SHARED_CHOICES is missing"],
        ),
        ({"versions": ""}, "", ["versions: states no version"]),
        ({"convention": "mine"}, "", ["convention: 'mine' is none of "]),
        ({"hints": (Hint(pattern="(", text="x"),)}, "", ["hints: '(' is no regular expression"]),
        ({"reader": lambda run: Raises()}, "", ["reader: raised IndexError: list index out of range on the line ' '"]),
        (
            {"reader": lambda run: Unknown()},
            OUTPUT,
            ["'speed' is no name of reading.NAMES", "effective has 'width', which a run does not have"],
        ),
        ({}, "epoch 1", ["reader: found 0 iterations in the output, fewer than 2"]),
    ],
)
def test_a_deviation_is_found(changes, output, found):
    with pytest.raises(ConformanceError, match="the trainer adapter theirs does not conform") as error:
        check_trainer(replace(ADAPTER, **changes), output=output)
    for finding in found:
        assert finding in "\n".join(error.value.findings)
