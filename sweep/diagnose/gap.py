"""Where a step's time goes beyond the model's FLOPs at the peak: each loss with its evidence and what to try. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

ADVICE: dict[str, tuple[str, str]] = {
    "kernels": ("matrix products and attention below the peak", "a larger micro_batch_size, less tp, another kernel"),
    "memory": ("memory traffic of norms, activations and loss", "compile: true, or fused kernels"),
    "launch": ("the GPU waits for the host", "compile: true, or a larger micro_batch_size"),
    "tensor": ("tensor-parallel communication", "less tp, or tp within a node"),
    "context": ("context-parallel communication", "less cp"),
    "expert": ("expert-parallel communication", "less ep, or ep within a node"),
    "pipeline": ("sends between pipeline stages", "less pp, or a larger micro_batch_size"),
    "blocked": ("hosts that wait in sends between stages", "less pp, or stages within a node"),
    "bubble": (
        "the pipeline's bubble",
        "more micro-batches (a smaller micro_batch_size), an interleaved schedule, less pp",
    ),
    "data": ("gradient reduction and weight gathering", "a lower zero stage, more grad_accum, fewer replicas"),
    "optimizer": ("the optimizer's update", "zero: 1, which shares it between replicas"),
    "step": ("batch, loss and logging once per step", "a larger global_batch"),
}
"""part of the predicted step -> (what it is, what to try)"""
KERNELS = ("matmul", "attention")
RECOMPUTED = "recomputed activations"
ROUNDING = 1e-9
"""of a step: differences of sums below it are errors of floating-point arithmetic"""


@dataclass(frozen=True, kw_only=True)
class MeasuredStep:
    """What is known of a measured run; times in seconds of one step."""

    step_s: float
    ideal_s: float | None
    """the model's FLOPs at the dense peak; None where the peak is not known, as on a CPU"""
    executed_s: float | None
    """all executed FLOPs at the peak: recomputed ones too"""
    parts_s: Mapping[str, float] | None
    """the predicted step by part; None where there is no prediction"""
    own_times_s: tuple[float, float] | None = None
    """(median, greatest) over ranks of their steps without waiting for others"""
    slow: str | None = None
    """the rank that is clearly slower than the others, and its node"""
    step_times_s: Sequence[float] = ()
    clocks_mhz: tuple[float, float] | None = None
    """(median, greatest) clock during steps, where the GPU lowered it"""
    elsewhere_s: Sequence[float] = ()
    """steps of runs of the same configuration on other nodes, where this one is slower beyond their spread"""
    oversubscribed: bool = False
    """the host had more work than cores while the steps were timed"""
    nodes_found: Sequence[str] = ()
    """what checks and other runs found wrong with the run's nodes"""


@dataclass(frozen=True)
class Loss:
    """One cause, and what it takes of a step."""

    cause: str
    seconds: float
    evidence: str
    advice: str
    measured: bool
    """False: by the step-time model alone"""


def losses(facts: MeasuredStep) -> list[Loss]:
    """The losses that are positive, the largest first."""
    found = [*_measured(facts), *_predicted(facts)]
    if facts.parts_s is not None:  # what neither the prediction nor a measured cause accounts for
        explained_s = sum(loss.seconds for loss in found if loss.measured and loss.cause != RECOMPUTED)
        predicted = sum(facts.parts_s.values())
        over = f"{facts.step_s / predicted - 1:+.0%} over the prediction of {1000 * predicted:,.0f} ms"
        advice = "`sweep doctor --tier perf` on its nodes, and the trainer's own profile"
        left_s = facts.step_s - predicted - explained_s
        found.append(Loss("slower than predicted", left_s, _with_nodes(over, facts), advice, True))
    real = (loss for loss in found if loss.seconds > ROUNDING * facts.step_s)
    return sorted(real, key=lambda loss: -loss.seconds)


def _measured(facts: MeasuredStep) -> Iterator[Loss]:
    if facts.executed_s is not None and facts.ideal_s is not None and facts.ideal_s > 0:
        more = facts.executed_s / facts.ideal_s - 1
        evidence = f"{more:.0%} more FLOPs are executed than the model has"
        yield Loss(
            RECOMPUTED, facts.executed_s - facts.ideal_s, evidence, "recompute: selective or none, if it fits", True
        )
    if facts.slow is not None and facts.own_times_s is not None:
        median, greatest = facts.own_times_s
        evidence = f"{facts.slow} takes {greatest / median:.2f} times the others' time" if median > 0 else facts.slow
        advice = "`sweep doctor --tier perf` on its node"
        yield Loss("a slow rank", greatest - median, _with_nodes(evidence, facts), advice, True)
    if facts.elsewhere_s:  # beyond what a slow rank of this run explains
        usual = statistics.median(facts.elsewhere_s)
        of_ranks = facts.own_times_s if facts.slow is not None else None
        median, greatest = of_ranks or (0.0, 0.0)
        runs = f"{len(facts.elsewhere_s)} runs of it on other nodes take {1000 * usual:,.1f} ms (median)"
        advice = "`sweep doctor --tier perf` on these nodes; `sweep nodes DIR exclude NODE` excludes one"
        yield Loss("slower nodes", facts.step_s - usual - (greatest - median), _with_nodes(runs, facts), advice, True)
    if facts.clocks_mhz is not None:
        median, greatest = facts.clocks_mhz
        evidence = f"median clock {median:,.0f} of {greatest:,.0f} MHz, lowered by power or heat"
        yield Loss("lowered clocks", facts.step_s * (1 - median / greatest), evidence, "power cap and cooling", True)
    if facts.step_times_s:
        usual, fastest = statistics.median(facts.step_times_s), min(facts.step_times_s)
        evidence = f"the fastest of {len(facts.step_times_s)} iterations takes {fastest / usual:.0%} of the median"
        advice = "other jobs on the nodes or the network; repeats"
        if facts.oversubscribed:
            evidence += "; the host had more work than cores meanwhile"
            advice = "measure again on nodes without other work"
        yield Loss("unsteady iterations", usual - fastest, evidence, advice, True)


def _with_nodes(evidence: str, facts: MeasuredStep) -> str:
    return "; ".join([evidence, *facts.nodes_found])


def _predicted(facts: MeasuredStep) -> Iterator[Loss]:
    if facts.parts_s is None:
        return
    kernels = sum(facts.parts_s.get(name, 0.0) for name in KERNELS)
    rest = {name: seconds for name, seconds in facts.parts_s.items() if name not in KERNELS}
    for name, seconds in {"kernels": kernels - (facts.executed_s or kernels), **rest}.items():
        cause, advice = ADVICE[name]
        yield Loss(cause, seconds, f"{seconds / facts.step_s:.0%} of the step by the model", advice, False)
