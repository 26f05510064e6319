"""What each adapter writes, against goldens; and what is exported against the trainers' own schemas, where available.

SWEEP_TORCHTITAN_PYTHON names an interpreter with torchtitan 0.3 (and triton, which it imports), SWEEP_DEEPSPEED_PYTHON
one with deepspeed, SWEEP_MEGATRON_ROOT and SWEEP_NANOTRON_ROOT checkouts, SWEEP_MEGATRON_PYTHON an interpreter with
torch for the former.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench_workloads.trainers import TRAINERS, nemo
from sweep.diagnose.diagnose import diagnose_text
from sweep.outcomes import Outcome
from sweep.physics import shapes
from sweep.planning.rules import broken_by_run
from sweep.plugins import TRAINER
from tests.support.trainers.exported import exported
from tests.support.trainers.layouts import GOLDEN, LAYOUTS, SHAPE, launches, run_of


def named(variable):
    """The path in a variable of the environment; the test is skipped without."""
    value = os.environ.get(variable)
    if not value:
        pytest.skip(f"{variable} is not set")
    return value


def asked(python, code, *arguments, env=None):
    done = subprocess.run(
        [python, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **(env or {})},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.parametrize("trainer", sorted(TRAINERS))
def test_what_is_written_is_what_was_reviewed(trainer):
    assert launches(trainer) == json.loads((GOLDEN / f"{trainer}.json").read_text())


@pytest.mark.parametrize("trainer", sorted(set(TRAINERS) - {"command"}))
def test_every_layout_of_the_goldens_is_one_that_the_trainer_declares(trainer):
    workload = TRAINER.find(trainer).workload
    for layout in LAYOUTS[trainer]:
        varied = set(layout) - {"shape", "params"}
        assert set(layout.get("params", {})) <= set(workload.params)
        assert varied <= workload.axes, varied - workload.axes
        for axis in varied & set(workload.choices):
            assert layout[axis] in workload.choices[axis]
        assert broken_by_run(run_of(trainer, **layout), workload) == [], "what the plan rejects is not exported either"


def test_zero_2_and_3_of_bridge_are_megatrons_fsdp():
    found = [nemo.overrides(run_of("nemo", dp=2, zero=zero), 8) for zero in range(4)]
    assert [one.get("ddp.data_parallel_sharding_strategy") for one in found] == [
        None, None, "optim_grads", "optim_grads_params",
    ]  # fmt: skip
    assert [one.get("ddp.use_megatron_fsdp") for one in found] == [None, None, True, True]


def test_the_batch_is_the_same_sequences_in_every_trainer():
    run = run_of("megatron", dp=2, grad_accum=4, micro_batch_size=2)
    assert run.global_batch_sequences == 16
    words = TRAINER.find("megatron").configure(run, "/d", 8).program
    assert words[words.index("--global-batch-size") + 1] == "16"
    deepspeed = json.loads(TRAINER.find("deepspeed").configure(run, "/d", 8).files["deepspeed.json"])
    assert deepspeed["train_batch_size"] == 16
    assert nemo.overrides(run, 8)["train.global_batch_size"] == 16
    # torchtitan cuts its local batch in the pipeline's micro-batches, and accumulates only without a pipeline
    piped = TRAINER.find("torchtitan").configure(run_of("torchtitan", pp=2, grad_accum=4, micro_batch_size=2), "/d", 8)
    text = piped.files["sweep_torchtitan.py"]
    assert "local_batch=8," in text
    assert "global_batch=8," in text
    assert "micro_batch=2," in text


TITAN = """
import json, sys
from torchtitan.config import ConfigManager
c = ConfigManager().parse_args(["--module", "sweep_torchtitan", "--config", "configuration"])
import torch
c.model_spec.model.update_from_config(config=c)
with torch.device("meta"):
    model = c.model_spec.model.build()
