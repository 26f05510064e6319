"""Exceptions that no rule knows: whole and truncated tracebacks, with prefixes, logged, reported or overcome."""

from __future__ import annotations

import pytest

from sweep.diagnose.diagnose import diagnose_text
from sweep.diagnose.scan import scan
from sweep.diagnose.tracebacks import tracebacks
from sweep.outcomes import Outcome

FRAMES = '  File "train.py", line 7, in load\n    build()\n'
WHOLE = f"Traceback (most recent call last):\n{FRAMES}mypackage.OddError: no such shape\n"
EXCEPTION = Outcome.PYTHON_EXCEPTION


@pytest.mark.parametrize("prefix", ["", "    ", "[rank1]: ", "3: ", "(worker pid=7) ", "n1: "])
def test_the_exceptions_own_line_is_found_behind_each_ranks_prefix(prefix):
    text = "starting\n" + "".join(f"{prefix}{line}\n" for line in WHOLE.splitlines())
    (trace,) = tracebacks(text)
    assert trace.line == "mypackage.OddError: no such shape"
    assert text[trace.at :].startswith(f"{prefix}mypackage.OddError")
    assert text[trace.start :].startswith(f"{prefix}Traceback")
    found = diagnose_text(text)
    assert (found.outcome, found.evidence) == (EXCEPTION, "mypackage.OddError: no such shape")


def test_exception_groups_have_their_own_line_behind_bars():
    text = '  | Traceback (most recent call last):\n  |   File "a.py", line 1, in f\n  | OddError: inside\n  +-----\n'
    assert tracebacks(text)[0].line == "OddError: inside"


def test_a_line_of_a_traceback_without_its_prefix_is_read_as_it_is():
    """Another rank's, written in between; and bars of another width, of a group within a group of exceptions."""
    between = '[rank1]: Traceback (most recent call last):\n  File "a.py", line 1, in f\nOddError: torn\n'
    assert tracebacks(between)[0].line == "OddError: torn"
    group = '  | Traceback (most recent call last):\n    |   File "a.py", line 1, in f\n    | OddError: inside\n'
    assert tracebacks(group)[0].line == "OddError: inside"


def test_a_frames_source_in_the_form_of_an_exception_is_not_the_exception():
    """A row of a mapping, as Python quotes it."""
    text = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    KeyError: 3,\nRuntimeError: real\n'
    assert diagnose_text(text).evidence == "RuntimeError: real"


def test_a_traceback_without_its_last_line_is_of_no_known_exception():
    cut = "Traceback (most recent call last):\n" + FRAMES
    assert tracebacks(cut)[0].at == -1
    found = diagnose_text("some frames\n" + FRAMES)
    assert (found.outcome, found.evidence) == (EXCEPTION, FRAMES.splitlines()[0].strip())
    assert "truncated" in found.advice


@pytest.mark.parametrize(("frames", "more", "found"), [(199, "", True), (199, "    more()\n", True), (200, "", False)])
def test_a_traceback_has_four_hundred_lines_at_most(frames, more, found):
    text = "Traceback (most recent call last):\n" + FRAMES * frames + more + "OddError: at last\n"
    assert (tracebacks(text)[0].at >= 0) is found


def test_at_most_two_hundred_tracebacks_are_read():
    assert len(tracebacks(WHOLE * 201)) == 200


@pytest.mark.parametrize("line", [
    "OddError: no such shape", "[rank3]: OddError: no such shape", "4: a.b.OddError: no such shape",
    "(worker pid=7) OddError: no such shape",
])  # fmt: skip
def test_the_last_line_of_a_traceback_alone_is_the_exception(line):
    assert diagnose_text(f"step 1\n{line}\n").outcome is EXCEPTION


@pytest.mark.parametrize("name", [
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError", "subprocess.CalledProcessError", "SystemExit",
    "torch.distributed.elastic.multiprocessing.api.SignalException",
])  # fmt: skip
def test_a_launchers_report_of_its_child_is_no_cause(name):
    for text in (f"{name}: train.py", f"Traceback (most recent call last):\n{FRAMES}{name}: train.py"):
        assert not [hit for hit in scan(text) if hit.outcome is EXCEPTION and hit.source == "exception"]


def test_an_exception_on_an_error_line_is_the_reason_of_the_end_that_it_is_near():
    line = "2026-01-01 10:00:00 ERROR trainer stopped: OddError: no such shape"
    found = diagnose_text(f"step 1\n{line}\n")
    assert (found.outcome, found.evidence) == (EXCEPTION, line)
    assert diagnose_text(f"{line}\n" + "x\n" * 1100).outcome is None
    assert diagnose_text(line.replace("ERROR", "INFO")).outcome is None
    child = line.replace("OddError", "CalledProcessError")
    assert not [hit for hit in scan(child) if hit.source == "logged"]


