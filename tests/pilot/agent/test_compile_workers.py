"""How many compiler processes the ranks of a node start."""

import os

import pytest

from sweep.pilot.agent.attempt import compile_workers

NAME = "TORCHINDUCTOR_COMPILE_THREADS"


@pytest.mark.parametrize(
    ("cores", "ranks", "given", "workers"),
    [(96, 8, None, "12"), (96, 1, None, "32"), (4, 8, None, "1"), (16, 1, None, "16"), (96, 8, "3", "3")],
)
def test_ranks_share_the_cores_unless_the_user_states_a_number(monkeypatch, cores, ranks, given, workers):
    monkeypatch.delenv(NAME, raising=False)
    if given:
        monkeypatch.setenv(NAME, given)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)))
    assert compile_workers(ranks) == {NAME: workers}
