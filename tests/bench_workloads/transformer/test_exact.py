"""The memory model against steps traced on fake tensors (tests/support/transformer), and these against runs."""

from importlib.metadata import version

import pytest
from packaging.version import Version

from sweep.contract import Run
from sweep.physics import memory
from sweep.physics.profiles import profile_of
from tests.support.ranks.harness import LARGER as SHAPE
from tests.support.ranks.harness import ForkServer, a_run
from tests.support.transformer.cases import case, columns

pytestmark = [
    pytest.mark.parallel,
    pytest.mark.skipif(
        Version(version("torch")) < Version("2.13"), reason="fake tensors of all layouts need torch 2.13"
    ),
]
MEDIUM = {
    "num_layers": 3,
    "hidden_size": 1024,
    "num_heads": 16,
    "num_kv_heads": 4,
    "intermediate_size": 2816,
    "vocab_size": 16000,
}
LONG = pytest.mark.long


def run_of(words: str, **values) -> Run:
    values = {"shape": SHAPE, "sequence_length": 128, "params": {"cpu_memory": True}} | values
    return a_run(case(words).layout, **values)


def formulas(run: Run, stage: str = "first") -> float:
    """Bytes of a stage's rank by the memory model."""
    return float(memory.breakdown(columns(run), profile_of("transformer", {}), stage)["total"])


def traced(run: Run, stage: int = 0, *, gpu_kernels: bool = False) -> int:
    from tests.support.transformer import traced as oracle

    return oracle.traced(run, stage, gpu_kernels=gpu_kernels)


@pytest.mark.parametrize("words", [
    pytest.param("dp=1 micro_batch_size=2 grad_accum=4", marks=LONG),
    pytest.param("tp=2 micro_batch_size=2 grad_accum=4", marks=LONG),
    "pp=2 micro_batch_size=2 grad_accum=4",
    pytest.param("cp=2 micro_batch_size=2 grad_accum=4", marks=LONG),
    "dp=1 micro_batch_size=8 grad_accum=1 recompute=selective",
    pytest.param("dp=1 micro_batch_size=8 grad_accum=1 recompute=full", marks=LONG),
    pytest.param("dp=2 zero=1", marks=LONG),
    pytest.param("dp=2 zero=2 micro_batch_size=4", marks=LONG),
    "dp=2 zero=3 micro_batch_size=4",
])  # fmt: skip
def test_a_trace_is_what_a_real_run_counts(fork_server: ForkServer, words):
    """To 5 %. Gloo copies what it reduces and scatters, which NCCL does not: in ZeRO 2 and 3 some 3 % here. The memory
    model to 15 %, on a model so small that single tensors count.

    Of several attempts the least: releases by gloo's threads, which one rank has none of, are not seen
    (memory.highest).
    """
    run = run_of(words)
    tries = [fork_server.attempt(run) for _ in range(3 if run.gpus > 1 else 1)]
    real = min(max(rank.measurement["peak_allocated_bytes"] for rank in ranks) for ranks in tries)
    assert traced(run) == pytest.approx(real, rel=0.05)
    assert float(memory.peak_bytes(columns(run), profile_of("transformer", {}))) == pytest.approx(real, rel=0.15)
    assert all(rank.measurement["memory_kind"].startswith("tensors alive") for rank in tries[0])


def test_a_pipeline_holds_a_buffer_for_each_micro_batch_of_a_step(fork_server: ForkServer):
    """Of the first and of the last stage: hidden states that come, or gradients that come back."""
    few, many = (run_of(f"pp=2 micro_batch_size=1 grad_accum={n}") for n in (4, 16))
    peaks = [[rank.measurement["peak_allocated_bytes"] for rank in fork_server.attempt(run)] for run in (few, many)]
    buffer, numbers = 128 * SHAPE["hidden_size"] * 4, 128 * 2 * 8
    for stage, name in enumerate(("first", "last")):
        assert peaks[1][stage] - peaks[0][stage] == pytest.approx(12 * (buffer + numbers), rel=0.01)
        assert formulas(many, name) - formulas(few, name) == 12 * buffer


@pytest.mark.parametrize(("words", "tolerance"), [
    pytest.param("dp=1", 0.01, marks=LONG),
    pytest.param("tp=4 recompute=none", 0.01, marks=LONG),
    pytest.param("tp=4 recompute=selective", 0.01, marks=LONG),
    pytest.param("cp=2 recompute=full", 0.05, marks=LONG),
    pytest.param("dp=8 zero=1", 0.01, marks=LONG),
    pytest.param("dp=8 zero=2", 0.01, marks=LONG),
    ("dp=8 zero=3", 0.02),
    pytest.param("dp=8 zero=3 recompute=full", 0.02, marks=LONG),
    # A gradient of the whole vocabulary, which torch's own embedding makes under tp, would add 8 %
    ("dp=2 tp=2 pp=3 zero=1", 0.02),
    # Of one micro-batch: no gradient is there at the loss, and at the backward's end no activation
    ("dp=1 micro_batch_size=4 grad_accum=1", 0.001),
    ("tp=4 micro_batch_size=1 grad_accum=1", 0.01),
    # The last stage computes every loss before the first backward; the formulas add gradients that are yet to come
    ("pp=2 pp_schedule=gpipe", 0.1),
])  # fmt: skip
def test_formulas_give_what_a_gpu_would_hold(words, tolerance):
    """Bytes of tensors by the formulas and traced with a GPU's norms, in bf16, stage by stage."""
    sizes = "" if "grad_accum" in words else f"micro_batch_size=1 grad_accum={8 if 'gpipe' in words else 4}"
    run = run_of(f"{words} {sizes}", shape=MEDIUM, sequence_length=1024, dtype="bf16")
    names = {1: ("first",), 2: ("first", "last"), 3: ("first", "middle", "last")}[run.layout.pp]
    for stage, name in enumerate(names):
        assert formulas(run, name) == pytest.approx(traced(run, stage, gpu_kernels=True), rel=tolerance)


@pytest.mark.parametrize("further", [
    {"qk_norm": True, "num_kv_heads": 16},
    {"num_experts": 8, "experts_per_token": 2, "moe_intermediate_size": 704},
], ids=["normed queries and keys", "experts"])  # fmt: skip
def test_formulas_know_what_a_layer_stores_beyond_the_plain_one(further):
    """Measured on an H200 without them: 3 to 13 % too few bytes (docs/data/measured_h200.csv)."""
    run = run_of("dp=1 micro_batch_size=4 grad_accum=4", shape=MEDIUM | further, sequence_length=1024, dtype="bf16")
    assert formulas(run) == pytest.approx(traced(run, gpu_kernels=True), rel=0.005)


def test_formulas_give_what_training_in_8_bits_would_hold(monkeypatch):
    """torchao stores the inputs of its products as they were before; products are not emulated, which takes more."""
    pytest.importorskip("torchao")
    from bench_workloads.transformer import float8

    convert = float8.apply
    monkeypatch.setattr(float8, "apply", lambda *args, **kind: convert(*args, **kind | {"emulate": False}))
    values = {"shape": MEDIUM, "sequence_length": 1024, "dtype": "fp8_rowwise"}
    run = run_of("dp=8 zero=3 micro_batch_size=4 grad_accum=1", **values)
    assert formulas(run) == pytest.approx(traced(run, gpu_kernels=True), rel=0.01)