@pytest.mark.parametrize(("before", "after", "counts"), [
    ("", "", True), ("", "going on\n", True), ("WARNING could not load a plugin\n", "going on\n", False),
    ("WARNING could not load a plugin\n", "", True), ("Exception ignored in: <function f>\n", "", False),
    ("--- Logging error ---\n", "", False), ("falling back to eager\n", "going on\n", False),
    ("all is well\n", "going on\n", True), ("WARNING could not load a plugin\n", "\n\n\n  \n", True),
])  # fmt: skip
def test_a_warning_that_the_program_outlived_is_no_end(before, after, counts):
    assert (diagnose_text(before + WHOLE + after).outcome is EXCEPTION) is counts


def test_a_failing_line_that_names_its_iteration_is_not_counted_as_one_after_it():
    failed = "step: 7 torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB\n"
    assert diagnose_text(failed + "step: 8\nstep: 9\n").outcome is Outcome.OOM_CUDA
    assert diagnose_text(failed + "step: 8\nstep: 9\nstep: 10\n").outcome is None


def test_a_retried_download_and_ncclls_chatter_are_no_failures():
    assert (
        diagnose_text("WARNING Retrying (Retry(total=4)) after 'ConnectionResetError(104, 'reset by peer')'").outcome
        is None
    )
    assert diagnose_text("n1:1:1 [0] NCCL INFO Connection reset by peer, CUDA out of memory").outcome is None


@pytest.mark.parametrize("colour", ["\x1b[31m", ""])
def test_progress_bars_and_colours_do_not_hide_a_line(colour):
    text = f" 10%|#  | 1/10 [00:01<00:09]\r{colour}ModuleNotFoundError: No module named 'x'\r\n"
    assert diagnose_text(text).outcome is Outcome.IMPORT_ERROR


def test_a_cause_in_a_very_long_line_is_found_near_its_words():
    assert diagnose_text("x" * 50_000 + " CUDA out of memory. Tried to allocate 1.00 GiB").outcome is Outcome.OOM_CUDA


def test_of_a_very_long_log_the_repetitions_are_left_out_and_the_cause_in_the_middle_stays():
    noise = "".join(f"worker {i} waits for its data\n" for i in range(120_000))
    middle = (
        f"{noise}slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-01-01T10:00:00 DUE TO TIME LIMIT ***\n{noise}"
    )
    assert diagnose_text(middle).outcome is Outcome.TIME_LIMIT


def test_the_exceptions_line_may_follow_the_header_at_once():
    text = "Traceback (most recent call last):\nmypackage.OddError: no frame at all\n"
    assert tracebacks(text)[0].line == "mypackage.OddError: no frame at all"


def test_a_header_at_the_very_end_takes_no_exception_from_before_it():
    text = "OddError: of something else\nTraceback (most recent call last):"
    assert tracebacks(text)[0].at == -1


@pytest.mark.parametrize("end", ["", "\n"])
def test_an_exception_that_ends_a_text_needs_no_line_end(end):
    assert tracebacks(WHOLE.rstrip("\n") + end)[0].line == "mypackage.OddError: no such shape"


def test_what_a_rule_takes_of_a_truncated_text_is_no_unknown_exception_too():
    """One hit for one line, whichever form of exception it has as well."""
    for line in ("ModuleNotFoundError: No module named 'x'", "ERROR ModuleNotFoundError: No module named 'x'"):
        assert [hit.outcome for hit in scan(line)] == [Outcome.IMPORT_ERROR], line


def test_each_traceback_of_a_text_is_an_exception_of_its_own():
    assert [hit.evidence for hit in scan(WHOLE + WHOLE.replace("OddError", "LateError"))] == [
        "mypackage.OddError: no such shape", "mypackage.LateError: no such shape"
    ]  # fmt: skip


@pytest.mark.parametrize("text", [
    f"WARNING CUDA out of memory in a helper, Traceback (most recent call last):\n{FRAMES}OddError: no\n",
    f"WARNING no helper\nTraceback (most recent call last):\n{FRAMES}ModuleNotFoundError: No module named 'x'\n",
    f"WARNING no helper\nTraceback (most recent call last):\n{FRAMES}    CUDA out of memory.\nOddError: no\n",
])  # fmt: skip
def test_whatever_a_line_of_a_traceback_that_was_overcome_names_is_no_failure(text):
    """From its header to its exception's own line."""
    assert diagnose_text(f"{text}going on\n").outcome is None
    assert diagnose_text(text).outcome is not None, "the log ends with it"
