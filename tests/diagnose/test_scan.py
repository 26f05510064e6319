"""Lines of a log that rules match: long lines, repetitions, progress bars and what was recovered from."""

import pytest

from sweep.diagnose.diagnose import diagnose, diagnose_text
from sweep.diagnose.model import RankEnd
from sweep.diagnose.scan import RULES, scan
from sweep.outcomes import Outcome

REFUSED = "RuntimeError: NCCL error in: NCCLUtils.hpp, unhandled system error"


@pytest.mark.parametrize("count", [1, 299, 300, 301, 500])
def test_a_rule_has_three_hundred_hits_at_most(count):
    hits = scan("\n".join(f"{REFUSED} {at}" for at in range(count)))
    assert sum(hit.source == "nccl-error" for hit in hits) == min(count, 300)


@pytest.mark.parametrize(("windows", "found"), [(0, 1), (3, 1), (7, 1), (8, 0)])
def test_of_one_line_the_first_places_of_a_key_are_read(windows, found):
    """The key alone, with nothing that its pattern takes within reach, so many times before the failure."""
    line = ("connectfullmesh " + "." * 1300) * windows + "gloo connectFullMesh failed"
    for before in ("", "\n", "starting\n"):
        assert len(scan(before + line)) == found, "eight places"


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


def test_a_watchers_verdict_counts_before_a_line_of_a_rank_whose_end_has_no_time():
    end = RankEnd(rank=0, node="n1", exit_code=1, log_tail=REFUSED)
    assert diagnose([end], verdict=Outcome.HANG).outcome is Outcome.HANG


@pytest.mark.parametrize("before", ["", "\n", "\n\n", "starting\n"])
@pytest.mark.parametrize("after", ["", "\n", "\nall is well\n"])
@pytest.mark.parametrize("line", [REFUSED, "2026-01-01 10:00:00 ERROR trainer stopped: OddError: no such shape"])
def test_a_hit_is_at_the_start_of_its_line(before, after, line):
    (hit,) = scan(before + line + after)
    assert (hit.position, hit.evidence) == (len(before), line)


def test_no_line_is_split_where_the_end_of_a_long_log_begins():
    """A million characters of the end stay as they are, and the line that they begin in."""
    filler = "some line 12 of a long log that no rule matches, with enough text that four million are soon reached\n"
    end = f"{REFUSED}\n" + "x\n" * ((1_000_000 - 40) // 2)
    (hit,) = scan(filler * 40_000 + end)
    assert hit.evidence == REFUSED


@pytest.mark.parametrize(
    "line", ["Killed", "train.sh: line 3:  4711 Killed    python train.py", "exitcode : -9 (pid: 4)"]
)
def test_a_kill_that_a_log_reports_is_a_guess_that_the_known_end_of_the_rank_replaces(line):
    assert diagnose_text(f"step: 1\n{line}\n").outcome is Outcome.OOM_HOST
    end = RankEnd(rank=0, node="n1", exit_code=1, log_tail=line)
    assert diagnose([end]).outcome is Outcome.UNKNOWN


def test_a_rule_of_reports_is_tried_after_those_of_causes_and_each_rule_once():
    """torchelastic's report of its children quotes their errors: the line belongs to the error's own rule."""
    names = [item.name for item in RULES]
    assert len(set(names)) == len(names)
    assert names.index("host-oom") < names.index("child-failed")
    assert names[-1] == "cancelled", "which every other message of Slurm about a job's end contains"
    quoted = "torch.distributed.elastic ChildFailedError: torch.OutOfMemoryError: CUDA out of memory."
    assert diagnose_text(quoted).outcome is Outcome.OOM_CUDA


@pytest.mark.parametrize("overcome", ["step: 2 loss: nan\nstep: 3 loss: 2.4\nstep: 4 loss: 2.3\n",
                                      f"{REFUSED}\nstep: 5\nstep: 6\nstep: 7\n"])  # fmt: skip
def test_what_was_overcome_hides_no_later_failure(overcome):
    assert diagnose_text(overcome).outcome is None
    assert diagnose_text(f"{overcome}ModuleNotFoundError: No module named 'x'\n").outcome is Outcome.IMPORT_ERROR


@pytest.mark.parametrize("overcome", ["step: 1\n", f"{REFUSED}\nstep: 5\nstep: 6\nstep: 7\n"])
def test_teardown_after_the_work_was_done_is_no_failure_and_hides_none(overcome):
    cancelled = "slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-01-01T10:00:00 ***\n"
    done = f"{overcome}Training completed\n{cancelled}"
    assert diagnose_text(done).outcome is None
    assert diagnose_text(f"{done}ModuleNotFoundError: No module named 'x'\n").outcome is Outcome.IMPORT_ERROR
    assert diagnose_text(f"{overcome}{cancelled}").outcome is not None
    assert diagnose_text(f"{cancelled}{done}").outcome is Outcome.CANCELLED, "it was stopped before"
