"""What the training benchmark reports: parameters, FLOPs, memory, number of iterations."""

import gzip
import os

import pytest

from bench_workloads.transformer.measure import Samples, steps_that_keep_busy
from sweep.contract import Layout
from sweep.physics.catalogue import MODELS
from sweep.physics.flops import (
    CONVENTIONS,
    attention_forward_flops_per_token,
    hardware_flops_per_token,
    model_flops_per_token,
)
from sweep.physics.shapes import ModelShape, matmul_parameters, total_parameters
from tests.support.ranks.harness import DENSE, LARGER, SHAPES, ForkServer, a_run
from tests.support.transformer.cases import case

pytestmark = pytest.mark.parallel
COUNTED = {"count_flops": True}


def measured(fork_server: ForkServer, layout: Layout, *, shape=None, **values) -> list[dict]:
    return [rank.measurement for rank in fork_server.attempt(a_run(layout, shape=shape, **values))]


@pytest.mark.parametrize("name", [*SHAPES, "DeepSeek-V3"])
def test_built_parameters_equal_physics(name):
    import torch

    from bench_workloads.transformer.model import Decoder

    shape = ModelShape(**SHAPES[name]) if name in SHAPES else MODELS[name]
    with torch.device("meta"):
        model = Decoder(shape, range(shape.num_layers))
    assert sum(p.numel() for p in model.parameters()) == total_parameters(shape)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("dp=1", "dense"),
        ("dp=2 zero=3", "moe"),
        ("tp=2", "moe"),
        ("pp=2", "tied"),
        *(pytest.param(*case, marks=pytest.mark.long) for case in [("dp=2 zero=3", "dense"), ("dp=2 zero=3", "tied")]),
        *(pytest.param(*case, marks=pytest.mark.long) for case in [("tp=2", "dense"), ("tp=2", "tied")]),
        *(pytest.param(*case, marks=pytest.mark.long) for case in [("pp=2", "dense"), ("pp=2", "moe")]),
    ],
)
def test_counted_flops_equal_the_formula(fork_server: ForkServer, name, words):
    """6 FLOPs per matmul weight and token; attention twice in forward, five products in backward (it recomputes)."""
    layout = case(words).layout
    run = a_run(layout, shape=SHAPES[name], warmup_iterations=2, iterations=1, params=COUNTED)
    extra = fork_server.attempt(run)[0].measurement["extra"]
    shape = ModelShape(**run.shape)
    tokens = run.global_batch_tokens
    multiplied = matmul_parameters(shape) + _router_again(shape, layout)
    assert extra["executed_matmul_flops_per_step"] == 6 * multiplied * tokens
    scores = shape.num_layers * shape.num_heads * shape.head_dim * run.sequence_length
    assert extra["executed_attention_flops_per_step"] == 14 * scores * tokens


def _router_again(shape: ModelShape, layout: Layout) -> int:
    """The router is computed on every tp rank: the weights that this adds to the model's own."""
    mixtures = shape.num_layers - shape.dense_layers
    return mixtures * shape.hidden_size * shape.num_experts * (layout.tp - 1)


def test_recomputation_is_counted(fork_server: ForkServer):
    """Full: one more forward of all layers, less what is not needed again. Selective: no matrix product again.

    The formula of HFU repeats all of the forward but the output projection: the count is less by what torch leaves out.
    """

    def flops(recompute: str) -> tuple[int, int]:
        run = a_run(Layout(recompute=recompute), shape=LARGER, warmup_iterations=2, params=COUNTED)
        extra = fork_server.attempt(run)[0].measurement["extra"]
        return extra["executed_matmul_flops_per_step"], extra["executed_attention_flops_per_step"]

    plain, selective, full = flops("none"), flops("selective"), flops("full")
    assert selective == plain
    run = a_run(Layout(), shape=LARGER)
    shape, length, tokens = ModelShape(**LARGER), run.sequence_length, run.global_batch_tokens
    repeated = hardware_flops_per_token(shape, length, "full", CONVENTIONS["matmul"])
    repeated -= model_flops_per_token(shape, length, CONVENTIONS["matmul"])
    attention = attention_forward_flops_per_token(shape, length, "full")
    last = 2 * shape.num_layers * shape.intermediate_size * shape.hidden_size
    assert full[0] == plain[0] + tokens * (repeated - attention - last), "it stops before each layer's last product"
    assert full[1] == plain[1] + tokens * attention


def test_a_block_without_recorded_release_ends_when_its_address_is_reused():
    from bench_workloads.transformer.memory import highest

    recorded = [(1, 10), (2, 20), (1, -10), (3, 5), (2, -20)]
    assert highest({}, recorded) == 30
    unrecorded = [change for _ in range(50) for change in ((1, 10), (2, 20), (2, -20))]
    assert highest({}, unrecorded) == 30, "a sum of what is recorded would rise by 10 each time"
    assert highest({7: 100}, [(7, 60)]) == 100, "held from the start, released unrecorded"
    assert highest({7: 100}, [(9, -50), (1, 10)]) == 110, "what was never counted is not taken off"


