"""30 layouts per trainer, drawn by seed over all its axes, against the trainer's own checks; no GPU.

SWEEP_MEGATRON_ROOT is a checkout of Megatron-LM (d98e8a6). The interpreters:
SWEEP_BRIDGE_PYTHON: pip install --no-deps megatron-core==0.16.1 megatron-bridge==0.3.1; pip install torch triton
  "transformers<5" datasets accelerate omegaconf "hydra-core<=1.3.2" tensorboard wandb einops sentencepiece tiktoken
  rich six regex
SWEEP_BRIDGE_MAIN_PYTHON: the same with transformers==5.12.1 and diffusers, for SWEEP_BRIDGE_ROOT, a checkout of
  Megatron-Bridge (067f987)
SWEEP_TORCHTITAN_PYTHON: pip install torchtitan==0.3.0 torch torchao triton
The packages that these lack are stubs: `tests/support/trainers/without_cuda/cuda_stubs.py` names them.
"""

import json
from dataclasses import replace

import pytest

from sweep.physics import shapes
from sweep.physics.catalogue import MODELS
from sweep.plugins import TRAINER
from tests.support.trainers.drawn import drawn, saving, unvaried
from tests.support.trainers.external import STUBS, answered, python_of
from tests.support.trainers.layouts import run_of

EXPERTS = "qwen3_30b_a3b_pretrain_config"
COUNT, SEED, STEPS = 30, 41, 15  # of a run that saves after 8
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def checked(tmp_path, script, variable, values, *before):
    path = tmp_path / "asked.json"
    path.write_text(json.dumps(values))
    return answered(python_of(variable), STUBS / script, *before, path)


def launches(trainer, runs):
    made = [(run.gpus, TRAINER.find(trainer).configure(run, "/d", STEPS)) for run in runs]
    return [(ranks, dict(launch.env), launch.program[1:]) for ranks, launch in made]


def failures(runs, answers):
    return [(run.layout, run.dtype, answer) for run, answer in zip(runs, answers, strict=True) if answer]


def test_megatron_validates_its_arguments_and_the_configuration_of_its_layers(tmp_path):
    root = python_of("SWEEP_MEGATRON_ROOT")
    runs = saving(drawn("megatron", COUNT, SEED))
    assert unvaried("megatron", runs) == []
    answers = checked(tmp_path, "megatron_checks.py", "SWEEP_BRIDGE_PYTHON", launches("megatron", runs), root)
    assert failures(runs, answers) == []


def test_bridge_validates_its_container(tmp_path):
    runs = [
        replace(run, params={**run.params, **({"recipe": EXPERTS} if run.shape["num_experts"] else {})})
        for run in saving(drawn("nemo", COUNT, SEED))
        if run.layout.zero < 2 or run.params["checkpoint"] != "async"  # which only main has of FSDP
    ]
    assert unvaried("nemo", runs) == []
    answers = checked(tmp_path, "bridge_checks.py", "SWEEP_BRIDGE_PYTHON", launches("nemo", runs))
    assert failures(runs, answers) == []


PERF = {True: "qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config", False: "llama3_8b_pretrain_8gpu_h100_bf16_config"}
"""of `megatron.bridge.perf_recipes`; by whether the model has experts"""


@pytest.mark.parametrize(
    "recipes", [PERF, {True: "qwen3_30b_a3b_pretrain_config", False: "llama32_1b_pretrain_config"}]
)
def test_bridges_main_takes_its_recipes_and_those_for_performance_with_our_overrides(tmp_path, recipes):
    roots = [python_of(f"SWEEP_{name}_ROOT") for name in ("BRIDGE", "MEGATRON")]
    runs = saving(drawn("nemo", COUNT, SEED))
    runs = [replace(r, params={**r.params, "recipe": recipes[bool(r.shape["num_experts"])]}) for r in runs]
    answers = checked(tmp_path, "bridge_checks.py", "SWEEP_BRIDGE_MAIN_PYTHON", launches("nemo", runs), *roots)
    assert failures(runs, answers) == []


def built_by_torchtitan(tmp_path, runs):
    """Parameters of each, or what was raised."""
    folders = []
    for number, run in enumerate(runs):
        folder = tmp_path / str(number)
        folder.mkdir()
        folders.append(str(folder))
        for name, text in TRAINER.find("torchtitan").configure(run, str(folder), 8).files.items():
            (folder / name).write_text(text)
    return checked(tmp_path, "torchtitan_checks.py", "SWEEP_TORCHTITAN_PYTHON", folders)


def test_torchtitan_builds_models_with_as_many_parameters_as_the_plan_counts(tmp_path):
    runs = saving(drawn("torchtitan", COUNT, SEED))
    assert unvaried("torchtitan", runs) == []
    expected = [shapes.total_parameters(shapes.ModelShape(**run.shape)) for run in runs]
    answers = built_by_torchtitan(tmp_path, runs)
    assert (
        failures(runs, ["" if found == count else found for found, count in zip(answers, expected, strict=True)]) == []
    )


FLAVORS = {
    "llama3/8B": ("Llama-3-8B", 0),
    "qwen3/30B-A3B": ("Qwen3-30B-A3B", 0),
    "gpt_oss/20b": ("GPT-OSS-20B", 24 * (64 + 32)),  # attention sinks and the router's biases, per layer
    "deepseek_v3/671B": ("DeepSeek-V3", 0),
}


def test_torchtitans_own_models_are_those_of_the_catalogue(tmp_path):
    runs = [
        run_of("torchtitan", shape=MODELS[name].as_dict(), dp=8, zero=3, params={"flavor": flavor})
        for flavor, (name, _) in FLAVORS.items()
    ]
    other = replace(runs[0], params={"flavor": "qwen3/8B"})
    *answers, refused = built_by_torchtitan(tmp_path, [*runs, other])
    expected = [shapes.total_parameters(MODELS[name]) + more for name, more in FLAVORS.values()]
    assert answers == expected
    assert "torchtitan's model qwen3/8B has num_layers: 36, in the grid 32" in refused
