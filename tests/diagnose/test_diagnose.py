"""Diagnosis from facts: exit codes, structured exceptions, logs, Slurm, the kernel, and the watcher's verdict.

What each says alone, and which of several facts of an end is the cause.
"""

import signal

import pytest

from sweep.diagnose.diagnose import diagnose, diagnose_state, diagnose_text, exit_hit
from sweep.diagnose.model import Diagnosis, RankEnd, Weight
from sweep.outcomes import Outcome

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


@pytest.mark.parametrize(("end", "expected"), [
    ({"signal": signal.SIGBUS, "log_tail": "ERROR: insufficient shared memory (shm)."}, Outcome.DISK_FULL),
    ({"exit_code": 127, "log_tail": "x: error while loading shared libraries: libnccl.so.2: cannot open"},
     Outcome.IMPORT_ERROR),
    ({"exit_code": 1, "failure": {"type": "ModuleNotFoundError", "message": "No module named 'x'"}},
     Outcome.IMPORT_ERROR),
])  # fmt: skip
def test_a_known_message_says_more_than_how_the_rank_ended(end: dict[str, object], expected: Outcome) -> None:
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


@pytest.mark.parametrize(("number", "outcome", "weight"), [
    (signal.SIGSEGV, Outcome.SEGFAULT, Weight.SUSPECT),
    (signal.SIGILL, Outcome.SEGFAULT, Weight.SUSPECT),
    (signal.SIGFPE, Outcome.SEGFAULT, Weight.SUSPECT),
    (signal.SIGBUS, Outcome.SEGFAULT, Weight.SUSPECT),
    (signal.SIGKILL, Outcome.UNKNOWN, Weight.SIGN),
    (signal.SIGABRT, Outcome.UNKNOWN, Weight.SIGN),
    (signal.SIGTERM, Outcome.CANCELLED, Weight.CONSEQUENCE),
    (signal.SIGINT, Outcome.CANCELLED, Weight.CONSEQUENCE),
    (signal.SIGHUP, Outcome.CANCELLED, Weight.CONSEQUENCE),
    (signal.SIGXCPU, Outcome.TIME_LIMIT, Weight.SUSPECT),
    (signal.SIGXFSZ, Outcome.DISK_FULL, Weight.SUSPECT),
    (signal.SIGPIPE, Outcome.UNKNOWN, Weight.SIGN),
])  # fmt: skip
def test_a_signal_means_the_same_however_it_is_reported(number, outcome, weight):
    """As a signal, as a negative code (subprocess), or as 128 and the signal (shells)."""
    for hit in (exit_hit(None, number), exit_hit(-number, None), exit_hit(128 + number, None), exit_hit(1, number)):
        assert hit is not None
        assert (hit.outcome, hit.weight) == (outcome, weight)
        assert hit.evidence == f"ended by signal {int(number)} ({number.name})"


@pytest.mark.parametrize(("code", "outcome", "weight"), [
    (1, Outcome.UNKNOWN, Weight.SIGN),
    (2, Outcome.CONFIG_ERROR, Weight.SIGN),
    (124, Outcome.TIME_LIMIT, Weight.CONSEQUENCE),
    (126, Outcome.CONFIG_ERROR, Weight.CONSEQUENCE),
    (127, Outcome.CONFIG_ERROR, Weight.CONSEQUENCE),
    (128, Outcome.UNKNOWN, Weight.SIGN),
    (193, Outcome.UNKNOWN, Weight.SIGN),
    (255, Outcome.UNKNOWN, Weight.SIGN),
])  # fmt: skip
def test_a_code_means_what_the_program_that_returns_it_means(code, outcome, weight):
    hit = exit_hit(code, None)
    assert hit is not None
    assert (hit.outcome, hit.weight, hit.evidence) == (outcome, weight, f"exit code {code}")


def test_no_code_and_zero_are_no_failure():
    assert exit_hit(None, None) is None
    assert exit_hit(0, None) is None


def test_a_signal_that_has_no_name_is_unknown():
    hit = exit_hit(None, 99)
    assert hit is not None
    assert hit.evidence == "ended by signal 99 (unknown)"


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
LOST_PEER = "RuntimeError: [1] Connection closed by peer [10.0.0.2]:4711"


@pytest.mark.parametrize(("state", "outcome"), [
    ("OUT_OF_MEMORY", Outcome.OOM_HOST), ("NODE_FAIL", Outcome.NODE_FAIL), ("BOOT_FAIL", Outcome.NODE_FAIL),
    ("LAUNCH_FAILED", Outcome.NODE_FAIL), ("PREEMPTED", Outcome.PREEMPTED), ("TIMEOUT", Outcome.TIME_LIMIT),
    ("DEADLINE", Outcome.TIME_LIMIT), ("CANCELLED by 1000", Outcome.CANCELLED), ("REVOKED", Outcome.CANCELLED),
    ("timeout", Outcome.TIME_LIMIT), ("COMPLETING", None), ("", None),
])  # fmt: skip
def test_a_jobs_state_explains_its_end(state, outcome):
    assert diagnose_state(state).outcome is outcome


@pytest.mark.parametrize("killed_by_us", [False, True])
def test_an_end_that_we_made_is_no_cause(killed_by_us):
    ends = [rank(signal=signal.SIGSEGV, killed_by_us=killed_by_us)]
    assert (diagnose(ends).outcome is Outcome.SEGFAULT) is not killed_by_us


