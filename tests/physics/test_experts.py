"""Mixtures of experts: rows, copies of tokens, exchanges against published bandwidths, the host's work."""

from dataclasses import replace

import numpy as np
import pytest

from sweep.physics import communication, constants, experts, step_time
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.kernels import Passes
from sweep.physics.machine import Machine
from sweep.physics.measured import MeasuredCollective, MeasuredRates
from sweep.physics.profiles import PROFILES
from sweep.physics.trainers import TRAINERS

H100, B200 = (Machine(gpu=GPUS[name]) for name in ("h100", "b200"))
OURS, MEGATRON, TITAN = (TRAINERS[name] for name in ("builtin", "megatron", "torchtitan"))


def columns(model="DeepSeek-V3", **layout):
    base = {"sequence_length": 4096, "gpus_per_node": 8, "dtype": "bf16", "zero": 1}
    return MODELS[model].as_dict() | base | layout


def test_a_dense_model_has_no_part_of_it():
    cells = columns("8B", dp=8, ep=8)
    assert experts.share(cells) == 0
    assert experts.exchange_s(cells, H100, MEGATRON) == 0
    assert experts.host_operations(cells, MEGATRON) == (0, 0)
    assert experts.tensor_share(cells, MEGATRON) == 1


def test_a_dispatcher_sends_a_token_once_to_a_rank_and_an_all_to_all_once_to_an_expert():
    """Two exchanges a forward. Eight experts of eight ranks are on 5.25 of them on average."""
    token = 2 * 7168
    once = 8 * (1 - (7 / 8) ** 8)
    for dispatcher, copies in (("deepep", once), ("hybridep", once), ("alltoall", 8), ("allgather", 8)):
        size = 4096 * token * copies
        wanted = 2 * float(communication.exchange_s({}, size, size, 8.0, 1.0, H100)) * 58 / 61
        for how in (MEGATRON, TITAN):
            assert experts.exchange_s(columns(ep=8, dp=8, dispatcher=dispatcher), H100, how) == pytest.approx(wanted)
    of_few = [float(experts.exchange_s(columns("GPT-OSS-120B", ep=64, dp=64, dispatcher=how), B200, MEGATRON))
              for how in ("allgather", "alltoall")]  # fmt: skip
    assert of_few[0] > 10 * of_few[1]  # to 64 ranks, or to four experts


@pytest.mark.parametrize(("machine", "nodes", "measured"), [
    (Machine(gpu=GPUS["h800"]), 1, (153e9, 158e9)),
    (B200, 1, (643e9, 740e9)),
    (Machine(gpu=GPUS["h800"]), 4, (40e9, 58e9)),
    (Machine(gpu=GPUS["h800"]), 8, (40e9, 51e9)),
])  # fmt: skip
def test_exchanges_are_as_fast_as_was_published(machine, nodes, measured):
    """deepseek-ai/DeepEP, README and docs/legacy.md: bytes per second and GPU on its link, or on its network card."""
    size = 1e9
    seconds = float(communication.exchange_s({}, size, size, 8.0 * nodes, float(nodes), machine))
    moved = size * (7 / 8 if nodes == 1 else (nodes - 1) / nodes)
    assert 0.9 * measured[0] < moved / seconds < 1.1 * measured[1]


def test_an_exchange_across_nodes_is_not_shared_by_their_network_cards():
    """NVIDIA/nccl-tests issues 130 and 267: bus bandwidth of two nodes is twice a card's, of many a card's; a gather's
    of as many bytes is shared by all cards of a node."""
    for nodes in (2.0, 8.0, 64.0):
        seconds = float(communication.exchange_s({}, 1e12, 1e12, 8 * nodes, nodes, H100))
        card = 50e9 * constants.BETWEEN_SHARE.median
        assert 1e12 / seconds == pytest.approx(card * nodes / (nodes - 1), rel=1e-2)
        assert seconds > 2 * float(communication.collective_s({}, 1e12, 8 * nodes, nodes, H100))


def test_a_measured_exchange_replaces_the_constants_and_corrects_others_only_where_they_were_not_measured():
    size = 1 << 30
    alone = float(communication.exchange_s({}, size, size, 16.0, 2.0, H100))
    slow = MeasuredCollective(kind="all_to_all", nodes=2, ranks=16, bytes=size, seconds=3 * alone, spread=0.1)
    gather = float(communication.collective_s({}, size, 16.0, 2.0, H100))
    known = MeasuredCollective(kind="all_gather", nodes=2, ranks=16, bytes=size, seconds=gather, spread=0.1)
    for several, wanted in (((slow,), 3), ((slow, known), 1)):
        rates = MeasuredRates(date="2026-01-01", nodes=("a", "b"), collectives=several)
        machine = Machine(gpu=replace(GPUS["h100"], measured=rates))
        assert float(communication.exchange_s({}, size, size, 16.0, 2.0, machine)) == pytest.approx(3 * alone)
        assert float(communication.collective_s({}, size, 16.0, 2.0, machine)) == pytest.approx(wanted * gather)