loader = c.dataloader.build(dp_world_size=1, dp_rank=0, tokenizer=None, seq_len=16, local_batch_size=2,
                            snapshot_every_n_steps=None)
values, labels = next(iter(loader))
p = c.parallelism
print(json.dumps({"parameters": sum(x.numel() for x in model.parameters()), "batch": list(labels.shape),
  "keys": sorted(values), "layout": [p.data_parallel_replicate_degree * p.data_parallel_shard_degree,
  p.tensor_parallel_degree, p.pipeline_parallel_degree, p.context_parallel_degree]}))
"""


@pytest.mark.long
@pytest.mark.parametrize("number", range(6))
def test_torchtitan_takes_its_configuration_and_builds_the_model_that_was_asked(number, tmp_path):
    python = named("SWEEP_TORCHTITAN_PYTHON")
    made = exported("torchtitan", number, tmp_path)
    run = made.run
    found = asked(python, TITAN, env={"PYTHONPATH": str(made.folder)})
    assert found["parameters"] == shapes.total_parameters(shapes.ModelShape(**SHAPE))
    assert found["batch"] == [2, 16]
    layout = run.layout
    assert found["layout"] == [layout.dp, layout.tp, layout.pp, layout.cp]


WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
try:
    exec(sys.argv[2])
except ImportError as error:
    print(f"Cannot import module: {type(error).__name__}")  # all that torchtitan's ConfigManager says
"""


