"""Measured peaks and the memory model's predictions."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache

from sweep.physics import memory
from sweep.physics.profiles import profile_of
from sweep.physics.shapes import ModelShape
from tests.support.ranks.harness import DENSE, ForkServer, a_run
from tests.support.transformer.cases import case

LARGER = DENSE | {"hidden_size": 128, "intermediate_size": 384}


WATCHED = {"cpu_memory": True}


@cache
def peak_and_prediction(fork_server: ForkServer, words: str) -> tuple[int, float]:
    """Bytes of the heaviest rank, measured and by the memory model."""
    run = a_run(case(words).layout, shape=LARGER, sequence_length=128, params=WATCHED)
    measured = [rank.measurement for rank in fork_server.attempt(run)]
    assert all(one["memory_kind"].startswith("tensors alive") for one in measured)
    found = [one["peak_allocated_bytes"] for one in measured]
    facts = {"sequence_length": run.sequence_length, "dtype": run.dtype, "compile": run.compile}
    columns = {**ModelShape(**run.shape).as_dict(), **asdict(run.layout), **facts}
    profile = profile_of("transformer", {})
    return max(found), float(memory.peak_bytes(columns, profile))