def test_ranks_that_share_an_expert_gather_its_tokens_where_each_sends_its_part():
    """Megatron splits the tokens of a tensor-parallel group; without experts of their own its ranks gather them. Ours
    sends all tokens from every rank."""
    alone, shared = (experts.exchange_s(columns(ep=8, tp=2, **etp), H100, MEGATRON) for etp in ({"etp": 1}, {}))
    assert shared > 2 * alone
    assert experts.tensor_share(columns(tp=2), MEGATRON) == pytest.approx(1 - 29 / 61)
    whole = [float(experts.exchange_s(columns("Mixtral-8x7B", ep=8, tp=tp), H100, OURS)) for tp in (1, 2)]
    assert whole[0] == whole[1]


def test_a_mixtures_host_work_is_that_of_its_router_in_the_layers_that_are_one():
    assert experts.host_operations(columns(ep=8), MEGATRON) == pytest.approx((30 * 58 / 61, 40 * 58 / 61))


def test_each_experts_product_is_launched_and_cast_by_the_host_and_its_bias_added():
    """16 experts of Qwen3 and of GPT-OSS on a rank: two products forward, four and two hooks in backward, each with a
    cast in 8 bits, of four kernels where it is scaled by its largest value; GPT-OSS has biases. A product takes the
    host 30 us, other operations 10, and a third less in backward; on Grace 26. torchtitan's are one kernel."""
    for model, dtype, machine, wanted in (
        ("Qwen3-30B-A3B", "bf16", H100, (6, 20)), ("Qwen3-30B-A3B", "mxfp8", H100, (12, 24)),
        ("Qwen3-30B-A3B", "fp8_tensorwise", H100, (18, 30)), ("GPT-OSS-120B", "bf16", H100, (9, 25)),
        ("Qwen3-30B-A3B", "mxfp8", Machine(gpu=GPUS["gb200"]), (6 + 6 / 2.6, 6 + 18 / 2.6)),
    ):  # fmt: skip
        cells = columns(model, ep=8, dtype=dtype)
        assert experts.launches(cells, machine, MEGATRON) == pytest.approx([16 * count for count in wanted])
        assert experts.launches(cells, machine, TITAN) == (0, 0)


def test_what_a_mixture_with_biases_computes_in_kernels_of_pytorchs_own():
    """GPT-OSS: four experts a token, 2,880 wide, 64 heads and 8 of keys of 64. What is broadcast moves at 0.45 of the
    rate. Where the whole step is a graph only the rotary positions are left."""
    turned = 4096 * 72 * 64 * np.array([12 + 8 / 0.45, 16 + 8 / 0.45])
    narrow, wide = (26 + 2 / 0.45, 42 + 8 / 0.45), (40 + 4 / 0.45, 54 + 16 / 0.45)
    for dispatcher, wanted in (("alltoall", narrow), ("hybridep", wide)):
        found = experts.eager_bytes(columns("GPT-OSS-120B", ep=8, dispatcher=dispatcher), MEGATRON)
        assert found == pytest.approx(4096 * 4 * 2880 * np.array(wanted) + turned)
    whole = columns("GPT-OSS-120B", ep=8, cuda_graphs="full_iteration")
    assert experts.eager_bytes(whole, MEGATRON) == pytest.approx(turned)
    for other in (experts.eager_bytes(columns(ep=8), MEGATRON), experts.eager_bytes(whole, TITAN)):
        assert other == (0, 0)


def test_rows_of_experts_are_padded_for_products_in_8_bits_but_where_the_dispatcher_pads():
    """Read and written before the products and after them."""
    routed = 4096 * 8 * 2048
    for layout, wanted in (({}, 8), ({"dtype": "bf16"}, 0), ({"dispatcher": "hybridep"}, 0),
                           ({"dispatcher": "deepep"}, 8), ({"cuda_graphs": "full_iteration"}, 0)):  # fmt: skip
        cells = columns("Qwen3-30B-A3B", **{"ep": 8, "dtype": "mxfp8", **layout})
        assert experts.eager_bytes(cells, MEGATRON) == pytest.approx((wanted * routed, wanted * routed))


def test_casts_by_the_largest_value_of_each_experts_rows_have_short_kernels_of_their_own():
    mixed, plain = (experts.small_kernels_s(columns("Qwen3-30B-A3B", ep=8, dtype=dtype), MEGATRON)
                    for dtype in ("fp8_tensorwise", "mxfp8"))  # fmt: skip
    assert np.subtract(mixed, plain) == pytest.approx([16 * 4 * 3.8e-6] * 2)


