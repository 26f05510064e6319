"""Exceptions that no rule knows: whole and truncated tracebacks, with prefixes, logged, reported or overcome."""

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


def test_the_times_of_a_logger_differ_between_the_lines_of_a_traceback():
    """bghira/SimpleTuner#1880; between them is another rank's."""
    lines = [*WHOLE.splitlines()[:-1], "OtherError: of rank 5", "mypackage.OddError: no such shape"]
    ranks = [0] * (len(lines) - 2) + [5, 0]
    times = (f"2025-10-31 03:11:{second:02},47{second} - INFO - [rank{rank}]: " for second, rank in enumerate(ranks))
    (trace,) = tracebacks("".join(f"{time}{line}\n" for time, line in zip(times, lines, strict=True)))
    assert trace.line == "mypackage.OddError: no such shape"


HEAD = "Traceback (most recent call last):\n"


@pytest.mark.parametrize(("text", "line"), [
    ('  | Traceback (most recent call last):\n  |   File "a.py", line 1, in f\n  | OddError: inside\n  +-----\n',
     "OddError: inside"),  # of a group of exceptions
    ('  | Traceback (most recent call last):\n    |   File "a.py", line 1, in f\n    | OddError: inside\n',
     "OddError: inside"),  # of a group within a group: bars of another width
    ('[rank1]: Traceback (most recent call last):\n  File "a.py", line 1, in f\nOddError: torn\n', "OddError: torn"),
    # quoted by Python, as a frame's source
    (f'{HEAD}  File "a.py", line 3, in f\n    KeyError: 3,\nRuntimeError: real\n', "RuntimeError: real"),
    (f"{HEAD}mypackage.OddError: no frame at all\n", "mypackage.OddError: no frame at all"),
    (f"OddError: of something else\n{HEAD.strip()}", None), (f"{HEAD}{FRAMES}", None),
    (WHOLE.rstrip(), "mypackage.OddError: no such shape"),
])  # fmt: skip
def test_the_line_of_a_traceback_that_is_its_exception(text, line):
    (trace,) = tracebacks(text)
    assert (trace.line if trace.at >= 0 else None) == line


def test_a_traceback_without_its_last_line_is_of_no_known_exception():
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
    "(worker pid=7) OddError: no such shape", f"OddError: no such shape\n{HEAD}",
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


FAILED = "step: 7 torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB\n"
NOISE = "".join(f"worker {i} waits for its data\n" for i in range(120_000))
LATE = "slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-01-01T10:00:00 DUE TO TIME LIMIT ***\n"
MISSING = "ModuleNotFoundError: No module named 'x'"


@pytest.mark.parametrize(("text", "outcome"), [
    # its own line names an iteration, but is none after it
    (f"{FAILED}step: 8\nstep: 9\n", Outcome.OOM_CUDA), (f"{FAILED}step: 8\nstep: 9\nstep: 10\n", None),
    ("WARNING Retrying (Retry(total=4)) after 'ConnectionResetError(104, 'reset by peer')'", None),
    ("n1:1:1 [0] NCCL INFO Connection reset by peer, CUDA out of memory", None),
    (f" 10%|#  | 1/10 [00:01<00:09]\r{MISSING}\r\n", Outcome.IMPORT_ERROR),
    (f" 10%|#  | 1/10 [00:01<00:09]\r\x1b[31m{MISSING}\r\n", Outcome.IMPORT_ERROR),
    ("x" * 50_000 + " CUDA out of memory. Tried to allocate 1.00 GiB", Outcome.OOM_CUDA),
    (f"{NOISE}{LATE}{NOISE}", Outcome.TIME_LIMIT),
], ids=range(8))  # fmt: skip
def test_what_surrounds_a_failure_neither_hides_nor_makes_one(text, outcome):
    assert diagnose_text(text).outcome is outcome


def test_what_a_rule_takes_of_a_truncated_text_is_no_unknown_exception_too():
    """One hit for one line, whichever form of exception it has as well."""
    for line in (MISSING, f"ERROR {MISSING}"):
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
