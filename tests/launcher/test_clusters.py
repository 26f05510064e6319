"""A sweep whose pilots are jobs of several clusters that share a file system: an id means nothing on another one."""

import time

import pytest

from sweep.launcher.launcher import Launcher
from sweep.launcher.watch import TIMEOUT_S, Watch
from sweep.state.events import AttemptStarted, PilotIntended, PilotStarted, PilotSubmitted
from sweep.store.journal import Journal
from tests.support import driving
from tests.support.launchers import Scheduler, written
from tests.support.made_sweeps import made


@pytest.mark.parametrize("submitted", [True, False])
@pytest.mark.parametrize(("here", "lost"), [("b", False), ("", False), ("a", True)])
def test_only_its_own_cluster_reports_that_a_job_is_gone(tmp_path, capsys, here, lost, submitted):
    existing = made(tmp_path / "s")
    directory, run_id = existing.directory, existing.runs[0].run_id
    now = time.time()
    intent = PilotIntended(time=now, pilot="p0001", token="s-p0001", nodes=1, time_limit_s=60, cluster="a")
    launcher, pilot = (Journal(directory.journal(name)) for name in ("launcher-earlier", "pilot-p0001"))
    launcher.append(intent)
    if submitted:
        launcher.append(PilotSubmitted(time=now, pilot="p0001", job_id="7"))
        pilot.append(PilotStarted(time=now, pilot="p0001", job_id="7", nodes=("n1",)))
        pilot.append(AttemptStarted(time=now, pilot="p0001", run_id=run_id, attempt=1, nodes=("n1",)))
    launcher = Launcher(existing)
    launcher.executor = Scheduler(cluster=here)
    launcher.local = True  # gone at the first answer
    watch = Watch(launcher)
    watch.check()
    watch.cancel_all()
    assert launcher.sweep.sweep_state.pilots["p0001"].open != lost
    assert len(driving.records_of(directory.path)) == int(lost and submitted)
    assert bool(launcher.executor.asked) == lost
    assert ("of a, and this host asks b" in capsys.readouterr().err) == (here == "b")
    launcher.close()


def test_a_pilot_of_this_machine_by_an_earlier_name_of_it_is_gone_once_it_wrote_nothing_for_long(tmp_path):
    """A new container has another name: nobody can ask for the processes of the one before."""
    existing = made(tmp_path / "s")
    directory, silent, alive = existing.directory, TIMEOUT_S + 1, 0.0
    for name, silent_s in (("p0001", silent), ("p0002", alive)):
        at = {"time": time.time() - silent_s, "pilot": name}
        intent = PilotIntended(**at, token=f"s-{name}", nodes=1, time_limit_s=60, cluster="earlier")
        written(directory, f"launcher-{name}", intent, PilotSubmitted(**at, job_id=f"local-{name}@earlier"))
        written(directory, f"pilot-{name}", PilotStarted(**at, job_id=f"local-{name}@earlier", nodes=("local-0",)))
    launcher = Launcher(existing)
    Watch(launcher).check()
    assert [pilot.name for pilot in launcher.open_pilots] == ["p0002"]
    launcher.close()
