"""Diagnosis from facts: exit codes, structured exceptions, logs, Slurm, the kernel, and the watcher's verdict."""

import signal

import pytest

from sweep.diagnose.diagnose import diagnose, diagnose_text
from sweep.diagnose.model import Diagnosis, RankEnd
from sweep.outcomes import Outcome

OOM = {
    "type": "torch.OutOfMemoryError",
    "message": "CUDA out of memory. Tried to allocate 8.06 GiB. GPU 0 has a total capacity of 79.10 GiB of which "
    "1.27 GiB is free. Including non-PyTorch memory, this process has 77.83 GiB memory in use. Of the allocated memory "
    "62.62 GiB is allocated by PyTorch, and 12.65 GiB is reserved by PyTorch but unallocated.",
    "traceback": "",
}
TIMEOUT = {
    "type": "torch.distributed.DistBackendError",
    "message": "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3) ran for 60000 milliseconds",
}


def rank(number: int = 0, **values: object) -> RankEnd:
    return RankEnd(**{"rank": number, "node": f"n{number // 8}", **values})


def torn_down(*numbers: int, **values: object) -> list[RankEnd]:
    ends = {"signal": 15, "ended_at_s": 90.0, "killed_by_us": True, **values}
    return [rank(number, **ends) for number in numbers]


def outcome(**facts: object) -> Outcome | None:
    return diagnose(**{"ranks": [], **facts}).outcome


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ({"exit_code": 0}, None),
        ({"signal": signal.SIGKILL, "ended_at_s": 5.0}, Outcome.UNKNOWN),
        ({"signal": signal.SIGBUS, "log_tail": "ERROR: insufficient shared memory (shm)."}, Outcome.DISK_FULL),
        (
            {"exit_code": 127, "log_tail": "x: error while loading shared libraries: libnccl.so.2: cannot open"},
            Outcome.IMPORT_ERROR,
        ),
        ({"exit_code": 1, "failure": {"type": "ValueError", "message": "bad"}}, Outcome.PYTHON_EXCEPTION),
        (
            {"exit_code": 1, "failure": {"type": "ModuleNotFoundError", "message": "No module named 'x'"}},
            Outcome.IMPORT_ERROR,
        ),
        ({"exit_code": 1, "failure": OOM}, Outcome.OOM_CUDA),
    ],
    ids=str,
)
def test_one_rank_alone(end: dict[str, object], expected: Outcome | None) -> None:
    assert outcome(ranks=[rank(**end)]) is expected


def test_the_earliest_cause_wins_and_is_named_with_rank_and_node() -> None:
    ranks = [
        rank(0, exit_code=1, ended_at_s=70.0, failure=TIMEOUT),
        rank(9, exit_code=1, ended_at_s=12.0, failure={"type": "KeyError", "message": "'a'"}),
        *torn_down(1, 2),
    ]
    found = diagnose(ranks)
    assert (found.outcome, found.rank, found.node) == (Outcome.PYTHON_EXCEPTION, 9, "n1")
    assert found.evidence == "KeyError: 'a'"


def test_hang_is_the_cause_unless_a_rank_had_failed_by_itself() -> None:
    hung = {"verdict": Outcome.HANG, "verdict_text": "rank 3 on n0 stopped in iteration 3"}
    found = diagnose(torn_down(0, 1, 2, 3), **hung)
    assert found == Diagnosis(Outcome.HANG, "rank 3 on n0 stopped in iteration 3", found.advice)
    terminated = 'Traceback (most recent call last):\n  File "a", line 1, in f\nRuntimeError: worker terminated'
    assert outcome(ranks=torn_down(0, 1, log_tail=terminated), **hung) is Outcome.HANG
    crashed = rank(1, exit_code=1, ended_at_s=4.0, failure={"type": "ZeroDivisionError", "message": "division by zero"})
    assert outcome(ranks=[*torn_down(0), crashed], **hung) is Outcome.PYTHON_EXCEPTION
    assert (
        outcome(ranks=torn_down(0, log_tail="torch.OutOfMemoryError: CUDA out of memory."), **hung) is Outcome.OOM_CUDA
    )


