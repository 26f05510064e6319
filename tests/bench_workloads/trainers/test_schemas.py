"""The keys that adapters write against those that the trainers read: recorded facts, and sources where available.

SWEEP_PICOTRON_ROOT, SWEEP_BRIDGE_ROOT and SWEEP_MEGATRON_ROOT name checkouts of the commits in `schemas.json`. Neither
picotron (flash-attn) nor Megatron-Bridge (Transformer Engine) can be imported without a GPU.
"""

import json
import os
from pathlib import Path

import pytest

from bench_workloads.trainers import nemo
from sweep.plugins import TRAINER
from tests.support.trainers import schemas
from tests.support.trainers.layouts import LAYOUTS, run_of

KNOWN = json.loads(schemas.FACTS.read_text())
SIX = pytest.mark.parametrize("number", range(6))


def named(*variables):
    """Paths in variables of the environment; the test is skipped without."""
    if missing := [name for name in variables if not os.environ.get(name)]:
        pytest.skip(f"{', '.join(missing)} not set")
    return [Path(os.environ[name]) for name in variables]


def written_for_picotron(number):
    launch = TRAINER.find("picotron").configure(run_of("picotron", **LAYOUTS["picotron"][number]), "/d", 8)
    configuration = json.loads(launch.files["picotron.json"])
    return {f"{section}.{name}" for section, values in configuration.items() for name in values}


def words_for_nemo(number):
    return TRAINER.find("nemo").configure(run_of("nemo", **LAYOUTS["nemo"][number]), "/d", 8).program[1:]


def overrides_for_nemo(number):
    pairs = [word.removeprefix("++").split("=", 1) for word in words_for_nemo(number) if "=" in word]
    return {schemas.section_and_field(name): value for name, value in pairs}


@SIX
def test_picotron_finds_every_key_that_it_reads_and_no_other(number):
    keys, known = written_for_picotron(number), KNOWN["picotron"]
    assert set(known["required"]) - keys == set()
    assert keys - {*known["required"], *known["optional"], *known["unread"]} == set()


@SIX
def test_every_override_is_a_field_of_megatron_bridge(number):
    fields, overrides = KNOWN["nemo"]["fields"], overrides_for_nemo(number)
    assert len(overrides) > 20
    assert [key for key in overrides if key[1] not in fields[key[0]]] == []
    options = [word for word in words_for_nemo(number) if word.startswith("--")]
    assert set(options) == {"--recipe", "--mode", "--dataset"}
    assert set(options) <= set(KNOWN["nemo"]["options"])


@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize("dp", [1, 2])
def test_what_a_recipe_overlaps_for_its_own_layout_is_made_anew(dp, zero):
    """It has buffers for one layout, or is null; Hydra merges mappings into objects, and so null comes first."""
    run = run_of("nemo", dp=dp, pp=2, grad_accum=4, zero=zero, ep_overlap=True)
    found = nemo.overrides(run, 8)
    gathers = dp > 1 and zero > 0
    expected = {"tp_comm_overlap": False, "overlap_moe_expert_parallel_comm": True, "overlap_grad_reduce": dp > 1}
    assert {**found["comm_overlap"], "_target_": ""} == expected | {"overlap_param_gather": gathers, "_target_": ""}
    assert not [name for name in found if name.startswith("comm_overlap.")]
    assert found["ddp.overlap_grad_reduce"] == (dp > 1)
    assert [found[f"{section}.overlap_param_gather"] for section in ("ddp", "optimizer")] == [gathers] * 2
    for name in ("comm_overlap", "mixed_precision"):
        words = [word for word in TRAINER.find("nemo").configure(run, "/d", 8).program if word.startswith(f"{name}=")]
        assert (len(words), words[0]) == (2, f"{name}=null")


@pytest.mark.parametrize(
    ("keep", "absent"), [("model", "model.num_layers"), ("all", "model.tensor_model_parallel_size")]
)
def test_a_recipe_keeps_what_it_is_told_to(keep, absent):
    run = run_of("nemo", tp=2, params={"keep": keep})
    found = nemo.overrides(run, 8)
    assert absent not in found
    assert ("model.tensor_model_parallel_size" in found) == (keep == "model")
    assert found["train.global_batch_size"] == run.global_batch_sequences


def test_the_facts_of_picotron_are_those_of_its_source():
    (root,) = named("SWEEP_PICOTRON_ROOT")
    assert {**KNOWN["picotron"], **schemas.picotron(root)} == KNOWN["picotron"]


def test_the_facts_of_megatron_bridge_are_those_of_its_source():
    bridge, megatron = named("SWEEP_BRIDGE_ROOT", "SWEEP_MEGATRON_ROOT")
    found = {"fields": schemas.nemo(bridge, megatron), "options": schemas.nemo_options(bridge)}
    assert {**KNOWN["nemo"], **found} == KNOWN["nemo"]
