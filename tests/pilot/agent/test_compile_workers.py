"""How many compiler processes the ranks of a node start."""

from __future__ import annotations

import os

import pytest

from sweep.pilot.agent.attempt import compile_workers

NAME = "TORCHINDUCTOR_COMPILE_THREADS"


@pytest.mark.parametrize(("cores", "ranks", "workers"), [(96, 8, "12"), (96, 1, "32"), (4, 8, "1"), (16, 1, "16")])
def test_ranks_share_the_cores(monkeypatch, cores, ranks, workers):
    monkeypatch.delenv(NAME, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)))
    assert compile_workers(ranks) == {NAME: workers}


def test_the_users_own_number_stays(monkeypatch):
    monkeypatch.setenv(NAME, "3")
    assert compile_workers(8) == {NAME: "3"}