@pytest.mark.parametrize("verdict", [Outcome.CANCELLED, Outcome.PREEMPTED, Outcome.NODE_FAIL, Outcome.PORT_IN_USE])
def test_a_verdict_of_the_watcher_comes_first(verdict: Outcome) -> None:
    late = rank(0, exit_code=1, ended_at_s=3.0, failure={"type": "ConnectionResetError", "message": "reset by peer"})
    assert outcome(ranks=[late, *torn_down(1)], verdict=verdict) is verdict


def test_an_xid_that_programs_cause_does_not_override_the_cuda_error() -> None:
    cuda = {"type": "RuntimeError", "message": "CUDA error: an illegal memory access was encountered"}
    line = "NVRM: Xid (PCI:0000:9b:00): 31, pid=7, name=python, Ch 0000001b, MMU Fault"
    assert outcome(ranks=[rank(exit_code=1, failure=cuda)], kernel=[line]) is Outcome.CUDA_ERROR
    assert outcome(ranks=[rank(signal=6)], kernel=[line]) is Outcome.XID_HARDWARE


def test_reference_texts() -> None:
    import json

    from sweep.outcomes import NO_FAILURE
    from tests.support import published

    lines = published.table("failures.jsonl").read_text().splitlines()
    wrong = []
    for row in map(json.loads, lines):
        found = str(diagnose_text(row["text"]).outcome or NO_FAILURE)
        if found not in [row["label"], *row["also"]]:
            wrong.append((row["id"], found))
        if row["label"] == NO_FAILURE:
            assert found == NO_FAILURE, row["id"]
    assert len(wrong) <= len(lines) * 3 // 60, wrong


CLOSED = "torch.distributed.DistNetworkError: Connection closed by peer\n"


@pytest.mark.parametrize(("text", "outcome"), [
    (CLOSED, Outcome.NCCL_ERROR), (f"training is complete\n{CLOSED}", None),
    (f"step 1\n[rank0] finished training\n{CLOSED}{CLOSED}", None),
    (f"{CLOSED}training is complete\n", Outcome.NCCL_ERROR),
    (f"training is complete\nModuleNotFoundError: No module named 'x'\n{CLOSED}", Outcome.IMPORT_ERROR),
    (f"{'x' * 200} training is complete\n{CLOSED}", Outcome.NCCL_ERROR),
])  # fmt: skip
def test_what_others_caused_is_no_failure_once_the_work_was_done(text: str, outcome: Outcome | None) -> None:
    assert diagnose_text(text).outcome is outcome


@pytest.mark.parametrize(("steps", "outcome"), [
    ([1, 2, 3], None), ([1, 2], Outcome.OOM_CUDA), ([7, 7, 7, 7], Outcome.OOM_CUDA), ([3, 2, 1], Outcome.OOM_CUDA),
    ([5, 1, 2, 3], None), ([5, 1, 6], Outcome.OOM_CUDA),
])  # fmt: skip
def test_a_failure_is_overcome_by_three_further_iterations_that_count_upwards(
    steps: list[int], outcome: Outcome | None
) -> None:
    later = "".join(f"step: {number}\n" for number in steps)
    text = f"step: 0\nRuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB\n{later}"
    assert diagnose_text(text).outcome is outcome


@pytest.mark.parametrize(("rest", "outcome"), [
    ("loss: 2.1\nloss: 2.0\n", None), ("loss: 2.1\n", Outcome.NAN_LOSS), ("", Outcome.NAN_LOSS),
    ("loss: 2.1\nloss: nan\nloss: 2.0\n", Outcome.NAN_LOSS), ("done\nloss: 2.1\nok\nloss: 2.0", None),
])  # fmt: skip
def test_a_loss_is_healed_by_two_finite_ones_after_the_last_that_is_not(rest: str, outcome: Outcome | None) -> None:
    assert diagnose_text(f"loss: 2.2\nloss: nan\n{rest}").outcome is outcome
