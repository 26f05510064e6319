"""Mixtures of experts: rows, copies of tokens, exchanges against published bandwidths, the host's work."""

from dataclasses import replace

import pytest

from sweep.physics import communication, constants, experts, step_time
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
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


def test_a_rank_computes_the_tokens_of_the_ranks_that_send_it_theirs():
    """DeepSeek-V3: 256 experts, eight a token. With ep 64 a rank has four, and as many rows as it sends."""
    assert experts.share(columns()) == 58 / 61
    assert experts.local_experts(columns(ep=64)) == 4
    assert experts.rows_per_expert(columns(ep=64)) == 4096 * 8 / 4
    assert experts.rows_per_expert(columns(ep=64, tp=2)) == 4096 * 8 / 4
    assert experts.rows_per_expert(columns(ep=64, tp=2, etp=1)) == 4096 * 8 / 4 / 2


@pytest.mark.parametrize(("places", "wanted"), [(1, 1), (2, 2 * (1 - 0.5**8)), (8, 8 * (1 - (7 / 8) ** 8))])
def test_a_token_goes_to_as_many_places_as_have_an_expert_of_it(places, wanted):
    assert experts.copies(columns(), places) == pytest.approx(wanted)


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


def test_few_tokens_of_many_experts_wait_for_the_host():
    few = columns("Qwen3-30B-A3B", ep=8, dp=8, sequence_length=512, grad_accum=8)
    assert step_time.predict(few, GPUS["h100"], PROFILES["megatron"])["launch"] > 0
    many = few | {"sequence_length": 16384}
    assert step_time.predict(many, GPUS["h100"], PROFILES["megatron"])["launch"] == 0


def test_each_experts_product_is_launched_and_cast_by_the_host_and_its_bias_added():
    """16 experts of Qwen3 and of GPT-OSS on a rank: two products forward and four in backward, each with a cast in 8
    bits but for those of one tensor, which takes four kernels on H100; GPT-OSS has biases. torchtitan's are one kernel.
    """
    for model, dtype, machine, wanted in (
        ("Qwen3-30B-A3B", "bf16", B200, (2, 4)), ("Qwen3-30B-A3B", "mxfp8", B200, (6, 8)),
        ("Qwen3-30B-A3B", "fp8", H100, (12, 14)), ("GPT-OSS-120B", "bf16", H100, (5, 9)),
    ):  # fmt: skip
        cells = columns(model, ep=8, dtype=dtype)
        assert experts.launches(cells, machine, MEGATRON) == pytest.approx([16 * count for count in wanted])
        assert experts.launches(cells, machine, TITAN) == (0, 0)


def test_biases_of_experts_are_added_to_what_they_return_but_where_the_whole_step_is_a_graph():
    """GPT-OSS: four experts a token, 2,880 wide. What is broadcast moves at 0.45 of the rate."""
    narrow, wide = (10 + 2 / 0.45, 12 + 8 / 0.45), (24 + 4 / 0.45, 24 + 16 / 0.45)
    for dispatcher, wanted in (("alltoall", narrow), ("hybridep", wide)):
        found = experts.bias_bytes(columns("GPT-OSS-120B", ep=8, dispatcher=dispatcher), MEGATRON)
        assert [float(one) for one in found] == pytest.approx([4096 * 4 * 2880 * each for each in wanted])
    whole = columns("GPT-OSS-120B", ep=8, cuda_graphs="full_iteration")
    assert experts.bias_bytes(whole, MEGATRON) == (0, 0)
    assert experts.bias_bytes(columns(ep=8), MEGATRON) == (0, 0)


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
