"""A layout's losses and gradient norms against those of one process."""

from sweep.contract import Measurement
from sweep.records.validity import mismatches
from tests.support.ranks.harness import ForkServer
from tests.support.transformer.broken import broken_rules
from tests.support.transformer.reference import truth

FP32 = (1e-6, 1e-6)
BF16 = (1e-3, 5e-3)


def furthest(measured: list[float], true: list[float]) -> float:
    """The greatest relative distance."""
    return max(abs(a / b - 1) for a, b in zip(measured, true, strict=True))


def compare(fork_server: ForkServer, run, bounds: tuple[float, float]) -> tuple[float, float]:
    """Run it, and assert that each rank matches the reference. Returns the distances of loss and norm."""
    assert broken_rules(run) == []
    ranks = fork_server.attempt(run)
    losses, norms = truth(run)
    worst = (0.0, 0.0)
    for rank in ranks:
        assert rank.exit == 0, rank.stderr
        found = rank.measurement
        distances = furthest(found["losses"], losses), furthest(found["grad_norms"], norms)
        worst = max(worst[0], distances[0]), max(worst[1], distances[1])
        assert mismatches(run, [Measurement(**{k: v for k, v in found.items() if k != "kind"})]) == []
        assert found["effective"]["global_batch_tokens"] == run.global_batch_tokens
    assert worst[0] < bounds[0], f"loss is {worst[0]:.1e} off: {found['losses']}, truth {losses}"
    assert worst[1] < bounds[1], f"gradient norm is {worst[1]:.1e} off: {found['grad_norms']}, truth {norms}"
    return worst
