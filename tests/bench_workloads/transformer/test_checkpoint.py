"""Checkpoints: what one layout saves another restores, and goes on as if nothing had happened."""

import subprocess
from pathlib import Path

import pytest

from bench_workloads.transformer.checkpoint import newest
from sweep.diagnose.diagnose import diagnose
from sweep.diagnose.model import RankEnd
from sweep.outcomes import Outcome
from tests.support.mounts import mounted
from tests.support.ranks.harness import ForkServer
from tests.support.transformer.cases import Case, case
from tests.support.transformer.reference import truth
from tests.support.transformer.saving import SAVED_AT
from tests.support.transformer.truths import FP32, furthest

pytestmark = pytest.mark.parallel

MAIN = "tests.support.transformer.saving:"
LAYOUTS = [
    [
        case("dp=1"),
        case("dp=4 zero=0"),
        case("dp=2 zero=1"),
        case("dp=4 zero=2"),
        case("dp=2 zero=3"),
        case("tp=2"),
        case("pp=2"),
        case("cp=2"),
        case("tp=2", params={"fused_projections": False}),
        case("dp=2 tp=2 zero=3"),
        case("dp=2 tp=2 pp=2 zero=1 grad_accum=2"),
    ],
    [case("dp=2 zero=3", "tied"), case("pp=2 pp_schedule=zbv_zero_bubble", "tied"), case("tp=2", "tied")],
    [
        case("dp=2", "moe"),
        case("dp=2 ep=2 zero=3", "moe"),
        case("dp=2 ep=2 tp=2 zero=1", "moe"),
        case("dp=2 tp=2 ep=4 etp=1 zero=3", "moe"),
    ],
]
"""by model: what each layout saves it restores itself, and the next one does"""
PAIRS = [(a, b) for ring in LAYOUTS for a, after in zip(ring, [*ring[1:], ring[0]], strict=True) for b in (a, after)]


def attempt(fork_server: ForkServer, what: str, of: Case, directory: Path, kind: str = "sync"):
    run = Case(of.name, of.layout, of.shape, of.values, {**of.params, "checkpoint": kind}).run(
        iterations=2 * SAVED_AT - 1
    )
    ranks = fork_server.attempt(run, main=MAIN + what, checkpoint_dir=str(directory))
    return run, ranks


def assert_losses(run, ranks) -> None:
    true = truth(run)[0][SAVED_AT:]
    for rank in ranks:
        assert rank.exit == 0, rank.stderr
        assert furthest(rank.measurement["losses"], true) < FP32[0]


@pytest.mark.parametrize(
    "kind", ["async_pinned", *(pytest.param(k, marks=pytest.mark.long) for k in ("sync", "async"))]
)
def test_what_it_costs_is_measured(fork_server: ForkServer, tmp_path: Path, kind: str):
    run = case("dp=2 zero=3", params={"checkpoint": kind}).run()
    ranks = fork_server.attempt(run, checkpoint_dir=str(tmp_path / "here"))
    found = [rank.measurement["extra"] for rank in ranks]
    state = 12 * sum(rank.measurement["parameters"] for rank in ranks) + 4
    assert sum(extra["checkpoint_rank_bytes"] for extra in found) == found[0]["checkpoint_bytes"] == state
    for extra in found:
        assert extra["checkpoint_loss_difference"] < FP32[0]
        assert extra["checkpoint_slowdown"] == 0 or kind != "sync"
        assert (
            min(extra[f"checkpoint_{name}_s"] for name in ("stall", "durable", "restore", "restore_other_layout")) > 0
        )
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_there_is_one_clear_failure(fork_server: ForkServer, tmp_path: Path):
    run = case("dp=2", params={"checkpoint": "async"}).run()
    for rank in fork_server.attempt(run, checkpoint_dir=str(tmp_path / "missing" / "here")):
        assert rank.failure["type"] == "FileNotFoundError"
        assert str(tmp_path / "missing") in rank.failure["message"]


@pytest.mark.long
@pytest.mark.parametrize(("saved", "restored"), PAIRS, ids=str)
def test_another_layout_goes_on_from_it(fork_server: ForkServer, tmp_path: Path, saved: Case, restored: Case):
    kind = ("sync", "async", "async_pinned")[PAIRS.index((saved, restored)) % 3]
    assert_losses(*attempt(fork_server, "save", saved, tmp_path, kind))
    assert_losses(*attempt(fork_server, "restore", restored, tmp_path))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_after_a_kill_the_last_whole_one_is_restored_and_the_torn_one_named(
    fork_server: ForkServer, tmp_path: Path, kind: str
):
    _, ranks = attempt(fork_server, "killed", case("dp=2 tp=2 zero=3"), tmp_path, kind)
    assert ranks[-1].exit == -9
    whole, torn = newest(tmp_path)
    assert (whole.name, *(path.name for path in torn)) == ("step-000000002", "step-000000003")
    assert any((torn[0]).iterdir()), "it was to be killed while it writes"
    run, ranks = attempt(fork_server, "restore", case("pp=2"), tmp_path)
    assert_losses(run, ranks)
    assert all(rank.measurement["extra"]["torn"] == ["step-000000003"] for rank in ranks)
    (whole / ".metadata").unlink()
    with pytest.raises(FileNotFoundError, match="torn: step-000000002, step-000000003"):
        newest(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("state", ["full", "read-only"])
def test_a_full_or_read_only_file_system_is_one_clear_failure(fork_server: ForkServer, tmp_path: Path, state: str):
    with mounted(tmp_path, "-t", "tmpfs", "-o", "size=200k", "none"):
        if state == "read-only":
            subprocess.run(["mount", "-o", "remount,ro", str(tmp_path)], check=True)
        run = case("dp=2", params={"checkpoint": "async"}).run()
        ranks = fork_server.attempt(run, checkpoint_dir=str(tmp_path / "here"))
        ends = [RankEnd(rank=n, node="n", exit_code=1, failure=rank.failure) for n, rank in enumerate(ranks)]
        assert diagnose(ends).outcome is Outcome.DISK_FULL
        assert all(str(tmp_path) in rank.failure["message"] for rank in ranks)
        assert list(tmp_path.iterdir()) == []
