"""30 layouts per trainer, drawn by seed over all its axes, against the trainer's own checks; no GPU.

SWEEP_MEGATRON_ROOT is a checkout of Megatron-LM (d98e8a6). The interpreters:
SWEEP_BRIDGE_PYTHON: pip install --no-deps megatron-core==0.16.1 megatron-bridge==0.3.1; pip install torch triton
  "transformers<5" datasets accelerate omegaconf "hydra-core<=1.3.2" tensorboard wandb einops sentencepiece tiktoken
  rich six regex
SWEEP_TORCHTITAN_PYTHON: pip install torchtitan==0.3.0 torch torchao triton
The packages that these lack are stubs: `tests/support/trainers/without_cuda/cuda_stubs.py` names them.
"""

import json
import os
import subprocess
from dataclasses import replace

import pytest

from sweep.physics import shapes
from sweep.plugins import TRAINER
from tests.support.paths import REPOSITORY
from tests.support.trainers.drawn import drawn, unvaried

CHECKS = REPOSITORY / "tests/support/trainers/without_cuda"
COUNT, SEED = 30, 41
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def checked(tmp_path, script, variable, values, *before):
    if not os.environ.get(variable):
        pytest.skip(f"{variable} is not set")
    path = tmp_path / "asked.json"
    path.write_text(json.dumps(values))
    command = [os.environ[variable], CHECKS / script, *before, path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def launches(trainer, runs):
    made = [(run.gpus, TRAINER.find(trainer).configure(run, "/d", 8)) for run in runs]
    return [(ranks, dict(launch.env), launch.program[1:]) for ranks, launch in made]


def failures(runs, answers):
    return [(run.layout, run.dtype, answer) for run, answer in zip(runs, answers, strict=True) if answer]


def test_megatron_validates_its_arguments_and_the_configuration_of_its_layers(tmp_path):
    root = os.environ.get("SWEEP_MEGATRON_ROOT") or pytest.skip("SWEEP_MEGATRON_ROOT is not set")
    runs = drawn("megatron", COUNT, SEED)
    assert unvaried("megatron", runs) == []
    answers = checked(tmp_path, "megatron_checks.py", "SWEEP_BRIDGE_PYTHON", launches("megatron", runs), root)
    assert failures(runs, answers) == []


def test_bridge_validates_its_container(tmp_path):
    runs = [
        replace(run, params={"recipe": "qwen3_30b_a3b_pretrain_config"} if run.shape["num_experts"] else {})
        for run in drawn("nemo", COUNT, SEED)
    ]
    assert unvaried("nemo", runs) == []
    answers = checked(tmp_path, "bridge_checks.py", "SWEEP_BRIDGE_PYTHON", launches("nemo", runs))
    assert failures(runs, answers) == []


def test_torchtitan_builds_models_with_as_many_parameters_as_the_plan_counts(tmp_path):
    runs, folders = drawn("torchtitan", COUNT, SEED), []
    assert unvaried("torchtitan", runs) == []
    for number, run in enumerate(runs):
        folder = tmp_path / str(number)
        folder.mkdir()
        folders.append(str(folder))
        for name, text in TRAINER.find("torchtitan").configure(run, str(folder), 8).files.items():
            (folder / name).write_text(text)
    answers = checked(tmp_path, "torchtitan_checks.py", "SWEEP_TORCHTITAN_PYTHON", folders)
    expected = [shapes.total_parameters(shapes.ModelShape(**run.shape)) for run in runs]
    assert (
        failures(runs, ["" if found == count else found for found, count in zip(answers, expected, strict=True)]) == []
    )