def test_dropped_activations_and_norms_are_made_again_in_backward():
    """GPT-OSS-120B: the experts' activations (6 bytes, 16 for clamping, and their cast in 8 bits), both norms' outputs
    (read and written)."""

    def more(modules, dtype="bf16"):
        layout = {"ep": 8, "dp": 8, "grad_accum": 4, "dtype": dtype, "recompute": "selective"}
        found = [step_time.predict(columns("GPT-OSS-120B", **layout, recompute_modules=names), GPUS["h100"],
                                   PROFILES["megatron"]) for names in ("mlp", modules)]  # fmt: skip
        assert all(found[0][name] == found[1][name] for name in ("matmul", "attention"))
        return float(found[1]["memory"] - found[0]["memory"]) * H100.memory_bytes_per_s / (4 * 36 * 4096 * 2880)

    assert more("moe_act") == pytest.approx(4 * 22)
    assert more("moe_act", "fp8_delayed") == pytest.approx(4 * 25.8)
    assert more("layernorm") == pytest.approx(8)
    assert more("layernorm,moe_act") == pytest.approx(8 + 4 * 22)


def launched(gpu="gb200", **layout):
    cells = columns("Qwen3-30B-A3B", ep=8, dp=8, grad_accum=8, dtype="mxfp8", **layout)
    return float(step_time.predict(cells, GPUS[gpu], PROFILES["megatron"])["launch"])


def test_cuda_graphs_leave_the_host_what_they_do_not_replay():
    """Grace hosts take 2.6 times as long for an operation."""
    scopes = ("none", "moe_router,moe_preprocess", "attn,moe_router,moe_preprocess", "attn,moe", "full_iteration")
    found = [launched(cuda_graphs=scope) for scope in scopes]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[2] > 0 == found[3] == found[4]
    assert found[0] > 2 * launched("b200")


def test_another_micro_batch_hides_exchanges_as_was_measured():
    """NVIDIA-NeMo/Megatron-Bridge, docs/training/communication-overlap.md: 41.25 and 31.31 s, sixteen H100."""
    layout = {"ep": 16, "dp": 16, "etp": 1, "grad_accum": 64}
    for overlap, measured in ((False, 41.25), (True, 31.31)):
        found = step_time.step_time_s(
            columns("Qwen3-30B-A3B", ep_overlap=overlap, **layout), GPUS["h100"], PROFILES["megatron"]
        )
        assert float(found) == pytest.approx(measured, rel=0.1)
    cells = columns("Qwen3-30B-A3B", ep_overlap=True, **layout)
    sent = experts.exchange_s(cells, H100, MEGATRON)
    passes = dict.fromkeys(("matmul", "attention", "memory"), Passes(sent / 3, sent))
    wanted = [communication.waited_s(sent, share * sent) for share in (1 / 2, 3 / 4)]
    assert step_time._exchanges(cells, H100, MEGATRON, passes) == pytest.approx(wanted)


@pytest.mark.parametrize(("dtype", "stages", "overlap", "measured"), [
    ("bf16", 4, True, 17.2),
    ("bf16", 4, False, 16.0),
    ("mxfp8", 4, True, 20.1),
    ("mxfp8", 1, False, 16.9),
])  # fmt: skip
def test_alternating_micro_batches_cost_the_host_what_was_measured(dtype, stages, overlap, measured):
    """NVIDIA-NeMo/Megatron-Bridge pull request 1760, 64 B200: overlap was switched off for its CPU overhead."""
    layout = {"pp": 8, "dp": 8, "ep": 8, "etp": 1, "grad_accum": 128, "dtype": dtype, "virtual_stages": stages}
    layout["pp_schedule"] = "interleaved_1f1b" if stages > 1 else "1f1b"
    cells = columns("Qwen3-235B-A22B", ep_overlap=overlap, **layout)
    found = step_time.step_time_s(cells, GPUS["b200"], PROFILES["megatron"])
    assert float(found) == pytest.approx(measured, rel=0.11)


def test_overlap_gains_where_each_rank_has_few_experts():
    """The same, pull request 5094, 16 H100 with HybridEP and graphs of the router: 24.71 and 21.07 s. A whole iteration
    in a graph leaves the host nothing."""
    layout = {"ep": 16, "dp": 16, "etp": 1, "grad_accum": 64, "dispatcher": "hybridep"}
    for overlap, measured in ((False, 24.71), (True, 21.07)):
        cells = columns("Qwen3-30B-A3B", ep_overlap=overlap, cuda_graphs="moe_router,moe_preprocess", **layout)
        found = step_time.step_time_s(cells, GPUS["h100"], PROFILES["megatron"])
        assert float(found) == pytest.approx(measured, rel=0.06)
    assert launched(ep_overlap=True, cuda_graphs="full_iteration") == 0
