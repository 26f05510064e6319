"""The scheduler's temporary rejections, explained."""

from pathlib import Path

import pytest
import yaml

from sweep.executors.executor import JobState, JobStatus, first_live
from sweep.executors.slurm_states import (
    SACCT_FORMAT,
    SQUEUE_FORMAT,
    job_id_of,
    job_state,
    may_work_later,
    meaning,
    parse,
    setting,
    shown,
    wait,
)

ANSWERS = yaml.safe_load((Path(__file__).parent / "answers.yaml").read_text())
SQUEUE, SACCT, SHOWN = (ANSWERS[client] for client in ("squeue", "sacct", "scontrol"))
REJECTIONS = yaml.safe_load((Path(__file__).parent / "rejections.yaml").read_text())


@pytest.mark.parametrize("rejection", REJECTIONS, ids=lambda rejection: rejection["message"][:60])
def test_only_a_rejection_that_is_known_to_be_permanent_is_one(rejection):
    """A policy that may be the number of jobs is tried again later; a limit of this job's own size or time is not."""
    assert may_work_later(rejection["message"]) is rejection["later"]
    assert rejection.get("means", "") in meaning(rejection["message"])


def test_of_several_jobs_of_one_name_the_oldest_that_lives_counts():
    """A submission whose reply was lost may have been repeated: the first of them has priority in the queue."""
    running, pending, gone = (JobStatus(state=state) for state in (JobState.RUNNING, JobState.PENDING, JobState.GONE))
    assert first_live([("12", pending), ("9", pending), ("101", pending)]) == ("9", pending)
    assert first_live([("7", gone), ("12", pending), ("101", running)]) == ("101", running)
    assert first_live([("8", gone), ("7", gone)]) == ("7", gone)
    assert first_live([]) is None


@pytest.mark.parametrize(
    ("state", "word"), [(JobState[state], word) for state, words in ANSWERS["states"].items() for word in words]
)
def test_a_state_is_gone_only_where_no_process_of_the_job_can_live_or_start(state, word):
    """With an addition it is the same; an unknown one is neither success nor failure."""
    assert job_state(word) is state


def test_squeue_is_read_line_by_line_and_what_is_no_pilots_job_is_left_out():
    found = parse(SQUEUE, SQUEUE_FORMAT)
    assert list(found) == ["101", "102", "103", "104", "105", "106"]
    assert found["102"].reason == "ReqNodeNotAvail, UnavailableNodes:d[001-032],f[001-024]"
    assert found["104"] == JobStatus(state=JobState.RUNNING, word="RUNNING", name="s-p0001")
    assert (found["105"].state, found["106"].reason) == (JobState.RUNNING, "a site's | own reason")


def test_of_sacct_the_last_row_of_a_job_counts_and_steps_do_not():
    found = parse(SACCT, SACCT_FORMAT)
    assert list(found) == ["201", "202", "203", "205"]
    assert found["205"].name == "another's | job", "a job of any name is one"
    assert found["202"].word == "COMPLETED"
    assert (found["203"].state, found["203"].ended_at) == (JobState.GONE, 1795352400.0)


@pytest.mark.parametrize(("text", "form"), [(SQUEUE, SQUEUE_FORMAT), (SACCT, SACCT_FORMAT)], ids=["squeue", "sacct"])
def test_an_answer_counts_only_as_a_whole(text, form):
    header, *jobs = text.splitlines(keepends=True)
    whole = parse(text, form)
    assert parse(f"Welcome to the cluster\n{text}", form) == whole
    assert parse(header, form) == {}, "no job"
    ends = {len("".join([header, *jobs[:number]])) for number in range(len(jobs) + 1)}
    cut = {size for size in range(len(text)) if parse(text[:size], form) is not None}
    assert cut <= ends, "an answer that was cut is whole only where a line ends"
    assert parse(f"{text}NOTICE: /scratch is purged on Monday\n\nSee the 2 wikis\n", form) == whole
    refused = "slurm_load_jobs error: Unable to contact slurm controller\n"
    after = [text + more for more in ("garbage", "7 garbage\n", "10", "gar|bage\n", "garbage\n7|RUN", refused)]
    for damaged in ("", *jobs[:1], *after, f"{header}Killed\n", header + "garbage\n" + text.removeprefix(header)):
        assert parse(damaged, form) is None
    assert parse(text.replace("105|", "\ufffd5|").replace("205|", "\ufffd5|"), form) is None


def test_what_the_controller_shows_of_one_job():
    failed = shown(SHOWN.format("FAILED", "NonZeroExitCode"), "7")
    assert (failed.state, failed.name, failed.ended_at) == (JobState.GONE, "s-p0001", 1795352400.0)
    running = shown(SHOWN.format("RUNNING", "None"), "7")
    assert running == JobStatus(state=JobState.RUNNING, word="RUNNING", name="s-p0001")
    for text, job in (("", "7"), (SHOWN[:200], "7"), ("garbage", "7"), (SHOWN.format("FAILED", "None"), "17")):
        assert shown(text, job).state is JobState.UNKNOWN


@pytest.mark.parametrize("answer", ANSWERS["sbatch"], ids=str)
def test_the_job_id_is_found_in_what_a_sites_sbatch_prints(answer):
    assert job_id_of(answer["printed"]) == answer["job_id"]


def test_a_setting_of_the_cluster_is_read_where_its_line_is_whole():
    text = "Configuration data as of 2026-11-22\nClusterName             = alps\nX = 1"
    assert (setting(text, "ClusterName"), setting(text, "X"), setting(text, "Y")) == ("alps", "", "")


@pytest.mark.parametrize("reason", ANSWERS["never"])
def test_what_does_not_start_by_itself_says_so_and_what_its_user_can_do(reason):
    found = wait(reason)
    assert (found.never, bool(found.remedy), found.text != reason) == (True, True, True)


@pytest.mark.parametrize(("reason", "text"), ANSWERS["later"].items())
def test_what_starts_later_says_on_what_it_waits(reason, text):
    assert text in wait(reason).text
    assert not wait(reason).never