def test_the_run_reports_what_it_did(fork_server: ForkServer):
    run = a_run(Layout(dp=2, tp=2, zero=3, grad_accum=3, micro_batch_size=2), dtype="bf16", iterations=1)
    ranks = fork_server.attempt(run)
    norms = (2 * DENSE["num_layers"] + 1) * DENSE["hidden_size"]
    held = total_parameters(ModelShape(**DENSE)) + norms * (run.layout.tp - 1)
    assert sum(rank.measurement["parameters"] for rank in ranks) == held, "norms are whole on each tp rank"
    for rank in ranks:
        found = rank.measurement
        effective = found["effective"]
        asked = {"dp": 2, "tp": 2, "pp": 1, "cp": 1, "grad_accum": 3, "micro_batch_size": 2, "dtype": "bf16"}
        assert {name: effective[name] for name in asked} == asked
        assert effective["global_batch_tokens"] == run.global_batch_tokens == 2 * 3 * 2 * 32
        assert effective["parameters"] == total_parameters(ModelShape(**DENSE))
        assert (effective["num_layers"], effective["sequence_length"]) == (DENSE["num_layers"], 32)
        assert effective["attention_kernel"] == "_scaled_dot_product_flash_attention_for_cpu"
        assert found["versions"]["torch"]
        assert set(found["phases_s"]) >= {"device", "rendezvous", "build", "warmup", "measure"}
        phases = [heartbeat["phase"] for heartbeat in rank.heartbeats]
        assert phases[:4] == ["start"] * 4
        assert phases[4] == "first_iteration"
        assert phases[-1] == "finish"


def test_a_loss_that_is_no_number_is_an_error(fork_server: ForkServer):
    run = a_run(Layout(dp=2), iterations=3, params={"learning_rate": float("1e30"), "clip_grad": 0.0})
    for rank in fork_server.attempt(run):
        assert rank.exit == 1
        assert rank.failure["type"].endswith("NotANumberError")
        assert "at iteration" in rank.failure["message"]


def test_a_missing_peer_times_out(fork_server: ForkServer):
    """A rank whose peer never joins does not wait for torch's half hour."""
    params = {"process_group_timeout_s": 3.0, "straggler_rank": 1, "straggler_s": 30.0}
    ranks = fork_server.attempt(a_run(Layout(dp=2), params=params), timeout_s=8)
    assert ranks[0].exit == 1
    assert "imed out" in ranks[0].failure["message"]


def test_a_profile_is_saved_on_request(fork_server: ForkServer, tmp_path):
    """Its export may take minutes: the measurement is safe by then, and the next heartbeat is announced."""
    params = {"profile": True, "profile_dir": str(tmp_path / "traces")}
    run = a_run(Layout(dp=2), params=params)
    ranks = fork_server.attempt(run)
    names = {rank.measurement["extra"]["profile_files"][0] for rank in ranks}
    assert names == {str(tmp_path / "traces" / f"{run.run_id}.rank{rank}.trace.json.gz") for rank in range(2)}
    with gzip.open(min(names)) as file:
        assert b"FSDP::" in file.read()
    kinds = [(message["kind"], message.get("phase"), message.get("due_s")) for message in ranks[0].messages]
    assert kinds[-3:] == [("measurement", None, None), ("beat", "finish", 600.0), ("beat", "finish", None)]


def test_steps_without_a_synchronisation_between_them_train_the_same(fork_server: ForkServer):
    each, several = (
        measured(fork_server, Layout(dp=2), iterations=n, params={"steps_per_sync": k})[0] for n, k in ((6, 1), (2, 3))
    )
    assert len(several["step_times_s"]) == 2
    assert several["losses"] == each["losses"]
    assert len(several["losses"]) == 1 + 2 * 3
    assert several["effective"] == each["effective"]
    assert (several["extra"]["steps_per_sync"], each["extra"]["steps_per_sync"]) == (3, 1)
    assert 0 < each["extra"]["busy_share"] < 1


def test_the_share_of_busy_time_is_by_what_lies_between_the_timed_steps():
    samples = Samples(step_s=[9.0, 0.4, 0.5], between_s=[0.0, 0.1, 0.1])
    assert samples.busy_share(1) == pytest.approx(0.9 / 1.1)
    assert samples.busy_share(2) == pytest.approx(1.8 / 2.0)
    assert steps_that_keep_busy(0.45) * 0.45 >= 9 * 0.2


def test_warm_up_lasts_for_the_requested_time(fork_server: ForkServer):
    """By the sum of its steps on the slowest rank, the first aside; ranks stop together."""
    found = measured(
        fork_server, Layout(dp=2), params={"warmup_seconds": 0.4, "straggler_rank": 0, "straggler_s": 0.05}
    )
    counts = {len(m["warmup_times_s"]) for m in found}
    assert len(counts) == 1
    assert 2 <= counts.pop() <= 9, "a step takes 50 ms at least, on a busy machine much more"
    slowest_s = [max(times_s) for times_s in zip(*(m["warmup_times_s"] for m in found), strict=True)]
    assert sum(slowest_s[1:]) >= 0.4
    assert all(len(m["step_times_s"]) == 2 and len(m["losses"]) == 2 + len(m["warmup_times_s"]) for m in found)


def test_ranks_share_the_cores(fork_server: ForkServer):
    cores = [
        rank.measurement["extra"]["cores"] for rank in fork_server.attempt(a_run(Layout(dp=2), params={"threads": 0}))
    ]
    mine = os.sched_getaffinity(0)
    if len(mine) < 2:
        pytest.skip("one core")
    assert not set(cores[0]) & set(cores[1])
    assert set(cores[0]) | set(cores[1]) <= mine
