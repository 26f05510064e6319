"""Lines of a log that rules match: long lines, repetitions, progress bars and what was recovered from."""

from __future__ import annotations

import pytest

from sweep.diagnose.diagnose import diagnose, diagnose_text
from sweep.diagnose.model import Facts, RankEnd, Weight
from sweep.diagnose.scan import scan
from sweep.outcomes import Outcome

REFUSED = "RuntimeError: NCCL error in: NCCLUtils.hpp, unhandled system error"


def test_the_weights_are_in_order_of_strength():
    assert Weight.SIGN < Weight.CONSEQUENCE < Weight.SUSPECT < Weight.CAUSE


@pytest.mark.parametrize("count", [1, 299, 300, 301, 500])
def test_a_rule_has_three_hundred_hits_at_most(count):
    hits = scan("\n".join(f"{REFUSED} {at}" for at in range(count)))
    assert sum(hit.source == "nccl-error" for hit in hits) == min(count, 300)


@pytest.mark.parametrize(("windows", "found"), [(0, 1), (3, 1), (6, 1), (9, 0)])
def test_of_one_line_the_first_places_of_a_key_are_read(windows, found):
    """The key alone, with nothing that its pattern takes within reach, so many times before the failure."""
    line = ("connectfullmesh " + "." * 1300) * windows + "gloo connectFullMesh failed"
    assert len(scan(line)) == found, "eight places"


def test_a_long_log_keeps_twenty_of_similar_lines_and_all_of_its_end():
    filler = "some line 12 of a long log that no rule matches, with enough text that four million are soon reached\n"
    hits = scan("".join(f"{REFUSED} {at}\n" for at in range(60)) + filler * 50_000)
    assert len(hits) == 20
    end = scan(filler * 50_000 + "".join(f"{REFUSED} {at}\n" for at in range(60)))
    assert len(end) == 60


@pytest.mark.parametrize("form", [
    "step: {0}", "iteration {0}/100 | loss: 2.5", "Epoch 1:  {0}%|###   | {0}/100 [00:01<00:10]",
    "{{'global_step': {0}}}", "  {0}%|#| {0}/100 [00:01<00:10, 9.0it/s]",
])  # fmt: skip
def test_work_that_goes_on_in_any_form_overcomes_a_failure(form):
    after = "\n".join(form.format(at) for at in (5, 6, 7))
    assert diagnose_text(f"{REFUSED}\n{after}").outcome is None
    assert diagnose_text(f"{after}\n{REFUSED}").outcome is Outcome.NCCL_ERROR
    fewer = "\n".join(form.format(at) for at in (5, 6))
    assert diagnose_text(f"{REFUSED}\n{fewer}").outcome is Outcome.NCCL_ERROR
    same = "\n".join(form.format(5) for _ in range(4))
    assert diagnose_text(f"{REFUSED}\n{same}").outcome is Outcome.NCCL_ERROR
    back = "\n".join(form.format(at) for at in (7, 6, 5))
    assert diagnose_text(f"{REFUSED}\n{back}").outcome is Outcome.NCCL_ERROR


def test_a_watchers_verdict_counts_before_slurms_state_of_the_same_weight():
    both = Facts(ranks=[], verdict=Outcome.TIME_LIMIT, verdict_text="the run's own limit", slurm_state="TIMEOUT")
    assert diagnose(both).evidence == "the run's own limit"


def test_of_slurms_state_and_a_rank_whose_end_has_no_time_the_ranks_first_line_counts():
    end = RankEnd(rank=0, node="n1", exit_code=1, log_tail=REFUSED)
    found = diagnose(Facts(ranks=[end], slurm_state="TIMEOUT"))
    assert found.outcome is Outcome.NCCL_ERROR
    early = diagnose(Facts(ranks=[end], slurm_state="PREEMPTED"))
    assert early.outcome is Outcome.PREEMPTED, "which comes before all ranks"
