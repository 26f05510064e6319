"""The keys that adapters write against those that the trainers read: facts of the commits in `schemas.json`.

Neither picotron (flash-attn) nor Megatron-Bridge (Transformer Engine) can be imported without a GPU.
"""

import json

import pytest

from sweep.physics.catalogue import MODELS
from sweep.planning.rules import broken_by_run
from sweep.plugins import TRAINER, WORKLOAD
from tests.support.paths import REPOSITORY
from tests.support.trainers.layouts import LAYOUTS, run_of

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
