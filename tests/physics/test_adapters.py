"""Low-rank adapters (LoRA): what a step saves where weights are frozen, and what the adapters cost."""

from dataclasses import replace

import pytest

from sweep.physics import adapters
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.machine import Machine
from sweep.physics.profiles import PROFILES, profile_of, with_frozen_weights
from sweep.physics.step_time import predict

H100 = GPUS["h100"]
TRAINED = PROFILES["megatron"]
FROZEN = with_frozen_weights(TRAINED)


def columns(model="Llama-2-70B", **layout):
    base = {"sequence_length": 4096, "gpus_per_node": 8, "dtype": "bf16", "dp": 8, "zero": 1, "grad_accum": 4}
    return MODELS[model].as_dict() | base | layout


@pytest.mark.parametrize("layout", [{}, {"zero": 0}, {"zero": 3}, {"tp": 4, "dp": 2}, {"pp": 4, "dp": 2}])
@pytest.mark.parametrize("model", ["Llama-2-70B", "Mixtral-8x7B"])
def test_a_step_takes_about_two_thirds_and_has_no_gradients_to_reduce_nor_weights_to_update(model, layout):
    trained, frozen = (predict(columns(model, **layout), H100, profile) for profile in (TRAINED, FROZEN))
    assert 0.6 < frozen["matmul"] / trained["matmul"] < 0.72
    assert frozen["optimizer"] == 0
    assert frozen["attention"] == trained["attention"]
    if layout.get("zero") == 3:
        assert 0 < frozen["data"] < trained["data"]  # frozen weights are gathered too
    else:
        assert frozen["data"] < 0.05 * trained["data"]
    assert 0.4 < sum(frozen.values()) / sum(trained.values()) < 0.85


def test_an_adapter_of_queries_keys_and_values_reads_and_writes_them():
    """Per token: hidden 8192 in; 64 and twice 8 heads of 128 out; over tp."""
    machine = Machine(gpu=H100)
    for tp in (1, 2):
        into, out = 8192, 80 * 128 / tp
        found = [float(one) * machine.memory_bytes_per_s for one in adapters.traffic_s(columns(tp=tp), machine, FROZEN)]
        assert found == pytest.approx([2 * 4096 * (into + 6 * out), 2 * 4096 * (5 * into + 4 * out)])
    assert adapters.traffic_s(columns(), machine, TRAINED) == (0, 0)


def test_an_adapter_of_the_output_matrix_and_dropout_move_more():
    """Per token: 64 heads of 128 in, hidden 8192 out; 2.5 elements of each input, each way."""
    machine, queries, into = Machine(gpu=H100), 80 * 128, 8192
    both = replace(FROZEN, adapts_output=True)
    for profile, dropped in ((both, 0.0), (replace(both, dropout=True), 2.5)):
        found = [float(one) * machine.memory_bytes_per_s for one in adapters.traffic_s(columns(), machine, profile)]
        wanted = [(1 + dropped) * 2 * into + 6 * (queries + 8192), (5 + dropped) * 2 * into + 4 * (queries + 8192)]
        assert found == pytest.approx([2 * 4096 * one for one in wanted])
    assert adapters.host_operations(both) == (12, 16)


def test_a_trainer_that_is_asked_for_frozen_weights_has_adapters():
    profile = profile_of("nemo", {"frozen_weights": True})
    assert profile is not None
    assert adapters.host_operations(profile) == (6, 8)
    assert adapters.host_operations(TRAINED) == (0, 0)
