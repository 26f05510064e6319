"""What a launcher in the test's own process asks: a scheduler and a clock that the test sets."""

import time
from types import SimpleNamespace

from sweep.executors.executor import JobState, JobStatus
from sweep.state.events import Event
from sweep.store.directory import SweepDir
from sweep.store.journal import Journal


def written(directory: SweepDir, writer: str, *events: Event) -> Journal:
    """A journal with these events, still open."""
    journal = Journal(directory.journal(writer))
    for event in events:
        journal.append(event)
    return journal


class Scheduler:
    """Takes every pilot, and reports the same state for every job, after a while; knows the jobs of these tokens, and
    records what it was asked for and sent."""

    def __init__(self, state=JobState.GONE, wait=lambda: None, *, cluster="here", jobs=None):
        self.state, self.wait, self.jobs = state, wait, jobs or {}
        self.polls, self.cancelled, self.asked, self.submitted = 0, [], [], []
        self._cluster = cluster

    def cluster(self):
        return self._cluster

    def script(self, request):
        return request.name

    def submit(self, request):
        self.submitted.append(request)
        return str(len(self.submitted))

    def poll(self, job_ids):
        self.wait()
        self.polls += 1
        self.asked += job_ids
        return dict.fromkeys(job_ids, JobStatus(state=self.state, word=self.state.name))

    def find(self, token):
        self.asked.append(token)
        return (JobState.RUNNING, self.jobs[token]) if token in self.jobs else (JobState.GONE, None)

    def cancel(self, job_ids):
        self.asked += job_ids
        self.cancelled += job_ids


class Clock:
    """The monotonic clock of these modules, set by the test."""

    def __init__(self, monkeypatch, *modules):
        self.now = 1000.0
        for module in modules:
            monkeypatch.setattr(f"{module}.time", SimpleNamespace(monotonic=lambda: self.now, time=time.time))
