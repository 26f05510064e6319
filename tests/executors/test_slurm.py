"""SlurmExecutor on real clusters, with and without accounting. Nothing of Slurm is mocked."""

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sweep.errors import SweepError
from sweep.executors.executor import Executor, JobState, JobStatus, PilotRequest, SubmitError
from sweep.executors.slurm import MOST_SHOWN, SlurmExecutor, clean_environment
from sweep.inputs.site import Site
from tests.support.clients import made_client
from tests.support.lying_slurm import LIES, LyingSlurm
from tests.support.slurm.cluster import Cluster
from tests.support.slurm.services import program, slurm_version, wait_until

pytestmark = pytest.mark.slurm

SITE = Site(gpus_per_node=2, gpu="h100", env={"FROM_SITE": '\'; echo "{{ }}" $(x)'})


@pytest.fixture(params=["accounting", "no accounting"])
def cluster(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    name = "slurm_cluster" if request.param == "accounting" else "slurm_cluster_no_accounting"
    cluster: Cluster = request.getfixturevalue(name)
    cluster.use(monkeypatch)
    yield cluster
    cluster.cancel_all()
    cluster.wait_idle()


@pytest.fixture
def accounting_cluster(slurm_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    slurm_cluster.use(monkeypatch)
    yield slurm_cluster
    slurm_cluster.cancel_all()
    slurm_cluster.wait_idle()


def executor(sweep_dir: Path, main: str = "report", site: Site = SITE) -> SlurmExecutor:
    (sweep_dir / "pilots").mkdir(parents=True, exist_ok=True)
    return SlurmExecutor(site, sweep_dir, pilot_main=f"tests.support.slurm.pilots:{main}")


def request_for(name: str, nodes: int = 2, time_limit_s: int = 600) -> PilotRequest:
    return PilotRequest(token=f"{name}-{time.time_ns()}", name=name, nodes=nodes, time_limit_s=time_limit_s)


def run_state(executor: Executor, job: str) -> JobStatus:
    return executor.poll([job])[job]


def until(executor: Executor, job: str, state: JobState, timeout_s: float = 30) -> JobStatus:
    assert wait_until(lambda: run_state(executor, job).state is state, timeout_s, 0.3), run_state(executor, job)
    return run_state(executor, job)


def test_a_pilot_runs_as_its_script_states(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "nowhere")
    monkeypatch.setenv("SBATCH_TIMELIMIT", "nonsense")
    monkeypatch.setenv("SLURM_HINT", "nomultithread")
    monkeypatch.setenv("SQUEUE_USERS", "no-user")
    sweep_dir = tmp_path / 'a sweep\'s "own" $(x) 100%% {{ }}; dir ü'
    slurm = executor(sweep_dir)
    request = request_for("p1")
    job = slurm.submit(request)
    until(slurm, job, JobState.GONE)
    here = sweep_dir / "pilots" / "p1"
    seen = json.loads((here / "seen.json").read_text())
    environment = seen["environment"]
    assert environment["FROM_SITE"] == '\'; echo "{{ }}" $(x)'
    assert environment["SWEEP_PILOT"] == request.token
    assert environment["SLURM_JOB_NUM_NODES"] == "2"
    assert environment["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert not [name for name in environment if name.startswith("SBATCH_")]
    assert "SLURM_HINT" not in environment
    assert seen["core_limit"] == [0, 0]
    assert seen["parent"] == "slurmstepd", "neither a shell nor srun is between Slurm and the leader"
    assert (here / "stdout").read_text().endswith("pilot p1\n") or "pilot p1" in (here / "stdout").read_text()
    assert "and on stderr" in (here / "stderr").read_text()
    assert (here / "pilot.sbatch").read_text() == slurm.script(request)


def test_states_from_submission_to_the_end(cluster: Cluster, tmp_path: Path) -> None:
    slurm = executor(tmp_path, "stay")
    first, second = slurm.submit(request_for("p1", nodes=8)), slurm.submit(request_for("p2", nodes=8))
    status = until(slurm, first, JobState.RUNNING)
    assert status.word == "RUNNING"
    assert wait_until(lambda: run_state(slurm, second).reason in {"Resources", "Priority"}, 20)
    waiting = run_state(slurm, second)
    assert (waiting.state, waiting.word) == (JobState.PENDING, "PENDING")
    assert wait_until((tmp_path / "pilots/p1/seen.json").exists, 30)
    slurm.cancel([first, second, "999999"])
    until(slurm, second, JobState.GONE)
    assert until(slurm, first, JobState.GONE).word in {"CANCELLED", "CANCELLED by 0", ""}
    assert (tmp_path / "pilots/p1/terminated").exists(), "SIGTERM reached the pilot, which had time to act"


def test_a_job_that_the_controller_forgot(cluster: Cluster, tmp_path: Path) -> None:
    """squeue drops a job after MinJobAge. sacct then knows how it ended; without it the job is just gone."""
    slurm = executor(tmp_path, "fail")
    request = request_for("p1", nodes=1)
    job = slurm.submit(request)
    until(slurm, job, JobState.GONE)
    if cluster.shape.accounting:
        cluster.stop_slurmctld()
        cluster.forget_jobs()
        assert wait_until(lambda: run_state(slurm, job).word == "FAILED", 20, 0.5)
        # By name, accounting may miss a job whose eligible time it lost (see find): gone it is in any case.
        assert slurm.find(request.token) in {(JobState.GONE, job), (JobState.GONE, None)}
    else:
        assert wait_until(lambda: job not in cluster.squeue(), 200, 1)
        assert run_state(slurm, job) == JobStatus(state=JobState.GONE)
        assert slurm.find(request.token) == (JobState.GONE, None)
    assert "fails on purpose" in (tmp_path / "pilots/p1/stderr").read_text()


def test_found_by_token(cluster: Cluster, tmp_path: Path) -> None:
    slurm = executor(tmp_path, "stay")
    request = request_for("p1")
    assert slurm.find(request.token) == (JobState.GONE, None)
    job = slurm.submit(request)
    assert slurm.find(request.token) in {(JobState.PENDING, job), (JobState.RUNNING, job)}
    until(slurm, job, JobState.RUNNING)
    assert slurm.find(request.token) == (JobState.RUNNING, job)
    assert slurm.find(request.token[:-1]) == (JobState.GONE, None)
    slurm.cancel([job])
    until(slurm, job, JobState.GONE)
    assert slurm.find(request.token) == (JobState.GONE, job)


def test_no_answer_that_is_damaged_old_of_another_job_or_missing_ends_a_living_one(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lying = LyingSlurm(tmp_path / "bin", os.environ["PATH"])
    monkeypatch.setenv("PATH", lying.path)
    slurm = executor(tmp_path, "stay")
    request = request_for("p1", nodes=1)
    assert slurm.find(request.token) == (JobState.GONE, None)  # an old answer is this one
    job = slurm.submit(request)
    until(slurm, job, JobState.RUNNING)
    for clients in (("squeue",), ("sacct", "scontrol"), ("squeue", "sacct", "scontrol")):
        for lie in [lie for lie in LIES if lie != "late"]:
            for client in clients:
                lying.begin(client, lie, 0)
            fresh = executor(tmp_path)
            states = [each.poll([job])[job] for each in (slurm, fresh)]
            found = [each.find(request.token) for each in (slurm, fresh)]
            for client in clients:
                lying.end(client)
            gone = [status for status in states if status.state is JobState.GONE and status.name in ("", request.token)]
            assert not gone, (clients, lie)
            if lie != "old":  # it is a whole answer: a second one, later, decides
                assert (JobState.GONE, None) not in found, (clients, lie)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))  # an upgrade replaces the clients
        assert (run_state(slurm, job).state, slurm.find(request.token)) == (JobState.UNKNOWN, (JobState.UNKNOWN, None))
    slurm.cancel([job])
    until(slurm, job, JobState.GONE)


def test_controller_down_means_unknown(
    accounting_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clients try again for MessageTimeout, by default 10 s each."""
    slurm = executor(tmp_path, "stay")
    request = request_for("p1")
    job = slurm.submit(request)
    impatient = tmp_path / "slurm.conf"
    impatient.write_text(f"{accounting_cluster.conf.read_text()}MessageTimeout=2\n")
    accounting_cluster.stop_slurmctld()
    try:
        monkeypatch.setenv("SLURM_CONF", str(impatient))
        status = slurm.poll([job, "1"])
        assert {s.state for s in status.values()} == {JobState.UNKNOWN}
        assert "Unable to contact slurm controller" in status[job].reason
        assert slurm.find(request.token) == (JobState.UNKNOWN, None)
        with pytest.raises(SubmitError, match="Unable to contact slurm controller") as refused:
            slurm.submit(request_for("p2"))
        assert refused.value.retry
        with pytest.raises(SubmitError, match="Unable to contact"):
            slurm.cancel([job])
    finally:
        accounting_cluster.use(monkeypatch)
        accounting_cluster.start_slurmctld()
    assert run_state(slurm, job).state in {JobState.PENDING, JobState.RUNNING}


def test_controller_too_slow_means_unknown(
    accounting_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.executors.slurm.QUERY_TIMEOUT_S", 1.0)
    monkeypatch.setattr("sweep.executors.slurm.SUBMIT_TIMEOUT_S", 1.0)
    slurm = executor(tmp_path, "stay")
    with accounting_cluster.slurmctld_frozen():
        assert slurm.poll(["1"])["1"].state is JobState.UNKNOWN
        with pytest.raises(SubmitError, match="did not answer within 1 s") as refused:
            slurm.submit(request_for("p1"))
    assert refused.value.retry


def test_a_timed_out_submission_is_found_and_runs(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller accepted, and its answer never came: the job exists all the same, and can start."""
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    made_client(sbatch, f'{program("sbatch")} "$@" > /dev/null\nexec sleep 60')
    request = request_for("p1")
    lasting = SITE.model_copy(update={"setup": ("sleep 10",)})  # a job that has ended is soon forgotten
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{sbatch.parent}:{os.environ['PATH']}")
        patch.setattr("sweep.executors.slurm.SUBMIT_TIMEOUT_S", 5.0)
        with pytest.raises(SubmitError, match="may have accepted the request") as late:
            executor(tmp_path, site=lasting).submit(request)
    assert late.value.retry
    slurm = executor(tmp_path)
    _, job = slurm.find(request.token)
    assert job is not None
    until(slurm, job, JobState.GONE)
    assert (tmp_path / "pilots/p1/seen.json").exists(), (tmp_path / "pilots/p1/stderr").read_text()


@pytest.mark.parametrize("pattern", ["%j", "%t", "%A", "%a", "\\"])
def test_a_path_that_submitit_or_slurm_would_rewrite_is_refused(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(SweepError, match=re.escape(f"holds {pattern}, which ")):
        executor(tmp_path / f"a{pattern}b").submit(request_for("p1"))
    assert [path.name for path in (tmp_path / f"a{pattern}b").rglob("*")] == ["pilots"]


def test_segments_are_refused_with_the_reason_where_slurm_has_none(accounting_cluster: Cluster, tmp_path: Path) -> None:
    """This one has no topology."""
    with pytest.raises(SweepError, match=r"topology/(none|default|flat) knows neither segments nor switches") as error:
        executor(tmp_path, site=SITE.model_copy(update={"segment": 2})).script(request_for("p0001"))
    assert "site.segment" in str(error.value)


@pytest.mark.parametrize(
    ("site", "words"),
    [
        ({"partition": "nowhere"}, "invalid partition"),
        ({"constraint": "nosuchfeature"}, "(?i)feature"),
        ({"reservation": "nosuch"}, "(?i)reservation"),
        ({"sbatch": ("--no-such-option=3",)}, "unrecognized option"),
        ({"sbatch": ("--gres=nosuchgres:4",)}, "(?i)gres"),
    ],
)
def test_permanent_rejections(accounting_cluster: Cluster, tmp_path: Path, site: dict[str, Any], words: str) -> None:
    slurm = executor(tmp_path, site=Site(gpus_per_node=2, gpu="h100", **site))
    with pytest.raises(SubmitError, match=words) as refused:
        slurm.submit(request_for("p1", nodes=1))
    assert not refused.value.retry


@pytest.mark.parametrize(
    "options",
    [("--mem-per-cpu=100M",), ("--mem-per-gpu=1G",), ("--mem=1G",), ("--ntasks-per-node=2", "--cpus-per-task=2")],
    ids=" ".join,
)
def test_options_that_a_site_demands_replace_ours(
    accounting_cluster: Cluster, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Slurm refuses --mem=0 together with another form of --mem; a site's plugin may demand --ntasks-per-node."""
    slurm = executor(tmp_path, site=Site(gpus_per_node=2, gpu="h100", sbatch=options))
    job = slurm.submit(request_for("p1"))
    until(slurm, job, JobState.GONE)
    assert (tmp_path / "pilots/p1/seen.json").exists(), (tmp_path / "pilots/p1/stderr").read_text()


def test_a_suspended_job_is_seen_as_such(cluster: Cluster, tmp_path: Path) -> None:
    slurm = executor(tmp_path, "stay")
    job = slurm.submit(request_for("p1", nodes=1))
    until(slurm, job, JobState.RUNNING)
    cluster.run("scontrol", "suspend", job)
    until(slurm, job, JobState.SUSPENDED)
    cluster.run("scontrol", "resume", job)
    until(slurm, job, JobState.RUNNING)


def test_the_name_and_the_end_of_a_job(cluster: Cluster, tmp_path: Path) -> None:
    slurm = executor(tmp_path, "stay")
    request = request_for("p1", nodes=1)
    job = slurm.submit(request)
    until(slurm, job, JobState.RUNNING)
    assert (run_state(slurm, job).name, run_state(slurm, job).ended_at) == (request.token, None)
    began = time.time()
    slurm.cancel([job])
    ended = until(slurm, job, JobState.GONE)
    if ended.name:  # without accounting the controller forgets it after 2 s
        assert ended.ended_at is not None
        assert began - 2 < ended.ended_at <= time.time() + 1
    assert slurm.cluster() == cluster.run("scontrol", "show", "config").partition("ClusterName")[2].split()[1]


@pytest.mark.long
def test_a_site_that_limits_the_range_of_queries(
    slurm_or_skip: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MaxQueryTimeRange binds users, not root: the clients run as another user here."""
    folder = tmp_path / "bin"
    folder.mkdir()
    made_client(folder / "sacct", f'exec runuser -u munge --preserve-environment -- {program("sacct")} "$@"')
    with Cluster(nodes=1, extra_slurmdbd="MaxQueryTimeRange=2-00:00:00\n") as cluster:
        cluster.use(monkeypatch)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        assert executor(tmp_path).find("never-submitted") == (JobState.GONE, None)


def test_many_ids_are_one_squeue(accounting_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,200 ids: one squeue, three sacct for what it does not list, and for a few of the others a question each."""
    calls = count_calls(tmp_path, monkeypatch)
    slurm = executor(tmp_path / "sweep")
    ids = [str(100_000 + i) for i in range(1200)]
    found = slurm.poll(ids)
    states = [found[job].state for job in ids]
    assert states == [JobState.GONE] * MOST_SHOWN + [JobState.UNKNOWN] * (1200 - MOST_SHOWN)
    assert calls() == ["squeue", "scontrol", "sacct", "sacct", "sacct", *["scontrol"] * MOST_SHOWN]
    slurm.poll(ids)
    assert calls()[5 + MOST_SHOWN :] == ["squeue", "sacct", "sacct", "sacct", *["scontrol"] * MOST_SHOWN]


def test_slurmdbd_down(accounting_cluster: Cluster, tmp_path: Path) -> None:
    """squeue's answer is enough to know a job gone, but not to say that a token was never submitted."""
    slurm = executor(tmp_path)
    request = request_for("p1", nodes=1)
    job = slurm.submit(request)
    until(slurm, job, JobState.GONE)
    accounting_cluster.stop_slurmdbd()
    try:
        assert run_state(slurm, job).state is JobState.GONE
        assert run_state(slurm, "999999").state is JobState.GONE
        assert slurm.find("no-such-token") == (JobState.UNKNOWN, None)
        assert slurm.find(request.token) == (JobState.GONE, job)
    finally:
        accounting_cluster.start_slurmdbd()


@pytest.mark.parametrize(
    ("extra", "limit", "words"),
    [
        ("MaxJobCount=3", None, "temporarily unable to accept job"),
        ("AccountingStorageEnforce=limits,qos", "MaxSubmitJobsPerUser=2", "QOSMaxSubmitJobPerUserLimit"),
    ],
)
def test_limits_on_numbers_of_jobs_may_work_later(
    slurm_or_skip: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: str, limit: str | None, words: str
) -> None:
    with Cluster(nodes=2, accounting=limit is not None, extra=extra) as cluster:
        cluster.use(monkeypatch)
        if limit:
            cluster.limit_user(limit)
        monkeypatch.setattr("sweep.executors.slurm.SUBMIT_TIMEOUT_S", 5.0)
        slurm = executor(tmp_path, "stay")
        for number in range(2 if limit or slurm_version() < (23, 0) else 3):  # 22.05 takes one less than MaxJobCount
            slurm.submit(request_for(f"p{number}"))
        with pytest.raises(SubmitError, match=words) as refused:
            slurm.submit(request_for("p9"))
        assert refused.value.retry


def test_a_limit_on_size_never_works(slurm_or_skip: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Cluster(nodes=2, extra="AccountingStorageEnforce=limits,qos") as cluster:
        cluster.use(monkeypatch)
        cluster.limit_user("MaxWallDurationPerJob=5")
        cluster.run("sacctmgr", "-i", "modify", "qos", "normal", "set", "Flags=DenyOnLimit")
        with pytest.raises(SubmitError, match="MaxWallDurationPerJobLimit") as refused:
            executor(tmp_path).submit(request_for("p1", time_limit_s=3600))
        assert not refused.value.retry


def test_two_submissions_at_once(cluster: Cluster, tmp_path: Path) -> None:
    slurm = executor(tmp_path)
    jobs: list[str] = []
    threads = [threading.Thread(target=lambda n=n: jobs.append(slurm.submit(request_for(n)))) for n in ("p1", "p2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(jobs)) == 2
    for job in jobs:
        until(slurm, job, JobState.GONE)
    assert sorted(path.parent.name for path in tmp_path.glob("pilots/*/seen.json")) == ["p1", "p2"]


def test_the_environment_that_slurm_sees() -> None:
    given = {"SLURM_CONF": "/c", "SLURM_JOB_ID": "1", "SBATCH_X": "", "SQUEUE_FORMAT": "", "HOME": "/h", "SLURMX": ""}
    expected = {"SLURM_CONF": "/c", "HOME": "/h", "SLURMX": "", "SLURM_TIME_FORMAT": "%s"}
    assert clean_environment(given) == expected


def count_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Wrappers ahead on PATH that note each call and then run the real client."""
    folder, log = tmp_path / "bin", tmp_path / "calls"
    folder.mkdir()
    for name in ("squeue", "sacct", "scontrol", "sbatch", "scancel"):
        made_client(folder / name, f'echo {name} >> {log}\nexec {program(name)} "$@"')
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return lambda: log.read_text().split()