def test_of_equal_evidence_the_earliest_rank_is_the_cause_and_a_killed_one_the_last():
    late, early = rank(0, exit_code=1, ended_at_s=9.0, log_tail=OOM), rank(1, exit_code=1, ended_at_s=3.0, log_tail=OOM)
    assert diagnose([late, early]).rank == 1
    unknown = rank(1, exit_code=1, log_tail=OOM)
    assert diagnose([unknown, late]).rank == 0, "an unknown time is the latest"
    ours = rank(1, exit_code=1, ended_at_s=3.0, log_tail=OOM, killed_by_us=True)
    assert diagnose([ours, late]).rank == 0


def test_a_rank_that_was_killed_before_its_peers_lost_it_is_the_cause():
    killed = rank(0, signal=signal.SIGKILL, ended_at_s=0.0)  # in the very first moment
    peer = rank(1, exit_code=1, ended_at_s=0.5, log_tail=LOST_PEER)
    assert diagnose([peer, killed]).rank == 0
    by_us = rank(0, signal=signal.SIGKILL, ended_at_s=0.0, killed_by_us=True)
    assert diagnose([peer, by_us]).rank == 1
    later = rank(0, signal=signal.SIGKILL, ended_at_s=3.0)
    assert diagnose([peer, later]).rank == 1


def test_ranks_that_ended_well_fail_by_a_verdict_or_a_loss_alone():
    well = rank(exit_code=0, log_tail="step 1 loss: 2.0\nstep 2 loss: nan\nstep 3 loss: nan\n" + OOM)
    assert diagnose([well]).outcome is Outcome.NAN_LOSS
    assert diagnose([rank(exit_code=0, log_tail=OOM)], kernel=[KERNEL_OOM]).outcome is None
    assert diagnose([rank(exit_code=0)], verdict=Outcome.CANCELLED).outcome is Outcome.CANCELLED
    assert diagnose([rank(exit_code=0)], verdict=Outcome.OK).outcome is None


STEPS = "".join(f"step: {i} loss: 2.{9 - i}\n" for i in range(1, 6))


@pytest.mark.parametrize(("line", "outcome"), [
    ("slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-01-01T10:00:00 DUE TO PREEMPTION ***", Outcome.PREEMPTED),
    ("slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-01-01T10:00:00 DUE TO TIME LIMIT ***", Outcome.TIME_LIMIT),
    ("slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-01-01T10:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***",
     Outcome.NODE_FAIL),
    ("slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-01-01T10:00:00 ***", Outcome.CANCELLED),
    ("KeyboardInterrupt", Outcome.CANCELLED),
])  # fmt: skip
def test_what_ended_a_job_stays_its_end_though_ranks_still_write_their_iterations(line, outcome):
    assert diagnose_text(f"step: 0\n{line}\n{STEPS}").outcome is outcome


def test_a_guess_in_a_log_hides_no_line_after_it():
    ends = [rank(exit_code=1, ended_at_s=1.0, log_tail=f"Killed\n{OOM}")]
    assert diagnose(ends).outcome is Outcome.OOM_CUDA
    ours = [rank(exit_code=1, killed_by_us=True, log_tail=f"ValueError: our signal came here\n{OOM}")]
    assert diagnose(ours).outcome is Outcome.OOM_CUDA


KERNEL_OOM = "[1.0] Memory cgroup out of memory: Killed process 123 (python) total-vm:1kB, anon-rss:1kB"
KERNEL_XID = "[1.0] NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=python, GPU has fallen off the bus."


def test_srun_reports_a_process_that_ended_by_its_exit_code_alone():
    end = rank(exit_code=2, log_tail="slurmstepd: error:  mpi/pmix_v3: _errhandler: n1 [0]: Error handler invoked")
    assert diagnose([end]).outcome is Outcome.CONFIG_ERROR


def test_a_gpu_that_the_kernel_lost_explains_a_rank_and_host_memory_only_what_the_rank_does_not():
    """The first failed before any rank; the kernel also kills what is left of a job that failed by itself."""
    ends = [rank(exit_code=1, ended_at_s=0.0, log_tail=OOM)]
    assert diagnose(ends, kernel=[KERNEL_XID]).outcome is Outcome.XID_HARDWARE
    assert diagnose(ends, kernel=[KERNEL_OOM]).outcome is Outcome.OOM_CUDA


@pytest.mark.parametrize(("line", "outcome"), [
    ("mce: [Hardware Error]: Machine check events logged", Outcome.OOM_CUDA),  # corrected ones as well
    ("mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 4: be00000000800400", Outcome.NODE_FAIL),
    ("{1}[Hardware Error]: event severity: corrected", Outcome.OOM_CUDA),
    ("{1}[Hardware Error]: event severity: recoverable", Outcome.NODE_FAIL),
    ("EDAC MC1: 1 CE memory scrubbing error on CPU_SrcID#0_Ha#0_Chan#0_DIMM#0", Outcome.OOM_CUDA),
    ("EDAC MC3: 1 UE memory read error on CPU_SrcID#1_MC#1_Chan#2_DIMM#0", Outcome.NODE_FAIL),
    ("NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2)", Outcome.OOM_CUDA),
    ("NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6)", Outcome.XID_HARDWARE),
])  # fmt: skip
def test_an_error_that_the_hardware_survived_hides_no_ranks_own_cause(line, outcome):
    ends = [rank(exit_code=1, ended_at_s=0.0, log_tail=OOM)]
    assert diagnose(ends, kernel=[line]).outcome is outcome


def test_the_kernels_first_line_about_a_node_is_the_cause_also_before_a_watchers_verdict():
    late = KERNEL_XID.replace("9b:00", "1b:00")
    found = diagnose([rank(exit_code=1)], kernel=[KERNEL_OOM, KERNEL_XID, late], verdict=Outcome.NODE_FAIL)
    assert found.outcome is Outcome.XID_HARDWARE
    assert "9b:00" in found.evidence
