"""`check_executor`: our own executors pass with real jobs, and each deviation of another is found."""

import pytest

from sweep.executors.executor import JobState, JobStatus
from sweep.executors.local import LocalExecutor
from sweep.executors.slurm import SlurmExecutor
from sweep.inputs.site import Site
from sweep.testing import ConformanceError, check_executor

SITE = Site(gpus_per_node=2, gpu="cpu")


def test_the_local_one_conforms(tmp_path):
    check_executor(LocalExecutor, SITE, tmp_path, timeout_s=20)


@pytest.mark.slurm
def test_the_one_for_slurm_conforms(slurm_cluster, tmp_path, monkeypatch):
    slurm_cluster.use(monkeypatch)
    check_executor(SlurmExecutor, SITE, tmp_path, timeout_s=60)
    slurm_cluster.wait_idle()


class Varies(LocalExecutor):
    def script(self, request):
        return f"{super().script(request)}# {id(object())} {request.__hash__()} {next(COUNT)}"


COUNT = iter(range(1000))


class NoSetUp(LocalExecutor):
    def script(self, request):
        return "sleep 600"


class FindsAnything(LocalExecutor):
    def find(self, token):
        return JobState.RUNNING, "1"


class FindsNothing(LocalExecutor):
    def find(self, token):
        return JobState.GONE, None


class AlwaysRuns(LocalExecutor):
    def poll(self, job_ids):
        return dict.fromkeys(job_ids, JobStatus(state=JobState.RUNNING))


class CancelsAll(LocalExecutor):
    mine: tuple[str, ...] = ()

    def submit(self, request):
        job = super().submit(request)
        CancelsAll.mine += (job,)
        return job

    def cancel(self, job_ids):
        super().cancel(self.mine)


class Fails(LocalExecutor):
    def poll(self, job_ids):
        raise TimeoutError("no answer")


@pytest.mark.parametrize(
    ("executor", "finding"),
    [
        (Varies, "script: differs for the same request"),
        (NoSetUp, "script: lacks the site's set-up lines"),
        (FindsAnything, "for a token that was never submitted, not (GONE, None)"),
        (FindsNothing, "find: another instance finds (<JobState.GONE: 'gone'>, None), not the running job"),
        (AlwaysRuns, "cancel: the job is running 2 s later, not GONE"),
        (AlwaysRuns, "poll: a job that ended is running after 2 s, not GONE"),
        (CancelsAll, "cancel: it cancelled one of two jobs, and the other is gone"),
        (Fails, "raised TimeoutError: no answer"),
    ],
)
def test_a_deviation_is_found(executor, finding, tmp_path):
    with pytest.raises(ConformanceError, match=f"the executor {executor.__name__} does not conform") as error:
        check_executor(executor, SITE, tmp_path, timeout_s=2)
    assert finding in "\n".join(error.value.findings)
