"""Every layout trains the same model: losses and gradient norms equal those of one plain process."""

import pytest

from bench_workloads.transformer import WORKLOAD
from tests.support.ranks.harness import ForkServer, Rank
from tests.support.transformer.cases import CHOSEN, COMPILED, IMPOSSIBLE, TABLE, Case, broken_rules, case, columns
from tests.support.transformer.reference import truth
from tests.support.transformer.truths import BF16, FP32, furthest

pytestmark = pytest.mark.parallel


SOME = [c if c.name in CHOSEN else pytest.param(c, marks=pytest.mark.long) for c in TABLE]


@pytest.mark.parametrize("case", SOME, ids=str)
def test_layout_equals_one_process(fork_server: ForkServer, case: Case, truths):
    truths.compare(fork_server, case, case.run(), FP32)


@pytest.mark.long
@pytest.mark.parametrize("case", TABLE, ids=str)
def test_layout_equals_one_process_in_bf16(fork_server: ForkServer, case: Case, truths):
    truths.compare(fork_server, case, case.run(dtype="bf16"), BF16)


@pytest.mark.long
@pytest.mark.parametrize("case", COMPILED, ids=str)
def test_compiled_layout_equals_one_process(fork_server: ForkServer, case: Case, truths):
    truths.compare(fork_server, case, case.run(), FP32)


@pytest.mark.parametrize(("rule", "case"), IMPOSSIBLE, ids=lambda x: str(x))
def test_what_torch_cannot_do_is_rejected(rule: str, case: Case):
    assert broken_rules(case.run()) == [rule]


@pytest.mark.long
@pytest.mark.parametrize(("rule", "case"), IMPOSSIBLE, ids=lambda x: str(x))
def test_the_rejection_is_needed(fork_server: ForkServer, rule: str, case: Case, truths):
    """Run what the plan would reject: it fails, or its numbers are wrong. Once it does neither, the rule can go."""
    run = case.run()
    happened = what_happens(fork_server.attempt(run), run)
    reason = next(r.reason for r in WORKLOAD.rules if r.name == rule).format(**columns(run))
    truths.refused.append((case.name, happened or "nothing", reason))
    assert happened, f"{rule} can go"


def what_happens(ranks: list[Rank], run) -> str:
    """How the attempt failed, or by how much its numbers are wrong; empty on success."""
    failures = [rank.failure for rank in ranks if rank.failure]
    if failures:
        first = min(failures, key=lambda failure: "gloo" in failure["message"])  # there it is only a peer's failure
        message = first["message"].strip().splitlines() or [""]
        return f"{first['type']}: {message[0][:100]}".replace("|", "/")
    if any(rank.exit for rank in ranks):
        return f"a rank ends with {next(rank.exit for rank in ranks if rank.exit)}"
    losses, norms = truth(run)
    found = ranks[0].measurement
    loss, norm = furthest(found["losses"], losses), furthest(found["grad_norms"], norms)
    return f"runs, with the norm {norm:.1%} off and the loss {loss:.1e}" if loss > FP32[0] or norm > FP32[1] else ""


def test_the_comparison_sees_a_lost_gradient(fork_server: ForkServer):
    """The control: another global batch gives other numbers, far outside the bounds."""
    run = case("dp=2 zero=0").run()
    found = fork_server.attempt(run, seed=8)[0].measurement
    losses, norms = truth(run)
    assert furthest(found["losses"], losses) > 100 * FP32[0]
    assert furthest(found["grad_norms"], norms) > 100 * FP32[1]


def test_fork_server_stays_single_threaded(fork_server: ForkServer):
    assert fork_server.threads == 1
