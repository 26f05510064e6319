"""What each adapter writes, against goldens; and what is exported against the trainers' own schemas, where available.

SWEEP_DEEPSPEED_PYTHON names an interpreter with deepspeed, SWEEP_NANOTRON_ROOT a checkout, SWEEP_NANOTRON_PYTHON one
with torch, dacite, transformers and triton. Of torchtitan, Megatron-LM and Megatron-Bridge: test_validated.py.
Of picotron and Megatron-Bridge, which cannot be imported without a GPU, `schemas.json` has the keys that they read.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench_workloads.trainers import TRAINERS
from bench_workloads.trainers.driver.templates import render, renders
from sweep.contract import Run
from sweep.diagnose.diagnose import diagnose_text
from sweep.outcomes import Outcome
from sweep.physics.catalogue import MODELS
from sweep.planning.rules import broken_by_run
from sweep.plugins import TRAINER, WORKLOAD
from sweep.records.collect import write_results
from sweep.records.record import configuration
from tests.support import driving
from tests.support.made_records import made_record, made_run
from tests.support.paths import REPOSITORY
from tests.support.trainers.external import STUBS, answered, python_of
from tests.support.trainers.layouts import GOLDEN, LAYOUTS, launches, run_of

STEPS = 8


def exported(trainer: str, number: int, directory: Path, **params: str) -> tuple[Run, Path]:
    """One of the trainer's six layouts, and where it was written. ``params``: such as ``root``, a checkout."""
    run = run_of(trainer, **LAYOUTS[trainer][number])
    run = replace(run, params={**run.params, **params})
    write_results(directory / "r.parquet", [replace(made_record(), **vars(configuration(run, None)))])
    words = ("--format", trainer, "--iterations", STEPS, "--out", directory / "out")
    driving.succeeds("best", directory / "r.parquet", *words)
    return run, directory / "out" / "small-1-nodes"


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


WITHOUT = """
import sys
sys.modules["torchtitan"] = None
try:
    import sweep_torchtitan
except ImportError as error:
    print(f"Cannot import module: {type(error).__name__}")  # all that torchtitan's ConfigManager says
"""


def test_a_package_that_torchtitan_lacks_is_named(tmp_path):
    """Its ConfigManager drops the text of an ImportError."""
    env = {**os.environ, "PYTHONPATH": str(exported("torchtitan", 0, tmp_path)[1])}
    command = [sys.executable, "-c", WITHOUT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=env, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("RuntimeError: torchtitan's environment lacks a package: "), done.stdout + done.stderr
    assert "torchtitan" in last.rpartition("package: ")[2]
    found = diagnose_text(done.stderr)
    assert (found.outcome, "Install the missing module" in found.advice) == (Outcome.IMPORT_ERROR, True)


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
    python = python_of("SWEEP_DEEPSPEED_PYTHON")
    run, folder = exported("deepspeed", number, tmp_path)
    text = (folder / "deepspeed.json").read_text()
    expected = [run.global_batch_sequences // run.gpus, run.layout.grad_accum, run.layout.zero]
    assert answered(python, "-c", DEEPSPEED, text, run.gpus, env={"DS_ACCELERATOR": "cpu"}) == expected


NANOTRON = """
import json, sys
sys.path[:0] = sys.argv[2:]
import cuda_stubs
cuda_stubs.NAMES += ("flash_attn", "datasets", "datatrove")
cuda_stubs.use()
from nanotron.config import get_config_from_file
c = get_config_from_file(sys.argv[1])
print(json.dumps([c.model.model_config.num_hidden_layers, c.parallelism.tp, c.optimizer.zero_stage]))
"""


@pytest.mark.long
@pytest.mark.parametrize("number", range(6))
def test_nanotron_takes_its_configuration(number, tmp_path):
    python, root = (python_of(f"SWEEP_NANOTRON_{name}") for name in ("PYTHON", "ROOT"))
    run, folder = exported("nanotron", number, tmp_path, root=root)
    paths = folder / "nanotron.yaml", STUBS, Path(root, "src")
    assert answered(python, "-c", NANOTRON, *paths) == [run.shape["num_layers"], run.layout.tp, run.layout.zero]


def test_values_become_one_word_each_whatever_they_hold():
    run = run_of("command", params={"command": "python x.py {{ a }} {{ b | upper }}", "a": "two; rm -rf", "b": "it's"})
    assert TRAINER.find("command").configure(run, "/d", 8).program == ("x.py", "two; rm -rf", "IT'S")


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ x.__init__.__globals__ }}",
        "{{ no_such_name }}",
    ],
)
def test_a_template_reaches_neither_python_nor_what_is_not_given(text):
    error = "UndefinedError: 'no_such_name'" if "no_such_name" in text else "SecurityError"
    with pytest.raises(ValueError, match=f"invalid value for a template: {error}"):
        render(made_run(), text, {"x": ValueError}, quoted=False)


@pytest.mark.parametrize(("text", "known"), [
    ("{% if pp > 1 %}{% set x = 1 %}{% else %}{% set x = 2 %}{% endif %}{{ x }}", True),
    ("{% for i in range(tp) %}{{ loop.index }}{% endfor %}{{ own | default(3) }}", True),
    ("{% if tp > 1 %}{{ x }}{% endif %}", False),
])  # fmt: skip
def test_names_that_a_template_sets_are_its_own(text, known):
    assert renders(text) == known


KNOWN = json.loads((REPOSITORY / "tests/support/trainers/schemas.json").read_text())
SIX = pytest.mark.parametrize("number", range(6))


def configured(trainer, number):
    return TRAINER.find(trainer).configure(run_of(trainer, **LAYOUTS[trainer][number]), "/d", 8)


@SIX
def test_picotron_finds_every_key_that_it_reads_and_no_other(number):
    written, known = json.loads(configured("picotron", number).files["picotron.json"]), KNOWN["picotron"]
    keys = {f"{section}.{name}" for section, values in written.items() for name in values}
    assert set(known["required"]) - keys == set()
    assert keys - {*known["required"], *known["optional"], *known["unread"]} == set()


@SIX
def test_every_override_is_a_field_of_megatron_bridge(number):
    """A field without a section is one of the container."""
    fields, words = KNOWN["nemo"]["fields"], configured("nemo", number).program[1:]
    names = [word.removeprefix("++").split("=", 1)[0].rpartition(".") for word in words if "=" in word]
    assert len(names) > 20
    assert [name for name in names if name[2] not in fields[name[0] or "ConfigContainer"]] == []
    options = [word for word in words if word.startswith("--")]
    assert set(options) == {"--recipe", "--mode", "--dataset"}
    assert set(options) <= set(KNOWN["nemo"]["options"])


def test_graphs_of_mamba_layers_are_those_of_a_recipes_own_model():
    """nemotron_3_super_pretrain_64gpu_gb200_nvfp4_config of perf_recipes; its shape in a grid has none."""
    scopes = "attn,mamba,moe_router,moe_preprocess"
    for workload, keep, graphs, wrong in (
        ("nemo", "all", scopes, False), ("nemo", "model", scopes, False), ("nemo", "", scopes, True),
        ("nemo", "model", "attn,mamba2", True), ("megatron", None, scopes, True),
    ):  # fmt: skip
        params = {} if keep is None else {"keep": keep}
        run = run_of(
            workload, MODELS["Nemotron-3-Super"].as_dict(), dp=64, ep=64, etp=1, cuda_graphs=graphs, params=params
        )
        found = [text for text in broken_by_run(run, WORKLOAD.find(workload)) if text.startswith("cuda_graphs")]
        assert bool(found) == wrong, (workload, keep, graphs)