@pytest.mark.parametrize(("package", "code", "variable"), [
    ("torchtitan", "import sweep_torchtitan", None),
    pytest.param("spmd_types", TITAN, "SWEEP_TORCHTITAN_PYTHON", marks=pytest.mark.long),
])  # fmt: skip
def test_a_package_that_torchtitan_lacks_is_named(package, code, variable, tmp_path):
    """Its ConfigManager drops the text of an ImportError."""
    python = named(variable) if variable else sys.executable
    env = {**os.environ, "PYTHONPATH": str(exported("torchtitan", 0, tmp_path).folder)}
    command = [python, "-c", WITHOUT, package, code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=env, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("RuntimeError: torchtitan's environment lacks a package: "), done.stdout + done.stderr
    assert package in last
    found = diagnose_text(done.stderr)
    assert (found.outcome, "Install the missing module" in found.advice) == (Outcome.IMPORT_ERROR, True)


MEGATRON = """
import json, os, sys, types, typing, typing_extensions
typing.override = typing_extensions.override  # of Python 3.12
sys.path.insert(0, sys.argv[1])
import torch
hopper = types.SimpleNamespace(major=9, minor=0)
torch.cuda.get_device_capability = lambda *_: (hopper.major, hopper.minor)
torch.cuda.get_device_properties = lambda *_: hopper
from megatron.training.arguments import core_transformer_config_from_args, parse_args, validate_args
found = []
for ranks, env, words in json.loads(sys.argv[2]):
    os.environ |= {"WORLD_SIZE": str(ranks), "RANK": "0", **env}
    sys.argv[1:] = words
    args = parse_args()
    validate_args(args)
    if args.transformer_impl == "local":
        core_transformer_config_from_args(args)
    found.append({"dp": args.data_parallel_size, "tp": args.tensor_model_parallel_size,
        "pp": args.pipeline_model_parallel_size, "cp": args.context_parallel_size,
        "ep": args.expert_model_parallel_size, "micro_batch_size": args.micro_batch_size,
        "global_batch": args.global_batch_size, "sequence": args.seq_length, "zero": args.use_distributed_optimizer,
        "recompute": args.recompute_granularity, "dtype": str(args.params_dtype)})
print(json.dumps(found))
"""


def as_megatron_has_it(run):
    layout = run.layout
    return {
        **{name: getattr(layout, name) for name in ("dp", "tp", "pp", "cp", "ep", "micro_batch_size")},
        "global_batch": run.global_batch_sequences,
        "sequence": run.sequence_length,
        "zero": layout.zero > 0,
        "recompute": None if layout.recompute == "none" else layout.recompute,
        "dtype": {"bf16": "torch.bfloat16", "fp16": "torch.float16", "fp32": "torch.float32"}[run.dtype],
    }


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("implementation", ["transformer_engine", "local"])
def test_megatrons_own_parser_takes_every_layout(implementation, tmp_path):
    """Also its checks across arguments, as on a Hopper GPU (it asks the machine for the generation). The configuration
    of its layers is made where Transformer Engine, which needs a GPU, is not."""
    root, python = named("SWEEP_MEGATRON_ROOT"), named("SWEEP_MEGATRON_PYTHON")
    params = {"root": root, "transformer_impl": implementation}
    workload = TRAINER.find("megatron").workload
    taken = []
    for number, layout in enumerate(LAYOUTS["megatron"]):
        run = run_of("megatron", **{**layout, "params": {**layout.get("params", {}), **params}})
        taken += [] if broken_by_run(run, workload) else [number]
    assert taken == (list(range(6)) if implementation == "transformer_engine" else [0, 1, 3, 5])
    made = [exported("megatron", number, tmp_path / str(number), **params) for number in taken]
    words = [(one.run.gpus, dict(one.env), one.program[1:]) for one in made]
    assert asked(python, MEGATRON, root, json.dumps(words)) == [as_megatron_has_it(one.run) for one in made]


DEEPSPEED = """
import json, sys
from deepspeed.runtime.config import DeepSpeedConfig
values = json.loads(sys.argv[1])
values["train_batch_size"] //= int(sys.argv[2])  # without a process group the world is 1
c = DeepSpeedConfig(values, mpu=None, mesh_device=None)
print(json.dumps([c.train_batch_size, c.gradient_accumulation_steps, c.zero_optimization_stage]))
"""


@pytest.mark.long
@pytest.mark.parametrize("number", range(6))
def test_deepspeed_takes_its_configuration(number, tmp_path):
    python = named("SWEEP_DEEPSPEED_PYTHON")
    made = exported("deepspeed", number, tmp_path)
    run, text = made.run, made.files["deepspeed.json"]
    expected = [run.global_batch_sequences // run.gpus, run.layout.grad_accum, run.layout.zero]
    assert asked(python, DEEPSPEED, text, run.gpus, env={"DS_ACCELERATOR": "cpu"}) == expected


@pytest.mark.long
@pytest.mark.parametrize("number", range(6))
def test_nanotron_has_every_key(number, tmp_path):
    """By the fields of its dataclasses, read from their source: importing its package needs GPUs."""
    checkout = Path(named("SWEEP_NANOTRON_ROOT"))
    root = checkout / "src/nanotron/config"
    sources = "\n".join((root / f"{name}.py").read_text() for name in ("config", "parallelism_config", "models_config"))
    made = exported("nanotron", number, tmp_path, root=str(checkout))

    def keys(value):
        for name, inner in value.items() if isinstance(value, dict) else ():
            yield name
            yield from keys(inner)
        for inner in value if isinstance(value, list) else ():
            yield from keys(inner)

    unknown = [name for name in keys(json.loads(made.files["nanotron.yaml"])) if f"    {name}:" not in sources]
    assert unknown == []


def test_a_template_with_an_unknown_variable_is_refused_with_a_message():
    run = run_of("command", params={"command": "python train.py {{ no_such_name }}"})
    with pytest.raises(ValueError, match="no_such_name"):
        TRAINER.find("command").configure(run, "/d", 8)


def test_values_become_one_word_each_whatever_they_hold():
    run = run_of("command", params={"command": "python x.py {{ a }} {{ b }}", "a": "two words; rm -rf", "b": "it's"})
    assert TRAINER.find("command").configure(run, "/d", 8).program == ("x.py", "two words; rm -rf", "it's")
